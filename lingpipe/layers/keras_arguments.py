"""KerasArguments: how named tensors and constants become the arguments of a Keras layer's call.

The arguments are written as JSON, by the names that `call` gives them. A tensor is a marker with
the name by which Params.reads knows it, and what JSON has no word for is a marker too:

    Concatenate               {"inputs": [{"tensor": "x_0"}, {"tensor": "x_1"}]}
    x[:, 1:]                  {"x": {"tensor": "x"}, "key": {"tuple": [{"keras": ...}, ...]}}
    MultiHeadAttention        {"query": {"tensor": "query"}, "value": {"tensor": "value"},
                               "return_attention_scores": true}

Markers that are left out follow from the names: `x` is the first argument of call, `x_0`, `x_1` and
so on are a list that is its first argument, and any other name is the argument of that name.
"""
from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras

_NUMBERED = re.compile(r'x_(0|[1-9]\d*)')
_MARKERS = ('tensor', 'tuple', 'dict', 'keras')


class KerasArguments:
    """The arguments of `call` of one Keras layer.

    Attributes:
      names: the names of the tensors, in the order of call.
      takes_mask: whether `call` has an argument for masks.
    """

    def __init__(self, path: str, keras_layer: keras.layers.Layer, reads: Sequence[str],
                 arguments: Mapping[str, Any]):
        """
        Args:
          path: of the KerasLayer, for errors.
          keras_layer: a layer or operation of Keras.
          reads: the names of tensors that Params.reads or Params.input_shapes has.
          arguments: the parsed JSON.

        Raises:
          ValueError: call has no such argument.
        """
        self._is_layer = isinstance(keras_layer, keras.layers.Layer)
        self._signature = inspect.signature(keras_layer.call)
        parameters = list(self._signature.parameters)
        self.takes_mask = any(name == 'mask' or name.endswith('_mask') for name in parameters)

        has_markers = bool(_tensors_in(arguments))
        markers = {} if has_markers else _markers(reads, parameters[0])
        self._arguments = {**markers, **arguments}
        for name in self._arguments:
            if name not in parameters:
                raise ValueError(f'{path}: call of {type(keras_layer).__name__} has no argument '
                                 f'{name!r}, only {", ".join(parameters)}; correct reads or '
                                 'arguments.')
        ordered = [self._arguments[name] for name in parameters if name in self._arguments]
        self.names = list(dict.fromkeys(_tensors_in(ordered)))

    def bound(self, tensors: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The positional and the named arguments of call, with these tensors.

        A layer of Keras takes what is no tensor by name only, as `table(x, reverse=True)`.
        """
        decoded = {name: _decoded(value, tensors) for name, value in self._arguments.items()}
        by_name = {name: decoded.pop(name) for name in self._constants}
        bound = inspect.BoundArguments(self._signature, decoded)  # type: ignore[arg-type]
        return bound.args, {**bound.kwargs, **by_name}

    @property
    def _constants(self) -> list[str]:
        """The arguments that hold no tensor and must be named."""
        kinds = {name: one.kind for name, one in self._signature.parameters.items()}
        return [name for name, value in self._arguments.items()
                if self._is_layer and not _tensors_in(value)
                and kinds[name] is inspect.Parameter.POSITIONAL_OR_KEYWORD]


def tensor_names(reads: Sequence[str], arguments: Mapping[str, Any]) -> list[str]:
    """The names of the tensors that a Keras layer is given, whatever its class.

    Args:
      reads, arguments: those of KerasArguments.
    """
    return list(dict.fromkeys(_tensors_in(arguments) or _tensors_in(_markers(reads, ''))))


def encoded_arguments(arguments: Mapping[str, Any], name_of: Callable[[Any], str | None]
                      ) -> dict[str, Any]:
    """Returns the arguments of call, by name, as values that JSON can hold.

    Args:
      arguments: name -> value, which may hold tensors.
      name_of: returns the name of a tensor, and None for a constant.

    Raises:
      Exception: Keras cannot write a constant.
    """
    return {name: _encoded(value, name_of) for name, value in arguments.items()}


def _encoded(value: Any, name_of: Callable[[Any], str | None]) -> Any:
    name = name_of(value)
    if name is not None:
        return {'tensor': name}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, list):
        return [_encoded(item, name_of) for item in value]
    if type(value) is tuple:
        return {'tuple': [_encoded(item, name_of) for item in value]}
    if isinstance(value, dict):
        return {'dict': {key: _encoded(item, name_of) for key, item in value.items()}}
    if isinstance(value, keras.Variable) and value.trainable:
        raise ValueError(f'it is given the weight {value.path} of another layer, which would be a '
                         'constant here; use keras.layers.ReversibleEmbedding, or a layer class of '
                         'your own that holds that layer')
    return {'keras': keras.saving.serialize_keras_object(value)}


def parsed_object(text: str, field_name: str, example: str) -> dict[str, Any]:
    """The object that a JSON text holds. Raises ValueError if it is no JSON object."""
    try:
        parsed = json.loads(text)
    except ValueError as error:
        raise ValueError(f'{field_name}={text!r} is no JSON ({error}); write an object like '
                         f'{example}.') from None
    if not isinstance(parsed, dict):
        raise ValueError(f'{field_name}={text!r} is no JSON object; write one like {example}.')
    return parsed


def _markers(names: Sequence[str], first: str) -> dict[str, Any]:
    """The arguments that follow from the names of tensors; see the head of this file."""
    numbered = sorted((int(match[1]), name) for name in names
                      if (match := _NUMBERED.fullmatch(name)))
    if numbered:
        first_value: Any = [{'tensor': name} for _, name in numbered]
    elif 'x' in names or not names:
        first_value = {'tensor': 'x'}
    else:
        return {name: {'tensor': name} for name in names}
    others = [name for name in names if name != 'x' and not _NUMBERED.fullmatch(name)]
    return {first: first_value, **{name: {'tensor': name} for name in others}}


def _is_marker(value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1 and next(iter(value)) in _MARKERS


def _tensors_in(value: Any) -> list[str]:
    """The names of the tensors in parsed arguments."""
    if _is_marker(value) and 'tensor' in value:
        return [value['tensor']]
    if _is_marker(value) and 'keras' in value:
        return []
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [name for part in parts for name in _tensors_in(part)]


def _decoded(value: Any, tensors: Mapping[str, Any]) -> Any:
    """The value that parsed JSON stands for."""
    if isinstance(value, list):
        return [_decoded(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    if not _is_marker(value):
        return {key: _decoded(item, tensors) for key, item in value.items()}

    [(kind, content)] = value.items()
    if kind == 'tensor':
        return tensors[content]
    if kind == 'tuple':
        return tuple(_decoded(item, tensors) for item in content)
    if kind == 'dict':
        return {key: _decoded(item, tensors) for key, item in content.items()}
    return keras.saving.deserialize_keras_object(content)
