"""Losses: sums over a micro-batch.

The pipeline adds them up and divides them by the weight of the whole mini-batch.

Shapes: b micro-batch, T time (absent for classification), V classes or vocabulary.

Weights follow the rule of weighting.py, and every loss uses the mini-batch's `weight` if there is
one. For an example (or token) of weight 0, a loss may be given anything, NaN too: this is how
batches are filled up and sequences padded. Its values are replaced before the loss sees them, since
0 * NaN is NaN. What the network itself reads must be numbers all the same: the gradient of a weight
is a sum over all examples, with 0 * NaN for one that is NaN.

A loss sees one micro-batch at a time. This is right for every loss that is a sum over examples. One
that compares examples with each other, as a contrastive loss does, would compare only those of the
same micro-batch and so be a different loss for every M. Such a layer says
`needs_whole_batch = True` (layers/layer_traits.py), and is refused with more than one micro-batch
or replica.

If a label that counts is none of the classes, the loss is NaN on every device, so that nothing is
learned from it. The pipeline then finds the label in the mini-batch (pipeline/execution/bad_ids.py)
and says which example it belongs to.
"""
from __future__ import annotations

import math

import tensorflow as tf

from lingpipe.hyperparams import field
from lingpipe.layers.base import Layer
from lingpipe.layers.context import Context
from lingpipe.layers.cost import Cost
from lingpipe.layers.ids import check_ids, ids_below
from lingpipe.layers.nested import NestedMap
from lingpipe.layers.shapes import dims
from lingpipe.layers.static_shapes import num_elements, static_shape
from lingpipe.layers.weighting import (
    check_weight,
    expanded,
    is_real,
    total_weight,
    weight_by_row,
)


class Loss(Layer):
    """What losses share: they emit a loss and return nothing."""

    class Params(Layer.Params):
        """What the loss counts for; it writes no value."""
        writes: str | dict[str, str] = field({})
        scale: float = field(1., 'Factor on the loss.')
        is_auxiliary: bool = field(False, 'Whether it is added to another, main loss: it then '
                                          'gives no weight of its own.')

    params: Params

    def _emit(self, ctx: Context, loss_sum: tf.Tensor, weight_sum: tf.Tensor) -> None:
        p = self.params
        if p.scale != 1:
            loss_sum = loss_sum * p.scale
        ctx.emit_loss(self.path, 'loss', loss_sum, None if p.is_auxiliary else weight_sum)


class MetricLoss(Loss):
    """What losses with metrics share."""

    class Params(Loss.Params):
        """Whether there are metrics."""
        has_metrics: bool | None = field(None, 'Whether metrics are emitted; none: they are, '
                                               'unless the loss is auxiliary.')

        @property
        def gives_metrics(self) -> bool:
            """Whether metrics are emitted."""
            return not self.is_auxiliary if self.has_metrics is None else self.has_metrics

    params: Params


