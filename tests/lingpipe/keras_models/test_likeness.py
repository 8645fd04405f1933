"""likeness: what a configuration leaves out is refused, where it was lost without a word."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

import lingpipe as lp
from lingpipe.layers.keras_building import inner_layers

registered = keras.saving.register_keras_serializable('test_likeness')


def model_of(*layers: Any, loss: Any = 'mse', **compiled: Any) -> Any:
    model = keras.Sequential([keras.Input((4,)), *layers, keras.layers.Dense(2)])
    model.compile('sgd', loss, **compiled)
    return model


@registered
class Backbone(keras.layers.Layer):
    """A layer that holds another."""

    def __init__(self, **values: Any):
        super().__init__(**values)
        self.inner = keras.Sequential([keras.layers.Dense(3)])

    def call(self, x: Any) -> Any:
        return self.inner(x)


@registered
class Scale(keras.layers.Layer):
    """A layer whose configuration may leave its factor out."""

    def __init__(self, factor: float = 1., **values: Any):
        super().__init__(**values)
        self.factor = factor

    def call(self, x: Any) -> Any:
        return x * self.factor


@registered
class Forgetful(Scale):
    """A layer whose configuration leaves its factor out."""

    def get_config(self) -> dict[str, Any]:
        config: dict[str, Any] = super().get_config()
        return {name: value for name, value in config.items() if name != 'factor'}


@registered
class Regular(keras.layers.Layer):
    """A layer that makes layers without trained weights."""

    def __init__(self, **values: Any):
        super().__init__(**values)
        self.norm = keras.layers.BatchNormalization(center=False, scale=False)
        self.drop = keras.layers.Dropout(0.5)

    def call(self, x: Any, training: bool | None = None) -> Any:
        x = self.drop(self.norm(x, training=training), training=training)
        return keras.ops.cast(x, 'float32')


def changed_within(layer: str, name: str, value: Any) -> Any:
    """Makes a model in which an attribute of a layer in a layer was set afterwards."""
    def make() -> Any:
        outer = Regular()
        model = model_of(outer)
        setattr(getattr(outer, layer), name, value)
        return model
    return make


def attention_that_drops_nothing() -> Any:
    attention = keras.layers.MultiHeadAttention(1, 2, dropout=0.5)
    x = keras.Input((3, 4))
    model = keras.Model(x, attention(x, x))
    for inner in inner_layers(attention):
        if isinstance(inner, keras.layers.Dropout):
            inner.rate = 0.
    return model


def frozen_within() -> Any:
    layer = Backbone()
    model = model_of(layer)
    layer.inner.trainable = False
    return model


def dense_with(name: str, value: Any) -> Callable[[], Any]:
    """A model whose first weight has an attribute that was set after the layer was made."""
    def make() -> Any:
        dense = keras.layers.Dense(3)
        model = model_of(dense)
        setattr(dense.kernel, name, value)
        return model

    return make


def dense_regularized_late() -> Any:
    """Keras does not look at this attribute again, and so has no such loss."""
    dense = keras.layers.Dense(3)
    model = model_of(dense)
    dense.kernel_regularizer = keras.regularizers.L2(0.5)
    return model


def factor_set_late() -> Any:
    layer = Scale(2.)
    model = model_of(layer)
    layer.factor = 0.5
    return model


def relu(x: Any) -> Any:
    return keras.ops.leaky_relu(x, 0.5)


@pytest.mark.parametrize(('make', 'sentence'), [
    (frozen_within, 'kernel has trainable=False, but made from its configuration True'),
    (dense_with('trainable', False), 'kernel has trainable=False'),
    (dense_with('regularizer', keras.regularizers.L2(0.5)), "regularizer=L2({'l2': 0.5}), but made "
                                                            'from its configuration None'),
    (dense_with('constraint', keras.constraints.NonNeg()), 'kernel has constraint=NonNeg'),
    (dense_regularized_late, 'kernel has regularizer=None, but made from its configuration L2'),
    (factor_set_late, 'factor is 0.5, but made from its configuration 2.0'),
    (changed_within('drop', 'rate', 0.1), 'Dropout is not what its configuration says: rate is '
                                          '0.1, but made from its configuration 0.5'),
    (changed_within('norm', 'trainable', False), 'trainable is False, but made from its'),
    (changed_within('norm', 'momentum', 0.5), 'momentum is 0.5, but made from its'),
    (attention_that_drops_nothing, 'rate is 0.0, but made from its configuration 0.5'),
    (lambda: model_of(Forgetful(3.)), 'factor is 3.0, but made from its configuration 1.0'),
    (lambda: model_of(keras.layers.Dense(3, activation=relu)),
     'activation is test_likeness.relu, but made from its configuration keras.src.'),
    (lambda: model_of(keras.layers.Lambda(relu)), 'function is test_likeness.relu, but made from'),
    (lambda: model_of(keras.layers.Dense(3, activation=keras.ops.gelu)),
     'activation is keras.src.ops.nn.gelu, but made from its configuration keras.src.activations'),
])
def test_what_a_configuration_leaves_out_is_refused(make: Any, sentence: str) -> None:
    with pytest.raises(ValueError) as caught:
        lp.from_keras(make())
    assert sentence in str(caught.value).replace('tests.lingpipe.keras_models.', '')


def test_a_dtype_that_was_that_of_all_layers_when_a_layer_in_a_layer_was_made_is_refused() -> None:
    keras.config.set_dtype_policy('float64')
    try:
        model = model_of(Regular(dtype='float32'))
    finally:
        keras.config.set_dtype_policy('float32')
    with pytest.raises(ValueError, match='dtype is .*float64.*, but made from its configuration'):
        lp.from_keras(model)


def test_a_normalization_that_was_adapted_is_like_the_one_with_its_numbers() -> None:
    norm = keras.layers.Normalization()
    norm.adapt(np.eye(4))
    lp.from_keras(model_of(norm))


def test_functions_that_give_the_same_numbers_are_alike() -> None:
    for function in keras.ops.relu, keras.ops.tanh:
        lp.from_keras(model_of(keras.layers.Dense(3, activation=function)))


def mse(labels: Any, x: Any) -> Any:
    return keras.ops.mean(10 * abs(x - labels), -1)


@registered
class Scaled(keras.losses.Loss):
    """A loss whose configuration leaves its factor out."""

    def __init__(self, factor: float = 1., **values: Any):
        super().__init__(**values)
        self.factor = factor

    def call(self, y_true: Any, y_pred: Any) -> Any:
        return self.factor * keras.ops.mean(abs(y_true - y_pred), -1)


@registered
class Seven(keras.losses.MeanSquaredError):
    """A loss that is more than a mean."""

    def __call__(self, *args: Any) -> Any:
        return 7 * super().__call__(*args)


@registered
class Root(keras.metrics.MeanMetricWrapper):
    """A metric that is more than a mean."""

    def __init__(self, name: str = 'root', dtype: Any = None):
        super().__init__(keras.losses.mean_squared_error, name=name, dtype=dtype)

    def result(self) -> Any:
        return keras.ops.sqrt(super().result())

    def get_config(self) -> dict[str, Any]:
        return {'name': self.name}


@pytest.mark.parametrize(('compiled', 'sentence'), [
    ({'loss': mse}, "has the name of one of Keras, which would be taken in its place; rename it"),
    ({'metrics': [mse]}, 'has the name of one of Keras'),
    ({'loss': Scaled(4.)}, 'factor is 4.0, but made from its configuration 1.0'),
    ({'loss': Seven()}, 'has a __call__ of its own'),
    ({'metrics': [Root()]}, 'Root is no mean over examples'),
])
def test_losses_and_metrics_that_would_be_others_are_refused(
        compiled: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        lp.from_keras(model_of(**compiled))


def test_a_schedule_that_is_called_as_one_of_keras_is_refused() -> None:
    @registered
    class CosineDecay(keras.optimizers.schedules.CosineDecay):   # type: ignore[misc]
        """Another schedule."""

    model = model_of()
    model.compile(keras.optimizers.SGD(CosineDecay(0.1, 4)), 'mse')
    with pytest.raises(ValueError, match='the learning rate test_likeness>CosineDecay'):
        lp.learner_from_keras(model)
