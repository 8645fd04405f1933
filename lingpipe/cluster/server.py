"""Server: a worker, which is TensorFlow's server in a process of its own, and a process above it.

The process above starts another server whenever a server ends or hangs:

    --mode=worker     imports TensorFlow, which takes seconds, and never starts it
     `- server        a fork; ends when it is killed, when a controller wants a new one, or when the
                      process above ends

So a worker is back a moment after its server was lost, at the same address, with empty memory.

What ends a whole tree of processes, or all pods of a job, sends a worker SIGTERM together with its
trainer, which has yet to save what the worker holds. So a worker that serves a trainer goes on
until the trainer has let go of it, for at most LAST_S seconds.

The obvious way is a supervisor such as supervisord, circus or systemd. But they start a program
from its beginning, and so would import TensorFlow each time. multiprocessing forks too, but its
child survives when the parent is killed, and a process that is itself a daemonic child cannot start
one. psutil watches processes, but for children it offers no more than os.waitpid. So the forks are
made and watched by hand, in 50 lines.

A gRPC server speaks first (RFC 9113, 3.4), so its first byte shows that it answers, and no library
is needed. grpcio would leave six threads in the process that asks. That is the process that forks,
and since 3.12 Python warns that forks of a process with threads can hang.
"""
from __future__ import annotations

import ctypes
import errno
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import NoReturn

import tensorflow as tf

from lingpipe.cluster import address_filter, ports, workers
from lingpipe.process import closed_pipe, environment, exit_code, tensorflow_settings
from lingpipe.process.stop_signals import StopSignals

LAST_S = 120.           # how long a worker serves its trainer after SIGTERM
_LOOK_EVERY_S = 1.0
_MOST_FAILURES = 5      # of servers one after another, at once, before a worker gives up
_LOOK_AT_END_EVERY_S = 0.2
TAKEN_FOR_S = 5.0       # how long a worker that has just been killed can hold its port
_PR_SET_PDEATHSIG = 1    # linux/prctl.h


def session_config(devices: str, intra_op_threads: int = 1, use_graph_optimizer: bool = False
                   ) -> tf.compat.v1.ConfigProto:
    """Returns the settings of a server, which takes nothing from tf.config.

    Args:
      devices: cpu:4, gpu, gpu:0-3, or '' for all GPUs, or for one CPU if there is none.
      intra_op_threads: as in the experiment, since sums depend on it.
      use_graph_optimizer: as in the pipeline.

    Raises:
      ValueError: `devices` is something else.
    """
    kind, first, last = _parsed(devices or 'gpu')
    num_cpus = int(first or 1) if kind == 'cpu' else 1
    device_count = {'CPU': num_cpus}
    if kind == 'cpu':
        device_count['GPU'] = 0

    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=intra_op_threads,
                                      inter_op_parallelism_threads=max(2, num_cpus),
                                      device_count=device_count)
    config.gpu_options.allow_growth = True
    if kind == 'gpu' and first:
        numbers = range(int(first), int(last or first) + 1)
        config.gpu_options.visible_device_list = ','.join(map(str, numbers))
    config.graph_options.rewrite_options.disable_meta_optimizer = not use_graph_optimizer
    return config


def check_gpus(devices: str) -> None:
    """Raises ValueError if `devices`, as session_config takes it, names GPUs that do not exist.

    TensorFlow would serve its CPU instead.
    """
    kind, first, last = _parsed(devices or 'cpu')
    if kind == 'cpu':
        return

    # A process that has looked for GPUs cannot use CUDA in its forks, so a fork counts them.
    counter = os.fork()
    if not counter:
        os._exit(min(255, len(tf.config.list_physical_devices('GPU'))))
    num_gpus = max(0, os.waitstatus_to_exitcode(os.waitpid(counter, 0)[1]))
    if num_gpus <= int(last or first or 0):
        raise ValueError(f'--devices={devices}, but this machine has {num_gpus} GPUs that '
                         'TensorFlow can use; name those, or cpu:N.')