class CrossEntropyLoss(MetricLoss):
    """-log softmax(x)[labels], weighted, with the metrics accuracy and, if asked for, top5.

    An auxiliary loss has metrics only with has_metrics=True, as for a second task. If several
    losses have them, each is called NAME/PATH, as accuracy/model/loss.

    x is [b, V] or [b, T, V]. labels are [b] or [b, T], whole numbers of any type. weight has the
    shape of labels, or [b].

    Label smoothing (Szegedy et al., 2016, arXiv:1512.00567, section 7) spreads the fraction
    `label_smoothing` of every label over all classes, including its own.

    Where examples are mixed in pairs (mixup), Params.reads names other_labels, the labels of their
    partners, and share, floats from 0 to 1, both of the shape of labels. The loss is then
    share * (loss of labels) + (1 - share) * (loss of other_labels). The metrics use labels.
    """

    class Params(MetricLoss.Params):
        """Label smoothing and another metric."""
        label_smoothing: float = field(0., 'The part of the label that is spread over all classes.',
                                       least=0, below=1)
        has_top5: bool = field(False, "Whether the metric 'top5' is emitted.")

    params: Params

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor, labels: tf.Tensor,
              weight: tf.Tensor, other_labels: tf.Tensor | None = None,
              share: tf.Tensor | None = None) -> None:
        """Emits the loss 'loss' and, if it gives metrics, 'accuracy' and 'top5'."""
        self._check(x, labels, weight, other_labels, share)
        num_classes = x.shape[-1]
        weight = tf.reshape(weight_by_row(weight, labels, self.path), [-1])  # [rows]
        counts, weight_sum = weight != 0, tf.reduce_sum(weight)
        logits = tf.cast(tf.reshape(x, [-1, num_classes]), tf.float32)  # [rows, V]
        logits = tf.where(counts[:, tf.newaxis], logits, 0.)

        labels = tf.where(counts, tf.reshape(ids_below(labels, num_classes), [-1]), 0)  # [rows]
        losses = self._losses(logits, labels)
        if other_labels is not None:
            share = tf.where(counts, tf.cast(tf.reshape(share, [-1]), tf.float32), 1.)
            others = tf.reshape(ids_below(other_labels, num_classes), [-1])
            others = tf.where(counts & (share != 1), others, 0)
            losses = share * losses + (1 - share) * self._losses(logits, others)

        self._emit(ctx, tf.reduce_sum(losses * weight), weight_sum)
        if self.params.gives_metrics:
            self._emit_metrics(ctx, tf.stop_gradient(logits), labels, weight, weight_sum)

    def cost(self, x: tf.TensorSpec, labels: tf.TensorSpec, weight: tf.TensorSpec,
             other_labels: tf.TensorSpec | None = None,
             share: tf.TensorSpec | None = None) -> Cost:
        """8 operations a logit, 4 a row, more for metrics and mixed labels."""
        p = self.params
        self._check(x, labels, weight, other_labels, share)
        *batch, num_classes = static_shape(x, self.path, 'x')
        rows = math.prod(batch)
        # Selecting, and the softmax with the loss.
        flops = rows * num_classes * 8. + rows * 4
        if p.gives_metrics:
            # The argmax and, for ranks, two comparisons.
            flops += rows * num_classes * (1 + 2 * p.has_top5) + rows * (3 + 2 * p.has_top5)
        if other_labels is not None:
            # A second softmax. For each row: select the share, compare and subtract it, select the
            # second loss, two products, a sum.
            flops += rows * num_classes * 7 + rows * 7
        return Cost(flops, 0)

    def id_ranges(self, **specs: tf.TensorSpec) -> dict[str, int]:
        """Labels are below V."""
        return {'labels': specs['x'].shape[-1]}

    def _losses(self, logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """The loss of every row, NaN where a label is negative; [rows, V], [rows] -> [rows]."""
        smoothing, num_classes = self.params.label_smoothing, logits.shape[-1]
        classes = tf.maximum(labels, 0)
        if smoothing:
            off = smoothing / num_classes
            targets = tf.one_hot(classes, num_classes, 1 - smoothing + off, off)
            losses = tf.nn.softmax_cross_entropy_with_logits(targets, logits)
        else:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(classes, logits)
        return tf.where(labels >= 0, losses, math.nan)

    def _emit_metrics(self, ctx: Context, logits: tf.Tensor, labels: tf.Tensor,
                      weight: tf.Tensor, weight_sum: tf.Tensor) -> None:
        """Emits 'accuracy' and 'top5'; logits [rows, V], labels and weight [rows]."""
        is_right = tf.argmax(logits, -1, output_type=tf.int32) == labels
        num_right = tf.reduce_sum(tf.cast(is_right, tf.float32) * weight)
        ctx.emit_metric(self.path, 'accuracy', num_right, weight_sum)
        if self.params.has_top5:
            is_near = _rank(logits, tf.maximum(labels, 0)) < 5
            num_near = tf.reduce_sum(tf.cast(is_near, tf.float32) * weight)
            ctx.emit_metric(self.path, 'top5', num_near, weight_sum)

    def _check(self, x: tf.Tensor | tf.TensorSpec, labels: tf.Tensor | tf.TensorSpec,
               weight: tf.Tensor | tf.TensorSpec,
               other_labels: tf.Tensor | tf.TensorSpec | None,
               share: tf.Tensor | tf.TensorSpec | None) -> None:
        """Raises ValueError for inputs whose shapes or types do not fit."""
        if (other_labels is None) != (share is None):
            raise ValueError(f'{self.path}: reads names only one of other_labels and share; name '
                             'both, or neither.')
        rank = x.shape.rank
        if rank is None or x.shape[-1] is None or rank < 2:
            raise ValueError(f'{self.path}: x is {x.shape}, but logits are [b, V] or [b, T, V] '
                             'with V known; read the output of a Logits or Dense layer.')
        if not is_real(x.dtype):
            raise ValueError(f'{self.path}: x is of {x.dtype.name}, but logits are real numbers; '
                             'correct the layer before, or Params.reads.')
        check_weight(weight, x.shape[:-1], self.path)
        for name, value in ('labels', labels), ('other_labels', other_labels):
            if value is not None:
                check_ids(value, self.path, name)
        for name, value in ('labels', labels), ('other_labels', other_labels), ('share', share):
            if value is not None and not x.shape[:-1].is_compatible_with(value.shape):
                raise ValueError(f'{self.path}: {name} is {value.shape}, but x is {x.shape}: there '
                                 f'must be one for each row of logits, {x.shape[:-1]}; correct '
                                 'the input or Params.reads.')


class MeanSquaredErrorLoss(Loss):
    """(x - target)^2 over all elements; x and target have the same shape [b, ...].

    The weight has their first dimensions, as [b], and counts once for each of the elements that it
    applies to: the loss is a weighted mean over elements.
    """

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor, target: tf.Tensor,
              weight: tf.Tensor | None = None) -> None:
        """Emits the loss 'loss'. Without a weight, every element counts 1."""
        _check_alike(self.path, x, target, weight)
        difference = tf.cast(x, tf.float32) - tf.cast(target, tf.float32)
        if weight is None:
            loss_sum = tf.reduce_sum(tf.square(difference))
            self._emit(ctx, loss_sum, tf.cast(tf.size(x), tf.float32))
            return
        weight = expanded(weight, x.shape, self.path)
        squares = tf.square(tf.where(weight != 0, difference, 0.))
        self._emit(ctx, tf.reduce_sum(squares * weight), total_weight(weight, x))

    def cost(self, x: tf.TensorSpec, target: tf.TensorSpec,
             weight: tf.TensorSpec | None = None) -> Cost:
        """3 operations an element, or 5 with weights and 2 a weight."""
        _check_alike(self.path, x, target, weight)
        static_shape(x, self.path, 'x')
        num_values = num_elements(x)
        if weight is None:
            return Cost(num_values * 3., 0)  # Subtract, square, sum.
        # Besides, select and multiply; for each weight, compare and sum.
        return Cost(num_values * 5. + num_elements(weight) * 2 + 2, 0)


