"""Keras building: layers of Keras from the text that describes them, without memory for weights.

A Keras layer is built in a keras.StatelessScope, so that its variables have shapes and
initializers, but no values.
"""
from __future__ import annotations

import contextlib
import importlib
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.common import global_state

from lingpipe.layers.keras_arguments import KerasArguments
from lingpipe.wording.values import shortened

_VARIABLES_WITHOUT_VALUES = 'uninitialized_variables'  # Keras' name of its list of them.


def class_of(name: str) -> Any:
    """The Keras class of this name. Raises ValueError if there is none."""
    keras_class = getattr(keras.layers, name, None) or keras.saving.get_registered_object(name)
    if keras_class is None and '.' in name:
        keras_class = _class_in_module(*name.rsplit('.', 1))
    if keras_class is None:
        raise ValueError(f'class_name={name!r} is no layer of Keras; write the name of a class in '
                         "keras.layers, or 'package>Name' of one registered with "
                         'keras.saving.register_keras_serializable.')
    return keras_class


def _class_in_module(module_name: str, class_name: str) -> Any:
    """A Keras operation of this name, or None. Only modules of Keras are imported for it."""
    if module_name.split('.')[0] == 'keras':
        with contextlib.suppress(ImportError):
            importlib.import_module(module_name)
    value = getattr(sys.modules.get(module_name), class_name, None)
    return value if isinstance(value, type) and issubclass(value, keras.Operation) else None


def class_name_of(keras_layer: keras.layers.Layer) -> str:
    """The name by which `class_of` finds the class of a Keras layer or operation.

    Raises:
      ValueError: it does not find it.
    """
    keras_class = type(keras_layer)
    name = keras_class.__name__
    registered = keras.saving.get_registered_name(keras_class)
    for candidate in name, registered, f'{keras_class.__module__}.{keras_class.__qualname__}':
        with contextlib.suppress(ValueError):
            if class_of(candidate) is keras_class:
                return candidate
    raise ValueError(f'{name} {keras_layer.name!r} is of a class that Keras cannot find again; '
                     f'decorate the class with @keras.saving.register_keras_serializable().')


def with_constants(keras_layer: keras.layers.Layer) -> keras.layers.Layer:
    """The layer itself or, for an adapted Normalization, one that has what it found as constants.

    Keras keeps what `adapt` finds in weights, and what it computes with in attributes.
    """
    is_adapted = (isinstance(keras_layer, keras.layers.Normalization) and keras_layer.built
                  and keras_layer.input_mean is None)
    if not is_adapted:
        return keras_layer
    shape = keras_layer.adapt_mean.shape
    mean, variance = (keras.ops.convert_to_numpy(value).reshape(shape).tolist()
                      for value in (keras_layer.mean, keras_layer.variance))
    return keras.layers.Normalization(keras_layer.axis, mean, variance, keras_layer.invert,
                                      name=keras_layer.name, dtype=keras_layer.dtype_policy)


def config_of(keras_layer: keras.layers.Layer) -> str:
    """The configuration of a Keras layer as JSON, without its name.

    Raises:
      ValueError: the class cannot be made again from it.
    """
    remedy = ('write a class of its own, a keras.layers.Layer registered with '
              '@keras.saving.register_keras_serializable() and with get_config')
    try:
        config = keras.saving.serialize_keras_object(keras_layer)['config']
        text = json.dumps({key: value for key, value in config.items() if key != 'name'})
    except Exception as error:   # A layer is anyone's code.
        raise ValueError(f'{type(keras_layer).__name__} {keras_layer.name!r} cannot be written as '
                         f'a configuration ({error}); {remedy}.') from error
    if '"__lambda__"' in text:
        raise ValueError(f'{type(keras_layer).__name__} {keras_layer.name!r} holds a Python '
                         f'function without a name, which no configuration can hold; {remedy}.')
    return text


