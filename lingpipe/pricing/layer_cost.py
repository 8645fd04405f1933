"""The cost of a layer: by its own formula, or counted in its graph."""
from __future__ import annotations

from lingpipe.layers.base import Layer
from lingpipe.layers.cost import Cost
from lingpipe.layers.nested import Nested, leaves, map_leaves
from lingpipe.layers.static_shapes import as_spec, static_shape
from lingpipe.pricing.flops import count_flops
from lingpipe.pricing.graph import trace


def price(layer: Layer, *args: Nested, **kwargs: Nested) -> Cost:
    """Returns the cost of a layer for inputs given as nested tf.TensorSpec.

    It is that of the layer's own `cost`, or else `traced_cost`.

    Raises:
      ValueError: the layer cannot take such inputs, or a shape is not known.
    """
    own_cost = layer.cost(*args, **kwargs)
    return traced_cost(layer, *args, **kwargs) if own_cost is None else own_cost


def traced_cost(layer: Layer, *args: Nested, **kwargs: Nested) -> Cost:
    """Returns the cost of layer.fprop in training, counted in its graph.

    Tracing takes from milliseconds to seconds: a layer that is used a thousand times should have a
    `cost` of its own.

    Args:
      layer: of any kind.
      args, kwargs: those of fprop after ctx, as nested tf.TensorSpec.

    Raises:
      ValueError: the shape of an input or of a tensor inside the layer is not known, or fprop is no
        function of tensors; see `trace`.
    """
    inputs = {**{f'input {i}': arg for i, arg in enumerate(args)}, **kwargs}
    for name, value in inputs.items():
        for spec in leaves(value):
            static_shape(spec, layer.path, name)

    traced = trace(layer, *args, **kwargs)
    try:
        flops = count_flops(traced.graph)
    except ValueError as error:
        raise ValueError(f'{layer.path}: {error}') from error
    return Cost(flops, layer.num_weights, map_leaves(as_spec, traced.outputs))
