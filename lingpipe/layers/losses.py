"""Losses: sums over a micro-batch, which the pipeline adds up and divides by the weight of the whole mini-batch.

Shapes: b micro-batch, T time (absent for classification), V classes or vocabulary.

Weights follow the one rule of weighting.py, and every loss uses the mini-batch's `weight` where there is one. An example (or token) of
weight 0 may hold anything, NaN too: that is how batches are filled up and sequences padded. Its values are replaced before the loss
sees them, since 0 * NaN is NaN, in the loss and in every gradient.

A loss sees one micro-batch at a time. That is right for every loss that is a sum over examples. One that compares examples with each
other, as a contrastive loss does, would compare only those of the same micro-batch and so be another loss for every M; such a layer
says `needs_whole_batch = True` (layers/base.py), and is then refused with more than one micro-batch or replica.

A label that counts and is none of the classes makes the loss NaN on every device, so that nothing is learned from it; who runs the
network then finds it in the mini-batch (pipeline/execution/bad_ids.py) and says which example it is.
"""
from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from lingpipe.hyperparams import field
from lingpipe.layers.base import Layer
from lingpipe.layers.cost import Cost
from lingpipe.layers.ids import check_ids, ids_below
from lingpipe.layers.nested import NestedMap
from lingpipe.layers.static_shapes import num_elements, static_shape
from lingpipe.layers.weighting import check_weight, expanded, total_weight, weight_by_row


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

    x [b, V] or [b, T, V]; labels [b] or [b, T], whole numbers of any type; weight of the shape of labels, or [b].

    Label smoothing (Szegedy et al., 2016, arXiv 1512.00567, section 7) spreads a part `label_smoothing` of every label over all classes,
    its own included.

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
        weight = tf.reshape(weight_by_row(weight, labels, self.path), [-1])  # [rows]
        counts, weight_sum = weight != 0, tf.reduce_sum(weight)
        logits = tf.where(counts[:, tf.newaxis], tf.cast(tf.reshape(x, [-1, num_classes]), tf.float32), 0.)  # [rows, V]

        labels = tf.where(counts, tf.reshape(ids_below(labels, num_classes), [-1]), 0)
        losses = self._losses(logits, labels)
        if other_labels is not None:
            share = tf.where(counts, tf.cast(tf.reshape(share, [-1]), tf.float32), 1.)
            others = tf.where(counts & (share != 1), tf.reshape(ids_below(other_labels, num_classes), [-1]), 0)
            losses = share * losses + (1 - share) * self._losses(logits, others)
        self._emit(ctx, tf.reduce_sum(losses * weight), weight_sum)
        if self.params.is_auxiliary:
            return  # metrics are the main loss's

        logits = tf.stop_gradient(logits)
        is_right = tf.argmax(logits, -1, output_type=tf.int32) == labels
        ctx.emit_metric(self.path, 'accuracy', tf.reduce_sum(tf.cast(is_right, tf.float32) * weight), weight_sum)
        if self.params.has_top5:
            is_near = _rank(logits, tf.maximum(labels, 0)) < 5
            ctx.emit_metric(self.path, 'top5', tf.reduce_sum(tf.cast(is_near, tf.float32) * weight), weight_sum)

    def _losses(self, logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """The loss of every row, float32 [rows]; labels int32 [rows]. It is NaN where a label is negative."""
        smoothing, num_classes = self.params.label_smoothing, logits.shape[-1]
        classes = tf.maximum(labels, 0)
        if not smoothing:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(classes, logits)
        else:
            off = smoothing / num_classes
            losses = tf.nn.softmax_cross_entropy_with_logits(tf.one_hot(classes, num_classes, 1 - smoothing + off, off), logits)
        return tf.where(labels >= 0, losses, math.nan)

    def cost(self, x: tf.TensorSpec, labels: tf.TensorSpec, weight: tf.TensorSpec, other_labels: tf.TensorSpec | None = None,
             share: tf.TensorSpec | None = None) -> Cost:
        """8 operations a logit, 4 a row, more for metrics and mixed labels."""
        p = self.params
        self._check(x, labels, weight, other_labels, share)
        *batch, num_classes = static_shape(x, self.path, 'x')
        rows = math.prod(batch)
        # select, softmax with loss; for metrics argmax, and of ranks two comparisons
        flops = rows * num_classes * 8. + rows * 4
        if not p.is_auxiliary:
            flops += rows * num_classes * (1 + 2 * p.has_top5) + rows * (3 + 2 * p.has_top5)
        if other_labels is not None:
            # A second softmax. Of a row: select share, compare and subtract it, select the second loss, two products, a sum.
            flops += rows * num_classes * 7 + rows * 7
        return Cost(flops, 0)

    def id_ranges(self, **specs: Any) -> dict[str, int]:
        """Labels are below V."""
        return {'labels': specs['x'].shape[-1]}

    def _check(self, x: Any, labels: Any, weight: Any, other_labels: Any, share: Any) -> None:
        if (other_labels is None) != (share is None):
            raise ValueError(f'{self.path}: reads names only one of other_labels and share; name both, or neither.')
        rank = x.shape.rank
        if rank is None or x.shape[-1] is None or rank < 2:
            raise ValueError(f'{self.path}: x is {x.shape}, but logits are [b, V] or [b, T, V] with V known; '
                             'read the output of a Logits or Dense layer.')
        check_weight(weight, x.shape[:-1], self.path)
        for name, value in ('labels', labels), ('other_labels', other_labels):
            if value is not None:
                check_ids(value, self.path, name)
        for name, value in ('labels', labels), ('other_labels', other_labels), ('share', share):
            if value is not None and not x.shape[:-1].is_compatible_with(value.shape):
                raise ValueError(f'{self.path}: {name} is {value.shape}, but x is {x.shape}: there must be one for each row of '
                                 f'logits, {x.shape[:-1]}; correct the input or Params.reads.')


class MeanSquaredErrorLoss(Loss):
    """(x - target)^2 over all elements; x and target of the same shape [b, ...], weight of their first dimensions, as [b].

    A weight counts once for each of the elements it applies to: the loss is a weighted mean over elements.
    """

    def fprop(self, theta: NestedMap, ctx: Any, x: tf.Tensor, target: tf.Tensor, weight: tf.Tensor | None = None) -> None:
        """Emits the loss 'loss'; shapes are the class's. Without weight every element counts 1."""
        self._check(x, target, weight)
        difference = tf.cast(x, tf.float32) - tf.cast(target, tf.float32)
        if weight is None:
            self._emit(ctx, tf.reduce_sum(tf.square(difference)), tf.cast(tf.size(x), tf.float32))
            return
        weight = expanded(weight, x.shape, self.path)
        squares = tf.square(tf.where(weight != 0, difference, 0.))
        self._emit(ctx, tf.reduce_sum(squares * weight), total_weight(weight, x))

    def cost(self, x: tf.TensorSpec, target: tf.TensorSpec, weight: tf.TensorSpec | None = None) -> Cost:
        """3 operations an element, 5 with weights and 2 a weight."""
        self._check(x, target, weight)
        static_shape(x, self.path, 'x')
        n = num_elements(x)
        if weight is None:
            return Cost(n * 3., 0)  # subtract, square, sum
        return Cost(n * 5. + num_elements(weight) * 2 + 2, 0)  # and select, product; compare, sum

    def _check(self, x: Any, target: Any, weight: Any) -> None:
        for name, value in ('x', x), ('target', target):
            if not (value.dtype.is_floating or value.dtype.is_integer or value.dtype.is_bool):
                raise ValueError(f'{self.path}: {name} is of {value.dtype.name}, but must be real numbers; make numbers of it in the input '
                                 '(load, decode or preprocess).')
        if weight is not None:
            check_weight(weight, x.shape, self.path)
        if not x.shape.is_compatible_with(target.shape):
            raise ValueError(f'{self.path}: target is {target.shape}, but x is {x.shape}: they must be alike; reshape one of them.')


def _rank(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """How many classes come before the label; of equal logits the lower index is first. [rows, V], [rows] -> int32 [rows]."""
    own = tf.gather(logits, labels, batch_dims=1)[:, tf.newaxis]
    is_lower_index = tf.range(logits.shape[-1], dtype=labels.dtype) < labels[:, tf.newaxis]
    is_before = tf.logical_or(logits > own, tf.logical_and(logits == own, is_lower_index))
    return tf.reduce_sum(tf.cast(is_before, tf.int32), -1)
