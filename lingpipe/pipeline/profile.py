"""Profile: measured seconds of each layer, for the partitioner, when FLOPs say too little."""
from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import tensorflow as tf

from lingpipe.pipeline.accumulators import Accumulators
from lingpipe.pipeline.cell import Cell, Leaf, leaves_of
from lingpipe.pipeline.mean_weight import MEAN_WEIGHT
from lingpipe.pipeline.tracer import CellTracer
from lingpipe.pipeline.wiring import Element


def layer_seconds(elements: Sequence[Element], device: str, repeats: int = 30) -> list[float]:
    """Seconds of one micro-batch's forward and backward of each layer by itself, on one device: the least of `repeats`.

    All layers are timed once, in the order of the network, then all a second time, and so on: what else the machine does for a while
    is then not taken for the cost of the few layers that were timed in that while. Weights and inputs are random numbers (integers are
    0); the device must hold all weights and a micro-batch's activations. A layer with has_backward False is timed forward only.
    """
    tasks = [_task(element, device) for element in elements]
    for task in tasks:
        task()
    times = [[_seconds(task) for task in tasks] for _ in range(repeats)]
    return [min(of_layer) for of_layer in zip(*times, strict=True)]


def _seconds(task: Callable[[], None]) -> float:
    start = time.perf_counter()
    task()
    return time.perf_counter() - start


def _task(element: Element, device: str) -> Callable[[], None]:
    """What runs a layer forward and, if it has one, backward, once, and waits for it."""
    cell = Cell(0, [element], device)
    with tf.device(device):
        variables = {w.shared_with or w.path: tf.Variable(w.initial_value(0)) for w in element.layer.weights()}
        accumulators = Accumulators(device, element.trained)
        inputs = [_random(spec) for v in cell.inputs for spec in v.specs]
        outputs = [(v, i) for v in element.writes.values() for i, carries in enumerate(v.carries_gradient) if carries]
        gradients = [_random(v.specs[i]) for v, i in outputs]

    def read(path: str) -> tf.Tensor | None:
        return tf.raw_ops.ReadVariableOp(resource=variables[path].handle, dtype=variables[path].dtype) if path in variables else None

    tracer = CellTracer(cell, read, accumulators, 0, 'cell', training=True)
    forward, both = tracer.trace(outputs, is_fused=element.has_backward)
    task = both or forward
    assert task is not None
    by_leaf: dict[Leaf, tf.Tensor] = {MEAN_WEIGHT: tf.constant(1.), **dict(zip(leaves_of(cell.inputs), inputs, strict=True))}
    by_gradient = dict(zip(outputs, gradients, strict=True))
    given = [by_leaf[leaf] for leaf in task.inputs] + [tf.convert_to_tensor(variables[p]) for p in task.shared]
    given += [by_gradient[leaf] for leaf in task.gradients_in]

    def run() -> None:
        with tf.device(device):
            task.function(tf.constant(0, tf.int64), tf.constant(0), *given)[-1].numpy()

    return run


def _random(spec: tf.TensorSpec) -> tf.Tensor:
    if spec.dtype.is_floating:
        return tf.cast(tf.random.stateless_normal(spec.shape, [0, 0]), spec.dtype)
    return tf.zeros(spec.shape, spec.dtype)