class SigmoidCrossEntropyLoss(MetricLoss):
    """-target log sigmoid(x) - (1 - target) log(1 - sigmoid(x)) over all elements.

    It is for questions that are answered by yes or no, such as which of many labels an image has. x
    has the logits, and target the answers, booleans or numbers from 0 to 1. Both have the same
    shape [b, ...], and a weight counts as that of a MeanSquaredErrorLoss. A target that counts and
    is not from 0 to 1 makes the loss NaN.

    The metric accuracy is the part of the elements where sigmoid(x) and target are on the same side
    of 0.5, as in Keras' BinaryAccuracy, where 0.5 is a no.
    """

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor, target: tf.Tensor,
              weight: tf.Tensor | None = None) -> None:
        """Emits the loss 'loss' and, if it gives metrics, 'accuracy'."""
        _check_alike(self.path, x, target, weight)
        weight = tf.ones(dims(x)[:1]) if weight is None else weight
        weight = expanded(weight, x.shape, self.path)
        counts, weight_sum = weight != 0, total_weight(weight, x)
        logits = tf.where(counts, tf.cast(x, tf.float32), 0.)
        target = tf.where(counts, tf.cast(target, tf.float32), 0.)

        losses = tf.nn.sigmoid_cross_entropy_with_logits(target, logits)
        losses = tf.where((target >= 0) & (target <= 1), losses, math.nan)
        self._emit(ctx, tf.reduce_sum(losses * weight), weight_sum)
        if self.params.gives_metrics:
            is_right = tf.cast((logits > 0) == (target > 0.5), tf.float32)
            ctx.emit_metric(self.path, 'accuracy', tf.reduce_sum(is_right * weight), weight_sum)

    def cost(self, x: tf.TensorSpec, target: tf.TensorSpec,
             weight: tf.TensorSpec | None = None) -> Cost:
        """16 operations an element, 4 more for metrics, and 2 a weight."""
        _check_alike(self.path, x, target, weight)
        batch = static_shape(x, self.path, 'x')[0]
        num_weights = batch if weight is None else num_elements(weight)
        flops_per_element = 16. + 4 * self.params.gives_metrics
        return Cost(num_elements(x) * flops_per_element + num_weights * 2 + 2, 0)


def _check_alike(path: str, x: tf.Tensor | tf.TensorSpec, target: tf.Tensor | tf.TensorSpec,
                 weight: tf.Tensor | tf.TensorSpec | None) -> None:
    """Raises ValueError unless x and target are numbers of one shape, which the weight fits."""
    for name, value in ('x', x), ('target', target):
        if not is_real(value.dtype):
            raise ValueError(f'{path}: {name} is of {value.dtype.name}, but must be real numbers; '
                             'make numbers of it in the input (load, decode or preprocess).')
    if weight is not None:
        check_weight(weight, x.shape, path)
    if not x.shape.is_compatible_with(target.shape):
        raise ValueError(f'{path}: target is {target.shape}, but x is {x.shape}: they must be '
                         'alike; reshape one of them.')


def _rank(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """How many classes come before the label; [rows, V], [rows] -> int32 [rows].

    Among equal logits, the lower index comes first.
    """
    own = tf.gather(logits, labels, batch_dims=1)[:, tf.newaxis]
    is_lower_index = tf.range(logits.shape[-1], dtype=labels.dtype) < labels[:, tf.newaxis]
    is_before = tf.logical_or(logits > own, tf.logical_and(logits == own, is_lower_index))
    is_before = tf.logical_or(is_before, own != own)   # A label whose logit is nan comes last.
    return tf.reduce_sum(tf.cast(is_before, tf.int32), -1)
