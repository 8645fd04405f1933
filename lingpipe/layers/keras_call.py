"""KerasCall: the call of a Keras layer, without side effects.

Weights are passed in place of the layer's variables (keras.StatelessScope), random generators get a
new seed from the context in every call, so that a recomputation draws the same numbers, and what
the layer would assign to its state is part of the result.
"""
from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.ops.numpy import Add

from lingpipe.layers.context import Context
from lingpipe.layers.keras_arguments import KerasArguments
from lingpipe.layers.keras_state import KerasState, Moments, depends_on
from lingpipe.layers.nested import NestedMap

_ADDING = (Add, keras.layers.Add, keras.layers.Average)


@dataclasses.dataclass(frozen=True)
class CallResult:
    """The result of a call of a Keras layer.

    Attributes:
      outputs: what the layer returned, flat.
      losses: scalars that the layer added.
      moments: what its BatchNormalizations computed.
      assigned: name of a weight -> the value that the layer assigned to it.
    """
    outputs: Sequence[tf.Tensor]
    losses: Sequence[tf.Tensor] = ()
    moments: Sequence[Moments] = ()
    assigned: Mapping[str, tf.Tensor] = dataclasses.field(default_factory=dict)

    @property
    def masks(self) -> list[tf.Tensor | None]:
        """The masks that Keras makes of the outputs, None for an output that has none."""
        return [getattr(y, '_keras_mask', None) for y in self.outputs]

    @property
    def logits(self) -> tf.Tensor:
        """Those of which an activation of the layer makes the first output."""
        return self.outputs[0]._keras_logits


class KerasCall:
    """A built Keras layer or operation as a function of its weights, seeds and tensors."""

    def __init__(self, path: str, keras_layer: keras.layers.Layer, arguments: KerasArguments,
                 variables: Mapping[str, keras.Variable], state: KerasState):
        """
        Args:
          path: of the KerasLayer.
          keras_layer: the Keras layer, built.
          arguments: of its call.
          variables: name -> Keras variable, for all its weights.
          state: of the same layer.
        """
        self._path, self._keras_layer, self._arguments = path, keras_layer, arguments
        self._variables, self._state = dict(variables), state
        weights = list(getattr(keras_layer, 'weights', []))
        self._seeds = [variable for variable in getattr(keras_layer, 'variables', [])
                       if not any(variable is weight for weight in weights)]

    def seeds(self, ctx: Context) -> list[tf.Tensor]:
        """A seed for each random generator of the layer."""
        return [tf.random.stateless_uniform(seed.shape, ctx.seed(self._path, str(i)),
                                            maxval=2**31 - 2, dtype=tf.int64, alg='philox')
                for i, seed in enumerate(self._seeds)]

    def __call__(self, theta: NestedMap, seeds: Sequence[tf.Tensor],
                 tensors: Mapping[str, tf.Tensor], masks: Mapping[str, tf.Tensor | None],
                 training: bool) -> CallResult:
        """Calls the Keras layer.

        Args:
          theta: the weights.
          seeds: as `seeds` gives them.
          tensors: what the layer reads, by name.
          masks: the masks of those that have one.
          training: whether this is a forward pass of training.
        """
        mapping = [(variable, theta[name]) for name, variable in self._variables.items()]
        mapping += [(variable, tf.cast(seed, variable.dtype))
                    for variable, seed in zip(self._seeds, seeds, strict=True)]
        # Keras keeps the mask in an attribute of the tensor, and other layers may read this one.
        own_tensors = {name: tf.identity(tensor) for name, tensor in tensors.items()}
        for name, mask in masks.items():
            if mask is not None:
                own_tensors[name]._keras_mask = tf.cast(mask, tf.bool)
        positional, named = self._arguments.bound(own_tensors)
        if isinstance(self._keras_layer, _ADDING):
            positional = without_biases(positional)
        if not isinstance(self._keras_layer, keras.layers.Layer):
            return CallResult(keras.tree.flatten(self._keras_layer(*positional, **named)))

        with self._state.recorded() as moments, keras.StatelessScope(
                mapping, collect_losses=True, initialize_variables=False) as scope:
            before = {name: scope.get_current_value(variable)
                      for name, variable in self._variables.items()}
            output = self._keras_layer(*positional, **named, training=training)
            losses = list(self._keras_layer.losses)
        after = {name: scope.get_current_value(variable)
                 for name, variable in self._variables.items()}
        assigned = {name: value for name, value in after.items() if value is not before[name]}
        return CallResult(keras.tree.flatten(output), losses, moments, assigned)

    def names_of_data(self, specs: Mapping[str, keras.KerasTensor]) -> tuple[str, ...]:
        """The names of the state to which the layer assigns what depends on the examples."""
        with tf.Graph().as_default():
            theta = NestedMap({name: tf.compat.v1.placeholder(variable.dtype, variable.shape)
                               for name, variable in self._variables.items()})
            seeds = [tf.compat.v1.placeholder(tf.int64, variable.shape) for variable in self._seeds]
            tensors = {name: tf.compat.v1.placeholder(spec.dtype, spec.shape)
                       for name, spec in specs.items()}
            call = self(theta, seeds, tensors, {}, training=True)
            return tuple(name for name in self._state.names if name in call.assigned
                         and depends_on(call.assigned[name], [*tensors.values(), *seeds]))


