"""Handing round: with sharded slots, each replica sends the weights that it updates to the others.

    replica 0    updates a  --+            +-->  a, b
                              +-- layers --+
    replica 1    updates b  --+            +-->  a, b

One layer is sent after the other, so that the weights of only one are on their way at a time. What
arrives is what every replica would have computed itself, to the last bit.
"""
from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from lingpipe.pipeline.replication.replicas import Replica


def hand_round(replicas: Sequence[Replica],
               updated: Sequence[Sequence[tf.Tensor]]) -> list[tf.Tensor | tf.Operation]:
    """Sets the weights of every replica to those that another one has updated.

    Args:
      replicas: [R].
      updated: [R, K] what exists once a cell of a replica is updated.

    Returns:
      What exists once all replicas are updated and equal.
    """
    done: list[tf.Tensor | tf.Operation] = [tensor for of_cells in updated for tensor in of_cells]
    for k, cell in enumerate(replicas[0].cells):
        sent: list[tf.Operation] = []
        for element in cell.elements:
            paths = [weight.path for weight in element.trained if weight.shared_with is None]
            assigned = [op for path in paths for op in _sent(path, replicas, k, updated, sent)]
            if assigned:
                with tf.device(cell.device), tf.control_dependencies(assigned):
                    sent = [tf.no_op()]
        done += sent
    return done


def _sent(path: str, replicas: Sequence[Replica], k: int, updated: Sequence[Sequence[tf.Tensor]],
          before: Sequence[tf.Operation]) -> list[tf.Operation]:
    """Sends one weight of cell k to the replicas that do not update it, after some ops."""
    owner = next(replica for replica in replicas if path in replica.placed.updated)
    others = [replica for replica in replicas if path not in replica.placed.updated]
    if not others:
        return []
    weight = owner.placed.weights[path]
    with tf.device(owner.cells[k].device), tf.control_dependencies(
            [updated[owner.index][k], *before]):
        value = tf.raw_ops.ReadVariableOp(resource=weight.handle, dtype=weight.dtype)

    ops = []
    for replica in others:
        # Its norms and tasks have read the weight: the update of the owner comes after them.
        with tf.device(replica.cells[k].device):
            ops.append(tf.raw_ops.AssignVariableOp(
                resource=replica.placed.weights[path].handle, value=value))
    return ops
