"""Keras checks: what a pipeline cannot run as Keras does, and what it must know of a layer.

Refused are, here or where they would happen (keras_layer.py, keras_state.py):

  - outputs that are no tensors;
  - constraints of weights, and layers that assign to a weight that gradients train
    (SpectralNormalization);
  - recurrent layers with stateful=True;
  - BatchNormalization inside a loop over time, `synchronized`, or with
    pipeline.cross_replica_batch_norm;
  - state that depends on the examples, except BatchNormalization's, with more than one micro-batch
    or replica;
  - layers that let examples see each other (MixUp, CutMix, an axis 0), with more than one
    micro-batch or replica;
  - Normalization without mean and variance: what `adapt` finds is not part of a configuration;
  - variables that TensorFlow keeps (random numbers without a SeedGenerator), its tables of words,
    and metrics of a layer.
"""
from __future__ import annotations

from collections.abc import Mapping

import keras
import tensorflow as tf
from keras.src.models.functional import Functional

from lingpipe.layers.keras_building import inner_layers
from lingpipe.wording.values import show


def check_supported(path: str, keras_layer: keras.layers.Layer,
                    outputs: list[keras.KerasTensor]) -> None:
    """Raises ValueError for a built Keras layer that a pipeline cannot run as Keras does."""
    name = type(keras_layer).__name__
    for output in outputs:
        if not isinstance(output, keras.KerasTensor):
            raise ValueError(f'{path}: {name} gives a {type(output).__name__} among its outputs, '
                             'but a layer gives tensors; wrap it in a layer that does.')
    if not isinstance(keras_layer, keras.layers.Layer):
        return
    constrained = [variable.name for variable in keras_layer.trainable_weights
                   if variable.constraint is not None]
    if constrained:
        raise ValueError(f'{path}: {name} has a constraint of {", ".join(constrained)}, which '
                         'Keras applies after each update, and lingpipe does not; leave the '
                         'constraint out, or use a regularizer.')
    if keras_layer.metrics_variables:
        raise ValueError(f'{path}: {name} keeps metrics of its own, which nobody would read; '
                         'leave them out.')
    for inner in inner_layers(keras_layer):
        if isinstance(inner, keras.layers.Normalization) and inner.input_mean is None:
            raise ValueError(f'{path}: a Normalization without mean and variance has not been '
                             'adapted to data; give them in config, as '
                             '{"mean": [...], "variance": [...]}.')
        if isinstance(inner, _LOOKUPS):
            raise ValueError(f'{path}: {type(inner).__name__} looks words or ids up in a table of '
                             'TensorFlow, which is no weight, so that no pipeline can run it; call '
                             'it in the input, as dataset.map(lambda text, label: (layer(text), '
                             'label)), and begin the model with its output.')


_LOOKUPS = (keras.layers.TextVectorization, keras.layers.StringLookup, keras.layers.IntegerLookup)


def check_is_layer(layer: object) -> None:
    """Raises ValueError unless this is a layer or operation of Keras, and no model of layers."""
    if not isinstance(layer, keras.Operation):
        raise ValueError(f'layer={show(layer)} is no layer of Keras; give an object, as '
                         'keras.layers.Dense(4).')
    if isinstance(layer, (keras.Sequential, Functional)) and type(layer).call in (
            keras.Sequential.call, Functional.call):
        raise ValueError(f'layer={show(layer)} is a model; write from_keras(model), which a '
                         'pipeline may cut between any of its layers.')


def check_shapes(path: str, class_name: str, specs: Mapping[str, keras.KerasTensor],
                 tensors: Mapping[str, tf.Tensor], error: ValueError) -> None:
    """Raises ValueError for tensors of other shapes than those that a layer was made for.

    Args:
      path: of the layer.
      class_name: what Keras calls it.
      specs: what it was made for, by the name of the tensor.
      tensors: what it was given.
      error: that of Keras.
    """
    for name, spec in specs.items():
        shape = tensors[name].shape
        if not shape.is_compatible_with(spec.shape):
            raise ValueError(f'{path}: {class_name} was made for examples of shape '
                             f'{tuple(spec.shape[1:])}, but {name} is {shape}, examples of shape '
                             f'{tuple(shape[1:])}; correct the input, or make the layer or model '
                             'for these.') from error


def check_writes(path: str, class_name: str, writes: str | Mapping[str, str],
                 num_outputs: int) -> None:
    """Raises ValueError if there are several outputs and Params.writes names one."""
    if num_outputs > 1 and isinstance(writes, str):
        names = ', '.join(f"'x_{i}': ..." for i in range(num_outputs))
        raise ValueError(f'{path}: {class_name} gives {num_outputs} outputs, but writes names '
                         f'one; write writes={{{names}}}, or those of them that are used.')


def has_code_of_users(class_name: str, config: str) -> bool:
    """Whether anything in the layer is no layer of Keras, but registered or named by its module.

    Such code may add losses, or let examples see each other.
    """
    is_of_keras = '.' not in class_name or class_name.startswith('keras.')
    return '>' in class_name or '>' in config or not is_of_keras


def mixes_examples(keras_layer: keras.layers.Layer, rank: int, training: bool) -> bool:
    """Whether a layer or operation of Keras' own uses other examples for an example's output.

    BatchNormalization does not count. Of an operation, only an axis 0 is found: what another axis
    means depends on the operation, and from_keras calls it to find out.

    Args:
      keras_layer: it, and the layers in it.
      rank: of what it reads, by which the axis -rank is that of the examples.
      training: whether in training, or in predictions.
    """
    inner = inner_layers(keras_layer)[1:]
    return _mixes_by_itself(keras_layer, rank, training) or any(
        _mixes_by_itself(layer, None, training) for layer in inner)


def _mixes_by_itself(keras_layer: keras.layers.Layer, rank: int | None, training: bool) -> bool:
    """Whether it does so outside the layers in it; the rank is None if it is not known."""
    if isinstance(keras_layer, (keras.layers.MixUp, keras.layers.CutMix)):
        return training
    with_axis = (keras.layers.Softmax, keras.layers.UnitNormalization,
                 keras.layers.LayerNormalization, keras.layers.RMSNormalization)
    is_operation = not isinstance(keras_layer, keras.layers.Layer)
    has_axis = is_operation or isinstance(keras_layer, with_axis)
    axis = getattr(keras_layer, 'axis', ()) if has_axis else ()
    axes = axis if isinstance(axis, (list, tuple)) else [axis]
    of_examples = [0] if is_operation or rank is None else [0, -rank]
    return any(one in of_examples and one is not False for one in axes)
