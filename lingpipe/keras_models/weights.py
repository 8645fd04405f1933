"""Weights: trained weights, put back into the Keras model that the network was made of."""
from __future__ import annotations

from collections.abc import Iterator, Mapping

import keras
import numpy as np

from lingpipe.keras_models.graph import Graph, functional, graph_of
from lingpipe.keras_models.keras_model import KerasModel
from lingpipe.layers.keras_layer import KerasLayer


def to_keras(params: KerasModel.Params, weights: Mapping[str, np.ndarray],
             name: str = '') -> keras.Model:
    """Assigns weights to the Keras model that a network was made of, and returns the model.

    Args:
      params: what from_keras returned, or a copy.
      weights: path -> value, as those of a program. Further paths do not matter.
      name: the path of the network; default: the name in the Params.

    Raises:
      TypeError: these are no such Params or weights.
      ValueError: the Params were read from text, or a weight is missing or of another shape.
    """
    if not isinstance(params, KerasModel.Params) or not isinstance(weights, Mapping):
        raise TypeError('to_keras takes the Params that from_keras returned, and then the weights '
                        'by path, as run.weights.')
    model = params.keras_model
    if model is None:
        raise ValueError('these Params have no Keras model: they were read from text; call '
                         'from_keras(model) again, and give to_keras the Params that it returns.')
    pairs = list(variables_by_path(params, name or params.name))
    for path, variable in pairs:
        if path not in weights:
            raise ValueError(f'there is no weight {path}; '
                             f'{_remedy(path, name or params.name, weights)}.')
        if tuple(weights[path].shape) != tuple(variable.shape):
            raise ValueError(f'{path} has the shape {tuple(weights[path].shape)}, but in the Keras '
                             f'model {tuple(variable.shape)}; give the weights of this network.')
    for path, variable in pairs:
        variable.assign(weights[path])
    return model


def _remedy(path: str, name: str, weights: Mapping[str, np.ndarray]) -> str:
    """What to do about a path that is not among the weights, of the network called `name`."""
    within = path.removeprefix(name)   # '/dense/kernel'
    names = [one.removesuffix(within) for one in weights if one.endswith(within)]
    if not names:
        return 'give all weights of the network'
    return (f'{names[0]}{within} is there: if the network is a part of another, give to_keras its '
            f'path, as name={names[0]!r}')


def variables_by_path(params: KerasModel.Params,
                      name: str) -> Iterator[tuple[str, keras.Variable]]:
    """Yields (path of a weight, variable of the Keras model), for each variable once."""
    assert functional(params.keras_model) is not None
    graph = graph_of(params.keras_model, name, params.inputs)
    operations = dict(_operations(graph, name))
    network = params.instantiate(name)
    for layer in network.elements():
        if isinstance(layer, KerasLayer) and layer.path in operations:
            variables = getattr(operations[layer.path], 'weights', [])
            if not layer.own_weights:   # An adapted Normalization has them in its configuration.
                continue
            for weight, variable in zip(layer.own_weights.values(), variables, strict=True):
                if weight.shared_with is None:
                    yield weight.path, variable


def _operations(graph: Graph, path: str) -> Iterator[tuple[str, keras.Operation]]:
    """Yields (path of a layer, the Keras layer)."""
    for member in graph.members:
        if isinstance(member, Graph):
            yield from _operations(member, f'{path}/{member.name}')
        else:
            yield f'{path}/{member.name}', member.operation
