"""KerasLayer: a layer of Keras 3 as a layer of a pipeline, given by its class and configuration.

    KerasLayer.Params(class_name='LSTM', config='{"units": 64}', input_shape=(100, 32))

Keras layers keep their state in variables; a pipeline passes it. Here weights are passed in place
of the layer's variables (keras.StatelessScope), random generators get a new seed from the context
in every call, so that a recomputation draws the same numbers, and what the layer would assign to
its state leaves fprop as a value (keras_state.py). The Keras layer is built in such a scope too, so
that its variables have shapes and initializers, but no memory.

Any layer gives Keras' own numbers (those of keras.Model.train_on_batch on the whole mini-batch),
with these exceptions. Refused, by name:

  - more than one input or output (MultiHeadAttention, Add, an LSTM that returns its state); wrap it
    in a layer of one, registered with keras.saving.register_keras_serializable;
  - constraints of weights, and layers that assign to a weight that gradients train
    (SpectralNormalization);
  - BatchNormalization inside a loop over time, `synchronized`, or with
    pipeline.cross_replica_batch_norm;
  - state that depends on the examples, except BatchNormalization's, with more than one micro-batch
    or replica;
  - layers that let examples see each other (MixUp, CutMix, an axis 0), with more than one
    micro-batch or replica;
  - Normalization without mean and variance: what `adapt` finds is not part of a configuration;
  - variables that TensorFlow keeps (random numbers without a SeedGenerator, tables of words), and
    metrics of a layer.

Different from Keras:

  - BatchNormalization normalises with the moments of the micro-batch; only its moving averages are
    the mini-batch's;
  - what `add_loss` is given is averaged over the micro-batches: right for a mean over examples, as
    Keras' own losses are;
  - a layer of your own that lets examples see each other, which cannot be known here, sees those of
    the micro-batch;
  - an Embedding learns from the sum of the gradients of an id that occurs several times, as in
    Keras with a dense gradient; most optimizers of Keras 3 on TensorFlow square each of them
    instead (optimizers.py);
  - random numbers follow from the seed of the experiment, not from those of Keras;
  - the output has the dtype of x where both are floats.
"""
from __future__ import annotations

import contextlib
import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.common import global_state

from lingpipe.hyperparams import REQUIRED, field
from lingpipe.layers.base import Layer
from lingpipe.layers.context import Context
from lingpipe.layers.keras_state import KerasState, Moments, check_is_outside_loops, depends_on
from lingpipe.layers.masks import mask_of
from lingpipe.layers.nested import NestedMap
from lingpipe.layers.shapes import dims

_VARIABLES_WITHOUT_VALUES = 'uninitialized_variables'  # Keras' name of its list of them.


