"""Flatten, Reshape, Cast: the same numbers in another shape or dtype."""
from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from lingpipe.hyperparams import REQUIRED, field
from lingpipe.layers.base import Layer
from lingpipe.layers.cost import Cost
from lingpipe.layers.nested import NestedMap
from lingpipe.layers.shapes import dims
from lingpipe.layers.static_shapes import static_shape


class Flatten(Layer):
    """[b, ...] -> [b, product of the rest]."""

    def fprop(self, theta: NestedMap, ctx: Any, x: tf.Tensor) -> tf.Tensor:
        """[b, ...] -> [b, D]; b may be unknown, the rest must be known."""
        return tf.reshape(x, [dims(x)[0], math.prod(static_shape(x[0], self.path, 'an example of x'))])

    def cost(self, x: tf.TensorSpec) -> Cost:
        """Nothing: a view."""
        b, *rest = static_shape(x, self.path, 'x')
        return Cost(0., 0, tf.TensorSpec([b, math.prod(rest)], x.dtype))


class Reshape(Layer):
    """[b, ...] -> [b, *shape]."""

    class Params(Layer.Params):
        """The new shape."""
        shape: tuple[int, ...] = field(REQUIRED, 'The dimensions of one example.', least=1)

    def fprop(self, theta: NestedMap, ctx: Any, x: tf.Tensor) -> tf.Tensor:
        """[b, ...] -> [b, *shape]. Raises ValueError if the products differ."""
        self._check(static_shape(x[0], self.path, 'an example of x'))
        return tf.reshape(x, [dims(x)[0], *self.params.shape])

    def cost(self, x: tf.TensorSpec) -> Cost:
        """Nothing: a view."""
        b, *rest = static_shape(x, self.path, 'x')
        self._check(rest)
        return Cost(0., 0, tf.TensorSpec([b, *self.params.shape], x.dtype))

    def _check(self, example: list[int]) -> None:
        if math.prod(example) != math.prod(self.params.shape):
            raise ValueError(f'{self.path}: an example of x is {example}, which is no {list(self.params.shape)}: the products must '
                             'be equal; correct Params.shape.')


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
                raise ValueError(f"dtype={self.dtype!r} is no dtype of TensorFlow; write 'bfloat16' or 'float32'.") from None

    def fprop(self, theta: NestedMap, ctx: Any, x: tf.Tensor) -> tf.Tensor:
        """x in Params.dtype; any shape."""
        return tf.cast(x, self.params.dtype)

    def cost(self, x: tf.TensorSpec) -> Cost:
        """Nothing is computed."""
        return Cost(0., 0, tf.TensorSpec(static_shape(x, self.path, 'x'), self.params.dtype))
