"""Dropout, DropPath and WordDropout: random zeros, the same in forward and recomputation.

They are the same because the seed is an argument. One 16-bit number decides over one element, so
that the generator makes half as many 32-bit words; the rate is rounded to 1/65536. What is kept for
the backward pass is the mask, one byte an element. Forward and backward of [32, 64, 256] on one
thread take 2.5 ms. tf.nn.experimental.stateless_dropout, which stores and compares float32 numbers,
takes 4.7 ms.

The numbers are those of tf.random.stateless_uniform with alg='philox'. That function makes 43 ops
to derive Philox' key and counter from a seed, most of them to join words that the generator can
make as one number. `_philox` makes 15, since a network may have a dropout for each of its layers.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import tensorflow as tf

from lingpipe.hyperparams import field
from lingpipe.layers.base import Layer
from lingpipe.layers.context import Context
from lingpipe.layers.cost import Cost
from lingpipe.layers.nested import NestedMap
from lingpipe.layers.shapes import dims
from lingpipe.layers.static_shapes import as_spec, num_elements, static_shape
from lingpipe.process.graph_lifetime import custom_gradient

_RANGE = 1 << 16


def drop(x: tf.Tensor, rate: float, seed: tf.Tensor,
         mask_shape: Sequence[int | tf.Tensor] | None = None) -> tf.Tensor:
    """Replaces elements of x by zeros at random and scales the others to keep the expectation.

    Args:
      x: floats of any shape.
      rate: the probability of a zero, 0 <= rate < 1.
      seed: what Context.seed returns.
      mask_shape: there is one decision for each element of this shape, which must broadcast to that
        of x; by default the shape of x.
    """
    threshold = min(round(rate * _RANGE), _RANGE - 1)
    if threshold == 0:
        return x
    scale = _RANGE / (_RANGE - threshold)
    is_kept = _random_mask(threshold, seed, dims(x) if mask_shape is None else mask_shape)

    @custom_gradient
    def masked(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        y = x * (tf.cast(is_kept, x.dtype) * scale)
        return y, lambda dy: dy * (tf.cast(is_kept, dy.dtype) * scale)

    return masked(x)


def _random_mask(threshold: int, seed: tf.Tensor,
                 shape: Sequence[int | tf.Tensor]) -> tf.Tensor:
    """Bools that are False with the probability threshold / _RANGE."""
    is_known = not any(tf.is_tensor(n) for n in shape)
    size = math.prod(shape) if is_known else tf.reduce_prod(tf.stack(shape))
    words = _philox([(size + 1) // 2], seed)
    numbers = tf.reshape(tf.bitcast(words, tf.int16), [-1])[:size]  # Uniform on [-2^15, 2^15).
    return tf.reshape(numbers >= threshold - _RANGE // 2, shape)


def _philox(shape: Sequence[int | tf.Tensor], seed: tf.Tensor) -> tf.Tensor:
    """Random words, int32 of any shape, each of which may be any number; the seed is int64 [2]."""
    algorithm = 1   # Philox
    first_key = tf.constant([0x02461e293ec8f720], tf.uint64)   # TensorFlow's
    mixed = tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=[2], key=first_key, counter=tf.cast(seed, tf.uint64), alg=algorithm, dtype=tf.uint64)
    words: tf.Tensor = tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=shape, key=mixed[:1], counter=tf.stack([tf.constant(0, tf.uint64), mixed[1]]),
        alg=algorithm, dtype=tf.int32)
    return words


def drop_flops(x: tf.TensorSpec, rate: float, num_decisions: int | None = None) -> float:
    """FLOPs of `drop`: scaling the mask, and the product.

    Args:
      x: what is dropped from.
      rate: the probability of a zero.
      num_decisions: the number of elements of the mask; default: those of x.
    """
    if not round(rate * _RANGE):
        return 0.
    return float(num_elements(x) + (num_elements(x) if num_decisions is None else num_decisions))


class Dropout(Layer):
    """Zeros single elements in training (Srivastava et al., 2014); otherwise the identity."""

    is_traced_once = True
    is_positionwise = True

    class Params(Layer.Params):
        """How much is dropped."""
        rate: float = field(0.1, 'Probability that an element becomes zero.', least=0, below=1)

    params: Params

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor) -> tf.Tensor:
        """x of any shape, with zeros in training."""
        return drop(x, self.params.rate, ctx.seed(self.path)) if ctx.training else x

    def cost(self, x: tf.TensorSpec) -> Cost:
        """2 operations an element."""
        static_shape(x, self.path, 'x')
        return Cost(drop_flops(x, self.params.rate), 0, as_spec(x))


class DropPath(Layer):
    """Zeros whole examples of a residual branch in training (stochastic depth).

    Huang et al., 2016, arXiv:1603.09382.
    """

    is_traced_once = True
    is_positionwise = True

    class Params(Layer.Params):
        """How much is dropped."""
        rate: float = field(0.1, 'Probability that an example becomes zero.', least=0, below=1)

    params: Params

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor) -> tf.Tensor:
        """x [b, ...], in training with zeros in place of whole examples."""
        if not ctx.training:
            return x
        mask_shape = [dims(x)[0]] + [1] * (x.shape.rank - 1)
        return drop(x, self.params.rate, ctx.seed(self.path), mask_shape)

    def cost(self, x: tf.TensorSpec) -> Cost:
        """1 operation an element and 1 an example."""
        b = static_shape(x, self.path, 'x')[0]
        return Cost(drop_flops(x, self.params.rate, b), 0, as_spec(x))


class WordDropout(Layer):
    """Zeros whole words, the embeddings of a position, in training.

    Gal and Ghahramani, 2016; Sennrich and Zhang, 2019, section 3.2. In a decoder with little text,
    it keeps the network from memorising sentences, which it would then write whatever the source.
    """

    is_traced_once = True
    is_positionwise = True

    class Params(Layer.Params):
        """How much is dropped."""
        rate: float = field(0.1, 'Probability that a word becomes zero.', least=0, below=1)

    params: Params

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor) -> tf.Tensor:
        """x [b, T, D], in training with rows of zeros and the others scaled."""
        if not ctx.training:
            return x
        return drop(x, self.params.rate, ctx.seed(self.path), [*dims(x)[:-1], 1])

    def cost(self, x: tf.TensorSpec) -> Cost:
        """1 operation an element and 1 a word."""
        num_words = math.prod(static_shape(x, self.path, 'x')[:-1])
        return Cost(drop_flops(x, self.params.rate, num_words), 0, as_spec(x))
