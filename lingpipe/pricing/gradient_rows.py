"""Gradient rows: the weights whose gradients TensorFlow makes as rows, as those of an embedding."""
from __future__ import annotations

from collections.abc import Collection, Mapping

import tensorflow as tf

from lingpipe.layers.base import Layer
from lingpipe.layers.nested import Nested, leaves
from lingpipe.pricing.graph import trace


def gradient_rows(layer: Layer, inputs: Mapping[str, Nested],
                  trained: Collection[str], written: Collection[str]) -> dict[str, int]:
    """Returns path of a weight -> how many rows its gradient has, if it is tf.IndexedSlices.

    Args:
      layer: the layer.
      inputs: argument of fprop -> nested tf.TensorSpec.
      trained: the paths of the weights whose gradients are wanted.
      written: the names of the values that it writes and that have gradients.

    Raises:
      ValueError: how many rows there are is not known before the layer runs.
    """
    traced = trace(layer, **inputs)
    values = layer.written(traced.outputs)
    outputs = [leaf for name in written for leaf in leaves(values[name]) if leaf.dtype.is_floating]
    with traced.graph.as_default():
        gradients = tf.gradients([*outputs, *traced.emissions.losses.values()],
                                 [traced.weights[path] for path in trained])
    rows = {path: gradient.values.shape[0]
            for path, gradient in zip(trained, gradients, strict=True)
            if isinstance(gradient, tf.IndexedSlices)}
    for path, num_rows in rows.items():
        if num_rows is None:
            raise ValueError(
                f'{path}: how many rows of it {layer.path} reads is not known before it runs, so '
                'that their gradients have no place of their own; set keeps_gradient_rows=False '
                'of the layer, and rows that are read several times learn from sums.')
    return rows
