"""The cost of a layer, found out by building its graph on abstract shapes."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lingpipe.layers.cost import Cost
from lingpipe.layers.nested import leaves, map_leaves
from lingpipe.layers.static_shapes import as_spec, static_shape
from lingpipe.pricing.flops import count_flops
from lingpipe.pricing.graph import trace

if TYPE_CHECKING:
    from lingpipe.layers.base import Layer


def traced_cost(layer: Layer, *args: Any, **kwargs: Any) -> Cost:
    """The cost of layer.fprop in training, counted in its graph; args and kwargs are nested tf.TensorSpec.

    Tracing takes from milliseconds to seconds: a layer that is used a thousand times should have a `cost` of its own.

    Raises:
      ValueError: an input or a tensor inside the layer has a shape that is not known, or fprop is no function of tensors; see `trace`.
    """
    for name, value in {**{f'input {i}': a for i, a in enumerate(args)}, **kwargs}.items():
        for spec in leaves(value):
            static_shape(spec, layer.path, name)
    made = trace(layer, *args, **kwargs)
    try:
        flops = count_flops(made.graph)
    except ValueError as error:
        raise ValueError(f'{layer.path}: {error}') from error
    return Cost(flops, layer.num_weights, map_leaves(as_spec, made.outputs))
