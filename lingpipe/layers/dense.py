"""Dense and Activation: a matrix product over the last axis, and elementwise functions by name.

Shapes: D input channels, U units, rows = the product of all other dimensions.
"""
from __future__ import annotations

import functools
import math
from collections.abc import Callable

import keras
import tensorflow as tf

from lingpipe.hyperparams import REQUIRED, field
from lingpipe.layers.base import Layer
from lingpipe.layers.context import Context
from lingpipe.layers.cost import Cost
from lingpipe.layers.low_rank import Adaptable
from lingpipe.layers.nested import NestedMap
from lingpipe.layers.projection import projection_flops
from lingpipe.layers.shapes import check_last_dim, dims, num_rows
from lingpipe.layers.static_shapes import as_spec, num_elements, static_shape
from lingpipe.pricing import traced_cost
from lingpipe.process.graph_lifetime import custom_gradient


@custom_gradient
def gelu(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """x * P(X <= x), X normal (Hendrycks and Gimpel, 2016), exact.

    Only x is kept for backward. TensorFlow's own gradient keeps four tensors.
    """
    def gradient(dy: tf.Tensor) -> tf.Tensor:
        return dy * (_normal_cdf(x) + x * tf.exp(-0.5 * x * x) * (1 / math.sqrt(2 * math.pi)))

    return x * _normal_cdf(x), gradient


def _normal_cdf(x: tf.Tensor) -> tf.Tensor:
    return 0.5 * (1 + tf.math.erf(x * math.sqrt(0.5)))


@custom_gradient
def gelu_tanh(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """x * (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, which is near to gelu; GPT-2 has it.

    Only x is kept for backward.
    """
    slope, cubic = math.sqrt(2 / math.pi), 0.044715

    def curve(x: tf.Tensor) -> tf.Tensor:
        return tf.tanh(slope * (x + cubic * x * x * x))

    def gradient(dy: tf.Tensor) -> tf.Tensor:
        t = curve(x)
        return dy * (0.5 * (1 + t)
                     + 0.5 * x * (1 - t * t) * slope * (1 + 3 * cubic * x * x))

    return 0.5 * x * (1 + curve(x)), gradient


# What Keras has by the same names, without its dispatch, or kept smaller for backward.
_ACTIVATIONS: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    'linear': lambda x: x,
    'relu': tf.nn.relu,
    'relu6': tf.nn.relu6,
    'gelu': gelu,
    'gelu_tanh': gelu_tanh,   # Keras has it as gelu(approximate=True), and so by no name.
    'tanh': tf.tanh,
    'sigmoid': tf.sigmoid,
    'softmax': lambda x: tf.cast(tf.nn.softmax(tf.cast(x, tf.float32)), x.dtype),
}


def activation_fn(name: str) -> Callable[[tf.Tensor], tf.Tensor]:
    """The function of a Keras activation's name; gelu is the exact one, gelu_tanh is near to it.

    Raises:
      ValueError: Keras has no such activation.
    """
    if name in _ACTIVATIONS:
        return _ACTIVATIONS[name]
    try:
        function: Callable[[tf.Tensor], tf.Tensor] = keras.activations.get(name)
    except ValueError:
        raise ValueError(f'activation={name!r} is no activation of Keras; write linear, relu, '
                         'gelu, gelu_tanh, silu, tanh, sigmoid, or another name in '
                         'keras.activations.') from None
    return function


class Activation(Layer):
    """An elementwise function (or a softmax of the last axis) by its Keras name."""

    is_traced_once = True
    is_positionwise = True

    class Params(Layer.Params):
        """The name of the function."""
        activation: str = field('relu', "'gelu_tanh', or a name in keras.activations: 'relu', "
                                        "'gelu', 'silu', 'tanh', 'softmax', ...")

        def check(self) -> None:
            """Raises ValueError for a name that Keras does not know."""
            activation_fn(self.activation)

    params: Params

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor) -> tf.Tensor:
        """The function of x, of the same shape [..., D]."""
        return activation_fn(self.params.activation)(x)

    def cost(self, x: tf.TensorSpec) -> Cost:
        """The cost of one row, traced, times the number of rows."""
        static_shape(x, self.path, 'x')
        return Cost(activation_flops(self.params.activation, x), 0, as_spec(x))


def activation_flops(name: str, x: tf.TensorSpec) -> float:
    """FLOPs of an activation of x."""
    dim: int = x.shape[-1]
    return num_elements(x) / dim * _flops_of_row(name, dim, tf.as_dtype(x.dtype))


@functools.cache
def _flops_of_row(name: str, dim: int, dtype: tf.DType) -> float:
    """FLOPs of an activation of one row of `dim` numbers."""
    if name == 'linear':
        return 0.
    activation = Activation(Activation.Params(activation=name))
    # By tracing: the cost of Activation would ask here again.
    return traced_cost(activation, tf.TensorSpec([1, dim], dtype)).flops


class Dense(Adaptable):
    """activation(x @ w + b) over the last axis; x [..., D] -> [..., U]."""

    is_traced_once = True
    is_positionwise = True
    projections = ('w',)

    class Params(Adaptable.Params):
        """Channels, activation and initializer."""
        input_dim: int = field(REQUIRED, 'D, the channels of the input.', least=1)
        units: int = field(REQUIRED, 'U, the channels of the output.', least=1)
        activation: str = field('linear', "Name in keras.activations, or 'gelu_tanh'.")
        use_bias: bool = field(True, 'Whether b is added.')
        kernel_initializer: str = field('glorot_uniform', 'Name of the Keras initializer of w.')

        def check(self) -> None:
            """Raises ValueError for an activation that Keras does not know."""
            super().check()
            activation_fn(self.activation)

    params: Params

    def __init__(self, params: Params, path: str = ''):
        super().__init__(params, path)
        p = self.params
        self.add_weight('w', [p.input_dim, p.units], p.kernel_initializer)
        if p.use_bias:
            self.add_weight('b', [p.units], 'zeros')

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor) -> tf.Tensor:
        """[..., D] -> [..., U] in the dtype of x.

        Raises:
          ValueError: the last dimension of x is not D.
        """
        check_last_dim(x, self.params.input_dim, self.path)
        y = self.project(theta, ctx, x, 'w', 'b')
        y = activation_fn(self.params.activation)(y)
        if x.shape.rank == 2:
            return y
        return tf.reshape(y, [*dims(x)[:-1], self.params.units])  # [..., U]

    def cost(self, x: tf.TensorSpec) -> Cost:
        """rows * U * (2 D + 1), the adapter and the activation."""
        p = self.params
        check_last_dim(x, p.input_dim, self.path)
        y = tf.TensorSpec([*static_shape(x, self.path, 'x')[:-1], p.units], x.dtype)
        rows = num_rows(x, self.path)
        flops = projection_flops(rows, p.input_dim, p.units, p.use_bias)
        flops += self.adapter_flops(rows, x.dtype)
        return Cost(flops + activation_flops(p.activation, y), self.num_weights, y)
