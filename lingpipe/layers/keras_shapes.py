"""Keras shapes: what KerasLayers of a network read, where their Params do not say it.

A Keras layer is built for the shapes of what it reads, which are known where the network's input
is: the layers are made and priced one after the other, up to the last that needs it, before the
network itself is made.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence

import tensorflow as tf

from lingpipe.layers.base import Layer
from lingpipe.layers.keras_arguments import parsed_object, tensor_names
from lingpipe.layers.keras_layer import KerasLayer, named_tensors
from lingpipe.layers.masks import after
from lingpipe.layers.nested import Nested
from lingpipe.layers.sequential import Repeat, Sequential, arguments
from lingpipe.pricing import price

Values = Mapping[str, Nested]


def are_missing(params: Layer.Params) -> bool:
    """Whether a layer is a KerasLayer that needs a shape, or a Sequential that has one."""
    if isinstance(params, KerasLayer.Params):
        return bool(_tensors_without_shape(params))
    if isinstance(params, Repeat.Params):
        return are_missing(params.body)
    return isinstance(params, Sequential.Params) and any(map(are_missing, params.layers))


def _tensors_without_shape(params: KerasLayer.Params) -> list[str]:
    """The names of the tensors whose shape the Params do not give."""
    if params.input_shape is not None:
        return []
    tensors = tensor_names(named_tensors(params),
                           parsed_object(params.arguments, 'arguments', '{}'))
    return [name for name in tensors if name not in params.input_shapes]


def with_shapes(params: Sequential.Params, specs: Sequence[Values]) -> Sequential.Params:
    """Params of a network whose KerasLayers all have the shapes of what they read.

    A dimension that differs between the specs is None. What is not floating brings its dtype, too.

    Args:
      params: of the network; they stay as they are.
      specs: the tf.TensorSpecs of a mini-batch by name, for each shape that one may have.

    Raises:
      ValueError: a layer reads what nothing writes, or does not take what it reads.
    """
    filled, _ = _filled_layers(params.copy(), params.name or 'model', specs)
    return filled


def _filled(params: Layer.Params, path: str, specs: Sequence[Values]
            ) -> tuple[Layer.Params, Sequence[Values]]:
    """Params with their shapes, and the values after the layer, where a shape is still missing."""
    if isinstance(params, KerasLayer.Params):
        _fill(params, path, specs)
    elif isinstance(params, Repeat.Params):
        if are_missing(params.body):
            params.body, _ = _filled(params.body.copy(), f'{path}/{params.body.name}', specs)
    elif isinstance(params, Sequential.Params):
        return _filled_layers(params, path, specs)
    return params, specs


def _filled_layers(params: Sequential.Params, path: str, specs: Sequence[Values]
                   ) -> tuple[Sequential.Params, Sequence[Values]]:
    layers = [layer.copy() for layer in params.layers]
    for i, layer in enumerate(layers):
        if not any(map(are_missing, layers[i:])):
            break
        layer_path = f'{path}/{Sequential.name_of(layer, i)}'
        layers[i], _ = _filled(layer, layer_path, specs)
        specs = _after(layers[i].instantiate(layer_path), specs)
    return params.set(layers=tuple(layers)), specs


def _after(layer: Layer, specs: Sequence[Values]) -> list[Values]:
    """All values once a layer has written its own."""
    values_after: list[Values] = []
    for values in specs:
        written = layer.written(price(layer, **arguments(layer, values)).outputs)
        values_after.append(after(layer, layer.reads(), values, written))
    return values_after


def _fill(params: KerasLayer.Params, path: str, specs: Sequence[Values]) -> None:
    """Sets the shapes that Params lack, from those of the values that the layer reads."""
    for tensor in _tensors_without_shape(params):
        name = params.reads.get(tensor, tensor)
        written_specs = [spec for values in specs
                         if isinstance(spec := values.get(name), tf.TensorSpec)]
        if not written_specs:
            raise ValueError(
                f'{path}: the shape of {tensor}, which {params.class_name} reads, is not known, '
                f'since neither the input nor a layer before it gives a tensor {name!r} (there '
                f'are {", ".join(sorted(specs[0])) or "none"}); name another value in reads.')
        shapes = [spec.shape[1:].as_list() for spec in written_specs]
        if len({len(shape) for shape in shapes}) > 1:
            raise ValueError(f'{path}: {name!r} has shapes of several ranks, '
                             f'{", ".join(map(str, shapes))}; a Keras layer reads one.')
        shape = tuple(sizes[0] if len(set(sizes)) == 1 else None
                      for sizes in zip(*shapes, strict=True))
        params.input_shapes = {**params.input_shapes, tensor: shape}
        if not written_specs[0].dtype.is_floating and tensor not in params.input_dtypes:
            params.input_dtypes = {**params.input_dtypes, tensor: written_specs[0].dtype.name}
