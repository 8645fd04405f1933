"""Step graph: the tasks of all cells, called in the order of a schedule, as one graph.

The graph holds a call for every task, the data between them and, for each device, control dependencies in the order of
its list. It is traced by wrap_function, which unlike tf.function adds no automatic control dependencies: those would chain
all tasks, which are stateful since they read weights and add to accumulators.
"""
from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lingpipe.cluster import HOME
from lingpipe.layers import nested
from lingpipe.pipeline.execution.accumulators import Accumulators
from lingpipe.pipeline.execution.bad_ids import BadIdError, find_bad_id
from lingpipe.pipeline.execution.compiled_task import CompiledTask
from lingpipe.pipeline.execution.mean_weight import MEAN_WEIGHT
from lingpipe.pipeline.execution.placed import call_on
from lingpipe.pipeline.execution.wire import Wire
from lingpipe.pipeline.planning.cell import Cell, Leaf, edges_of_tasks
from lingpipe.pipeline.planning.dataflow import BATCH, Element, Value
from lingpipe.pipeline.planning.dependencies import play
from lingpipe.pipeline.planning.schedules import Schedule, Slot


@dataclasses.dataclass
class Ran:
    """What running the tasks left in the graph.

    Attributes:
      last: the last op of every device, by cell: what comes after must wait for it.
      values: value -> its leaves for each micro-batch, as long as the cells give them.
      stamps: [num_tasks, 2] seconds, start and end, in the order of `slots`, if asked for.
      slots: in the order of the calls on each device, device after device.
    """
    last: list[tf.Operation]
    values: dict[tuple[Leaf, int], tf.Tensor]
    stamps: tf.Tensor | None
    slots: list[Slot]


def run_tasks(schedule: Schedule, cells: Sequence[Cell], tasks: dict[tuple[str, int], CompiledTask],
              batch: dict[str, Any], step: tf.Tensor, first_micro_batch: tf.Tensor,
              read_shared: Callable[[str], tf.Tensor], wire: Wire, is_timed: bool = False,
              accumulators: Sequence[Accumulators] = (), mean_weight: tf.Tensor | None = None) -> Ran:
    """Adds the calls of all tasks to the graph being traced; or, called eagerly, runs them one after the other.

    Args:
      schedule: the order on each device.
      cells: [K].
      tasks: (kind, k) -> traced task.
      batch: the mini-batch, nested tensors by name.
      step: int64 scalar.
      first_micro_batch: int32 scalar, the index of the first micro-batch among those that are accumulated for one update.
      read_shared: makes the op that reads a weight, on the device of its owner.
      wire: what carries values to other devices.
      is_timed: stamps the time before and after every task.
      accumulators: [K], to be told of the ends of groups; none: there are no groups.
      mean_weight: Context.mean_weight, if a task asks for it.
    """
    micro = _split(batch, _batch_values(cells), schedule.num_micro_batches)
    values: dict[tuple[Leaf, int], tf.Tensor] = dict(micro)
    if mean_weight is not None:
        values.update({(MEAN_WEIGHT, m): mean_weight for m in range(schedule.num_micro_batches)})
    sums: dict[tuple[Leaf, int], tf.Tensor] = {}
    makers: dict[tuple[Leaf, int], str] = {}  # the devices that values are on
    adders: dict[tuple[Leaf, int], str] = {}  # and gradients
    residuals: dict[tuple[int, int], list[tf.Tensor]] = {}
    last: list[tf.Operation | None] = [None] * len(cells)
    last_on: list[tf.Operation | None] = [None] * len(schedule.devices)
    shared = {path: read_shared(path) for path in dict.fromkeys(p for t in tasks.values() for p in t.shared)}
    order = list(play(schedule, lambda task: 1.0, edges_of_tasks(cells)))
    if not tf.executing_eagerly():
        first_micro_batch = _after_ref_variable(first_micro_batch)
    index = _indices(first_micro_batch, [cell.device for cell in cells], schedule.num_micro_batches)
    stamps: dict[str, list[tuple[Slot, list[tf.Tensor]]]] = {cell.device: [] for cell in cells}
    for task in order:
        kind, k, m = task
        traced = tasks[kind, k]
        device, home = cells[k].device, schedule.device_of[task]
        given = [wire.carried(values[leaf, m], makers.get((leaf, m), device), device) for leaf in traced.inputs]
        given += [shared[path] for path in traced.shared]
        given += [wire.carried(sums[leaf, m], adders[leaf, m], device) for leaf in traced.gradients_in]
        if traced.num_residuals_in:
            given += residuals.pop((k, m))
        with tf.device(device):
            before = [last_on[home]] if last_on[home] is not None else []
            if is_timed:
                with tf.control_dependencies(before + given):
                    start = tf.timestamp()
                before = [start.op]
            with tf.control_dependencies(before):
                results = call_on(device, traced.function, [step, index[device][m], *given])
            op = None if tf.executing_eagerly() else results[0].op
            if is_timed:
                with tf.control_dependencies(results):
                    end = tf.timestamp()
                op = end.op
                stamps[device].append((task, [start, end]))
            if accumulators and op is not None:
                with tf.control_dependencies([op]):
                    if ends := accumulators[k].end_of_group(kind, schedule.is_fused(task), m):
                        op = tf.group(ends)
            last[k] = last_on[home] = op
        num_values, num_gradients = len(traced.outputs), len(traced.gradients_out)
        values.update({(leaf, m): t for leaf, t in zip(traced.outputs, results, strict=False)})
        makers.update({(leaf, m): device for leaf in traced.outputs})
        sums.update({(leaf, m): t for leaf, t in zip(traced.gradients_out, results[num_values:], strict=False)})
        adders.update({(leaf, m): device for leaf in traced.gradients_out})
        residuals[k, m] = results[num_values + num_gradients:-1]
    stamped = [task for pairs in stamps.values() for task, _ in pairs]
    return Ran([op for op in last if op is not None], values, _stacked(stamps) if is_timed else None, stamped)