class KerasLayer(Layer):
    """x through a Keras layer of one input and one output, in the dtype of x if both are floats.

    Where Keras makes a mask of the output, the layer writes it beside the output, as the value that
    layers/masks.py names. It is given the mask of x, or the one that Params.reads names for the
    argument `mask`. What the layer adds to its loss is a penalty (Context.emit_penalty):
    regularizers of weights count as they are, those of activities are means over the mini-batch.
    Weights are named as in Keras, without the layer's own name; equal names are numbered.

    The file's docstring says which layers are refused, and which give other numbers than Keras.
    """

    mask_rule = 'takes'

    class Params(Layer.Params):
        """The Keras layer, and what it is given."""
        class_name: str = field(REQUIRED, 'Class in keras.layers, or one registered with Keras '
                                          "as 'package>Name'.")
        config: str = field('{}', 'Its configuration as JSON: {"units": 64}.')
        input_shape: tuple[int | None, ...] = field(
            REQUIRED, 'Shape of one example, None for a dimension that varies.', least=1)
        input_dtype: str = field('float32', 'Dtype of the input.')
        drops_mask: bool = field(False, 'Whether the output has no mask, though that of the '
                                        'input, or one that Keras makes, is lost.')
        averages_state: bool = field(False, 'Whether floating-point state that depends on the '
                                            'examples becomes its mean over the micro-batches: '
                                            'right for moving averages of means.')

        def check(self) -> None:
            """Raises ValueError for an unknown class, or a config that is no JSON object."""
            _class_of(self.class_name)
            _parsed(self.config)

    params: Params

    def __init__(self, params: Params, path: str = ''):
        super().__init__(params, path)
        p = self.params
        self.takes_text = p.input_dtype == 'string'
        self.keras_layer, output = self._built()
        _check_supported(self.path, self.keras_layer, output)

        weights = list(self.keras_layer.weights)
        names = _unique([variable.name for variable in weights])
        self._variables = dict(zip(names, weights, strict=True))
        self._seeds = [variable for variable in self.keras_layer.variables
                       if not any(variable is weight for weight in weights)]
        for name, variable in self._variables.items():
            self.add_weight(name, variable.shape, _initializer(variable),
                            is_trainable=variable.trainable, dtype=tf.as_dtype(variable.dtype))

        self._state = KerasState(self.path, self.keras_layer, self._variables)
        self._data_names = self._names_of_data() if self._state.names else ()
        self.unmerged_state = [name for name in self._data_names if not self._is_averaged(name)]

        inner_layers = list(self.keras_layer._flatten_layers())
        has_activity_regularizer = any(layer.activity_regularizer is not None
                                       for layer in inner_layers)
        self.needs_whole_batch = any(_mixes_examples(layer) for layer in inner_layers)
        self.counts_copies = _has_code_of_users(p) or has_activity_regularizer

    def _built(self) -> tuple[Any, Any]:
        """Returns the Keras layer, and its symbolic output for symbolic examples.

        Raises:
          ValueError: Keras cannot build it.
        """
        p = self.params
        with tf.init_scope(), _without_values():
            try:
                keras_layer = _class_of(p.class_name).from_config(_parsed(p.config))
                examples = keras.KerasTensor((None, *p.input_shape), p.input_dtype)
                return keras_layer, keras_layer(examples)
            except Exception as error:
                raise ValueError(f'{self.path}: Keras cannot build {p.class_name} of {p.config} '
                                 f'for examples of {list(p.input_shape)}: {error}') from error

    def takes_masks(self, reads: Mapping[str, str]) -> dict[str, str]:
        """The mask of x."""
        return {'mask': reads['x']}

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor,
              mask: tf.Tensor | None = None) -> tf.Tensor | NestedMap:
        """x [b, *input_shape] and its mask, if it has one, through the Keras layer.

        Emits the layer's losses and, in training, its other state.

        Returns:
          The output or, if Keras gives it a mask, {'x': output, 'mask': mask}.

        Raises:
          ValueError: the layer would ignore the mask, or changes its state in a way that a pipeline
            cannot follow.
        """
        seeds = [tf.random.stateless_uniform(seed.shape, ctx.seed(self.path, str(i)),
                                             maxval=2**31 - 2, dtype=tf.int64, alg='philox')
                 for i, seed in enumerate(self._seeds)]
        call = self._call(theta, seeds, x, self._usable(mask), ctx.training)
        if ctx.training:
            sources = [*seeds, x, *([] if mask is None else [mask])]
            self._emit_state(ctx, call, sources, dims(x)[0])
        if call.losses:
            losses = [tf.cast(tf.reduce_sum(loss), tf.float32) for loss in call.losses]
            ctx.emit_penalty(self.path, 'loss', tf.add_n(losses))

        y = call.output
        if x.dtype.is_floating and y.dtype.is_floating:
            y = tf.cast(y, x.dtype)
        has_mask = call.mask is not None and not self.params.drops_mask
        return NestedMap(x=y, mask=call.mask) if has_mask else y

    def written(self, result: Any) -> dict[str, Any]:
        """The output under Params.writes, and its mask, if it has one."""
        if not isinstance(result, dict):
            return super().written(result)
        output = super().written(result['x'])
        return {**output, **{mask_of(name): result['mask'] for name in output}}

    def updated_state(self, name: str, state: NestedMap, value: Any) -> dict[str, tf.Tensor]:
        """The moving averages of a BatchNormalization, or the weight `name`, one step on."""
        return self._state.updated(name, state, value)

    def _usable(self, mask: tf.Tensor | None) -> tf.Tensor | None:
        """The mask, or None if the Keras layer would lose it and may.

        Raises:
          ValueError: it would lose the mask and must not.
        """
        if mask is None or self.keras_layer.supports_masking:
            return mask
        if not self.params.drops_mask:
            raise ValueError(f'{self.path}: {self.params.class_name} does not support masks, and '
                             'would lose that of its input; set drops_mask=True if that is meant.')
        return None

    def _call(self, theta: NestedMap, seeds: Sequence[tf.Tensor], x: tf.Tensor,
              mask: tf.Tensor | None, training: bool) -> _Call:
        """Calls the Keras layer, without side effects."""
        mapping = [(variable, theta[name]) for name, variable in self._variables.items()]
        mapping += [(variable, tf.cast(seed, variable.dtype))
                    for variable, seed in zip(self._seeds, seeds, strict=True)]
        # Keras keeps the mask in an attribute of the tensor, and other layers may read this one.
        x = tf.identity(x)
        if mask is not None:
            x._keras_mask = tf.cast(mask, tf.bool)

        with self._state.recorded() as moments, keras.StatelessScope(
                mapping, collect_losses=True, initialize_variables=False) as scope:
            before = {name: scope.get_current_value(variable)
                      for name, variable in self._variables.items()}
            output = self.keras_layer(x, training=training)
            losses = list(self.keras_layer.losses)
        after = {name: scope.get_current_value(variable)
                 for name, variable in self._variables.items()}
        assigned = {name: value for name, value in after.items() if value is not before[name]}
        return _Call(output, getattr(output, '_keras_mask', None), losses, moments, assigned)

    def _emit_state(self, ctx: Context, call: _Call, sources: Sequence[tf.Tensor],
                    num_examples: int | tf.Tensor) -> None:
        """Emits what the call would assign to the layer's state.

        Args:
          ctx: where it is emitted.
          call: the call.
          sources: the tensors that differ between micro-batches.
          num_examples: how many examples the micro-batch has.

        Raises:
          ValueError: a pipeline cannot follow the change.
        """
        self._state.emit_moments(ctx, call.moments)
        for name, value in call.assigned.items():
            check_is_outside_loops(self.path, value)
            if self._variables[name].trainable:
                raise ValueError(f'{self.path}: {self.params.class_name} assigns to its weight '
                                 f'{name} in its forward pass, but gradients train that weight; '
                                 'write the layer as a function of its weights.')
            if name not in self._state.names:
                continue  # A moving average, for which the moments are emitted.
            depends_on_data = name in self._data_names
            if depends_on_data and self._is_averaged(name):
                ctx.emit_mean(self.path, name, value, num_examples)
                continue
            if (not depends_on_data and not tf.executing_eagerly()
                    and depends_on(value, sources)):
                raise ValueError(f'{self.path}: with a mask, {self.params.class_name} changes its '
                                 f'state {name} in another way than without; use a layer that '
                                 'does not, or drops_mask=True in the layer before.')
            ctx.emit_state(self.path, name, value)

    def _is_averaged(self, name: str) -> bool:
        """Whether a state that depends on the examples becomes its mean over the micro-batches."""
        is_floating = tf.as_dtype(self._variables[name].dtype).is_floating
        return self.params.averages_state and bool(is_floating)

    def _names_of_data(self) -> tuple[str, ...]:
        """The names of the state to which the layer assigns what depends on the examples."""
        p = self.params
        with tf.Graph().as_default():
            theta = NestedMap({name: tf.compat.v1.placeholder(variable.dtype, variable.shape)
                               for name, variable in self._variables.items()})
            seeds = [tf.compat.v1.placeholder(tf.int64, variable.shape) for variable in self._seeds]
            x = tf.compat.v1.placeholder(p.input_dtype, (None, *p.input_shape))
            call = self._call(theta, seeds, x, None, training=True)
            return tuple(name for name in self._state.names if name in call.assigned
                         and depends_on(call.assigned[name], [x, *seeds]))


