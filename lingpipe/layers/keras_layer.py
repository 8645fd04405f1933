"""KerasLayer: any layer of Keras 3 as a layer of a pipeline, given by its class and its configuration.

    KerasLayer.Params(class_name='LSTM', config='{"units": 64}', input_shape=(100, 32))

Keras layers keep their state in variables, a pipeline passes it: weights are passed in place of the layer's variables
(keras.StatelessScope), random generators are seeded anew from the context in every call, so that a recomputation draws the same
numbers, and other state (moving averages) goes out as a value that is averaged over the micro-batches. The Keras layer is built
in such a scope too, so its variables have shapes and initializers, but no memory.
"""
from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from lingpipe.hyperparams import REQUIRED, field
from lingpipe.layer import Layer
from lingpipe.layers.shapes import dims
from lingpipe.nested import NestedMap


class KerasLayer(Layer):
    """x through a Keras layer of one input and one output, which has the dtype of x where both are floats.

    What the layer adds to its loss (regularizers, add_loss) is taken as a mean over the examples of the micro-batch, as Keras means
    it, and emitted as an extra loss. Weights are named as in Keras, without the layer's own name; equal names are numbered.
    """

    class Params(Layer.Params):
        """The Keras layer, and what it is given."""
        class_name: str = field(REQUIRED, "Class in keras.layers, or one registered with Keras as 'package>Name'.")
        config: str = field('{}', 'Its configuration as JSON: {"units": 64}.')
        input_shape: tuple[int | None, ...] = field(REQUIRED, 'Shape of one example, None for a dimension that varies.',
                                                    least=1)
        input_dtype: str = field('float32', 'Dtype of the input.')

        def check(self) -> None:
            """Raises ValueError for a class that Keras does not know, or a config that is no JSON object."""
            _class_of(self.class_name)
            _parsed(self.config)

    def __init__(self, params: Any, path: str = ''):
        super().__init__(params, path)
        p = self.params
        self.takes_text = p.input_dtype == 'string'
        with tf.init_scope(), keras.StatelessScope(initialize_variables=False):
            try:
                self.keras_layer = _class_of(p.class_name).from_config(_parsed(p.config))
                self.keras_layer(keras.KerasTensor((None, *p.input_shape), p.input_dtype))
            except Exception as error:
                raise ValueError(f'{self.path}: Keras cannot build {p.class_name} of {p.config} for examples of '
                                 f'{list(p.input_shape)}: {error}') from error
        weights = list(self.keras_layer.weights)
        self._variables = dict(zip(_unique([v.name for v in weights]), weights, strict=True))
        known = {id(v) for v in weights}
        self._seeds = [v for v in self.keras_layer.variables if id(v) not in known]
        for name, variable in self._variables.items():
            self.add_weight(name, variable.shape, _initializer(variable), is_trainable=variable.trainable,
                            dtype=tf.as_dtype(variable.dtype))

    def fprop(self, theta: NestedMap, ctx: Any, x: tf.Tensor) -> tf.Tensor:
        """[b, *input_shape] through the Keras layer; emits its losses and, in training, its other state."""
        mapping = [(variable, theta[name]) for name, variable in self._variables.items()]
        for i, variable in enumerate(self._seeds):
            seed = tf.random.stateless_uniform(variable.shape, ctx.seed(self.path, str(i)), maxval=2**31 - 2, dtype=tf.int64, alg='philox')
            mapping.append((variable, tf.cast(seed, variable.dtype)))
        with keras.StatelessScope(mapping, collect_losses=True, initialize_variables=False) as scope:
            y = self.keras_layer(x, training=ctx.training)
            losses = self.keras_layer.losses
        if ctx.training:
            for name, variable in self._variables.items():
                if not variable.trainable:
                    ctx.emit_mean(self.path, name, scope.get_current_value(variable))
        if losses:
            ctx.emit_loss(self.path, 'loss', tf.add_n(losses) * tf.cast(dims(x)[0], tf.float32))
        return tf.cast(y, x.dtype) if x.dtype.is_floating and y.dtype.is_floating else y

    def updated_state(self, name: str, state: NestedMap, value: Any) -> dict[str, tf.Tensor]:
        """The non-trainable weight `name`, which becomes its mean over the micro-batches."""
        return {name: tf.cast(value, state[name].dtype)}


class _FromFunction(keras.initializers.Initializer):
    """A plain function as an initializer."""

    def __init__(self, function: Callable[..., Any]):
        self._function = function

    def __call__(self, shape: Any, dtype: Any = None) -> Any:
        return self._function(shape, dtype=dtype)

    def get_config(self) -> dict[str, Any]:
        return {}


def _initializer(variable: Any) -> keras.initializers.Initializer:
    """The initializer of a Keras variable without memory, or the value of one that has it."""
    found = variable._initializer  # Keras has no public way to it
    if isinstance(found, keras.initializers.Initializer):
        return found
    if callable(found):
        return _FromFunction(found)
    value = variable.numpy()
    return _FromFunction(lambda shape, dtype=None: tf.constant(value, dtype))


def _unique(names: list[str]) -> list[str]:
    """kernel, kernel, bias -> kernel_0, kernel_1, bias: Keras' longer paths number the layers of the whole process."""
    times, seen, found = Counter(names), Counter[str](), []
    for name in names:
        found.append(name if times[name] == 1 else f'{name}_{seen[name]}')
        seen[name] += 1
    return found


def _class_of(name: str) -> Any:
    found = getattr(keras.layers, name, None) or keras.saving.get_registered_object(name)
    if found is None:
        raise ValueError(f"class_name={name!r} is no layer of Keras; write the name of a class in keras.layers, or 'package>Name' "
                         'of one registered with keras.saving.register_keras_serializable.')
    return found


def _parsed(config: str) -> dict[str, Any]:
    try:
        found = json.loads(config)
    except ValueError as error:
        raise ValueError(f'config={config!r} is no JSON ({error}); write an object like {{"units": 64}}.') from None
    if not isinstance(found, dict):
        raise ValueError(f'config={config!r} is no JSON object; write one like {{"units": 64}}.')
    return found
