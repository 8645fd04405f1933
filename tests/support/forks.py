"""Forks: calls in processes of their own that need not import TensorFlow.

That import takes five seconds in each process.
"""
from __future__ import annotations

import faulthandler
import os
import pathlib
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

from lingpipe.process import fork_server

ROOT = str(pathlib.Path(__file__).parents[2])

_context = fork_server.context(
    'lingpipe.tools',   # It makes TensorFlow's import quiet and quick.
    'lingpipe.training.registry', 'lingpipe.commands.train',
    'lingpipe.commands.decode', 'lingpipe.cluster.server', 'numpy.random', 'tensorboard.summary')


def run_module(name: str, *flags: str) -> None:
    """Runs a module as python -m NAME FLAGS does."""
    sys.argv = [name, *flags]
    runpy.run_module(name, run_name='__main__', alter_sys=True)


def run_unread(name: str, *flags: str) -> None:
    """Does what `run_module` does, with a standard output that nobody reads.

    That is the standard output of NAME in NAME | head once head has ended.
    """
    reader, writer = os.pipe()
    os.close(reader)
    os.dup2(writer, 1)
    run_module(name, *flags)


def run_on_full_disk(name: str, *flags: str) -> None:
    """Does what `run_module` does, with a standard output that goes to a file on a full disk."""
    full = os.open('/dev/full', os.O_WRONLY)
    os.dup2(full, 1)
    run_module(name, *flags)


def environment() -> dict[str, str]:
    """Returns the environment of a quiet process that imports experiments of tests.support."""
    return {**os.environ, 'PYTHONPATH': ROOT, 'TF_CPP_MIN_LOG_LEVEL': '2'}


def run(command: Sequence[str], **_: Any) -> subprocess.CompletedProcess[str]:
    """Does what `subprocess.run` does with [sys.executable, '-m', NAME, FLAGS...], in a fork.

    The output is always captured.
    """
    python, option, name, *flags = command
    assert (python, option) == (sys.executable, '-m')
    process = Fork(run_module, name, *flags)
    out, err = process.communicate()
    assert process.returncode is not None
    return subprocess.CompletedProcess(command, process.returncode, out, err)


class Fork:
    """A call in a process of its own, used like a subprocess.Popen.

    The process is a fork of one that has imported TensorFlow but not started it. What it becomes by
    exec (for example a trainer that has lost a worker) is a process like any other.
    """

    def __init__(self, call: Callable[..., int | None], *args: Any, stdin: str = '',
                 env: Mapping[str, str] = os.environ, cwd: Any = '.'):
        """
        Args:
          call: a function that a module has under its name, like run_module. It returns the exit
            code.
          args: its arguments.
          stdin: all of its standard input, which is a pipe; a few kilobytes.
          env: its environment; PYTHONPATH counts.
          cwd: its directory.
        """
        self.returncode: int | None = None
        self._output: tuple[str, str] | None = None

        self._printed = [tempfile.NamedTemporaryFile('r', encoding='utf-8', newline='')
                         for _ in range(2)]
        names = [file.name for file in self._printed]

        read, write = _context.Pipe(duplex=False)
        self._process = _context.Process(
            target=_run, args=(call, args, dict(env), str(cwd), read, *names), daemon=True)
        with read, write:
            self._process.start()
            os.write(write.fileno(), stdin.encode())

        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """Returns the exit code, once there is one."""
        self.returncode = self._process.exitcode
        return self.returncode

    def printed(self) -> str:
        """Returns what has been printed so far, without errors."""
        return pathlib.Path(self._printed[0].name).read_text(encoding='utf-8')

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Waits for the end, and returns everything that was printed: output and errors."""
        self._process.join(timeout)
        assert self.poll() is not None, f'process {self.pid} has not ended within {timeout} s'
        if self._output is None:
            out, err = (file.read() for file in self._printed)
            self._output = out, err
            for file in self._printed:
                file.close()
        return self._output

    def wait(self) -> int:
        """Waits for the end, and returns the exit code."""
        self.communicate()
        assert self.returncode is not None
        return self.returncode

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()


def _run(call: Callable[..., int | None], args: tuple[Any, ...], env: Mapping[str, str], cwd: str,
         stdin: Connection, *names: str) -> None:
    """Sets up files, environment, path and directory as a command has them, and makes the call."""
    with stdin:
        os.dup2(stdin.fileno(), 0)
    for number, name in enumerate(names, 1):
        descriptor = os.open(name, os.O_WRONLY | os.O_APPEND)
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin, sys.stdout = (open(number, mode, encoding='utf-8', closefd=False)
                             for number, mode in enumerate('rw'))
    sys.stderr = open(2, 'w', encoding='utf-8', buffering=1, closefd=False)
    faulthandler.enable()   # SIGABRT prints the stacks of all threads.
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.path[:0] = filter(None, env.get('PYTHONPATH', '').split(os.pathsep))
    sys.exit(call(*args))