@dataclasses.dataclass(frozen=True)
class _Call:
    """The result of a call of a Keras layer.

    Attributes:
      output: what the layer returned.
      mask: the mask of the output, or None.
      losses: scalars that the layer added.
      moments: what its BatchNormalizations computed.
      assigned: name of a weight -> the value that the layer assigned to it.
    """
    output: tf.Tensor
    mask: tf.Tensor | None
    losses: Sequence[tf.Tensor]
    moments: Sequence[Moments]
    assigned: Mapping[str, tf.Tensor]


def _check_supported(path: str, keras_layer: Any, output: Any) -> None:
    """Raises ValueError for a built Keras layer that a pipeline cannot run as Keras does."""
    name = type(keras_layer).__name__
    if not isinstance(output, keras.KerasTensor):
        raise ValueError(f'{path}: {name} gives a {type(output).__name__} of outputs, but a '
                         'KerasLayer has one; leave return_state and the like out, or wrap it in '
                         'a layer that gives one tensor.')
    constrained = [variable.name for variable in keras_layer.trainable_weights
                   if variable.constraint is not None]
    if constrained:
        raise ValueError(f'{path}: {name} has a constraint of {", ".join(constrained)}, which '
                         'Keras applies after each update, and lingpipe does not; leave the '
                         'constraint out, or use a regularizer.')
    if keras_layer.metrics_variables:
        raise ValueError(f'{path}: {name} keeps metrics of its own, which nobody would read; '
                         'leave them out.')
    for inner in keras_layer._flatten_layers():
        if isinstance(inner, keras.layers.Normalization) and inner.input_mean is None:
            raise ValueError(f'{path}: a Normalization without mean and variance has not been '
                             'adapted to data; give them in config, as '
                             '{"mean": [...], "variance": [...]}.')


