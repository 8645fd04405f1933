"""Registry: the experiments that have a name.

    @register
    class AmoebaNet:                         # in params/image/digits.py: image.digits.AmoebaNet
        '''An AmoebaNet on the digits.'''    # --list prints the first line

        @classmethod
        def params(cls) -> Experiment.Params:
            ...

A class in params/ is named by its place below params/; a class anywhere else on the path by its
whole dotted name. There is no table of names: the decorator marks the class, and modules are looked
into when a name is asked for.

Another package has its experiments listed by an entry point that names its module, or its package
with all that is in it. In its pyproject.toml:

    [project.entry-points."lingpipe.experiments"]
    robots = "robots.experiments"                   # robots.experiments.arms.Reach
"""
from __future__ import annotations

import difflib
import importlib
import inspect
import pkgutil
import sys
from importlib import metadata
from types import ModuleType
from typing import Any, TypeVar

from lingpipe.process.error_text import sentence
from lingpipe.training.experiment import Experiment

ROOT = 'lingpipe.params'   # the package whose name is left out
GROUP = 'lingpipe.experiments'   # of entry points
_MARK = '_is_registered_experiment'

_NOT_REGISTERED = 'is a class but not a registered experiment; put @register above it.'

C = TypeVar('C', bound=type)


def register(cls: C) -> C:
    """Class decorator: checks the class and marks it as an experiment.

    Raises:
      ValueError: no docstring, no `params` that can be called without arguments, or a second
        class of that name in the module.
    """
    name = f'{cls.__module__}.{cls.__qualname__}'
    if not inspect.cleandoc(cls.__doc__ or ''):
        raise ValueError(f'experiment {name} has no docstring; say what it trains, the command, '
                         f'and what to expect: --list prints its first line.')
    _check_method(name, cls)
    if '.' in cls.__qualname__:
        raise ValueError(f'experiment {name} is defined inside another class or function; move it '
                         f'to the top of its module.')

    module = sys.modules.get(cls.__module__)
    # Only while a file is first run: a cell of a notebook, or a module that is reloaded, may define
    # a class again.
    is_loading = getattr(getattr(module, '__spec__', None), '_initializing', False)
    if is_loading and _is_experiment(vars(module).get(cls.__name__)):
        raise ValueError(f'two experiments are named {name}; rename one of them.')
    setattr(cls, _MARK, True)
    return cls