def _parsed(devices: str) -> tuple[str, str | None, str | None]:
    """Returns 'cpu' or 'gpu', the first number, and the last number."""
    match = re.fullmatch(r'(cpu|gpu)(?::(\d+)(?:-(\d+))?)?', devices)
    if match:
        kind, first, last = match.groups()
        largest = max(int(first or 0), int(last or 0))
        is_wrong_cpu = kind == 'cpu' and (last or first == '0')
        if largest <= tensorflow_settings.MAX_DEVICES and not is_wrong_cpu:
            return kind, first, last
    raise ValueError(f'--devices={devices} of a worker; write the devices that it has: cpu:4, gpu, '
                     'or gpu:0-3.')


def serve(address: str, config: tf.compat.v1.ConfigProto, hangs_after_s: float,
          prepare: Callable[[], object] | None = None) -> NoReturn:
    """Serves at 'host:port' until SIGTERM; the host 0.0.0.0 means all addresses of this machine.

    Args:
      address: 'host:port'.
      config: made by session_config.
      hangs_after_s: a server that has not answered for so long is killed, and another is started.
      prepare: called in the process of each server before it starts.

    Raises:
      ValueError: the address is malformed.
      OSError: the host is not this machine, the port is taken at this or another address of it,
        this system cannot hold a server to the host, or no server can start.
      SystemExit: SIGTERM came.
    """
    host, port = ports.split_address(address)
    _wait_for_port(host, port)
    address_filter.check_system(host)   # checked once, or every server would fail in turn

    closed_pipe.say(f'worker at {address}, process {os.getpid()}', sys.stdout)
    with StopSignals([signal.SIGTERM], 'this worker ends at once') as stop:
        _serve_until(stop, address, config, hangs_after_s, prepare)
    sys.exit(128 + signal.SIGTERM)


def _serve_until(stop: StopSignals, address: str, config: tf.compat.v1.ConfigProto,
                 hangs_after_s: float, prepare: Callable[[], object] | None) -> None:
    """Starts a server whenever the one before has ended, until a signal comes.

    Raises:
      OSError: no server can start.
    """
    host, port = ports.split_address(address)
    num_failures = 0
    while num_failures < _MOST_FAILURES:
        started_s = time.monotonic()
        server = fork_server(host, port, config, prepare)
        why = wait_for_end(server, host, port, hangs_after_s, lambda: bool(stop.name))
        if stop.name:
            if not why:
                _end_when_let_go(server, host, port)
            return
        closed_pipe.say(f'worker at {address}: {why}; it starts again', sys.stdout)
        has_failed = time.monotonic() - started_s < 1. and why != _how_it_ended(0)
        num_failures = num_failures + 1 if has_failed and why == _how_it_ended(1) else 0
        if has_failed:
            time.sleep(1.)   # It is not started in a busy loop.
    raise OSError(f'{num_failures} servers of the worker at {address} have failed one after the '
                  'other as they started, and have said why above; correct that, and start again.')


def _end_when_let_go(server: int, host: str, port: int) -> None:
    """Kills a server once it serves no trainer, or has done so for LAST_S more."""
    deadline_s = time.monotonic() + LAST_S
    has_told = False
    while _serves(host, port) and time.monotonic() < deadline_s:
        if not has_told:
            has_told = True
            closed_pipe.say(f'worker at {host}:{port}: SIGTERM; it goes on until its trainer has '
                            f'let go of it, at most {LAST_S:g} s; a second signal ends it at once',
                            sys.stdout)
        if os.waitpid(server, os.WNOHANG)[0]:
            return
        time.sleep(_LOOK_AT_END_EVERY_S)
    os.kill(server, signal.SIGKILL)
    os.waitpid(server, 0)


def _serves(host: str, port: int) -> bool:
    """Whether a server serves a trainer, or is too busy to say."""
    try:
        return workers.serves(f'{_own_host(host)}:{port}')
    except OSError:
        return True


