"""Measured costs: the measured seconds of each layer, for the partitioner, where FLOPs mislead."""
from __future__ import annotations

import dataclasses
import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent import futures

import tensorflow as tf

from lingpipe import cluster
from lingpipe.pipeline.execution.accumulators import Accumulators
from lingpipe.pipeline.execution.cell_trace import trace_cell
from lingpipe.pipeline.execution.compiled_task import CompiledTask
from lingpipe.pipeline.execution.forward_trace import TracingOptions, trace_forward
from lingpipe.pipeline.execution.mean_weight import MEAN_WEIGHT
from lingpipe.pipeline.execution.placed import placed
from lingpipe.pipeline.execution.task_call import TaskCall
from lingpipe.pipeline.planning.cell import Cell, Leaf, leaves_of
from lingpipe.pipeline.planning.dataflow import Element


def layer_seconds(elements: Sequence[Element], devices: Sequence[str],
                  repeats: int = 10, budget_s: float = math.inf) -> list[tuple[float, float]]:
    """Measures the seconds of each layer's forward and backward for one micro-batch.

    Layers are timed as a pipeline runs them: copies of the same layers run on all devices at once,
    since logical CPU devices share memory, caches and often cores; and each call is one of several
    in a graph. Layers that are alike are all timed, since one layer that runs again and again finds
    its weights in the caches. All layers are timed once, then all a second time, and so on, each
    device beginning with another layer. So a passing load on the machine is not mistaken for the
    cost of the few layers that were timed during it. The median of all rounds and devices counts.
    The shortest time would not do: a step has hundreds of tasks, of which few are as lucky.

    What it takes to call a function is not included. Weights and inputs are random numbers
    (integers are 0). Each device must hold all weights, and the activations of all layers for one
    micro-batch. A layer with has_backward False has a backward of 0 seconds. Grappler is off, as in
    a step.

    Args:
      elements: the layers.
      devices: tf.device strings, all of this process.
      repeats: how many rounds there are at least, if there is time; short ones are more.
      budget_s: seconds after which no other round begins; there is at least one.
    """
    started_s = time.perf_counter()
    cluster.set_graph_optimizer(False)
    copies = [_timed_calls(elements, device) for device in devices]
    _times_of_round(copies)   # The first calls are slow.

    rounds: list[list[_Times]] = []
    first_s = time.perf_counter()
    while not rounds or time.perf_counter() - started_s < budget_s and (
            len(rounds) < repeats or time.perf_counter() - first_s < _ROUND_S * repeats):
        rounds.append(_times_of_round(copies))
    of_devices = [times for of_round in rounds for times in of_round]
    medians = [statistics.median(of_call) for of_call in zip(*of_devices, strict=True)]

    # The shortest, since what other devices and programs delay is not of the graph.
    start_s = min(times[0] for times in of_devices)
    by_pass = {calls.what: max(_LEAST_S, seconds - start_s / calls.number)
               for calls, seconds in zip(copies[0], medians, strict=True)}
    return [(by_pass[i, 'forward'], by_pass.get((i, 'backward'), 0.0))
            for i in range(len(elements))]


def cpu_devices(number: int) -> list[str]:
    """The first logical CPU devices of this process, but no more than it may use processors.

    More copies of a layer than processors would wait for each other, which those of a pipeline
    mostly do not, since some of its devices are idle.
    """
    number = min(number, len(os.sched_getaffinity(0)), len(tf.config.list_logical_devices('CPU')))
    return [f'CPU:{i}' for i in range(number)]


def slot_seconds(device: str, repeats: int = 10) -> float:
    """Measures what it takes to call a task that does nothing, in a graph of many."""
    calls = _empty_calls(device, NUM_EMPTY_CALLS)
    calls.run()
    return statistics.median(_seconds(calls.run) for _ in range(repeats)) / calls.number


NUM_EMPTY_CALLS = 100

# Calls of a layer in one graph: many, if they are short, since starting the graph takes 0.1 ms and
# more, which differs from graph to graph.
_MAX_CALLS = 40
_ENOUGH_S = 8e-3
_ROUND_S = 0.2    # that a round counts for, since few short ones may all be unlucky
_LEAST_S = 1e-6   # No call is shorter, whatever the clock says of the two that are subtracted.


@dataclasses.dataclass(frozen=True)
class _Calls:
    """A graph that calls a task several times, one call after the other.

    Attributes:
      what: the layer and the pass; None for a task that does nothing.
      number: how many calls.
      run: runs the graph and waits for it.
    """
    what: tuple[int, str] | None
    number: int
    run: Callable[[], None]


_Times = list[float]   # seconds of a call, for each _Calls of a device