def _has_code_of_users(params: KerasLayer.Params) -> bool:
    """Whether anything in the layer is registered with Keras as 'package>Name'.

    Such code may add losses, or let examples see each other.
    """
    return '>' in params.class_name or '>' in params.config


def _mixes_examples(keras_layer: Any) -> bool:
    """Whether a layer of Keras' own computes an example's output from other examples too.

    BatchNormalization does not count.
    """
    if isinstance(keras_layer, (keras.layers.MixUp, keras.layers.CutMix)):
        return True
    with_axis = (keras.layers.Softmax, keras.layers.UnitNormalization,
                 keras.layers.LayerNormalization, keras.layers.RMSNormalization)
    axis = keras_layer.axis if isinstance(keras_layer, with_axis) else ()
    return 0 in (axis if isinstance(axis, (list, tuple)) else [axis])


class _FromFunction(keras.initializers.Initializer):  # type: ignore[misc]  # Keras has no types.
    """A plain function as an initializer."""

    def __init__(self, function: Callable[..., Any]):
        self._function = function

    def __call__(self, shape: Any, dtype: Any = None) -> Any:
        return self._function(shape, dtype=dtype)

    def get_config(self) -> dict[str, Any]:
        return {}


def _initializer(variable: Any) -> keras.initializers.Initializer:
    """The initializer of a Keras variable without memory, or else one that gives its value."""
    initializer = variable._initializer  # Keras has no public way to it.
    if isinstance(initializer, keras.initializers.Initializer):
        return initializer
    if callable(initializer):
        return _FromFunction(initializer)
    value = variable.numpy()
    return _FromFunction(lambda shape, dtype=None: tf.constant(value, dtype))


def _unique(names: Sequence[str]) -> list[str]:
    """kernel, kernel, bias -> kernel_0, kernel_1, bias.

    Keras' longer paths would not do: they number the layers of the whole process.
    """
    total = Counter(names)
    seen = Counter[str]()
    unique = []
    for name in names:
        unique.append(name if total[name] == 1 else f'{name}_{seen[name]}')
        seen[name] += 1
    return unique


@contextlib.contextmanager
def _without_values() -> Iterator[None]:
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


def _class_of(name: str) -> Any:
    """The Keras class of this name. Raises ValueError if there is none."""
    keras_class = getattr(keras.layers, name, None) or keras.saving.get_registered_object(name)
    if keras_class is None:
        raise ValueError(f'class_name={name!r} is no layer of Keras; write the name of a class in '
                         "keras.layers, or 'package>Name' of one registered with "
                         'keras.saving.register_keras_serializable.')
    return keras_class


def _parsed(config: str) -> dict[str, Any]:
    """The configuration that a JSON text holds. Raises ValueError if it is no JSON object."""
    try:
        parsed = json.loads(config)
    except ValueError as error:
        raise ValueError(f'config={config!r} is no JSON ({error}); write an object like '
                         '{"units": 64}.') from None
    if not isinstance(parsed, dict):
        raise ValueError(f'config={config!r} is no JSON object; write one like {{"units": 64}}.')
    return parsed
