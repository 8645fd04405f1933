"""Gradient rows: the weights whose gradients TensorFlow makes as rows, as those of an embedding."""
from __future__ import annotations

from collections.abc import Collection, Mapping

import tensorflow as tf

from lingpipe.layers.base import Layer
from lingpipe.layers.nested import Nested, leaves
from lingpipe.pricing.graph import trace


def gradient_rows(layer: Layer, inputs: Mapping[str, Nested],
                  trained: Collection[str]) -> dict[str, int]:
    """Returns path of a weight -> how many rows its gradient has, if it is tf.IndexedSlices.

    Args:
      layer: the layer.
      inputs: argument of fprop -> nested tf.TensorSpec.
      trained: the paths of the weights whose gradients are wanted.
    """
    traced = trace(layer, **inputs)
    outputs = [leaf for leaf in leaves(traced.outputs) if leaf.dtype.is_floating]
    with traced.graph.as_default():
        gradients = tf.gradients([*outputs, *traced.emissions.losses.values()],
                                 [traced.weights[path] for path in trained])
    return {path: gradient.values.shape[0]
            for path, gradient in zip(trained, gradients, strict=True)
            if isinstance(gradient, tf.IndexedSlices)}
