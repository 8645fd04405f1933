"""Replay: the tasks of a step that has failed, run one by one, to find out which one fails and why.

Devices that are cut off when another one fails say Cancelled, and often that is all that is said.
Here every task is called in a graph of its own, whose results stay where they are made: anything
that is fetched would be cut off too.
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
    """Runs the tasks of all replicas, eagerly, up to the first that fails.

    What the tasks add to their accumulators is lost: they must be reset afterwards.

    Args:
      pipelines: [R].
      batches: [R] what each was given.
      wire: what carries values to other devices.

    Raises:
      tf.errors.OpError: what the first task that fails says.
    """
    for pipeline, batch in zip(pipelines, batches, strict=True):
        values, tasks = TaskValues(pipeline, batch, wire), pipeline.tasks
        for slot in order_of_calls(pipeline):
            device, taken = pipeline.cells[slot.cell].device, values.taken_by(slot)
            with tf.device(device):
                function = tasks[slot.kind, slot.cell].function
                results = call_on(device, function, [*values.position(slot), *taken])
            values.keep(slot, results)