def _wait_for_port(host: str, port: int) -> None:
    """Waits until the port is free. Raises OSError if it stays taken, or for another host."""
    deadline_s = time.monotonic() + TAKEN_FOR_S
    while True:
        try:
            ports.check_free(host, port)
            return
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > deadline_s:
                raise OSError(f'a worker cannot listen at {host}:{port}: '
                              f'{error.strerror or error}; choose another --address.') from error
            time.sleep(0.1)


def fork_server(host: str, port: int, config: tf.compat.v1.ConfigProto,
                prepare: Callable[[], object] | None = None) -> int:
    """Forks a server, and returns its process id; the arguments are those of `serve`."""
    above = os.getpid()
    server = os.fork()
    if server:
        return server
    try:
        for number in (signal.SIGINT, signal.SIGTERM):   # They are for the process above.
            signal.signal(number, signal.SIG_IGN)
        end_with_parent(above, signal.SIGKILL)
        if prepare:
            prepare()
        start(host, port, config).join()
    except BaseException as error:   # nothing of the process above may run here
        closed_pipe.say(f'worker: {error}', sys.stderr)
    finally:
        os._exit(1)


def end_with_parent(parent: int, number: signal.Signals) -> None:
    """Makes Linux send this process a signal when its parent ends for any reason.

    Neither Python nor psutil has a function for it. Call it in a child, with the parent's process
    id.
    """
    if sys.platform == 'linux':
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:   # the parent has already ended
        os._exit(1)


def start(host: str, port: int, config: tf.compat.v1.ConfigProto) -> tf.distribute.Server:
    """Starts TensorFlow's server in this process.

    From its first moment on, it can be reached only at the addresses of the host.

    Raises:
      OSError: the port is taken, or the system cannot hold the server to the host.
    """
    tensorflow_settings.set_malloc()
    environment.set_grpc()
    guard = address_filter.Guard(port, host)
    # A controller gives the task its real number.
    spec = {'worker': {0: f'{_own_host(host)}:{port}'}}
    server = tf.distribute.Server(spec, job_name='worker', task_index=0, config=config, start=False)
    guard.check()
    server.start()
    return server


def wait_for_end(server: int, host: str, port: int, hangs_after_s: float,
                 is_stopping: Callable[[], bool] = lambda: False) -> str:
    """Waits until a server ends, or kills it if it hangs.

    Returns:
      What happened; '' if is_stopping() became true before.
    """
    answered_s = time.monotonic()
    next_look_s = answered_s + _LOOK_EVERY_S
    while True:
        ended, status = os.waitpid(server, os.WNOHANG)
        if ended:
            return _how_it_ended(os.waitstatus_to_exitcode(status))
        if is_stopping():
            return ''

        if time.monotonic() >= next_look_s:
            if answers(host, port, min(_LOOK_EVERY_S * 5, hangs_after_s)):
                answered_s = time.monotonic()
            elif time.monotonic() - answered_s > hangs_after_s:
                os.kill(server, signal.SIGKILL)
                os.waitpid(server, 0)
                return f'the server did not answer for {hangs_after_s:g} s and was killed'
            next_look_s = time.monotonic() + _LOOK_EVERY_S
        time.sleep(0.02)


def _how_it_ended(code: int) -> str:
    if code == 0:
        return 'a controller has come'
    if code < 0:
        return f'the server was killed by {exit_code.ending(code)}'
    return f'the server ended with exit code {code}'


def answers(host: str, port: int, timeout_s: float) -> bool:
    """Whether a gRPC server is at host:port and sends its first byte in time."""
    try:
        with socket.create_connection((_own_host(host), port), timeout_s) as sock:
            sock.settimeout(timeout_s)
            return bool(sock.recv(1))
    except OSError:
        return False


def _own_host(host: str) -> str:
    """Where this machine reaches a server that listens at a host."""
    return '127.0.0.1' if host == '0.0.0.0' else host
