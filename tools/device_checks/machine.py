"""Machine: the devices that are checked, and what is known of them.

Each of several GPUs counts as it is. One GPU is split into logical GPUs, each with an allocator and
streams of its own, and so is the CPU if there is no GPU: cells then have devices of their own,
which share one processor.
"""
from __future__ import annotations

import dataclasses
import os
import platform
import time
from collections.abc import Iterator

import tensorflow as tf

import lingpipe
from lingpipe import cluster
from lingpipe.process import tensorflow_settings
from lingpipe.tools.device_checks.rows import Row, Verdict
from lingpipe.wording.counts import counted


@dataclasses.dataclass(frozen=True)
class Machine:
    """The devices of this process.

    Attributes:
      check: the name of the check that runs.
      devices: tf.device strings.
      kind: 'GPU' or 'CPU'.
      num_physical: how many GPUs or CPUs they are parts of.
      is_deterministic: whether TensorFlow's op determinism is on.
      end_s: until when the check shall be done, on the clock of time.monotonic().
    """
    check: str
    devices: tuple[str, ...]
    kind: str
    num_physical: int
    is_deterministic: bool
    end_s: float = float('inf')

    @property
    def is_gpu(self) -> bool:
        """Whether the devices are GPUs."""
        return self.kind == 'GPU'

    @property
    def is_late(self) -> bool:
        """Whether the time of the check is over."""
        return time.monotonic() > self.end_s

    def promised(self, is_held: bool) -> Verdict:
        """Returns the verdict of equal bits: on GPUs they are promised of deterministic ops only.
        """
        if is_held:
            return 'ok'
        return 'BROKEN' if self.is_deterministic or not self.is_gpu else 'differs'

    def row(self, verdict: Verdict, text: str, **numbers: object) -> Row:
        """Returns a row of the check that runs."""
        return Row(self.check, verdict, text, numbers)

    def devices_of(self, num_cells: int) -> tuple[str, ...]:
        """Returns the first K devices.

        Raises:
          ValueError: there are fewer.
        """
        if len(self.devices) < num_cells:
            raise ValueError(f'this needs {counted(num_cells, "device")}, and there are '
                             f'{len(self.devices)}; use a larger --devices.')
        return self.devices[:num_cells]


def set_up(num_devices: int, device_mb: int, is_deterministic: bool) -> Machine:
    """Splits the GPU or the CPU, and sets TensorFlow up for it; the first use of TensorFlow.

    Args:
      num_devices: how many logical devices there shall be, if there are not as many GPUs.
      device_mb: memory of each logical GPU, in 2^20 bytes.
      is_deterministic: whether ops must be deterministic.
    """
    tensorflow_settings.set_malloc()
    if is_deterministic:
        tf.config.experimental.enable_op_determinism()
    gpus = tf.config.list_physical_devices('GPU')
    if gpus:
        tf.config.threading.set_intra_op_parallelism_threads(1)
        per_gpu = -(-num_devices // len(gpus))
        for gpu in gpus:
            if per_gpu == 1:
                tf.config.experimental.set_memory_growth(gpu, True)
                continue
            tf.config.set_logical_device_configuration(
                gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=device_mb)] * per_gpu)
        names = [f'/device:GPU:{i}' for i in range(len(tf.config.list_logical_devices('GPU')))]
    else:
        cluster.configure(num_devices, 1, num_devices)
        names = [f'/device:CPU:{i}' for i in range(num_devices)]
    cluster.set_graph_optimizer(False)
    return Machine('', tuple(names), 'GPU' if gpus else 'CPU', max(1, len(gpus)), is_deterministic)


def rows(machine: Machine) -> Iterator[Row]:
    """Says what the machine is."""
    build = tf.sysconfig.get_build_info()
    numbers = {'lingpipe': lingpipe.__version__, 'tensorflow': tf.__version__,
               'python': platform.python_version(), 'system': platform.platform(),
               'cpus': len(os.sched_getaffinity(0)),
               'cuda': build.get('cuda_version'), 'cudnn': build.get('cudnn_version')}
    yield machine.row(
        'info', f'lingpipe {numbers["lingpipe"]}, TensorFlow {tf.__version__}, Python '
                f'{numbers["python"]}, {numbers["cpus"]} CPU cores', **numbers)
    if numbers['cuda']:
        yield machine.row('info', f'TensorFlow was built for CUDA {numbers["cuda"]} and cuDNN '
                                  f'{numbers["cudnn"]}')
    for gpu in tf.config.list_physical_devices('GPU'):
        details = tf.config.experimental.get_device_details(gpu)
        name, capability = details.get('device_name'), details.get('compute_capability')
        yield machine.row('info', f'{gpu.name.removeprefix("/physical_device:")}: {name}, compute '
                                  f'capability {".".join(map(str, capability or ()))}',
                          gpu=name, compute_capability=capability)

    is_split = len(machine.devices) > machine.num_physical
    yield machine.row(
        'info', f'checked: {machine.devices[0]} to {machine.devices[-1]}, '
                + (f'parts of {machine.num_physical} {machine.kind}' if is_split
                   else 'a processor each'),
        devices=list(machine.devices), is_split=is_split)
    if machine.is_gpu:
        has_tf32 = tf.config.experimental.tensor_float_32_execution_enabled()
        yield machine.row('info', f'TF32 is {"on" if has_tf32 else "off"}', tf32=has_tf32)
