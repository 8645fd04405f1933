"""State update: the weights that layers set from what they emitted, such as moving moments."""
from __future__ import annotations

from collections.abc import Collection, Mapping

import tensorflow as tf

from lingpipe.layers import nested
from lingpipe.layers.base import Layer
from lingpipe.layers.weight import Weight
from lingpipe.pipeline.execution.emission_layout import Merged
from lingpipe.pipeline.planning.cell import Cell
from lingpipe.wording.values import nearest


def update_state(cell: Cell, merged: Merged, weights: Mapping[str, tf.Variable]) -> None:
    """Assigns the weights that the layers of a cell update from what they emitted in a step.

    Args:
      cell: the cell.
      merged: what its layers emitted, merged over micro-batches and replicas.
      weights: those of the replica, by path.

    Raises:
      ValueError: updated_state of a layer does not give new values of weights of its own that do
        not train.
    """
    layers = {layer.path: layer for e in cell.elements for layer in e.layer.layers()}
    trained = {weight.path for e in cell.elements for weight in e.trained}
    for (path, name), value in [*merged.moments.items(), *merged.means.items(),
                                *merged.states.items()]:
        layer = layers[path]
        state = nested.NestedMap({own: weights[w.shared_with or w.path].read_value()
                                  for own, w in layer.own_weights.items()
                                  if (w.shared_with or w.path) in weights})

        updated = layer.updated_state(name, state, value)
        if not isinstance(updated, Mapping):
            raise ValueError(f'{path}: updated_state of {type(layer).__name__} returns '
                             f'{type(updated).__name__} for {name!r}, but must return a dict of '
                             "new values by weight; write return {'NAME': value}.")
        for own, new in updated.items():
            weight = _updated_weight(layer, own, trained)
            weights[weight.path].assign(_new_value(layer, weight, own, new))


def _updated_weight(layer: Layer, own: str, trained: Collection[str]) -> Weight:
    """The weight of a layer that updated_state calls `own`.

    Args:
      layer: the layer.
      own: the name of the weight in it.
      trained: the paths of the weights that the optimizer sets. A frozen one is none of them.

    Raises:
      ValueError: there is no such weight, it trains, or it is shared.
    """
    if own not in layer.own_weights:
        remedy = nearest(own, layer.own_weights)
        raise ValueError(f'{layer.path}: updated_state of {type(layer).__name__} sets {own!r}, '
                         f'which is no weight of its own; {remedy}')
    weight = layer.own_weights[own]
    if weight.path in trained:
        raise ValueError(f'{layer.path}: updated_state of {type(layer).__name__} sets {own!r}, '
                         'but the optimizer does too, since it is trainable; declare it with '
                         f'add_weight({own!r}, ..., is_trainable=False).')
    if weight.shared_with is not None:
        raise ValueError(
            f'{weight.path} shares {weight.shared_with}, but {layer.path} updates it '
            f'in every step from what it sees itself, so that it can belong to one '
            f'layer only; take {own!r} out of its Params.share.')
    return weight


def _new_value(layer: Layer, weight: Weight, own: str, new: object) -> tf.Tensor:
    """The value as a tensor. Raises ValueError unless it has the weight's dtype and shape."""
    try:
        value = tf.convert_to_tensor(new)
    except (TypeError, ValueError):
        value = None
    if value is not None and value.dtype != weight.dtype and not tf.is_tensor(new):
        value = tf.cast(value, weight.dtype)   # Numbers of Python and NumPy have no dtype to keep.
    is_alike = (value is not None and value.dtype == weight.dtype
                and value.shape.is_compatible_with(weight.shape))
    if not is_alike:
        given = type(new).__name__ if value is None else f'{value.dtype.name} {value.shape}'
        raise ValueError(
            f'{layer.path}: updated_state of {type(layer).__name__} gives {own!r} a value of '
            f'{given}, but the weight is {weight.dtype.name} {weight.shape}; return a tensor of '
            'that dtype and shape.')
    return value
