"""Collectives: sums over the replicas of a cell that TensorFlow makes: moments inside the tasks, gradients after them.

Both are CollectiveReduceV2. Tried on logical CPU devices of one process and of two gRPC workers: a ring works inside not-inlined
functions, holds no thread while it waits (one inter-op thread is enough), gives all devices the same bits and, run again, the same
again; when a task of one replica fails, those that wait for it are cut off, and the next step is well. The ring
works on logical GPUs of one card too. NCCL has not been tried: it needs several cards.

A device can be in a group once. TensorFlow keeps the devices of a group and the shape of an instance as long as the process lives, so
group keys are made of all that may differ from one program to the next.

All replicas run the same tasks in the same order, so a task that waits for its like never waits for one that waits for it, and the
sums of one micro-batch end before those of the next begin: these may have the same keys.
"""
from __future__ import annotations

import dataclasses
import itertools
import zlib
from collections.abc import Callable, Sequence

import tensorflow as tf

from lingpipe import cluster


@dataclasses.dataclass(frozen=True)
class Group:
    """The replicas of one cell.

    Attributes:
      cell: k.
      devices: [R] of the cell, in the order of replicas.
    """
    cell: int
    devices: tuple[str, ...]

    def sum(self, value: tf.Tensor, shapes: Sequence[Sequence[int]], index: int, hint: str) -> tf.Tensor:
        """The sum of all replicas' values, in an order that the devices decide; each replica calls it, on its device.

        Args:
          value: of shape shapes[index].
          shapes: of all that this group sums; they share one communicator.
          index: which of them it is.
          hint: 'ring' or 'nccl'.
        """
        return self._sum(value, f'{hint} {[list(shape) for shape in shapes]}', index, hint)

    def gatherer(self, replica: int) -> Callable[[tf.Tensor], tf.Tensor]:
        """For one trace of the cell of a replica: a function that stacks a tensor of every replica, [...] -> [R, ...].

        Its calls are numbered, so all replicas must make the same calls in the same order, as they do when they trace the same layers.
        """
        num_calls = itertools.count()

        def gather(value: tf.Tensor) -> tf.Tensor:
            before = [[replica, len(self.devices) - 1 - replica], *[[0, 0]] * value.shape.rank]
            with tf.name_scope('replicas/'):  # not the layer's, which may hold no stateful op
                # Each fills a row of its own: such a sum is exact, and the rows are in the order of replicas, whatever that of devices.
                return self._sum(tf.pad(value[None], before), f'gather {value.shape}', next(num_calls), 'ring')

        return gather

    def _sum(self, value: tf.Tensor, what: str, index: int, hint: str) -> tf.Tensor:
        """`what` and `index` name the sum: there are no two of them at a time with the same."""
        key = zlib.crc32(f'{self.cell} {self.devices} {what}'.encode()) & 0x7fffffff
        return tf.raw_ops.CollectiveReduceV2(
            input=value, group_size=len(self.devices), group_key=key, instance_key=index, ordering_token=[], merge_op='Add', final_op='Id',
            communication_hint=hint)


def check_devices(devices: Sequence[str], num_cells: int, what: str, hint: str) -> None:
    """Refuses devices that a collective cannot join.

    Args:
      devices: [R K], replica after replica.
      num_cells: K.
      what: the Param that asks for it, in words.
      hint: 'ring' or 'nccl'.

    Raises:
      ValueError: two replicas of a cell are on one device, or NCCL shall sum on something else than GPUs.
    """
    for i, device in enumerate(devices):
        if hint == 'nccl' and cluster.place(device)[2] != 'GPU':
            raise ValueError(f'{what}, but cell {i % num_cells} of replica {i // num_cells} is on {device}, and NCCL adds up on GPUs only; '
                             f"use 'ring' or 'add', or name GPUs in --devices.")
        for other in range(i % num_cells, i, num_cells):
            if cluster.place(devices[other]) == cluster.place(device):
                raise ValueError(f'{what}, but cell {i % num_cells} of replicas {other // num_cells} and {i // num_cells} is on one '
                                 f'device, {device}, and a device can be in a sum once; name another for each replica, or leave it out.')
