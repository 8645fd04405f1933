"""Measured costs: the measured seconds of each layer, for the partitioner, where FLOPs mislead.

The obvious way is to call each layer again and again. A layer then finds its weights and its
gradients in the caches, where a step, which has hundreds of other tasks in between, does not leave
them. Here, layers are timed as a step runs them, with a timestamp after each:

    device 0   F0 F1 F2 B2 B1 B0 | F0 F1 F2 ...          then   F3 F4 B4 B3 | ...
    device 1   F3 F4 B4 B3 | F3 F4 B4 B3 | ...           then   F0 F1 F2 B2 B1 B0 | ...

Logical CPU devices share memory, caches and often cores, so all of them work at once, each on
another span of the layers. They take turns, so that each device times each layer.

Calling a short layer takes as long as the layer itself. So each span also runs as one cell. What
its layers take longer one by one than together is the cost of the calls, which is subtracted.
"""
from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures

import numpy as np
import tensorflow as tf

from lingpipe import cluster
from lingpipe.pipeline.execution.accumulators import Accumulators
from lingpipe.pipeline.execution.cell_trace import trace_cell
from lingpipe.pipeline.execution.compiled_task import CompiledTask
from lingpipe.pipeline.execution.forward_trace import TracingOptions, trace_forward
from lingpipe.pipeline.execution.mean_weight import MEAN_WEIGHT
from lingpipe.pipeline.execution.stamps import stamp
from lingpipe.pipeline.planning.cell import Cell, Leaf, leaves_of
from lingpipe.pipeline.planning.dataflow import Element
from lingpipe.process.graph_lifetime import wrap_function

_TURN_S = 0.2     # A span of layers runs again and again for so long before it is another's turn.
_LEAST_S = 1e-6   # No pass is shorter, whatever the clock says of the two that are subtracted.


