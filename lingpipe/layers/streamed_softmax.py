"""The cross-entropy of a large vocabulary, streamed over shards of it.

The logits of the whole vocabulary never exist in one place.

Shapes: b micro-batch, T time (absent for classification), V vocabulary, n the part of it that a
shard has.

For every row ([b] or [b, T]), a shard passes on of all logits l seen so far:

    log_sum   log(sum(exp(l))); two parts make log(exp(a) + exp(b)) (compare Milakov and
              Gimelshein, arXiv:1805.02867)
    max       max(l), for argmax alone, so that no gradient goes there
    argmax    where the maximum is; the first among equals
    label     the logit of the label, NaN until it was seen
    total     sum(l), for label smoothing

StreamedCrossEntropyLoss makes the loss of CrossEntropyLoss from them, with label smoothing s:

    loss = log_sum - (1 - s) * label - s / V * total
"""
from __future__ import annotations

import math
from collections.abc import Callable

import tensorflow as tf

from lingpipe.hyperparams import REQUIRED, field
from lingpipe.layers.context import Context
from lingpipe.layers.cost import Cost
from lingpipe.layers.ids import check_ids, ids_below
from lingpipe.layers.losses import MetricLoss
from lingpipe.layers.nested import NestedMap
from lingpipe.layers.softmax import Logits, add_logs
from lingpipe.layers.static_shapes import num_elements, static_shape
from lingpipe.layers.weighting import check_weight, weight_by_row
from lingpipe.process.graph_lifetime import custom_gradient


def logits_of(path: str, vocabulary_shards: int) -> tuple[str, ...]:
    """The outputs of a network that ends in a softmax of all ids at once: ('logits',).

    Raises:
      ValueError: the softmax of the network at `path` is in several shards.
    """
    if vocabulary_shards > 1:
        raise ValueError(f'vocabulary_shards={vocabulary_shards} of {path} makes no logits, which '
                         "would be the outputs; name others by task.outputs, as ('x',) for what "
                         'the softmax reads.')
    return ('logits',)


class SoftmaxShard(Logits):
    """A shard of Logits that only says what the loss needs of them.

    x [..., D], labels [...] -> the values above, each [...].
    """

    class Params(Logits.Params):
        """Those of Logits; use_bias, transpose_w and max_abs as there."""
        writes: str | dict[str, str] = field('softmax')

    params: Params

    def fprop(  # type: ignore[override]  # It takes labels, too.
            self, theta: NestedMap, ctx: Context, x: tf.Tensor, labels: tf.Tensor,
            partial: NestedMap | None = None) -> NestedMap:
        """Returns the values above: argmax is int32, the others are float32.

        Args:
          theta, ctx: the weights and the context.
          x: [..., D].
          labels: ids below V, [...].
          partial: what the shards before returned.
        """
        self.check_partial(partial)
        self._check_labels(x, labels)
        logits = tf.cast(super().fprop(theta, ctx, x), tf.float32)  # [..., n]
        # The column is negative if there is no such id.
        column = ids_below(labels, self.params.vocab_size) - self.columns.start
        is_mine = tf.logical_and(column >= 0, column < len(self.columns))
        largest = tf.reduce_max(logits, -1)
        argmax = tf.argmax(logits, -1, tf.int32) + self.columns.start
        log_sum, own, total = _sums(logits, tf.stop_gradient(largest), column)

        if partial is None:
            label = tf.where(is_mine, own, math.nan)
            return NestedMap(log_sum=log_sum, max=largest, argmax=argmax, label=label, total=total)
        return NestedMap(
            log_sum=add_logs(partial['log_sum'], log_sum),
            max=tf.maximum(partial['max'], largest),
            argmax=tf.where(largest > partial['max'], argmax, partial['argmax']),
            label=tf.where(is_mine, own, partial['label']),
            total=partial['total'] + total)

    def cost(  # type: ignore[override]
            self, x: tf.TensorSpec, labels: tf.TensorSpec,
            partial: NestedMap | None = None) -> Cost:
        """The cost of the logits, 6 operations for each of them, and some a row."""
        self.check_partial(partial)
        self._check_labels(x, labels)
        cost_of_logits = super().cost(x)
        num_logits = num_elements(cost_of_logits.outputs)
        # A logit: max, argmax, total, subtract, exp, sum. A row: compare, select, log, sum, select;
        # with what was before, a maximum, a select, and 13 for the sum of two logarithms.
        flops = 6. * num_logits + num_elements(labels) * (5. if partial is None else 20.)

        value, index = tf.TensorSpec(labels.shape), tf.TensorSpec(labels.shape, tf.int32)
        outputs = NestedMap(log_sum=value, max=value, argmax=index, label=value, total=value)
        return cost_of_logits + Cost(flops, 0, outputs)

    def _check_labels(self, x: tf.Tensor | tf.TensorSpec,
                      labels: tf.Tensor | tf.TensorSpec) -> None:
        """Raises ValueError unless labels can be ids, one for each row of x."""
        check_ids(labels, self.path, 'labels')
        if not x.shape[:-1].is_compatible_with(labels.shape):
            raise ValueError(f'{self.path}: labels is {labels.shape}, but x is {x.shape}: there '
                             f'must be one for each row of x, {x.shape[:-1]}; correct the input '
                             'or Params.reads.')