def build(path: str, class_name: str, config: Mapping[str, Any]) -> keras.layers.Layer:
    """Returns a Keras layer or operation, not built.

    Raises:
      ValueError: Keras cannot make it, or it keeps its state from one mini-batch to the next.
    """
    with tf.init_scope(), without_values():
        try:
            keras_layer: keras.layers.Layer = class_of(class_name).from_config(dict(config))
        except Exception as error:
            raise ValueError(f'{path}: Keras cannot build {class_name} of '
                             f'{shortened(json.dumps(config))}: {str(error)[:300]}; '
                             'register classes and functions of your own with '
                             '@keras.saving.register_keras_serializable().') from error
    # Keras would ask for a static batch size first.
    for inner in inner_layers(keras_layer):
        if isinstance(inner, keras.layers.RNN) and inner.stateful:
            raise ValueError(f'{path}: {type(inner).__name__} has stateful=True, so that it would '
                             'begin an example where it ended another, but each example is '
                             'computed by itself; set stateful=False.')
    return keras_layer


def symbolic_output(path: str, keras_layer: keras.layers.Layer, arguments: KerasArguments,
                    specs: Mapping[str, keras.KerasTensor], config: str) -> Any:
    """Builds a Keras layer by calling it, and returns its symbolic output.

    Raises:
      ValueError: Keras cannot build it for such examples.
    """
    with tf.init_scope(), without_values():
        try:
            positional, named = arguments.bound(specs)
            return keras_layer(*positional, **named)
        except Exception as error:
            shapes = [list(spec.shape[1:]) for spec in specs.values()]
            raise ValueError(f'{path}: Keras cannot build {type(keras_layer).__name__} of '
                             f'{shortened(config)} for examples of '
                             f'{", ".join(map(str, shapes))}: {error}') from error


def built_shapes(keras_layer: keras.layers.Layer) -> dict[str, tuple[int | None, ...]]:
    """Tensor -> shape of one example, as a Keras layer was built; {} if it was not built."""
    if not getattr(keras_layer, 'built', False):
        return {}
    config = keras_layer.get_build_config() or {}
    if 'shapes_dict' in config:
        return {name.removesuffix('_shape'): tuple(shape[1:])
                for name, shape in config['shapes_dict'].items()}
    shape = config.get('input_shape') or ()
    if shape and isinstance(shape[0], (list, tuple)):
        return {f'x_{i}': tuple(one[1:]) for i, one in enumerate(shape)}
    return {'x': tuple(shape[1:])} if shape else {}


def inner_layers(keras_layer: keras.layers.Layer) -> list[keras.layers.Layer]:
    """A Keras layer and all layers in it; none for an operation without weights."""
    if not isinstance(keras_layer, keras.layers.Layer):
        return []
    return list(keras_layer._flatten_layers())


def unique(names: Sequence[str]) -> list[str]:
    """kernel, kernel, bias -> kernel_0, kernel_1, bias.

    Keras' longer paths would not do: they number the layers of the whole process. So are weights
    numbered that were given no name: `variable_72` is `variable` here.
    """
    names = ['variable' if re.fullmatch(r'variable_\d+', name) else name for name in names]
    total = Counter(names)
    seen = Counter[str]()
    numbered = []
    for name in names:
        numbered.append(name if total[name] == 1 else f'{name}_{seen[name]}')
        seen[name] += 1
    return numbered


@contextlib.contextmanager
def without_values() -> Iterator[None]:
    """Within it, Keras makes variables that have shapes and initializers, and never get a value.

    Keras lists the variables that are made in a StatelessScope, and gives each of them its initial
    value when any ordinary scope ends, as in the next symbolic call of a Keras layer anywhere in
    the process. The variables made here are taken off that list, for which Keras has no public
    name.
    """
    listed_before = list(global_state.get_global_attribute(_VARIABLES_WITHOUT_VALUES, []))
    try:
        with keras.StatelessScope(initialize_variables=False):
            yield
    finally:
        global_state.set_global_attribute(_VARIABLES_WITHOUT_VALUES, listed_before)
