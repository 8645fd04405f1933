"""Losses: sums over a micro-batch, which the pipeline adds up and divides by the weight of the whole mini-batch.

Shapes: b micro-batch, T time (absent for classification), V classes or vocabulary.

An example (or token) of weight 0 may hold anything, NaN too: that is how batches are filled up and sequences padded. Its values
are replaced before the loss sees them, since 0 * NaN is NaN, in the loss and in every gradient.
"""
from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from lingpipe.cost import Cost
from lingpipe.hyperparams import field
from lingpipe.layer import Layer
from lingpipe.nested import NestedMap
from lingpipe.tracing import num_elements, static_shape


class Loss(Layer):
    """What losses share: they emit and return nothing."""

    class Params(Layer.Params):
        """What the loss counts for; it writes no value."""
        writes: str | dict[str, str] = field({})
        scale: float = field(1., 'Factor on the loss.')
        is_auxiliary: bool = field(False, 'Whether it is added to another, main loss: it then gives no weight of its own.')

    def _emit(self, ctx: Any, loss_sum: tf.Tensor, weight_sum: tf.Tensor) -> None:
        p = self.params
        ctx.emit_loss(self.path, 'loss', loss_sum * p.scale if p.scale != 1 else loss_sum, None if p.is_auxiliary else weight_sum)


class CrossEntropyLoss(Loss):
    """-log softmax(x)[labels], weighted, with the metrics accuracy and, if asked, top5.

    x [b, V] or [b, T, V], labels [b] or [b, T] of an int type, weight of the same shape. Label smoothing (Szegedy et al., 2016,
    arXiv 1512.00567, section 7) spreads a part `label_smoothing` of every label over all classes, its own included.

    Where examples are mixed two by two (mixup), Params.reads names other_labels, the labels of their partners, and share, floats from
    0 to 1, both of the shape of labels: the loss is share * that of labels + (1 - share) * that of other_labels. Metrics are of labels.
    """

    class Params(Loss.Params):
        """Label smoothing and metrics."""
        label_smoothing: float = field(0., 'The part of the label that is spread over all classes.',
                                       least=0, below=1)
        has_top5: bool = field(False, "Whether the metric 'top5' is emitted.")

    def fprop(self, theta: NestedMap, ctx: Any, x: tf.Tensor, labels: tf.Tensor, weight: tf.Tensor,
              other_labels: tf.Tensor | None = None, share: tf.Tensor | None = None) -> None:
        """Emits the loss 'loss' and, unless it is auxiliary, the metrics 'accuracy' and 'top5'; shapes are the class's."""
        self._check(x, labels, weight, other_labels, share)
        num_classes = x.shape[-1]
        weight = tf.stop_gradient(tf.reshape(tf.cast(weight, tf.float32), [-1]))
        counts = weight != 0
        labels = tf.where(counts, tf.reshape(labels, [-1]), 0)  # [rows]
        logits = tf.where(counts[:, tf.newaxis], tf.cast(tf.reshape(x, [-1, num_classes]), tf.float32), 0.)  # [rows, V]
        weight_sum = tf.reduce_sum(weight)
        losses = self._losses(logits, labels)
        if other_labels is not None:
            share = tf.where(counts, tf.reshape(share, [-1]), 1.)
            losses = share * losses + (1 - share) * self._losses(logits, tf.where(counts, tf.reshape(other_labels, [-1]), 0))
        self._emit(ctx, tf.reduce_sum(losses * weight), weight_sum)
        logits = tf.stop_gradient(logits)
        if self.params.is_auxiliary:
            return  # metrics are the main loss's
        is_right = tf.argmax(logits, -1, output_type=labels.dtype) == labels
        ctx.emit_metric(self.path, 'accuracy', tf.reduce_sum(tf.cast(is_right, tf.float32) * weight), weight_sum)
        if self.params.has_top5:
            ctx.emit_metric(self.path, 'top5', tf.reduce_sum(tf.cast(_rank(logits, labels) < 5, tf.float32) * weight), weight_sum)

    def _losses(self, logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        smoothing, num_classes = self.params.label_smoothing, logits.shape[-1]
        if not smoothing:
            return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)  # [rows]
        off = smoothing / num_classes
        return tf.nn.softmax_cross_entropy_with_logits(tf.one_hot(labels, num_classes, 1 - smoothing + off, off), logits)

    def cost(self, x: tf.TensorSpec, labels: tf.TensorSpec, weight: tf.TensorSpec, other_labels: tf.TensorSpec | None = None,
             share: tf.TensorSpec | None = None) -> Cost:
        """8 operations a logit, 3 a row, more for metrics and mixed labels; keeps the op's own gradient in float32, and the mask."""
        p = self.params
        self._check(x, labels, weight, other_labels, share)
        *batch, num_classes = static_shape(x, self.path, 'x')
        rows = math.prod(batch)
        # select, softmax with loss; for metrics argmax, and of ranks two comparisons
        flops = rows * num_classes * 8. + rows * 3
        if not p.is_auxiliary:
            flops += rows * num_classes * (1 + 2 * p.has_top5) + rows * (3 + 2 * p.has_top5)
        num_losses = 1
        if other_labels is not None:  # a second softmax; select twice, 1 - share, two products, a sum, less the first's select
            flops, num_losses = flops + rows * num_classes * 7 + rows * 5, 2
        return Cost(flops, 0, 4. * rows * num_classes * num_losses + rows, None)  # the op's own gradient; the mask

    def _check(self, x: Any, labels: Any, weight: Any, other_labels: Any, share: Any) -> None:
        if (other_labels is None) != (share is None):
            raise ValueError(f'{self.path}: reads names only one of other_labels and share; name both, or neither.')
        rank = x.shape.rank
        if rank is None or x.shape[-1] is None or rank < 2:
            raise ValueError(f'{self.path}: x is {x.shape}, but logits are [b, V] or [b, T, V] with V known; '
                             'read the output of a Logits or Dense layer.')
        for name, value in ('labels', labels), ('weight', weight), ('other_labels', other_labels), ('share', share):
            if value is not None and not x.shape[:-1].is_compatible_with(value.shape):
                raise ValueError(f'{self.path}: {name} is {value.shape}, but x is {x.shape}: there must be one for each row of '
                                 f'logits, {x.shape[:-1]}; correct the input or Params.reads.')


