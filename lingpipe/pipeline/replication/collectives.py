"""Collectives: TensorFlow's own sums over the replicas of a cell.

BatchNorm uses them for moments inside the tasks, and gradients can be summed with them after the
tasks. Both are CollectiveReduceV2.

Tried on logical CPU devices of one process and of two gRPC workers: a ring works inside functions
that are not inlined. It holds no thread while it waits, so that one inter-op thread is enough. It
gives all devices the same bits, and the same ones again when it is repeated. When a task of one
replica fails, the replicas that wait for it are cut off, and the next step works. The ring also
works on logical GPUs of one card. NCCL has not been tried: it needs several cards.

A device can be in a group only once. TensorFlow keeps the devices of a group and the shape and
dtype of an instance for the life of the process, so group keys contain everything that may differ
from one program to the next.

All replicas run the same tasks in the same order. So two tasks never wait for each other in a
circle, and the sums of one micro-batch end before those of the next begin: all micro-batches may
use the same keys.
"""
from __future__ import annotations

import dataclasses
import itertools
import zlib
from collections.abc import Callable, Sequence

import tensorflow as tf

from lingpipe import cluster
from lingpipe.pipeline.planning.pipeline_params import PipelineParams


@dataclasses.dataclass(frozen=True)
class Group:
    """The replicas of one cell.

    Attributes:
      cell: k.
      devices: [R] the cell's devices, in the order of replicas.
    """
    cell: int
    devices: tuple[str, ...]

    def sum(self, value: tf.Tensor, specs: Sequence[tf.TensorSpec], index: int,
            hint: str) -> tf.Tensor:
        """Returns the sum of all replicas' values; each replica calls this on its own device.

        The devices determine the order in which the values are added.

        Args:
          value: a tensor of the spec specs[index].
          specs: of all tensors that this group sums; they share one communicator.
          index: of this tensor among them.
          hint: 'ring' or 'nccl'.
        """
        return self._sum(value, f'{hint} {" ".join(map(_text, specs))}', index, hint)

    def gatherer(self, replica: int) -> Callable[[tf.Tensor], tf.Tensor]:
        """Returns a function that stacks the tensors of all replicas, [...] -> [R, ...].

        It serves one trace of a replica's cell. Its calls are numbered, so all replicas must make
        the same calls in the same order, as they do when they trace the same layers.
        """
        num_calls = itertools.count()

        def gather(value: tf.Tensor) -> tf.Tensor:
            before = [[replica, len(self.devices) - 1 - replica], *[[0, 0]] * value.shape.rank]
            # The scope is not the layer's, which may hold no stateful op.
            with tf.name_scope('replicas/'):
                # Each replica fills a row of its own and adds zeros to the others. Such a sum is
                # exact, and its rows are in the order of replicas, whatever order the devices have.
                return self._sum(tf.pad(value[None], before), f'gather {_text(value)}',
                                 next(num_calls), 'ring')

        return gather

    def _sum(self, value: tf.Tensor, what: str, index: int, hint: str) -> tf.Tensor:
        """Sums a value. No two sums with the same `what` and `index` may run at the same time."""
        key = zlib.crc32(f'{self.cell} {self.devices} {what}'.encode()) & 0x7fffffff
        return tf.raw_ops.CollectiveReduceV2(
            input=value, group_size=len(self.devices), group_key=key, instance_key=index,
            ordering_token=[], merge_op='Add', final_op='Id', communication_hint=hint)


def _text(spec: tf.TensorSpec | tf.Tensor) -> str:
    return f'{spec.dtype.name} {spec.shape}'


def check_devices(devices: Sequence[str], num_cells: int, what: str, hint: str) -> None:
    """Raises an error if a collective cannot run on these devices.

    Args:
      devices: [R K], replica after replica.
      num_cells: K.
      what: the Param that asks for the collective, for the error.
      hint: 'ring' or 'nccl'.

    Raises:
      ValueError: two replicas of a cell are on one device, or NCCL would sum on other devices than
        GPUs.
    """
    for i, device in enumerate(devices):
        if hint == 'nccl' and cluster.place(device)[2] != 'GPU':
            raise ValueError(
                f'{what}, but cell {i % num_cells} of replica {i // num_cells} is on {device}, and '
                f"NCCL adds up on GPUs only; use 'ring' or 'add', or name GPUs in --devices.")

        for other in range(i % num_cells, i, num_cells):
            if cluster.place(devices[other]) == cluster.place(device):
                raise ValueError(
                    f'{what}, but cell {i % num_cells} of replicas {other // num_cells} and '
                    f'{i // num_cells} is on one device, {device}, and a device can be in a sum '
                    f'once; name another for each replica, or leave it out.')


def check_replicated(params: PipelineParams, devices: Sequence[str]) -> None:
    """Raises ValueError if replicas cannot be reduced, or share moments, on devices [R K]."""
    has_one_each = len(devices) >= params.num_replicas * params.num_cells
    num_devices = params.num_cells if has_one_each else params.num_devices // params.num_replicas
    if params.num_replicas > 1 and params.cross_replica_batch_norm:
        if params.jit_compile:
            raise ValueError('cross_replica_batch_norm sums over replicas within the tasks, and '
                             'XLA cannot compile that; set jit_compile=False or '
                             'cross_replica_batch_norm=False.')
        check_devices(devices, num_devices, 'cross_replica_batch_norm', 'ring')

    if params.num_replicas > 1 and params.replica_reduction != 'add':
        check_devices(devices, num_devices,
                      f'replica_reduction={params.replica_reduction!r}', params.replica_reduction)
