"""BatchNorm (Ioffe and Szegedy, 2015, arXiv:1502.03167): normalises by micro-batch statistics.

The moving averages see the mean and variance of the whole mini-batch, once a step: fprop emits
those of the micro-batch, the pipeline merges them, and `updated_state` moves the averages (GPipe
paper, section 2.3). Every example counts the same in these statistics, whatever its weight, as in
Keras: also one of weight 0.

With PipelineParams.cross_replica_batch_norm, the statistics are those of the micro-batches of all
replicas, R n rows, and so are the sums in the gradient. Both are exchanged once, as [2, C] numbers
of each replica.

TensorFlow's fused kernel computes the variance well, but XLA's computes E[x^2] - E[x]^2: for values
of 1000 +- 1 its variance is wrong by a factor of 4 (measured, 8192 values a channel), at 10000 +- 1
by 400. So one pixel of the micro-batch is subtracted first. It is about as far from the mean as
the others, so nothing else changes, and the error is 1e-5 in both cases. This costs time: forward
and backward of [8, 32, 32, 64] on one thread take 2.5 ms instead of 2.1 ms. In bfloat16 nothing is
subtracted, since the difference would be rounded: with a pixel 10 standard deviations from the mean
the error of the output grows from 0.0016 to 0.018.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from lingpipe.hyperparams import REQUIRED, field
from lingpipe.layers.base import Layer
from lingpipe.layers.context import Context
from lingpipe.layers.cost import Cost
from lingpipe.layers.nested import NestedMap
from lingpipe.layers.shapes import check_last_dim, dims, num_rows
from lingpipe.layers.static_shapes import as_spec, num_elements
from lingpipe.process.graph_lifetime import custom_gradient


class BatchNorm(Layer):
    """Channels normalised to mean `offset` and standard deviation `scale`; x [..., C].

    Both are trained. Evaluation uses the moving averages. All variances are those of the sample
    itself (divided by N, not by N - 1).
    """

    is_traced_once = True

    class Params(Layer.Params):
        """Channels, and how they are normalised."""
        dim: int = field(REQUIRED, 'C, the channels of the input.', least=1)
        decay: float = field(0.99, 'Decay of the moving averages: new = decay * old + (1 - decay) '
                                   '* value of the mini-batch.', least=0, most=1)
        epsilon: float = field(1e-3, 'Added to the variance.', least=0)
        scale_initializer: str = field('ones', 'Name of the Keras initializer of scale; '
                                               "'zeros' for the last one of a residual branch.")

    params: Params

    def __init__(self, params: Params, path: str = ''):
        super().__init__(params, path)
        shape = [self.params.dim]
        self.add_weight('scale', shape, self.params.scale_initializer)
        self.add_weight('offset', shape, 'zeros')
        self.add_weight('moving_mean', shape, 'zeros', is_trainable=False)
        self.add_weight('moving_variance', shape, 'ones', is_trainable=False)

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor) -> tf.Tensor:
        """[..., C] -> [..., C] in the dtype of x.

        In training, the micro-batch's moments are used and emitted. Otherwise, the moving averages
        are used.

        Raises:
          ValueError: the last dimension of x is not C.
        """
        p = self.params
        check_last_dim(x, p.dim, self.path)
        if not ctx.training:
            by_std = theta.scale * tf.math.rsqrt(theta.moving_variance + p.epsilon)
            y = (tf.cast(x, tf.float32) - theta.moving_mean) * by_std + theta.offset
            return tf.cast(y, x.dtype)

        if ctx.gather is not None:
            y, mean, variance = normalise_over_replicas(
                tf.reshape(x, [-1, p.dim]), theta.scale, theta.offset, p.epsilon, ctx.gather)
            ctx.emit_moments(self.path, 'moments', mean, variance, tf.size(x) // p.dim)
            return tf.reshape(y, dims(x))

        rows = x if x.shape.rank == 4 else tf.reshape(x, [-1, 1, 1, p.dim])
        pixel = tf.zeros([1, 1, 1, p.dim], x.dtype)
        if x.dtype == tf.float32:
            pixel = tf.stop_gradient(rows[:1, :1, :1])
            rows -= pixel
        y, mean, variance, *_ = tf.raw_ops.FusedBatchNormV3(
            x=rows, scale=theta.scale, offset=theta.offset, mean=tf.zeros([0]),
            variance=tf.zeros([0]), epsilon=p.epsilon, is_training=True)
        count = tf.cast(tf.size(rows) // p.dim, tf.float32)
        mean = mean + tf.cast(pixel[0, 0, 0], tf.float32)
        # The kernel divides the variance that it returns, not the one that it uses, by N - 1.
        ctx.emit_moments(self.path, 'moments', mean, variance * ((count - 1) / count), count)
        return tf.reshape(y, dims(x))

    def updated_state(self, name: str, state: NestedMap, value: Any) -> dict[str, tf.Tensor]:
        """The moving averages [C] one step on; value is the mini-batch's (mean, variance)."""
        mean, variance = value
        decay = self.params.decay
        return {'moving_mean': decay * state.moving_mean + (1 - decay) * mean,
                'moving_variance': decay * state.moving_variance + (1 - decay) * variance}

    def cost(self, x: tf.TensorSpec) -> Cost:
        """9 operations an element in float32 and 8 in others, 2 a channel."""
        p = self.params
        check_last_dim(x, p.dim, self.path)
        num_rows(x, self.path)
        # 8 in the kernel and 1 for the pixel; for each channel, the statistics.
        per_element = 9. if x.dtype == tf.float32 else 8.
        return Cost(per_element * num_elements(x) + 2. * p.dim, self.num_weights, as_spec(x))


