"""Replay: runs the tasks of a failed step one by one, to find out which one fails and why.

When one device fails, TensorFlow cuts off the others, and these raise CancelledError. Often that is
the only error that arrives. And where cells that are alike share a task, its error names the layers
of the one that was traced. Here every task is called in a graph of its own, and its results stay on
its device, because fetching them would be cut off as well.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import tensorflow as tf

from lingpipe.pipeline.execution.compiled_pipeline import CompiledPipeline
from lingpipe.pipeline.execution.placed import call_on
from lingpipe.pipeline.execution.task_values import ReplicaBatch, TaskValues, order_of_calls
from lingpipe.pipeline.execution.wire import Wire

T = TypeVar('T')

# Errors of a task itself, which may name another cell's layer; others are those of machines.
_OF_TASKS = (tf.errors.InvalidArgumentError, tf.errors.ResourceExhaustedError)


def run_or_replay(run: Callable[[], T], pipelines: Iterable[CompiledPipeline],
                  batches: Callable[[], Iterable[ReplicaBatch]], wire: Wire) -> T:
    """Runs a step; if it fails, its tasks run one by one where that tells more.

    Args:
      run: the step.
      pipelines, wire: as of `replay`; without pipelines nothing runs again.
      batches: makes those of `replay`.

    Raises:
      tf.errors.OpError: the step's error, or that of the task that fails.
    """
    pipelines = list(pipelines)
    try:
        return run()
    except (tf.errors.CancelledError, *_OF_TASKS) as error:
        is_shared = any(task.scopes for one in pipelines for task in one.tasks.values())
        if pipelines and (is_shared or isinstance(error, tf.errors.CancelledError)):
            replay(pipelines, batches(), wire)
        raise


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
                task = pipeline.task_of(slot)
                try:
                    results = call_on(device, task.function, [*values.position(slot), *taken])
                except _OF_TASKS as error:
                    message = _renamed(error.message, task.scopes)
                    raise type(error)(error.node_def, error.op, message) from error
            values.keep(slot, results)


def _renamed(message: str, scopes: Mapping[str, str]) -> str:
    """A message that names the layers of this cell; see CompiledTask.scopes."""
    longest_first = sorted(scopes, key=len, reverse=True)
    pattern = '|'.join(map(re.escape, longest_first)) or '$^'
    return re.sub(pattern, lambda match: scopes[match[0]], message)
