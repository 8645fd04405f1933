"""Held devices: workers whose processes are held to a limit of memory while they train.

Each device is a worker (cluster/server.py), which the kernel refuses more memory than the limit:
RLIMIT_DATA of setrlimit(2), which counts all private writable memory of a process, whether it was
written to or not. A control group (cgroup) would count what is in use, but not everybody may make
one; RLIMIT_AS counts the code of TensorFlow, too.

What TensorFlow itself needs is not held: its threads, and the graph of the step, which on a GPU is
in the memory of the host. So the first steps run without a limit. Then it is set to what the
process has, less the variables of the device, plus the bytes that the device may have.

So that the limit counts tensors and little else, malloc gives every tensor above 64 kB pages of its
own and takes them back at once, and TensorFlow's allocator, which keeps pages for later, is off.
"""
from __future__ import annotations

import contextlib
import gc
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from lingpipe.cluster import server
from lingpipe.process import error_text, fork_server
from lingpipe.tools.launch_local import free_addresses

if TYPE_CHECKING:
    from lingpipe.training.experiment import Experiment

TIDY_MALLOC = {
    'MALLOC_ARENA_MAX': '1', 'MALLOC_MMAP_MAX_': str(1 << 20), 'MALLOC_MMAP_THRESHOLD_': '65536',
    'MALLOC_TOP_PAD_': '0', 'MALLOC_TRIM_THRESHOLD_': '65536',
    'TF_ONEDNN_USE_SYSTEM_ALLOCATOR': '1'}

THREAD_STACK_BYTES = 1 << 20   # The kernel counts whole stacks, of 8 MB by default.

NUM_FREE_STEPS = 2
NUM_HELD_STEPS = 2
BUILD_LIMIT_S = 1800.
STEPS_LIMIT_S = 600.     # of all steps that are held to the limit
PROCESS_ENDS_S = 5.      # The error of the others comes before the end of a process by less.

# The second is how TensorFlow tells dnnl_out_of_memory, an error of oneDNN.
_OUT_OF_MEMORY = re.compile('ResourceExhausted|exception: ?Status: 1,')

_processes = fork_server.context('lingpipe.tools', 'lingpipe.training.experiment')


@dataclass(frozen=True)
class Trial:
    """How the steps of a plan ended.

    Attributes:
      fits: whether all devices stayed within the limit.
      why_not: in a few words, where they did not.
      peak_bytes: the most that each device held of variables and tensors; () if it did not fit.
    """
    fits: bool
    why_not: str = ''
    peak_bytes: tuple[float, ...] = ()


@dataclass(frozen=True)
class Device:
    """A worker: its 'host:port', and the process above its server."""
    address: str
    process: int