def _timed_calls(elements: Sequence[Element], device: str) -> list[_Calls]:
    """The graphs of a device: an empty one, and one for each pass of each layer."""
    graphs = [_empty_calls(device, 1)]
    for i, element in enumerate(elements):
        for name, (task, taken) in zip(('forward', 'backward'), _tasks(element, device),
                                       strict=False):
            once = _repeated(task, taken, device, 1)
            once()
            shortest_s = min(_seconds(once) for _ in range(3))
            number = min(_MAX_CALLS, 1 + int(_ENOUGH_S / shortest_s))
            run = once if number == 1 else _repeated(task, taken, device, number)
            graphs.append(_Calls((i, name), number, run))
    return graphs


def _times_of_round(copies: Sequence[Sequence[_Calls]]) -> list[_Times]:
    """Runs all graphs of all devices once, all devices at a time; returns [devices] times."""
    num_graphs = len(copies[0])

    def times_of(place: int) -> _Times:
        first = place * num_graphs // len(copies)
        order = [*range(first, num_graphs), *range(first)]
        copies[place][0].run()   # TensorFlow makes itself at home in a new thread.
        seconds = {i: _seconds(copies[place][i].run) / copies[place][i].number for i in order}
        return [seconds[i] for i in range(num_graphs)]

    with futures.ThreadPoolExecutor(len(copies)) as threads:
        return list(threads.map(times_of, range(len(copies))))


def _empty_calls(device: str, number: int) -> _Calls:
    """Calls of a task that adds two numbers."""
    add = placed(lambda x: [x + 1.0])

    def body(x: tf.Tensor) -> tf.Tensor:
        with tf.device(device):
            for _ in range(number):
                x, = add(x)
        return x

    graph = tf.compat.v1.wrap_function(body, [tf.TensorSpec([], tf.float32)])
    with tf.device(device):
        one = tf.constant(1.0)
    return _Calls(None, number, lambda: _wait_for(graph(one)))


def _seconds(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _repeated(task: CompiledTask, taken: Sequence[tf.Tensor], device: str,
              number: int) -> Callable[[], None]:
    """A function that calls a task several times in one graph and waits for the last."""
    def body(*args: tf.Tensor) -> tf.Tensor:
        call = TaskCall(task.function, device)
        before: list[tf.Tensor] = []
        for _ in range(number):
            with tf.control_dependencies(before):
                before = [call.add(args)[-1]]
        return before[0]

    graph = tf.compat.v1.wrap_function(body, [tf.TensorSpec(t.shape, t.dtype) for t in taken])
    return lambda: _wait_for(graph(*taken))


def _wait_for(result: tf.Tensor) -> None:
    """Returns when the device is done."""
    result.numpy()


def _tasks(element: Element, device: str) -> list[tuple[CompiledTask, list[tf.Tensor]]]:
    """The task that runs a layer forward and, if it has a backward, the one that runs it backward.

    Each stands beside what it takes.
    """
    cell = Cell(0, [element], device)
    with tf.device(device):
        variables = {w.shared_with or w.path: tf.Variable(w.initial_value(0))
                     for w in element.layer.weights()}
        inputs = [_random(spec) for v in cell.inputs for spec in v.specs]
        outputs = [(v, i) for v in element.writes.values()
                   for i, carries in enumerate(v.carries_gradient) if carries]
        gradients = [_random(v.specs[i]) for v, i in outputs]

    def read(path: str) -> tf.Tensor | None:
        return tf.raw_ops.ReadVariableOp(
            resource=variables[path].handle,
            dtype=variables[path].dtype) if path in variables else None

    def given(task: CompiledTask) -> list[tf.Tensor]:
        """What the task takes, without the residuals."""
        with tf.device(device):
            position = [tf.constant(0, tf.int64), tf.constant(0)]
        taken = [by_leaf[leaf] for leaf in task.inputs] + [
            tf.convert_to_tensor(variables[p]) for p in task.shared]
        with tf.device(device):
            taken += [tf.cast(variables[path], dtype) for path, dtype in task.casts]
        return position + taken + [by_gradient[leaf] for leaf in task.gradients_in]

    # Without recomputation, forward and backward are two tasks, and neither repeats work of the
    # other.
    traced = trace_forward(cell, read, TracingOptions(training=True))
    accumulators = Accumulators(device, element.trained, traced.layout)
    trace = trace_cell(traced, accumulators, outputs, ['F', *['B'] * element.has_backward])
    forward, backward = trace.tasks['F'], trace.tasks.get('B')

    by_leaf: dict[Leaf, tf.Tensor] = {MEAN_WEIGHT: tf.constant(1.),
                                      **dict(zip(leaves_of(cell.inputs), inputs, strict=True))}
    by_gradient = dict(zip(outputs, gradients, strict=True))

    tasks = [(forward, given(forward))]
    if backward is not None:
        with tf.device(device):
            results: list[tf.Tensor] = forward.function(*given(forward))
        residuals = results[len(forward.outputs):-1]
        tasks.append((backward, given(backward) + residuals))
    return tasks


def _random(spec: tf.TensorSpec) -> tf.Tensor:
    if spec.dtype.is_floating:
        return tf.cast(tf.random.stateless_normal(spec.shape, [0, 0]), spec.dtype)
    return tf.zeros(spec.shape, spec.dtype)
