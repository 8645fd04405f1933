"""Flatten, Reshape and Cast: the same numbers in another shape or dtype."""
from __future__ import annotations

import math

import tensorflow as tf

from lingpipe.hyperparams import REQUIRED, field
from lingpipe.layers.base import Layer
from lingpipe.layers.context import Context
from lingpipe.layers.cost import Cost
from lingpipe.layers.nested import NestedMap
from lingpipe.layers.shapes import dims
from lingpipe.layers.static_shapes import static_shape


class Flatten(Layer):
    """[b, ...] -> [b, product of the rest]."""

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor) -> tf.Tensor:
        """[b, ...] -> [b, D]; b may be unknown, the rest must be known."""
        example_shape = static_shape(x[0], self.path, 'an example of x')
        return tf.reshape(x, [dims(x)[0], math.prod(example_shape)])

    def cost(self, x: tf.TensorSpec) -> Cost:
        """Nothing is computed: the result is a view."""
        b, *example_shape = static_shape(x, self.path, 'x')
        return Cost(0., 0, tf.TensorSpec([b, math.prod(example_shape)], x.dtype))


class Reshape(Layer):
    """[b, ...] -> [b, *shape]."""

    class Params(Layer.Params):
        """The new shape."""
        shape: tuple[int, ...] = field(REQUIRED, 'The dimensions of one example.', least=1)

    params: Params

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor) -> tf.Tensor:
        """[b, ...] -> [b, *shape]. Raises ValueError if the products differ."""
        self._check(static_shape(x[0], self.path, 'an example of x'))
        return tf.reshape(x, [dims(x)[0], *self.params.shape])

    def cost(self, x: tf.TensorSpec) -> Cost:
        """Nothing is computed: the result is a view."""
        b, *example_shape = static_shape(x, self.path, 'x')
        self._check(example_shape)
        return Cost(0., 0, tf.TensorSpec([b, *self.params.shape], x.dtype))

    def _check(self, example_shape: list[int]) -> None:
        """Raises ValueError unless an example has as many elements as Params.shape."""
        if math.prod(example_shape) != math.prod(self.params.shape):
            raise ValueError(f'{self.path}: an example of x is {example_shape}, which is no '
                             f'{list(self.params.shape)}: the products must be equal; correct '
                             'Params.shape.')


class Cast(Layer):
    """x in another dtype: bfloat16 from here on, or float32 again."""

    is_positionwise = True

    class Params(Layer.Params):
        """The new dtype."""
        dtype: str = field('bfloat16', "Name of the dtype: 'bfloat16', 'float32', ...")

        def check(self) -> None:
            """Raises ValueError for a name that is no dtype."""
            try:
                tf.as_dtype(self.dtype)
            except TypeError:
                raise ValueError(f'dtype={self.dtype!r} is no dtype of TensorFlow; '
                                 "write 'bfloat16' or 'float32'.") from None

    params: Params

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor) -> tf.Tensor:
        """x of any shape in Params.dtype."""
        return tf.cast(x, self.params.dtype)

    def cost(self, x: tf.TensorSpec) -> Cost:
        """Nothing is computed."""
        return Cost(0., 0, tf.TensorSpec(static_shape(x, self.path, 'x'), self.params.dtype))
