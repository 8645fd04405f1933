"""Backward FLOPs: those of the gradients of a layer, all of them and those that are wanted."""
from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

import tensorflow as tf

from lingpipe.layers.base import Layer
from lingpipe.layers.nested import Nested, leaves
from lingpipe.pricing.flops import flops_of
from lingpipe.pricing.graph import trace
from lingpipe.pricing.ops import ancestors


@dataclasses.dataclass(frozen=True)
class BackwardFlops:
    """Floating point operations of the gradients of one layer.

    Attributes:
      whole: of all weights and inputs.
      trained: of the weights that train, and of all inputs.
      inputs: of all inputs alone.
      weights: of the weights that train alone.
    """
    whole: float
    trained: float
    inputs: float
    weights: float


def backward_flops(layer: Layer, inputs: Mapping[str, Nested],
                   trained: Collection[str]) -> BackwardFlops:
    """Counts the backward of a layer in its graph.

    What several gradients need counts once. An op that makes the gradients of an input and of a
    weight counts as a whole, as it runs as a whole.

    Args:
      layer: the layer.
      inputs: argument of fprop -> nested tf.TensorSpec.
      trained: the paths of the weights that train.

    Raises:
      LookupError: TensorFlow has no gradient of an op.
      ValueError: a shape is not known, or a loop has no bound.
    """
    traced = trace(layer, **inputs)
    outputs = [leaf for leaf in leaves(layer.written(traced.outputs)) if _has_gradient(leaf)]
    weights = {path: weight for path, weight in traced.weights.items() if _has_gradient(weight)}
    read = [leaf for leaf in leaves(traced.inputs) if _has_gradient(leaf)]
    with traced.graph.as_default():
        forward_ops = {op.name for op in traced.graph.get_operations()}
        gradients = tf.gradients([*outputs, *traced.emissions.losses.values()],
                                 [*weights.values(), *read])

    of_inputs = gradients[len(weights):]
    of_trained = [gradient for path, gradient in zip(weights, gradients, strict=False)
                  if path in trained]

    def flops(wanted: Sequence[tf.Tensor | tf.IndexedSlices | None]) -> float:
        tensors = [part for gradient in wanted for part in _parts(gradient)]
        ops = ancestors(tensors, ())
        return sum(flops_of(op) for name, op in ops.items() if name not in forward_ops)

    return BackwardFlops(flops(gradients), flops([*of_trained, *of_inputs]), flops(of_inputs),
                         flops(of_trained))


def _has_gradient(tensor: tf.Tensor) -> bool:
    return bool(tensor.dtype.is_floating or tensor.dtype.is_complex)


def _parts(gradient: tf.Tensor | tf.IndexedSlices | None) -> list[tf.Tensor]:
    """The tensors that a gradient consists of."""
    if gradient is None:
        return []
    return [gradient.values] if isinstance(gradient, tf.IndexedSlices) else [gradient]
