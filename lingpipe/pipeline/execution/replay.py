"""Replay: runs the tasks of a failed step one by one, to find out which one fails and why.

When one device fails, TensorFlow cuts off the others, and these raise CancelledError. Often that is
the only error that arrives. Here every task is called in a graph of its own, and its results stay
on its device, because fetching them would be cut off as well.
"""
from __future__ import annotations

from collections.abc import Iterable

import tensorflow as tf

from lingpipe.pipeline.execution.compiled_pipeline import CompiledPipeline
from lingpipe.pipeline.execution.placed import call_on
from lingpipe.pipeline.execution.task_values import ReplicaBatch, TaskValues, order_of_calls
from lingpipe.pipeline.execution.wire import Wire


def replay(pipelines: Iterable[CompiledPipeline], batches: Iterable[ReplicaBatch],
           wire: Wire) -> None:
    """Runs the tasks of all replicas eagerly, up to the first that fails.

    The accumulators hold meaningless sums afterwards and must be reset.

    Args:
      pipelines: [R].
      batches: [R] the input of each replica.
      wire: what carries values to other devices.

    Raises:
      tf.errors.OpError: the error of the first task that fails.
    """
    for pipeline, batch in zip(pipelines, batches, strict=True):
        values = TaskValues(pipeline, batch, wire)
        for slot in order_of_calls(pipeline):
            device, taken = pipeline.cells[slot.cell].device, values.taken_by(slot)
            with tf.device(device):
                function = pipeline.task_of(slot).function
                results = call_on(device, function, [*values.position(slot), *taken])
            values.keep(slot, results)