def _check_method(name: str, cls: type) -> None:
    """Raises ValueError unless a class has a method `params` that needs no arguments."""
    make = inspect.getattr_static(cls, 'params', None)
    function = make.__func__ if isinstance(make, classmethod | staticmethod) else make
    if not inspect.isfunction(function):
        raise ValueError(f'experiment {name} has no method params; write @classmethod def '
                         f'params(cls) -> Experiment.Params.')

    parameters = inspect.signature(function).parameters.values()
    needed = [p.name for p in parameters
              if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    expected = 0 if isinstance(make, staticmethod) else 1
    if len(needed) != expected:
        listed = ', '.join(needed[expected:]) or '(none, not even cls)'
        raise ValueError(f'experiment {name}: params needs the arguments {listed}; it is called '
                         f'without any: use @classmethod def params(cls), and give the others '
                         f'defaults.')


def get(name: str) -> Experiment.Params:
    """The Params of an experiment, not frozen.

    Args:
      name: 'image.digits.AmoebaNet', of a class in params/image/digits.py; or the dotted name of
        any importable class.

    Raises:
      ValueError: there is no such experiment (it names the nearest), its module cannot be
        imported, or its params() fails.
    """
    return params_of(find(name), name)


def params_of(cls: Any, name: str = '') -> Experiment.Params:
    """The Params of a registered class, not frozen.

    Args:
      cls: the class, which need not be importable: it may be one of a notebook.
      name: what errors call it; default: its own.

    Raises:
      ValueError: it is not registered, or its params() fails.
    """
    name = name or f'{cls.__module__}.{cls.__qualname__}'
    if not _is_experiment(cls):
        raise ValueError(f'{name} {_NOT_REGISTERED}')
    make: Any = inspect.getattr_static(cls, 'params')
    try:
        params = cls.params() if isinstance(make, classmethod | staticmethod) else cls().params()
    except Exception as error:   # Experiments are anyone's code.
        raise ValueError(f'{name}.params() fails: {sentence(error)}; correct that '
                         f'method.') from error
    if not isinstance(params, Experiment.Params):
        raise ValueError(f'{name}.params() returns {type(params).__qualname__}, not '
                         f'Experiment.Params; return those.')
    return params


def find(name: str) -> Any:
    """The registered class of a name; see `get`."""
    module_name, _, class_name = name.rpartition('.')
    for full in (f'{ROOT}.{module_name}', module_name) if module_name else (ROOT,):
        module = _import(full)
        value = vars(module).get(class_name) if module else None
        if _is_experiment(value):
            return value
        if isinstance(value, type):
            raise ValueError(f'{full}.{class_name} {_NOT_REGISTERED}')

    known, broken = find_all()
    near = difflib.get_close_matches(name, known, 3, 0.5)
    near += [other for other in known
             if other.rpartition('.')[2] == class_name and other not in near]
    hint = 'see --list for all, or name a class that can be imported, as mypkg.exps.Foo.'
    if near:
        hint = f'did you mean {" or ".join(near)}?'
    errors = ''.join(
        f' ({module} cannot be imported: {error}.)' for module, error in broken.items())
    raise ValueError(f'there is no experiment {name!r}; {hint}{errors}')


def find_all() -> tuple[dict[str, Any], dict[str, str]]:
    """Imports every module below params/, and those that installed packages name in their metadata.

    Returns:
      name -> class, sorted by name; and module -> error, of the modules that cannot be imported.
    """
    experiments, broken = _experiments_below(ROOT)
    for entry_point in metadata.entry_points(group=GROUP):
        theirs, their_broken = _experiments_of(entry_point)
        experiments |= theirs
        broken |= their_broken
    return dict(sorted(experiments.items())), dict(sorted(broken.items()))


def _experiments_of(entry_point: metadata.EntryPoint) -> tuple[dict[str, Any], dict[str, str]]:
    """As `find_all`, of the package or module that an entry point names."""
    package = entry_point.dist.name if entry_point.dist else '?'
    module, _, attribute = entry_point.value.partition(':')
    place = f'{entry_point.value!r} (entry point {entry_point.name} of the package {package})'
    if attribute:
        return {}, {place: f'it must be a module; write {module.strip()!r}'}

    experiments, broken = _experiments_below(module)
    return experiments, {place if name == module else name: error for name, error in broken.items()}


def _experiments_below(package: str) -> tuple[dict[str, Any], dict[str, str]]:
    """As `find_all`, of a module or of a package with all that is in it."""
    experiments: dict[str, Any] = {}
    broken: dict[str, str] = {}
    queue = [package]
    while queue:
        module_name = queue.pop()
        try:
            module = _import(module_name)
        except ValueError as error:
            broken[module_name] = str(error.__cause__ or error)
            continue
        if module is None:
            broken[module_name] = f'there is no module {module_name!r}'
            continue

        for value in vars(module).values():
            if _is_experiment(value) and value.__module__ == module_name:
                name = f'{module_name}.{value.__name__}'
                experiments[name.removeprefix(f'{ROOT}.')] = value
        if hasattr(module, '__path__'):
            queue += [f'{module_name}.{info.name}' for info in pkgutil.iter_modules(module.__path__)
                      if info.name != '__main__']
    return experiments, broken


def import_module(name: str) -> None:
    """Imports a module that a flag names, so that the text of Params may name its classes.

    Raises:
      ValueError: there is no such module, or it cannot be imported.
    """
    if _import(name) is None:
        raise ValueError(f'there is no module {name!r}; correct its name, or put it on the path.')


def all_names() -> list[str]:
    """The names of all experiments below params/.

    Raises:
      ValueError: modules that cannot be imported, each named with its error. `find_all` gives
        the others, and those of other packages.
    """
    experiments, broken = _experiments_below(ROOT)
    if broken:
        raise ValueError('; '.join(
            f'{module} cannot be imported: {error}' for module, error in broken.items()))
    return sorted(experiments)


def summary(cls: Any) -> str:
    """The first line of an experiment's docstring."""
    return inspect.cleandoc(cls.__doc__).split('\n')[0]


def _is_experiment(value: Any) -> bool:
    """Whether a value is a registered class. A subclass of one is not, unless it has @register."""
    return isinstance(value, type) and _MARK in vars(value)


def _import(name: str) -> ModuleType | None:
    """The module, or None if there is none of that name."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f'{error.name}.')):
            return None
        raise ValueError(f'{name} cannot be imported: {error}') from error
    except (Exception, SystemExit) as error:   # whatever the module's own code raises
        raise ValueError(f'{name} cannot be imported: {type(error).__name__}: {error}') from error
