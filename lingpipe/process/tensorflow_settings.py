"""TensorFlow's settings: logical devices, threads and memory, which must be set before TensorFlow's first op, and Grappler."""
from __future__ import annotations

import ctypes
import sys

import tensorflow as tf

# glibc keeps freed tensors for reuse but, before 2.38, rarely finds one that fits an aligned request: the process grows to twice what
# it uses. Larger tensors than this get pages of their own, given back when freed. Measured: 8.7 bytes a weight in place of 20.7 (SGD,
# 100 M weights), and no slower on Transformers, whose activations are smaller; at 256 kB a step took 1.6 times as long.
_MMAP_THRESHOLD_BYTES = 2 << 20
_M_MMAP_THRESHOLD = -3  # of malloc.h

# Tensors that fit into what is kept at the end of a thread's heap need no new pages, which took a step of convolutions as long as its
# work. Measured: AmoebaNet-D (3, 16) of 32 pixels 236 -> 414 examples/s, (3, 32) of 64 pixels 122 -> 239; with half as much 298 and 101.
# The price is up to so much memory for each thread that runs ops: 180 MB in all with two cells.
_TOP_PAD_BYTES = 64 << 20   # the most that glibc gives the heap of a thread
_M_TOP_PAD = -2

# The CPU of this process, whichever devices hold cells: mini-batches come from it, results and checkpoints go to it.
HOME = '/job:localhost/device:CPU:0'

MAX_DEVICES = 4096   # TensorFlow takes a minute to make 10,000 logical devices, and each brings a thread


def configure(num_cpu_devices: int = 0, intra_op_threads: int = 1, inter_op_threads: int = 0) -> None:
    """Makes logical CPU devices and sets thread counts; call it before TensorFlow runs its first op.

    Args:
      num_cpu_devices: how many logical devices the CPU is split into; 0 leaves it as it is.
      intra_op_threads: threads of one op. It changes the last bits of results, so it is part of an experiment.
      inter_op_threads: ops that run at once; on emulated devices at least one a device (the default).

    Raises:
      ValueError: TensorFlow has started already with other settings.
    """
    set_malloc()
    cpu = tf.config.list_physical_devices('CPU')[0]
    try:
        if num_cpu_devices:
            tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * num_cpu_devices)
        tf.config.threading.set_intra_op_parallelism_threads(intra_op_threads)
        tf.config.threading.set_inter_op_parallelism_threads(inter_op_threads or max(2, num_cpu_devices))
        for gpu in tf.config.list_physical_devices('GPU'):
            tf.config.experimental.set_memory_growth(gpu, True)
    except RuntimeError as e:
        raise ValueError(f'TensorFlow has started before {num_cpu_devices} CPU devices and {intra_op_threads} threads were set ({e}); call '
                         f'lingpipe.cluster.configure before anything else that uses TensorFlow.') from e


def set_malloc() -> None:
    """Makes large tensors pages of their own, which go back to the system when they are freed, except for a part that is used again."""
    if sys.platform == 'linux' and hasattr(libc := ctypes.CDLL(None), 'mallopt'):
        libc.mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)
        libc.mallopt(_M_TOP_PAD, _TOP_PAD_BYTES)


def default_devices(num_cells: int) -> list[str]:
    """The first K GPUs, or else the first K logical CPU devices, as tf.device strings.

    Raises:
      ValueError: there are fewer than K.
    """
    for kind in ('GPU', 'CPU'):
        found = [device.name for device in tf.config.list_logical_devices(kind)]
        if len(found) >= num_cells:
            return found[:num_cells]
    raise ValueError(f'num_cells={num_cells} needs {num_cells} devices, but there are {len(found)} CPU devices and '
                     f'{len(tf.config.list_logical_devices("GPU"))} GPUs; call lingpipe.cluster.configure(num_cpu_devices={num_cells}) '
                     f'first, name the devices, or use fewer cells.')


def expected_devices(num_devices: int) -> list[str]:
    """The devices that `default_devices` will give in a process that is configured for that many; starts no device."""
    kind = 'GPU' if len(tf.config.list_physical_devices('GPU')) >= num_devices else 'CPU'
    return [f'/device:{kind}:{i}' for i in range(num_devices)]


def place(device: str) -> tuple[str, int, str, int]:
    """Returns (job, task, kind, index) of a device string. Equivalent spellings give the same result.

    What is no device string, such as a name in a plan without devices, counts as a kind of its own.
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
    on_any_job = {one[2:] for one in places}

    for device in devices:
        names_a_job = device.startswith('/job:')
        exists = place(device) in places if names_a_job else place(device)[2:] in on_any_job
        if not exists:
            raise ValueError(f'device {device!r} does not exist; there are {", ".join(known)}.')


def set_graph_optimizer(is_on: bool) -> None:
    """Turns TensorFlow's graph optimizer (Grappler) on or off for functions traced from now on.

    Off, a task computes the same bits wherever the partition ends; on, rewrites such as folding a batch-norm into a
    convolution depend on what else is in the function.
    """
    tf.config.optimizer.set_experimental_options({'disable_meta_optimizer': not is_on})
