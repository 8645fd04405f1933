"""TensorFlow's import: without notices on stderr, or with a clear sentence if it is missing.

The obvious way is to set TF_CPP_MIN_LOG_LEVEL, but it cannot hold back what TensorFlow's libraries
write while they are loaded, such as the notice about oneDNN. File descriptor 2 therefore leads to
memory during the import, and what was written is shown only if the import fails. A user who sets
TF_CPP_MIN_LOG_LEVEL to 0 or 1 sees everything.

The garbage collector would look at the 300,000 objects of the modules again and again while they
come, and find nothing, for a quarter of the time of the import. It waits until they are there.
"""
from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib.abc
import importlib.machinery
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType

LOG_LEVEL = 'TF_CPP_MIN_LOG_LEVEL'   # environment variable: 0 all, 1 warnings, 2 errors, 3 nothing


def check_installed() -> None:
    """Raises ModuleNotFoundError, with the remedy, if there is no TensorFlow; imports nothing."""
    if 'tensorflow' not in sys.modules and importlib.util.find_spec('tensorflow') is None:
        raise ModuleNotFoundError(
            "TensorFlow is not installed, and lingpipe does not choose one of its builds; run "
            "pip install tensorflow-cpu, or pip install 'tensorflow[and-cuda]' for NVIDIA GPUs.",
            name='tensorflow')


def quiet(is_own_process: bool = False) -> None:
    """Makes the first import of TensorFlow in this process write nothing to stderr.

    It does nothing if TensorFlow is imported already, or if the environment asks for its messages.

    Args:
      is_own_process: whether the process is lingpipe's own, such as the trainer's. In a notebook,
        Keras imports matplotlib together with TensorFlow, to draw galleries of images. Here it does
        not: that would take a tenth of the time of the import.
    """
    os.environ.setdefault(LOG_LEVEL, '2')
    shows_all = os.environ[LOG_LEVEL] in ('0', '1')
    is_hooked = any(isinstance(finder, _QuietFinder) for finder in sys.meta_path)
    if not shows_all and not is_hooked and 'tensorflow' not in sys.modules:
        sys.meta_path.insert(0, _QuietFinder(is_own_process))


class _QuietFinder(importlib.abc.MetaPathFinder):
    """Finds TensorFlow on the path, and lets it be loaded quietly."""

    def __init__(self, is_own_process: bool):
        self._is_own_process = is_own_process

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
                  ) -> importlib.machinery.ModuleSpec | None:
        """Returns the spec of tensorflow; for other modules None, which asks the other finders."""
        if fullname != 'tensorflow':
            return None

        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _QuietLoader(spec.loader, self._is_own_process)
        return spec


class _QuietLoader(importlib.abc.Loader):
    """A loader that runs the module while stderr is held back."""

    def __init__(self, loader: importlib.abc.Loader, is_own_process: bool):
        self._loader, self._is_own_process = loader, is_own_process

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """Creates the module as the wrapped loader does."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Runs the module with the wrapped loader, which stays the loader of the module."""
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader
        hidden = hidden_matplotlib() if self._is_own_process else contextlib.nullcontext()
        with held_back_stderr(), hidden, no_garbage_collection():
            self._loader.exec_module(module)
        if self._is_own_process:
            gc.freeze()   # The modules live as long as the process.


@contextlib.contextmanager
def held_back_stderr() -> Iterator[None]:
    """Holds back what is written to file descriptor 2, and shows it only if the body raises.

    That includes what libraries write. If the process crashes in the body, stderr gets Python's
    traceback of the place.
    """
    try:
        stderr = os.dup(2)
    except OSError:   # the process has no stderr
        yield
        return

    if sys.stderr is not None:
        sys.stderr.flush()
    shows_crashes_already = faulthandler.is_enabled()
    with open(os.memfd_create('stderr'), 'w+b') as held:
        os.dup2(held.fileno(), 2)
        if not shows_crashes_already:
            faulthandler.enable(stderr)
        try:
            yield
        except BaseException:
            held.seek(0)
            with open(stderr, 'wb', closefd=False) as file:
                shutil.copyfileobj(held, file)
            raise
        finally:
            if not shows_crashes_already:
                faulthandler.disable()
            os.dup2(stderr, 2)
            os.close(stderr)


@contextlib.contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Stops the garbage collector in the body, if it runs."""
    if not gc.isenabled():
        yield
        return

    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextlib.contextmanager
def hidden_matplotlib() -> Iterator[None]:
    """Lets the imports of the body find no matplotlib, unless it has been imported before."""
    if 'matplotlib' in sys.modules:
        yield
        return

    sys.modules['matplotlib'] = None   # type: ignore[assignment]   # Python's mark of no module
    try:
        yield
    finally:
        del sys.modules['matplotlib']