def layer_seconds(elements: Sequence[Element], devices: Sequence[str],
                  repeats: int = 10, budget_s: float = math.inf) -> list[tuple[float, float]]:
    """Measures the seconds of each layer's forward and backward for one micro-batch.

    The median of all times of a layer counts. The shortest would not do: a step has hundreds of
    tasks, of which few are as lucky. What it takes to call a function is not included. Values that
    no timed layer makes are random numbers (integers are 0). Each device must hold all weights, and
    the activations of its share of the layers for one micro-batch. A layer with has_backward False
    has a backward of 0 seconds. Grappler is off, as in a step.

    Args:
      elements: the layers, in order.
      devices: tf.device strings, all of this process.
      repeats: how many turns each device has at each span of layers.
      budget_s: seconds after which no other turn begins, if each layer has been timed.
    """
    started_s = time.perf_counter()
    cluster.set_graph_optimizer(False)
    num_spans = min(len(devices), len(elements))
    cuts = [len(elements) * i // num_spans for i in range(num_spans + 1)]
    spans = [[_timed_span(elements[first:end], device)
              for first, end in itertools.pairwise(cuts)] for device in devices]

    def run(place: int, number: int) -> np.ndarray:
        return spans[place][number].times(_TURN_S)

    times_of_span: list[list[np.ndarray]] = [[] for _ in range(num_spans)]
    places = range(len(devices))
    with futures.ThreadPoolExecutor(len(devices)) as threads:
        for turn in range(repeats * num_spans):
            if turn >= num_spans and time.perf_counter() - started_s > budget_s:
                break
            numbers = [(place + turn) % num_spans for place in places]
            for number, times in zip(numbers, threads.map(run, places, numbers), strict=True):
                times_of_span[number].append(times)
    return [seconds for span, times in zip(spans[0], times_of_span, strict=True)
            for seconds in span.layer_seconds(np.concatenate(times))]


def cpu_devices(number: int) -> list[str]:
    """The first logical CPU devices of this process, but no more than it may use processors.

    More copies of a layer than processors would wait for each other, which those of a pipeline
    mostly do not, since some of its devices are idle.
    """
    number = min(number, len(os.sched_getaffinity(0)), len(tf.config.list_logical_devices('CPU')))
    return [f'CPU:{i}' for i in range(number)]


@dataclasses.dataclass(frozen=True)
class _TimedSpan:
    """A graph that runs a span of layers on a device, each layer by itself and then as one cell.

    Attributes:
      num_layers: how many.
      passes: of layers: the index of a layer in the span, and 'F' or 'B', in order.
      run: runs the graph; returns the seconds of these passes, and of those of the cell.
    """
    num_layers: int
    passes: Sequence[tuple[int, str]]
    run: Callable[[], np.ndarray]

    def times(self, duration_s: float) -> np.ndarray:
        """Returns [runs, passes] seconds of the runs that begin in a duration, at least of one."""
        until_s = time.perf_counter() + duration_s
        times = [self.run()]
        while time.perf_counter() < until_s:
            times.append(self.run())
        return np.stack(times)

    def layer_seconds(self, times: np.ndarray) -> list[tuple[float, float]]:
        """Returns the seconds of each layer's forward and backward, from [runs, passes] seconds."""
        medians = np.median(times, axis=0)
        of_layers, of_cell = np.split(medians, [len(self.passes)])
        num_calls = len(of_layers) - len(of_cell)
        call_s = (of_layers.sum() - of_cell.sum()) / num_calls if num_calls else 0.0
        by_pass = {key: max(_LEAST_S, float(seconds - call_s))
                   for key, seconds in zip(self.passes, of_layers, strict=True)}
        return [(by_pass[i, 'F'], by_pass.get((i, 'B'), 0.0)) for i in range(self.num_layers)]


def _timed_span(elements: Sequence[Element], device: str) -> _TimedSpan:
    """Builds the graph, and runs it once, since the first run is slow."""
    with tf.device(device):
        variables = {w.shared_with or w.path: tf.Variable(w.initial_value(0))
                     for element in elements for w in element.layer.weights()}
        number = tf.constant(1.0)
    layers = [_traced([element], device, variables) for element in elements]
    whole = _traced(elements, device, variables)

    order = [(i, 'F') for i in range(len(layers))] + [
        (i, 'B') for i in reversed(range(len(layers)))]
    passes = [(i, kind) for i, kind in order if kind in layers[i].tasks]
    calls = [*((layers[i], kind) for i, kind in passes), *((whole, kind) for kind in whole.tasks)]
    graph = wrap_function(functools.partial(_stamps, calls, device),
                          [tf.TensorSpec([], tf.float32)])
    graph(number)
    return _TimedSpan(len(layers), passes, lambda: np.diff(graph(number).numpy()))


def _stamps(calls: Sequence[tuple[_TracedCell, str]], device: str, number: tf.Tensor) -> tf.Tensor:
    """Calls tasks one after the other, each on what those before it made.

    Args:
      calls: cells, and which task of theirs is called.
      device: a tf.device string.
      number: see `stamp`.

    Returns:
      [1 + calls] when the first call began and when each ended, in seconds since the epoch.
    """
    values = {leaf: value for cell, _ in calls for leaf, value in cell.values.items()}
    gradients = {leaf: value for cell, _ in calls for leaf, value in cell.gradients.items()}
    residuals: dict[tuple[_TracedCell, str], tf.Tensor] = {}
    with tf.device(device):
        position = [tf.constant(0, tf.int64), tf.constant(0)]
    stamps = [stamp(device, [number.op], number)]
    for cell, kind in calls:
        task = cell.tasks[kind]
        with tf.device(device), tf.control_dependencies(stamps[-1:]):
            results = iter(task.function(
                *position, *(values[leaf] for leaf in task.inputs), *cell.weights[kind],
                *(gradients[leaf] for leaf in task.gradients_in),
                *(residuals[cell, name] for name in task.residuals_in)))
        # Each zip takes as many results as it has names, and leaves the rest to the next.
        values |= zip(task.outputs, results, strict=False)
        gradients |= zip(task.gradients_out, results, strict=False)
        residuals |= zip([(cell, name) for name in task.residuals_out], results, strict=False)
        stamps.append(stamp(device, list(results), number))
    return tf.stack(stamps)


@dataclasses.dataclass(frozen=True, eq=False)
class _TracedCell:
    """A cell of one or more layers, traced without recomputation.

    Attributes:
      tasks: 'F' -> the task that runs it forward, and if it has a backward, 'B' -> that. Neither
        repeats work of the other.
      values: random numbers for each leaf that it reads.
      gradients: random numbers for each leaf that it writes for others and that has a gradient.
      weights: 'F' or 'B' -> the weights of other cells that the task takes, and narrowed ones.
    """
    tasks: Mapping[str, CompiledTask]
    values: Mapping[Leaf, tf.Tensor]
    gradients: Mapping[Leaf, tf.Tensor]
    weights: Mapping[str, Sequence[tf.Tensor]]


def _traced(elements: Sequence[Element], device: str, variables: Mapping[str, tf.Variable]
            ) -> _TracedCell:
    """Traces a cell with weights by the paths of their owners."""
    cell = Cell(0, elements, device)
    outputs = [(value, i) for value in cell.outputs
               for i, carries in enumerate(value.carries_gradient) if carries]
    with tf.device(device):
        values = {leaf: _random(leaf) for leaf in leaves_of(cell.inputs)}
        gradients = {leaf: _random(leaf) for leaf in outputs}

    def read(path: str) -> tf.Tensor | None:
        return tf.raw_ops.ReadVariableOp(
            resource=variables[path].handle,
            dtype=variables[path].dtype) if path in variables else None

    traced = trace_forward(cell, read, TracingOptions(training=True))
    trained = tuple(weight for element in elements for weight in element.trained)
    accumulators = Accumulators(device, trained, traced.layout)
    trace = trace_cell(traced, accumulators, outputs, ['F', *['B'] * cell.has_backward])
    with tf.device(device):
        weights = {kind: [*(tf.convert_to_tensor(variables[path]) for path in task.shared),
                          *(tf.cast(variables[path], dtype) for path, dtype in task.casts)]
                   for kind, task in trace.tasks.items()}
    return _TracedCell(trace.tasks, {MEAN_WEIGHT: tf.constant(1.), **values}, gradients, weights)


def _random(leaf: Leaf) -> tf.Tensor:
    value, i = leaf
    spec = value.specs[i]
    if spec.dtype.is_floating:
        return tf.cast(tf.random.stateless_normal(spec.shape, [0, 0]), spec.dtype)
    return tf.zeros(spec.shape, spec.dtype)
