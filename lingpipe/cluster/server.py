"""Server: a worker: TensorFlow's server in a process of its own, with a process above it that starts another when it ends or hangs.

    --mode=worker                 imports TensorFlow, which takes seconds, and never starts it
     `- server                    a fork; ends when it is killed, when a controller wants a new one, or when the process above ends

So a worker is back a moment after its server was lost, at the same address, with empty memory.
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
from typing import NoReturn

import tensorflow as tf

from lingpipe.cluster import address_filter
from lingpipe.process import closed_pipe, tensorflow_settings

_LOOK_EVERY_S = 1.0
_TAKEN_FOR_S = 5.0     # at most, by the server of a worker that was killed a moment ago
_PR_SET_PDEATHSIG = 1                                     # of linux/prctl.h
_HTTP2_HELLO = b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n' + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])   # RFC 9113, 3.4: preface, empty SETTINGS


def session_config(devices: str, intra_op_threads: int = 1, use_graph_optimizer: bool = False) -> tf.compat.v1.ConfigProto:
    """Settings of a server, which takes nothing from tf.config.

    Args:
      devices: cpu:4, gpu, gpu:0-3, or '': all GPUs, or one CPU.
      intra_op_threads: as the experiment's, since sums depend on it.
      use_graph_optimizer: as the pipeline's.

    Raises:
      ValueError: devices is something else.
    """
    kind, first, last = _parsed(devices or 'gpu')
    num_cpus = int(first or 1) if kind == 'cpu' else 1
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=intra_op_threads, inter_op_parallelism_threads=max(2, num_cpus),
                                      device_count={'CPU': num_cpus, **({'GPU': 0} if kind == 'cpu' else {})})
    config.gpu_options.allow_growth = True
    if kind == 'gpu' and first:
        config.gpu_options.visible_device_list = ','.join(map(str, range(int(first), int(last or first) + 1)))
    config.graph_options.rewrite_options.disable_meta_optimizer = not use_graph_optimizer
    return config


def check_gpus(devices: str) -> None:
    """Raises ValueError if `devices`, as session_config takes it, names GPUs that are not there: TensorFlow would serve its CPU instead."""
    kind, first, last = _parsed(devices or 'cpu')
    if kind == 'cpu':
        return
    looker = os.fork()   # CUDA does not bear forks of a process that has looked for GPUs
    if not looker:
        os._exit(min(255, len(tf.config.list_physical_devices('GPU'))))
    there = os.waitstatus_to_exitcode(os.waitpid(looker, 0)[1])
    if there <= int(last or first or 0):
        raise ValueError(f'--devices={devices}, but this machine has {max(0, there)} GPUs that TensorFlow can use; name those, or cpu:N.')


def _parsed(devices: str) -> tuple[str, str | None, str | None]:
    """(cpu or gpu, first number, last number)."""
    match = re.fullmatch(r'(cpu|gpu)(?::(\d+)(?:-(\d+))?)?', devices)
    is_too_large = match and max(int(number or 0) for number in match.groups()[1:]) > tensorflow_settings.MAX_DEVICES
    if not match or is_too_large or match[1] == 'cpu' and (match[3] or match[2] == '0'):
        raise ValueError(f"--devices={devices} of a worker; write the devices that it has: cpu:4, gpu, or gpu:0-3.")
    return match[1], match[2], match[3]


def serve(address: str, config: tf.compat.v1.ConfigProto, hangs_after_s: float) -> NoReturn:
    """Serves at 'host:port' for ever; the host may be 0.0.0.0 for all of this machine.

    Args:
      address: 'host:port'.
      config: of session_config.
      hangs_after_s: a server that has not answered for so long is killed, and another started.

    Raises:
      ValueError: no address.
      OSError: it is not one of this machine, or its port is taken at this or another address of it, or this system cannot hold a server
        to it.
    """
    host, port = address_filter.split_address(address)
    deadline_s = time.monotonic() + _TAKEN_FOR_S
    while True:
        try:
            address_filter.check_free(host, port)
            break
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > deadline_s:
                raise OSError(f'a worker cannot listen at {address}: {error.strerror or error}; choose another --address.') from error
            time.sleep(0.1)
    address_filter.check_system(host)   # or every server would fail at it
    closed_pipe.say(f'worker at {address}, process {os.getpid()}', sys.stdout)
    while True:
        started_s = time.monotonic()
        server = _fork(host, port, config)
        why = _wait(server, host, port, hangs_after_s)
        closed_pipe.say(f'worker at {address}: {why}; it starts again', sys.stdout)
        if time.monotonic() - started_s < 1.:
            time.sleep(1.)   # one that ends at once would be started without end


def _fork(host: str, port: int, config: tf.compat.v1.ConfigProto) -> int:
    above = os.getpid()
    server = os.fork()
    if server:
        return server
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)   # Ctrl-C is for the process above
        if sys.platform == 'linux':
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != above:
            os._exit(0)
        start(host, port, config).join()
    except BaseException as error:   # nothing of the process above may run here
        closed_pipe.say(f'worker: {error}', sys.stderr)
    finally:
        os._exit(1)


def start(host: str, port: int, config: tf.compat.v1.ConfigProto) -> tf.distribute.Server:
    """TensorFlow's server, in this process, which can be reached at the addresses of the host alone, from its first moment on.

    Raises:
      OSError: the port is taken, or the system cannot hold the server to the host.
    """
    tensorflow_settings.set_malloc()
    guard = address_filter.Guard(port, host)
    spec = {'worker': {0: f'{"127.0.0.1" if host == "0.0.0.0" else host}:{port}'}}   # a controller names the task as it likes
    server = tf.distribute.Server(spec, job_name='worker', task_index=0, config=config, start=False)
    guard.check()
    server.start()
    return server


def _wait(server: int, host: str, port: int, hangs_after_s: float) -> str:
    """Waits for the end of a server, or makes an end to one that hangs; says what it was."""
    heard_s = time.monotonic()
    next_look_s = heard_s + _LOOK_EVERY_S
    while True:
        done, status = os.waitpid(server, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return 'a controller has come' if code == 0 else f'the server was killed by {signal.Signals(-code).name}' if code < 0 else \
                f'the server ended with exit code {code}'
        if time.monotonic() >= next_look_s:
            if answers(host, port, min(_LOOK_EVERY_S * 5, hangs_after_s)):
                heard_s = time.monotonic()
            elif time.monotonic() - heard_s > hangs_after_s:
                os.kill(server, signal.SIGKILL)
                os.waitpid(server, 0)
                return f'the server did not answer for {hangs_after_s:g} s and was killed'
            next_look_s = time.monotonic() + _LOOK_EVERY_S
        time.sleep(0.02)


def answers(host: str, port: int, timeout_s: float) -> bool:
    """Whether a gRPC server says hello, without gRPC, which does not bear forks."""
    try:
        with socket.create_connection(('127.0.0.1' if host == '0.0.0.0' else host, port), timeout_s) as one:
            one.settimeout(timeout_s)
            one.sendall(_HTTP2_HELLO)
            return bool(one.recv(1))
    except OSError:
        return False