@custom_gradient
def _sums(logits: tf.Tensor, largest: tf.Tensor, column: tf.Tensor) -> tuple[
        tuple[tf.Tensor, tf.Tensor, tf.Tensor],
        Callable[..., tuple[tf.Tensor, None, None]]]:
    """log(sum(exp(logits))), the logit of a column, and sum(logits).

    [..., n], [...], [...] -> three of [...]. If there is no such column, its logit is any other.

    The backward pass reads the logits alone. The automatic gradient keeps their exponentials too
    and makes more matrices of their size.
    """
    num_columns = logits.shape[-1]
    largest = _finite(largest)
    log_sum = largest + tf.math.log(tf.reduce_sum(tf.exp(logits - largest[..., tf.newaxis]), -1))
    own = tf.gather(logits, tf.clip_by_value(column, 0, num_columns - 1),
                    batch_dims=column.shape.rank)

    def gradient(d_log_sum: tf.Tensor, d_own: tf.Tensor,
                 d_total: tf.Tensor) -> tuple[tf.Tensor, None, None]:
        softmax = tf.exp(logits - _finite(log_sum)[..., tf.newaxis])
        d_log_sum = d_log_sum[..., tf.newaxis]   # 0 where the weight is
        d_logits = tf.where(d_log_sum == 0, 0., softmax * d_log_sum) + d_total[..., tf.newaxis]
        is_own = tf.range(num_columns) == column[..., tf.newaxis]
        return tf.where(is_own, d_logits + d_own[..., tf.newaxis], d_logits), None, None

    return (log_sum, own, tf.reduce_sum(logits, -1)), gradient


def _finite(largest: tf.Tensor) -> tf.Tensor:
    """0 in place of -inf, since -inf - -inf is NaN.

    A row has -inf if a bias of -inf forbids all ids of this shard.
    """
    return tf.where(largest == -math.inf, 0., largest)


class StreamedCrossEntropyLoss(MetricLoss):
    """What CrossEntropyLoss emits, from what the last SoftmaxShard wrote.

    labels are [b] or [b, T]; weight has their shape, or [b].
    """

    class Params(MetricLoss.Params):
        """The vocabulary, and label smoothing."""
        vocab_size: int = field(REQUIRED, 'V, the vocabulary of all shards together.', least=1)
        label_smoothing: float = field(0., 'The part of the label that is spread over all classes.',
                                       least=0, below=1)

    params: Params

    def fprop(self, theta: NestedMap, ctx: Context, softmax: NestedMap, labels: tf.Tensor,
              weight: tf.Tensor) -> None:
        """Emits the loss 'loss' and, if it gives metrics, 'accuracy'."""
        self._check(softmax, labels, weight)
        p = self.params
        weight = weight_by_row(weight, labels, self.path)
        counts, weight_sum = weight != 0, tf.reduce_sum(weight)
        losses = softmax['log_sum'] - (1 - p.label_smoothing) * softmax['label']
        if p.label_smoothing:
            losses -= p.label_smoothing / p.vocab_size * softmax['total']
        self._emit(ctx, tf.reduce_sum(tf.where(counts, losses, 0.) * weight), weight_sum)

        if p.gives_metrics:
            is_right = softmax['argmax'] == ids_below(labels, p.vocab_size)
            num_right = tf.reduce_sum(tf.cast(is_right, tf.float32) * weight)
            ctx.emit_metric(self.path, 'accuracy', num_right, weight_sum)

    def cost(self, softmax: NestedMap, labels: tf.TensorSpec, weight: tf.TensorSpec) -> Cost:
        """7 operations a row, 2 more each for label smoothing and for accuracy."""
        self._check(softmax, labels, weight)
        static_shape(labels, self.path, 'labels')
        p = self.params
        # Whether a row counts, the sum of weights, product, difference, select, product, sum; for
        # label smoothing a product and a difference; for accuracy a product and a sum.
        flops_per_row = 7. + 2 * bool(p.label_smoothing) + 2 * p.gives_metrics
        return Cost(num_elements(labels) * flops_per_row, 0)

    def id_ranges(self, **specs: tf.TensorSpec) -> dict[str, int]:
        """Labels are below V."""
        return {'labels': self.params.vocab_size}

    def _check(self, softmax: NestedMap, labels: tf.Tensor | tf.TensorSpec,
               weight: tf.Tensor | tf.TensorSpec) -> None:
        """Raises ValueError unless labels and weight fit the logits."""
        rows = softmax['max'].shape
        check_ids(labels, self.path, 'labels')
        check_weight(weight, rows, self.path)
        if not rows.is_compatible_with(labels.shape):
            raise ValueError(f'{self.path}: labels is {labels.shape}, but the logits are of '
                             f'{rows}; correct the input or Params.reads.')