@contextlib.contextmanager
def held_devices(number: int) -> Iterator[list[Device]]:
    """Starts workers for `train`, which end with the block.

    Raises:
      OSError: this is not Linux.
    """
    if sys.platform != 'linux':
        raise OSError(f'{sys.platform} cannot hold a process to a limit of memory; do this on '
                      'Linux.')
    environment = {**os.environ, **TIDY_MALLOC}
    parent = os.getpid()
    workers = []
    try:
        for address in free_addresses(number):
            process = subprocess.Popen(
                [sys.executable, '-m', 'lingpipe.trainer', '--mode=worker', '--devices=cpu:1',
                 f'--address={address}', f'--hangs_after_s={BUILD_LIMIT_S:g}'],
                preexec_fn=lambda: _begin_worker(parent), env=environment,
                start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            workers.append((process, Device(address, process.pid)))
        yield [device for _, device in workers]
    finally:
        for process, _ in workers:
            process.kill()
            process.wait()


def _begin_worker(parent: int) -> None:
    """What the process of a worker does before it becomes one."""
    server.end_with_parent(parent, signal.SIGKILL)
    _, most = resource.getrlimit(resource.RLIMIT_STACK)
    resource.setrlimit(resource.RLIMIT_STACK, (THREAD_STACK_BYTES, most))


def train(params: Experiment.Params, devices: Sequence[Device], device_bytes: float) -> Trial:
    """Trains a few steps on workers that are held to a limit.

    Args:
      params: the experiment's. What it reads does not matter: all inputs are ones.
      devices: those of the plan.
      device_bytes: the limit of each device.

    Raises:
      RuntimeError: the steps fail for another reason than memory.
    """
    ours, theirs = _processes.Pipe()
    addresses = [device.address for device in devices]
    controller = _processes.Process(target=_control, args=(params, addresses, theirs), daemon=True)
    controller.start()
    theirs.close()
    try:
        return _held_trial(ours, [device.process for device in devices], device_bytes)
    finally:
        controller.kill()
        controller.join()
        ours.close()


def _held_trial(controller: Connection, worker_pids: Sequence[int], device_bytes: float) -> Trial:
    """Sets the limits once the controller says that the step is built, and waits for its steps."""
    built = _received(controller, BUILD_LIMIT_S)
    if not isinstance(built, list):
        raise RuntimeError(f'the steps fail without a limit, too: {built}')

    servers = list(map(_server_of, worker_pids))
    own_bytes = []   # what is no variable, by device
    for pid, variable_bytes in zip(servers, built, strict=True):
        own_bytes.append(_status_bytes(pid, 'VmRSS') - variable_bytes)
        pathlib.Path(f'/proc/{pid}/clear_refs').write_text('5')   # VmHWM begins at VmRSS again.
        limit = int(_status_bytes(pid, 'VmData') - variable_bytes + device_bytes)
        resource.prlimit(pid, resource.RLIMIT_DATA, (limit, limit))
    controller.send('go on')

    end_s = time.monotonic() + STEPS_LIMIT_S
    answer = None
    while answer is None and time.monotonic() < end_s:
        answer = _received(controller, 0.5)
        if ended := _ended(servers):
            return ended
    if answer is None:
        raise RuntimeError(f'{NUM_HELD_STEPS} steps took longer than {STEPS_LIMIT_S:.0f} s')
    assert isinstance(answer, str)
    if answer == 'trained':
        return Trial(True, '', tuple(_status_bytes(pid, 'VmHWM') - own
                                     for pid, own in zip(servers, own_bytes, strict=True)))
    if _OUT_OF_MEMORY.search(answer):
        return Trial(False, answer)
    time.sleep(PROCESS_ENDS_S)
    if ended := _ended(servers):
        return ended
    raise RuntimeError(answer)


def _ended(servers: Sequence[int]) -> Trial | None:
    """What the end of a process means; None if all go on."""
    for k, pid in enumerate(servers):
        if not _is_alive(pid):
            return Trial(False, f'the process of device {k} ended at its limit')
    return None


def _control(params: Experiment.Params, addresses: Sequence[str], parent: Connection) -> None:
    """What the controller's process does: it sends the bytes of variables, and how it ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)   # Ctrl-C is for the parent
    try:
        _train(params, addresses, parent)
        parent.send('trained')
    except Exception as error:   # a layer's code is anyone's
        out_of_memory = re.search('OOM when .*', str(error))
        text = (f'{type(error).__name__}: {out_of_memory[0][:200]}' if out_of_memory
                else error_text.sentence(error))
        with contextlib.suppress(BrokenPipeError):   # The parent has ended.
            parent.send(text)


def _train(params: Experiment.Params, addresses: Sequence[str], parent: Connection) -> None:
    import tensorflow as tf

    from lingpipe import cluster
    from lingpipe.cluster import client, devices
    from lingpipe.layers.nested import map_leaves
    names = devices.find(','.join(addresses), len(addresses), wait_s=60.).names
    cluster.configure(0, params.intra_op_threads)
    client.Connection(addresses)

    experiment = params.instantiate()
    program = experiment.make_program(names)
    batch = map_leaves(lambda spec: tf.ones(spec.shape, spec.dtype), experiment.train_input.spec())
    for step in range(NUM_FREE_STEPS):
        program.train_step(batch, step)['loss'].numpy()

    # All variables are counted, also those of which only the steps know.
    num_bytes = dict.fromkeys(names, 0)
    for variable in [one for one in gc.get_objects() if isinstance(one, tf.Variable)]:
        if variable.device in num_bytes:
            num_bytes[variable.device] += variable.shape.num_elements() * variable.dtype.size
    parent.send([num_bytes[name] for name in names])
    parent.recv()
    for step in range(NUM_FREE_STEPS, NUM_FREE_STEPS + NUM_HELD_STEPS):
        program.train_step(batch, step)['loss'].numpy()


def _received(connection: Connection, limit_s: float) -> list[int] | str | None:
    """Returns the next message; None if there is none in time."""
    if not connection.poll(limit_s):
        return None
    try:
        message: list[int] | str = connection.recv()
        return message
    except EOFError:
        return 'the process that trains has died'


def _server_of(worker: int) -> int:
    """Returns the process of TensorFlow's server below that of a worker."""
    return int(pathlib.Path(f'/proc/{worker}/task/{worker}/children').read_text().split()[0])


def _is_alive(process: int) -> bool:
    try:
        return 'State:\tZ' not in pathlib.Path(f'/proc/{process}/status').read_text()
    except FileNotFoundError:
        return False


def _status_bytes(process: int, field: str) -> int:
    """Returns a field of /proc/PID/status, such as VmRSS."""
    lines = pathlib.Path(f'/proc/{process}/status').read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f'{field}:'))