class MeanSquaredErrorLoss(Loss):
    """(x - target)^2 over all elements; x and target of the same shape [b, ...], weight one a example, [b].

    The weight of an example with n elements in the sum of weights is n times its own: the loss is a mean over elements.
    """

    def fprop(self, theta: NestedMap, ctx: Any, x: tf.Tensor, target: tf.Tensor, weight: tf.Tensor | None = None) -> None:
        """Emits the loss 'loss'; shapes are the class's."""
        self._check(x, target)
        difference = tf.cast(x, tf.float32) - tf.cast(target, tf.float32)
        num_values = tf.cast(tf.size(x), tf.float32)
        if weight is None:
            self._emit(ctx, tf.reduce_sum(tf.square(difference)), num_values)
            return
        weight = tf.stop_gradient(tf.cast(weight, tf.float32))
        by_example = tf.reshape(weight, [-1] + [1] * (x.shape.rank - 1))
        squares = tf.square(tf.where(by_example != 0, difference, 0.))
        self._emit(ctx, tf.reduce_sum(squares * by_example), tf.reduce_sum(weight) * num_values / tf.cast(tf.size(weight), tf.float32))

    def cost(self, x: tf.TensorSpec, target: tf.TensorSpec, weight: tf.TensorSpec | None = None) -> Cost:
        """3 operations an element, 5 with weights; keeps the difference in float32."""
        self._check(x, target)
        static_shape(x, self.path, 'x')
        n = num_elements(x)
        # subtract, square, sum; select, product
        return Cost(n * (3. if weight is None else 5.) + (0 if weight is None else 2 * x.shape[0]), 0,
                    4. * n + (0 if weight is None else 1. * x.shape[0]), None)

    def _check(self, x: Any, target: Any) -> None:
        if not x.shape.is_compatible_with(target.shape):
            raise ValueError(f'{self.path}: target is {target.shape}, but x is {x.shape}: they must be alike; reshape one of them.')


def _rank(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """How many classes come before the label; of equal logits the lower index is first. [rows, V], [rows] -> int32 [rows]."""
    own = tf.gather(logits, labels, batch_dims=1)[:, tf.newaxis]
    is_lower_index = tf.range(logits.shape[-1], dtype=labels.dtype) < labels[:, tf.newaxis]
    is_before = tf.logical_or(logits > own, tf.logical_and(logits == own, is_lower_index))
    return tf.reduce_sum(tf.cast(is_before, tf.int32), -1)
