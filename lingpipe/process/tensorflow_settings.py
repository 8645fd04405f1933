"""TensorFlow's settings: logical devices, threads, memory and Grappler.

All but Grappler must be set before TensorFlow's first op.
"""
from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys

import tensorflow as tf

from lingpipe.wording.counts import counted

# glibc keeps freed tensors for reuse. Before version 2.38 it rarely finds one that fits an aligned
# request, and the process grows to twice what it uses. Tensors larger than this get pages of their
# own, which are given back when the tensor is freed. Measured: 8.7 bytes a weight in place of 20.7
# (SGD, 100 M weights), and no slower on Transformers, whose activations are smaller. At 256 kB a
# step took 1.6 times as long.
_MMAP_THRESHOLD_BYTES = 2 << 20
_M_MMAP_THRESHOLD = -3   # malloc.h

# glibc keeps this much at the end of the heap of a thread, where tensors that fit need no new
# pages. New pages took a step of convolutions as long as its work. Measured: AmoebaNet-D (3, 16) of
# 32 pixels went from 236 to 414 examples/s, (3, 32) of 64 pixels from 122 to 239; with half as much
# memory, 298 and 101. The price is up to so much memory for each thread that runs ops: 180 MB in
# all with two cells.
_TOP_PAD_BYTES = 64 << 20   # the most that glibc gives the heap of a thread
_M_TOP_PAD = -2             # malloc.h

# The CPU of this process, whichever devices hold cells. Mini-batches come from it, results and
# checkpoints go to it.
HOME = '/job:localhost/device:CPU:0'

MAX_DEVICES = 4096   # TensorFlow takes a minute to make 10,000 logical devices, each with a thread


class StartedTooEarlyError(ValueError):
    """TensorFlow has started with other settings than those that are wanted now.

    Attributes:
      num_cpu_devices, intra_op_threads: those that are wanted, as `configure` takes them.
    """

    def __init__(self, num_cpu_devices: int, intra_op_threads: int, why: str):
        self.num_cpu_devices, self.intra_op_threads = num_cpu_devices, intra_op_threads
        super().__init__(
            f'TensorFlow has started before {counted(num_cpu_devices, "CPU device")} and '
            f'{counted(intra_op_threads, "thread")} were set ({why}); start this process again (in '
            f'a notebook: the kernel), and call lingpipe.cluster.configure({num_cpu_devices}, '
            f'{intra_op_threads}) before anything else that uses TensorFlow, as making a Keras '
            'model does.')


def configure(num_cpu_devices: int = 0, intra_op_threads: int = 1, inter_op_threads: int = 0
              ) -> None:
    """Makes logical CPU devices and sets thread counts; call it before TensorFlow's first op.

    Args:
      num_cpu_devices: how many logical devices the CPU is split into; 0 leaves it as it is.
      intra_op_threads: threads of one op. They change the last bits of results, and so are part of
        an experiment.
      inter_op_threads: ops that run at once; by default at least one for each emulated device.

    A process that has started already keeps what it has, if that is enough: a notebook may make
    one run after another.

    Raises:
      StartedTooEarlyError: TensorFlow has already started, with fewer devices or another number of
        threads of an op.
    """
    set_malloc()
    threading = tf.config.threading
    try:
        if num_cpu_devices:
            _make_cpu_devices(num_cpu_devices)
        threading.set_intra_op_parallelism_threads(intra_op_threads)
        for gpu in tf.config.list_physical_devices('GPU'):
            tf.config.experimental.set_memory_growth(gpu, True)
    except RuntimeError as error:
        if _is_configured(num_cpu_devices, intra_op_threads):
            return
        raise StartedTooEarlyError(num_cpu_devices, intra_op_threads, str(error)) from error
    with contextlib.suppress(RuntimeError):   # It has started; this changes no result.
        threading.set_inter_op_parallelism_threads(inter_op_threads or max(2, num_cpu_devices))


def has_started() -> bool:
    """Whether TensorFlow has started in this process, so that its settings are fixed."""
    threading = tf.config.threading
    num_threads = threading.get_intra_op_parallelism_threads()
    try:
        threading.set_intra_op_parallelism_threads(num_threads + 1)
    except RuntimeError:
        return True
    threading.set_intra_op_parallelism_threads(num_threads)
    return False