def as_keras_takes_it(path: str, name: str, tensor: tf.Tensor,
                      spec: keras.KerasTensor) -> tf.Tensor:
    """Returns a tensor in the dtype and of the rank that a Keras layer was built for.

    As a model of Keras does with its inputs, a last dimension of 1 is added or left out.

    Args:
      path: of the layer, for the errors.
      name: of the tensor, for the errors.
      tensor: what it reads.
      spec: what it was built for.

    Raises:
      ValueError: the tensor is complex and the spec is not, or they would be broadcast to others.
    """
    if tensor.dtype.is_complex and not tf.as_dtype(spec.dtype).is_complex:
        raise ValueError(f'{path} reads {tensor.dtype.name}, but the Keras layer was built for '
                         f'{spec.dtype}, which would lose the imaginary part; give it the real and '
                         'the imaginary part as channels, or make the input of the model complex.')
    tensor = tf.cast(tensor, spec.dtype)
    shape, wanted = tensor.shape, tf.TensorShape(spec.shape)
    if shape.rank == wanted.rank - 1 and wanted[-1] == 1:
        return tf.expand_dims(tensor, -1)
    if shape.rank == wanted.rank + 1 and shape[-1] == 1:
        return tf.squeeze(tensor, -1)
    if shape.rank != wanted.rank or any(
            1 in sizes and None not in sizes and sizes[0] != sizes[1]
            for sizes in zip(shape[1:], wanted[1:], strict=True)):
        raise ValueError(f'{path} reads {name} of shape {shape}, but the Keras layer was made for '
                         f'examples of shape {wanted[1:]}; correct the input, or make the model '
                         'for these.')
    return tensor


def without_biases(addends: Any) -> Any:
    """Returns tensors that Keras adds as they are, none of which it takes for a bias.

    keras.ops.add takes a tensor of which one dimension is longer than 1 for a bias of the channels,
    if there are as many. With an unknown number of examples none of them is: in a micro-batch it is
    known, so that one number for each example, or for each position of one example, would be a
    bias. Such a tensor is repeated to the shape of the sum.

    Args:
      addends: a nested structure of tensors and constants, with their masks.
    """
    parts = keras.tree.flatten(addends)
    shapes = [tf.TensorShape(np.shape(part) if isinstance(part, np.ndarray) else part.shape)
              for part in parts if not isinstance(part, (bool, int, float))]
    if len(shapes) < len(parts) or len({shape.rank for shape in shapes}) > 1:
        return addends
    total = functools.reduce(tf.broadcast_static_shape, shapes)
    for i, (part, shape) in enumerate(zip(parts, shapes, strict=True)):
        lengths = [length for length in shape if length != 1]
        if shape != total and len(lengths) == 1 and lengths[0] and lengths[0] in total[1:]:
            sizes = total if total.is_fully_defined() else functools.reduce(
                tf.broadcast_dynamic_shape, map(tf.shape, parts))
            parts[i] = tf.broadcast_to(part, sizes)
            if hasattr(part, '_keras_mask'):
                parts[i]._keras_mask = part._keras_mask
    return keras.tree.pack_sequence_as(addends, parts)