@contextlib.contextmanager
def explained(elements: Sequence[Element], batch: Mapping[str, Any]) -> Iterator[None]:
    """Within it, a step that fails says why.

    Raises:
      BadIdError: the mini-batch has an id that a layer cannot use.
      ValueError: XLA cannot compile a task.
    """
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        if bad := find_bad_id(elements, batch):
            raise BadIdError(bad.sentence()) from error
        if 'tf2xla conversion failed' not in error.message:
            raise
        found = re.search(r'unsupported operations when .*: (\w+) \(.*?\{\{node ([^}]*?)\./', error.message)
        what = f'{found[1]} of {found[2]}' if found else f'a task ({error.message.strip().splitlines()[0][:200]})'
        raise ValueError(f'XLA cannot compile {what}, and it must compile all layers or none; set pipeline.jit_compile=False, or use other '
                         f'ops there.') from error


def check_batch(batch: dict[str, Any], batch_spec: dict[str, Any]) -> dict[str, Any]:
    """The values of a mini-batch that batch_spec names.

    Raises:
      ValueError: one is missing, or has another shape or dtype.
    """
    batch = {name: batch[name] for name in batch_spec if name in batch}
    expected = dict(nested.flatten(batch_spec))
    found = dict(nested.flatten(batch))
    if set(found) != set(expected):
        raise ValueError(f'the mini-batch has {", ".join(sorted(found))}, but the network was built for {", ".join(sorted(expected))}.')
    for path, spec in expected.items():
        value = found[path] if hasattr(found[path], 'dtype') else np.asarray(found[path])
        shape, dtype = tuple(np.shape(value)), tf.as_dtype(value.dtype)
        if shape != tuple(spec.shape) or dtype != spec.dtype:
            raise ValueError(f'{path!r} of the mini-batch is {dtype.name} {shape}, but the network was built for {spec.dtype.name} '
                             f'{tuple(spec.shape)}; all mini-batches must be alike: drop or pad the last one.')
    return batch


def is_of_spec(batch: dict[str, Any], batch_spec: dict[str, Any]) -> bool:
    """Whether check_batch would say nothing."""
    try:
        check_batch(batch, batch_spec)
    except ValueError:
        return False
    return True


def _after_ref_variable(value: tf.Tensor) -> tf.Tensor:
    """The value, after an op that gives a ref variable, which nobody reads; then a graph of many tasks takes half as long to run first.

    Before the first run, a pass for XLA (EncapsulateSubgraphsPass), which runs whether XLA is used or not, asks of every call whether ref
    variables play a part in it. For that it builds the called function's body, for each call anew, unless the call comes after one.
    """
    with tf.device(HOME):
        ref = tf.raw_ops.VariableV2(shape=[], dtype=tf.int32)
        with tf.control_dependencies([ref.op]):
            return tf.identity(value)


def _indices(first: tf.Tensor, devices: Sequence[str], num_micro_batches: int) -> dict[str, list[tf.Tensor]]:
    """Device -> the indices of all micro-batches, computed on that device so that none is sent."""
    made = {}
    for device in dict.fromkeys(devices):
        with tf.device(device):
            made[device] = [first + m for m in range(num_micro_batches)]
    return made


def _stacked(stamps: dict[str, list[tuple[Slot, list[tf.Tensor]]]]) -> tf.Tensor:
    """[num_tasks, 2] seconds, device after device; each device sends all of its stamps in one tensor."""
    made = []
    for device, pairs in stamps.items():
        with tf.device(device):
            made.append(tf.stack([tf.stack(pair) for _, pair in pairs]))
    return tf.concat(made, 0)


def _split(batch: dict[str, Any], wanted: Iterable[Value], num_micro_batches: int) -> dict[tuple[Leaf, int], tf.Tensor]:
    """The parts of a mini-batch, in this process's memory, from which each goes to the devices that read it."""
    made = {}
    with tf.device(HOME):
        for value in wanted:
            for i, tensor in enumerate(nested.leaves(batch[value.name])):
                for m, part in enumerate(tf.split(tensor, num_micro_batches)):
                    made[(value, i), m] = part
    return made


def _batch_values(cells: Sequence[Cell]) -> list[Value]:
    return list(dict.fromkeys(v for cell in cells for v in cell.inputs if v.maker == BATCH))
