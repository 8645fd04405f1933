"""Workers and trainers on loopback, for tests of what happens when they are lost."""
from __future__ import annotations

import contextlib
import os
import pathlib
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from lingpipe.cluster import ports, server
from lingpipe.input import readers
from tests.support import tiny_experiment
from tests.support.forks import Fork, environment, run_module

# Workers import the module, as they do if they are given this flag.
TINY = f'--model={tiny_experiment.__name__}.Tiny'


def serve(address: str, devices: str, hangs_after_s: float) -> None:
    """Does what --mode=worker does, with another patience."""
    config = server.session_config(devices)
    server.serve(address, config, hangs_after_s, lambda: readers.offer_in_worker(config))


class Worker:
    """A worker process whose server is killed when it hangs for hangs_after_s."""

    def __init__(self, address: str = '', devices: str = '', hangs_after_s: float = 2.):
        self.address = address or f'127.0.0.1:{ports.free_port()}'
        self.process = Fork(serve, self.address, devices, hangs_after_s, env=environment())

    def server(self) -> int:
        """The process id of TensorFlow's server."""
        return server_of(self.process.pid)

    def wait(self) -> None:
        """Waits until the worker answers."""
        wait_until(lambda: server.answers(*ports.split_address(self.address), 1.))

    def stop(self) -> str:
        """Kills the worker, and returns its standard error."""
        self.process.kill()
        return self.process.communicate()[1]


def server_of(pid: int) -> int:
    """Returns the process id of the server of a worker."""
    path = pathlib.Path(f'/proc/{pid}/task/{pid}/children')
    return int(wait_until(lambda: path.read_text().split())[0])


@contextlib.contextmanager
def workers(num: int, devices: str = '', hangs_after_s: float = 2.) -> Iterator[list[Worker]]:
    """Starts some workers, which end with the block. An error of the block gets what they said."""
    made = [Worker(devices=devices, hangs_after_s=hangs_after_s) for _ in range(num)]
    try:
        yield made
    except Exception as error:
        for one in made:
            error.add_note(f'{one.address} said: {one.stop()[-1000:]}')
        raise
    finally:
        for one in made:
            one.stop()


class Trainer:
    """A trainer process and its log."""

    def __init__(self, logdir: pathlib.Path, addresses: list[str], *flags: str, model: str = TINY,
                 mode: str = 'train', stdin: str = ''):
        self.logdir = logdir
        self.process = Fork(run_module, 'lingpipe.trainer', model, f'--logdir={logdir}',
                            f'--mode={mode}', f'--devices={",".join(addresses)}', *flags,
                            stdin=stdin, env=environment())

    def log(self) -> str:
        path = self.logdir / 'train.log'
        return path.read_text() if path.exists() else ''

    def wait_for_step(self, step: int) -> None:
        """Waits until the log has this step or a later one."""
        def reached() -> bool:
            assert self.process.poll() is None, self.process.communicate()[1]
            return any(int(found) >= step
                       for found in re.findall(r'^step (\d+)/', self.log(), re.MULTILINE))
        wait_until(reached)

    def wait_for_file(self, path: pathlib.Path) -> None:
        """Waits until the trainer has written a file. An error says where it is instead."""
        def is_written() -> bool:
            assert self.process.poll() is None, self.process.communicate()[1]
            return path.exists()
        try:
            wait_until(is_written, 120.)
        except AssertionError as error:
            if self.process.poll() is None:
                os.kill(self.process.pid, signal.SIGABRT)   # It prints the stacks of its threads.
                error.add_note(self.process.communicate(timeout=60)[1])
            raise

    def end(self, code: int = 0) -> str:
        """Waits for the end of the trainer, and returns its log."""
        _, err = self.process.communicate(timeout=400)
        assert self.process.returncode == code, err + self.log()
        return self.log()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def wait_until(is_true, timeout_s: float = 300.):
    """Waits until is_true() is true, and returns its value."""
    deadline_s = time.monotonic() + timeout_s
    while not (found := is_true()):
        assert time.monotonic() < deadline_s, f'not within {timeout_s} s'
        time.sleep(0.02)
    return found


def checkpoint_of(logdir: pathlib.Path, step: int) -> dict[str, np.ndarray]:
    """Returns the arrays of a checkpoint by name."""
    reader = tf.train.load_checkpoint(f'{logdir}/checkpoints/step-{step:08d}/variables')
    return {name: reader.get_tensor(name)
            for name in reader.get_variable_to_shape_map() if name.startswith('variables/')}


class Cable:
    """A connection to an address that can be cut.

    It has an address of its own, and passes on what is sent to it.
    """

    def __init__(self, to: str):
        self._to = ports.split_address(to)
        self._listener = socket.create_server(('127.0.0.1', 0))
        self.address = f'127.0.0.1:{self._listener.getsockname()[1]}'
        self._open: list[socket.socket] = []
        self.is_cut = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Breaks all connections, and every new one until `is_cut` is False again."""
        self.is_cut = True
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.cut()
        self._listener.close()
        for one in self._open:
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                try:
                    if self.is_cut:
                        raise OSError
                    far = socket.create_connection(self._to)
                except OSError:
                    near.close()
                    continue
                self._open += [near, far]
                for a, b in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=(a, b), daemon=True).start()

    def _pass_on(self, a: socket.socket, b: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := a.recv(1 << 16):
                b.sendall(data)
        for one in (a, b):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


