"""Profile: measured seconds of each layer, for the partitioner, when FLOPs say too little."""
from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import tensorflow as tf

from lingpipe.pipeline.accumulators import Accumulators
from lingpipe.pipeline.cell import Cell, CellTracer, Leaf, leaves_of
from lingpipe.pipeline.wiring import Element


def layer_seconds(elements: Sequence[Element], device: str, repeats: int = 5) -> list[float]:
    """Seconds of one micro-batch's forward and backward of each layer by itself, on one device: the median of `repeats`.

    Weights and inputs are random numbers (integers are 0), made for one layer at a time. A layer with has_backward
    False is timed forward only.
    """
    return [_seconds(element, device, repeats) for element in elements]


def _seconds(element: Element, device: str, repeats: int) -> float:
    cell = Cell(0, [element], device)
    with tf.device(device):
        variables = {w.shared_with or w.path: tf.Variable(w.initial_value(0)) for w in element.layer.weights()}
        accumulators = Accumulators(device, {w.path: w.shape for w in element.trained})
        inputs = [_random(spec) for v in cell.inputs for spec in v.specs]
        outputs = [(v, i) for v in element.writes.values() for i, carries in enumerate(v.carries_gradient) if carries]
        gradients = [_random(v.specs[i]) for v, i in outputs]

    def read(path: str) -> tf.Tensor | None:
        return tf.raw_ops.ReadVariableOp(resource=variables[path].handle, dtype=variables[path].dtype) if path in variables else None

    tracer = CellTracer(cell, read, accumulators, 0, 'cell', training=True)
    forward, both = tracer.trace(outputs, is_fused=element.has_backward)
    task = both or forward
    assert task is not None
    by_leaf: dict[Leaf, tf.Tensor] = dict(zip(leaves_of(cell.inputs), inputs, strict=True))
    by_gradient = dict(zip(outputs, gradients, strict=True))
    given = [by_leaf[leaf] for leaf in task.inputs] + [tf.convert_to_tensor(variables[p]) for p in task.shared]
    given += [by_gradient[leaf] for leaf in task.gradients_in]
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        with tf.device(device):
            task.function(tf.constant(0, tf.int64), tf.constant(0), *given)[-1].numpy()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def _random(spec: tf.TensorSpec) -> tf.Tensor:
    if spec.dtype.is_floating:
        return tf.cast(tf.random.stateless_normal(spec.shape, [0, 0]), spec.dtype)
    return tf.zeros(spec.shape, spec.dtype)