def _make_cpu_devices(number: int) -> None:
    """Splits the CPU into logical devices, unless it is split into as many already.

    Raises:
      RuntimeError: TensorFlow has started with fewer.
    """
    cpu = tf.config.list_physical_devices('CPU')[0]
    if len(tf.config.get_logical_device_configuration(cpu) or ()) >= number:
        return
    try:
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * number)
    except RuntimeError:
        if len(tf.config.list_logical_devices('CPU')) < number:
            raise


def _is_configured(num_cpu_devices: int, intra_op_threads: int) -> bool:
    """Whether TensorFlow, which has started, has enough CPU devices, and such threads."""
    has_devices = len(tf.config.list_logical_devices('CPU')) >= num_cpu_devices
    num_threads: int = tf.config.threading.get_intra_op_parallelism_threads()
    return has_devices and num_threads == intra_op_threads


def set_malloc() -> None:
    """Sets glibc's limits, so that the memory of freed tensors is used again or given back.

    A limit that one of glibc's environment variables has set stays as it is.
    """
    if sys.platform != 'linux' or not hasattr(libc := ctypes.CDLL(None), 'mallopt'):
        return
    if 'MALLOC_MMAP_THRESHOLD_' not in os.environ:
        libc.mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)
    if 'MALLOC_TOP_PAD_' not in os.environ:
        libc.mallopt(_M_TOP_PAD, _TOP_PAD_BYTES)


def default_devices(num_devices: int) -> list[str]:
    """Returns the first GPUs, or else the first logical CPU devices, as tf.device strings.

    Raises:
      ValueError: there are fewer than num_devices.
    """
    gpus = [device.name for device in tf.config.list_logical_devices('GPU')]
    if len(gpus) >= num_devices:
        return gpus[:num_devices]
    cpus = [device.name for device in tf.config.list_logical_devices('CPU')]
    if len(cpus) >= num_devices:
        return cpus[:num_devices]
    raise ValueError(f'the cells of all replicas need {num_devices} devices, but there are '
                     f'{len(cpus)} CPU devices and {len(gpus)} GPUs; call '
                     f'lingpipe.cluster.configure(num_cpu_devices={num_devices}) first, name the '
                     'devices, or use fewer cells or replicas.')


def expected_devices(num_devices: int) -> list[str]:
    """Returns what `default_devices` will return once this process is configured for so many.

    It starts no device.
    """
    has_gpus = len(tf.config.list_physical_devices('GPU')) >= num_devices
    kind = 'GPU' if has_gpus else 'CPU'
    return [f'/device:{kind}:{i}' for i in range(num_devices)]


@functools.lru_cache(maxsize=10_000)
def place(device: str) -> tuple[str, int, str, int]:
    """Returns (job, task, kind, index) of a device string.

    Equivalent spellings give the same result. What is no device string, such as a name in a plan
    without devices, counts as a kind of its own.
    """
    try:
        spec = tf.DeviceSpec.from_string(device)
    except ValueError:
        return '', 0, device, 0
    return spec.job or 'localhost', spec.task or 0, spec.device_type or '', spec.device_index or 0


def check_devices(devices: list[str]) -> None:
    """Raises ValueError for a device that does not exist, naming those that do."""
    known = [device.name for device in tf.config.list_logical_devices()]
    places = {place(name) for name in known}
    places_on_any_job = {known_place[2:] for known_place in places}

    for device in devices:
        if device.startswith('/job:'):
            exists = place(device) in places
        else:
            exists = place(device)[2:] in places_on_any_job
        if not exists:
            raise ValueError(f'device {device!r} does not exist; there are {", ".join(known)}.')


def set_graph_optimizer(is_on: bool) -> None:
    """Turns TensorFlow's graph optimizer (Grappler) on or off for functions traced from now on.

    While it is off, a task computes the same bits wherever the partition ends. Its rewrites, such
    as folding a batch-norm into a convolution, depend on what else is in the function.

    There is one setting for the process, whose other programs may want another. So it is set
    before each use of a run, and whenever a program traces something.
    """
    tf.config.optimizer.set_experimental_options({'disable_meta_optimizer': not is_on})


def has_graph_optimizer() -> bool:
    """Returns whether TensorFlow's graph optimizer rewrites functions that are traced now."""
    return not tf.config.optimizer.get_experimental_options().get('disable_meta_optimizer', False)
