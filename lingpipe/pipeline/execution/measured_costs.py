"""Measured costs: the measured seconds of each layer, for the partitioner, where FLOPs mislead."""
from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import tensorflow as tf

from lingpipe.pipeline.execution.accumulators import Accumulators
from lingpipe.pipeline.execution.cell_trace import trace_cell
from lingpipe.pipeline.execution.compiled_task import CompiledTask
from lingpipe.pipeline.execution.forward_trace import TracingOptions, trace_forward
from lingpipe.pipeline.execution.mean_weight import MEAN_WEIGHT
from lingpipe.pipeline.planning.cell import Cell, Leaf, leaves_of
from lingpipe.pipeline.planning.dataflow import Element


def layer_seconds(elements: Sequence[Element], device: str,
                  repeats: int = 30, budget_s: float = math.inf) -> list[tuple[float, float]]:
    """Measures the seconds of each layer's forward and backward for one micro-batch, on one device.

    Each layer runs by itself, and the shortest of `repeats` times counts. All layers are timed once
    in the order of the network, then all a second time, and so on. So a passing load on the machine
    is not mistaken for the cost of the few layers that were timed during it.

    Weights and inputs are random numbers (integers are 0). The device must hold all weights, and
    the activations of all layers for one micro-batch. A layer with has_backward False has a
    backward of 0 seconds.

    Args:
      elements: the layers.
      device: a tf.device string.
      repeats: how many rounds there are, if there is time.
      budget_s: seconds after which no other round begins; there is at least one.
    """
    started_s = time.perf_counter()
    tasks = [_tasks(element, device) for element in elements]
    for of_layer in tasks:
        for task in of_layer:
            task()

    times: list[list[list[float]]] = []
    while not times or len(times) < repeats and time.perf_counter() - started_s < budget_s:
        times.append([[_seconds(task) for task in of_layer] for of_layer in tasks])
    fastest = [[min(of_task) for of_task in zip(*of_layer, strict=True)]
               for of_layer in zip(*times, strict=True)]
    return [(forward, backward[0] if backward else 0.0) for forward, *backward in fastest]


def empty_call_s(device: str, repeats: int = 100) -> float:
    """The seconds that calling a function from Python takes, which `layer_seconds` includes."""
    function = tf.function(lambda x: x + 1.0)
    with tf.device(device):
        one = tf.constant(1.0)

        def call() -> None:
            function(one).numpy()

        call()
        return min(_seconds(call) for _ in range(repeats))


def _seconds(task: Callable[[], None]) -> float:
    start = time.perf_counter()
    task()
    return time.perf_counter() - start


def _tasks(element: Element, device: str) -> list[Callable[[], None]]:
    """Functions that run a layer once forward and, if it has a backward, once backward.

    Each waits until the device is done.
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
        """The inputs of the task, without the residuals."""
        taken = [by_leaf[leaf] for leaf in task.inputs] + [
            tf.convert_to_tensor(variables[p]) for p in task.shared]
        return taken + [by_gradient[leaf] for leaf in task.gradients_in]

    def run(task: CompiledTask, residuals: Sequence[tf.Tensor] = ()) -> list[tf.Tensor]:
        with tf.device(device):
            results: list[tf.Tensor] = task.function(
                tf.constant(0, tf.int64), tf.constant(0), *given(task), *residuals)
        results[-1].numpy()
        return results

    # Without recomputation, forward and backward are two tasks, and neither repeats work of the
    # other.
    traced = trace_forward(cell, read, TracingOptions(training=True))
    accumulators = Accumulators(device, element.trained, traced.layout)
    trace = trace_cell(traced, accumulators, outputs, ['F', *['B'] * element.has_backward])
    forward, backward = trace.tasks['F'], trace.tasks.get('B')

    by_leaf: dict[Leaf, tf.Tensor] = {MEAN_WEIGHT: tf.constant(1.),
                                      **dict(zip(leaves_of(cell.inputs), inputs, strict=True))}
    by_gradient = dict(zip(outputs, gradients, strict=True))

    tasks: list[Callable[[], None]] = [lambda: _forget(run(forward))]
    if backward is not None:
        residuals = run(forward)[len(forward.outputs):-1]
        tasks.append(lambda: _forget(run(backward, residuals)))
    return tasks


def _forget(results: list[tf.Tensor]) -> None:
    """Drops the results of a task, so that it can be timed as a function that returns nothing."""


def _random(spec: tf.TensorSpec) -> tf.Tensor:
    if spec.dtype.is_floating:
        return tf.cast(tf.random.stateless_normal(spec.shape, [0, 0]), spec.dtype)
    return tf.zeros(spec.shape, spec.dtype)
