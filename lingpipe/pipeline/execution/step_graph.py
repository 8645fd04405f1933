"""Step graph: one graph that calls the tasks of all cells in the order of a schedule.

The graph holds a call for every slot, the data between the calls and, for each device, control
dependencies in the order of its list. It is traced by wrap_function, which unlike tf.function adds
no automatic control dependencies: those would chain all tasks, which are stateful since they read
weights and add to accumulators.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from lingpipe.cluster import HOME
from lingpipe.pipeline.execution.compiled_pipeline import CompiledPipeline
from lingpipe.pipeline.execution.stamps import Stamps
from lingpipe.pipeline.execution.task_call import TaskCall
from lingpipe.pipeline.execution.task_values import ReplicaBatch, TaskValues, order_of_calls
from lingpipe.pipeline.execution.wire import Wire
from lingpipe.pipeline.planning.schedule import Slot


@dataclasses.dataclass(frozen=True, eq=False)
class AddedTasks:
    """What the calls of all tasks leave in the graph.

    Attributes:
      last: [K] the last op of every cell; whatever uses its sums must wait for it.
      values: what the cells have written for others.
    """
    last: Sequence[tf.Operation]
    values: TaskValues


def add_tasks(pipeline: CompiledPipeline, batch: ReplicaBatch, wire: Wire,
              stamps: Stamps | None = None) -> AddedTasks:
    """Adds the calls of all tasks of a replica to the graph that is being traced.

    Args:
      pipeline: the tasks and their order.
      batch: the input of the replica.
      wire: what carries values to other devices.
      stamps: records when every task runs; None if the step is not timed.
    """
    schedule = pipeline.schedule
    first_micro_batch = _after_ref_variable(batch.first_micro_batch)
    values = TaskValues(
        pipeline, dataclasses.replace(batch, first_micro_batch=first_micro_batch), wire)
    calls = {(kind, k): TaskCall(task.function, pipeline.cells[k].device)
             for (kind, k), task in pipeline.tasks.items()}
    last_of_cell: dict[int, tf.Operation] = {}
    last_on_device: dict[int, tf.Operation] = {}

    for slot in order_of_calls(pipeline):
        device, home = pipeline.cells[slot.cell].device, schedule.device_of[slot]
        taken = values.taken_by(slot)
        before = [last_on_device[home]] if home in last_on_device else []
        if stamps is not None:
            before = [stamps.start(slot, device, before, taken)]

        with tf.control_dependencies(before):
            call = calls[schedule.task_kind(slot), slot.cell]
            results = call.add([*values.position(slot), *taken])
        op = results[0].op

        if stamps is not None:
            op = stamps.end(slot, device, results)
        if pipeline.accumulators[slot.cell].ends_group(slot.micro_batch):
            op = _after_end_of_group(pipeline, slot, op)
        last_of_cell[slot.cell] = last_on_device[home] = op
        values.keep(slot, results)

    return AddedTasks([last_of_cell[k] for k in sorted(last_of_cell)], values)


def _after_end_of_group(pipeline: CompiledPipeline, slot: Slot, op: tf.Operation) -> tf.Operation:
    """Returns the op after which the next slot may run; sets sums aside where a group ends."""
    accumulators, schedule = pipeline.accumulators[slot.cell], pipeline.schedule
    with tf.device(pipeline.cells[slot.cell].device), tf.control_dependencies([op]):
        ends = accumulators.end_of_group(
            slot.micro_batch, schedule.runs_forward(slot), schedule.adds_gradients(slot))
        return tf.group(ends) if ends else op


def _after_ref_variable(value: tf.Tensor) -> tf.Tensor:
    """Returns the value, made to depend on a ref variable that nobody reads.

    This halves the time of a graph's first run if it has many tasks. Before the first run, one of
    TensorFlow's passes for XLA (EncapsulateSubgraphsPass, which runs even without XLA) checks for
    every call whether ref variables take part in it. If no ref variable comes before the call, the
    pass builds the body of the called function, again for each call.
    """
    with tf.device(HOME):
        ref = tf.raw_ops.VariableV2(shape=[], dtype=tf.int32)
        with tf.control_dependencies([ref.op]):
            return tf.identity(value)