def normalise_over_replicas(
        x: tf.Tensor, scale: tf.Tensor, offset: tf.Tensor, epsilon: float,
        gather: Callable[[tf.Tensor], tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Normalises by the moments of all replicas' rows.

    With z = (x - mean) / std and means over all R n rows,

        dx = scale / std * (dy - mean(dy) - z mean(dy z))

    (Ioffe and Szegedy, section 3, with dmean and dvariance substituted). The gradients of scale and
    offset are sums over this replica's rows: the pipeline adds up those of all replicas.

    Args:
      x: the rows of this replica, [n, C]; n is the same in all replicas.
      scale, offset: [C].
      epsilon: added to the variance.
      gather: Context.gather.

    Returns:
      y [n, C] in the dtype of x, and the mean and variance [C] of all rows, without gradient.
    """
    @custom_gradient
    def normalised(x: tf.Tensor, scale: tf.Tensor, offset: tf.Tensor) -> tuple[
            tuple[tf.Tensor, tf.Tensor, tf.Tensor],
            Callable[..., tuple[tf.Tensor, tf.Tensor, tf.Tensor]]]:
        """Returns the output with the moments, and the function of all gradients."""
        rows = tf.cast(x, tf.float32)
        own_mean = rows[0] + tf.reduce_mean(rows - rows[0], 0)
        own_variance = tf.reduce_mean(tf.square(rows - own_mean), 0)
        gathered = gather(tf.stack([own_mean, own_variance]))  # [R, 2, C]
        means, variances = tf.unstack(gathered, axis=1)  # [R, C]

        mean = tf.reduce_mean(means, 0)
        variance = tf.reduce_mean(variances + tf.square(means - mean), 0)
        by_std = tf.math.rsqrt(variance + epsilon)
        y = (rows - mean) * (by_std * scale) + offset

        def gradient(dy: tf.Tensor,
                     *unused: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            dy, z = tf.cast(dy, tf.float32), (tf.cast(x, tf.float32) - mean) * by_std
            own_sums = tf.stack([tf.reduce_sum(dy * z, 0), tf.reduce_sum(dy, 0)])  # [2, C]
            num_rows_here = tf.cast(tf.shape(x)[0], tf.float32)
            mean_dy_z, mean_dy = tf.unstack(tf.reduce_mean(gather(own_sums), 0) / num_rows_here)
            dx = (dy - mean_dy - z * mean_dy_z) * (by_std * scale)
            return tf.cast(dx, x.dtype), own_sums[0], own_sums[1]

        return (tf.cast(y, x.dtype), mean, variance), gradient

    result: tuple[tf.Tensor, tf.Tensor, tf.Tensor] = normalised(x, scale, offset)
    return result
