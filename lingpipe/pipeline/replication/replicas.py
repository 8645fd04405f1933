"""Replicas: pipelines side by side, each with weights of its own, which stay bitwise identical.

    replica 0    micro-batches 0 .. M-1     accumulators --+         +--> update --> weights
                                                           +-- sum --+
    replica 1    micro-batches M .. 2M-1    accumulators --+         +--> update --> same weights

Each variable is summed as soon as the last task of its cell is done, while earlier cells still run
backward. The sum is made on the device of one replica and sent to the others. Variables take turns,
so that each replica sums 1/R of them, and every device sends and receives 2 (R - 1) / R of its
gradients, as in a ring. Values are added in the order of replicas, and all replicas get the same
sums.

With replica_reduction 'ring' or 'nccl', TensorFlow's collectives sum the gradients instead
(collectives.py). All replicas still get the same bits, and the same ones in every run, but for
R > 2 they differ from those of 'add'. What layers emitted is small, and is merged as described
above.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from lingpipe.pipeline.execution.accumulators import Accumulators
from lingpipe.pipeline.execution.variables import Variables
from lingpipe.pipeline.planning.cell import Cell
from lingpipe.pipeline.replication.collectives import Group


@dataclasses.dataclass(frozen=True, eq=False)
class Replica:
    """One pipeline.

    Attributes:
      index: r.
      cells: [K] the cells for mini-batches of the first shape, on the replica's devices.
      placed: its weights, slots and averages.
      accumulators: [K].
    """
    index: int
    cells: Sequence[Cell]
    placed: Variables
    accumulators: Sequence[Accumulators]


def groups_of(replicas: Sequence[Sequence[Cell]]) -> list[Group]:
    """Returns the groups, [K], for cells [R, K]."""
    return [Group(cells[0].index, tuple(cell.device for cell in cells))
            for cells in zip(*replicas, strict=True)]


def reduce(replicas: Sequence[Replica], last: Sequence[Sequence[tf.Operation]],
           reduction: str = 'add') -> list[list[tf.Operation]]:
    """Sets all accumulators to the sums over all replicas.

    Args:
      replicas: [R].
      last: [R, K] the op after which a cell's accumulators hold all micro-batches of the replica.
      reduction: PipelineParams.replica_reduction.

    Returns:
      [R, K] the op after which they hold the sums over all replicas.
    """
    if len(replicas) == 1:
        return [list(ops) for ops in last]

    done: list[list[tf.Operation]] = [[] for _ in replicas]
    for k, group in enumerate(groups_of([replica.cells for replica in replicas])):
        assigned: list[list[tf.Operation]] = [[] for _ in replicas]

        # The first `num_together` variables are summed by collectives, the others one by one below.
        num_together = 0 if reduction == 'add' else len(replicas[0].accumulators[k].gradients)
        for replica, ops in zip(replicas, last, strict=True):
            together = replica.accumulators[k].variables()[:num_together]
            assigned[replica.index].append(_reduce_together(
                group, together, replica.cells[k].device, ops[k], reduction))

        for i, variables in enumerate(zip(
                *[replica.accumulators[k].variables()[num_together:] for replica in replicas],
                strict=True)):
            values = []
            for replica, ops, variable in zip(replicas, last, variables, strict=True):
                with tf.device(replica.cells[k].device), tf.control_dependencies([ops[k]]):
                    values.append(tf.raw_ops.ReadVariableOp(
                        resource=variable.handle, dtype=variable.dtype))

            owner = replicas[i % len(replicas)]
            with tf.device(owner.cells[k].device):
                total = owner.accumulators[k].all()[num_together + i].merged(values)

            for replica, variable in zip(replicas, variables, strict=True):
                with tf.device(replica.cells[k].device):
                    assigned[replica.index].append(tf.raw_ops.AssignVariableOp(
                        resource=variable.handle, value=total))

        for replica, ops in zip(replicas, assigned, strict=True):
            with tf.device(replica.cells[k].device), tf.control_dependencies(ops):
                done[replica.index].append(tf.no_op())
    return done


def _reduce_together(group: Group, variables: Sequence[tf.Variable], device: str,
                     after: tf.Operation, hint: str) -> tf.Operation:
    """Adds one replica's part in the sums of a cell's gradients.

    The sums are made one after the other, since NCCL needs the same order on all devices.
    """
    specs = [tf.TensorSpec(variable.shape, variable.dtype) for variable in variables]
    for i, variable in enumerate(variables):
        with tf.device(device), tf.control_dependencies([after]):
            value = tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)
            after = tf.raw_ops.AssignVariableOp(
                resource=variable.handle, value=group.sum(value, specs, i, hint))
    return after
