"""The cross-entropy of a large vocabulary, streamed over shards of it: all logits never exist in one place.

Shapes: b micro-batch, T time (absent for classification), V vocabulary, n its part that a shard has.

Of the logits l seen so far a shard passes on, for every row ([b] or [b, T]):

    log_sum   log(sum(exp(l)))       of two parts, log(exp(a) + exp(b)) (compare Milakov and Gimelshein, arXiv:1805.02867)
    max       max(l)                 for argmax alone, so that no gradient goes there
    argmax    where it is; of equals the first
    label     the logit of the label, NaN as long as it was not seen
    total     sum(l), for label smoothing

and StreamedCrossEntropyLoss makes of them what CrossEntropyLoss makes of the logits:

    loss = log_sum - (1 - s) * label - s / V * total       with label smoothing s
"""
from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from lingpipe.hyperparams import REQUIRED, field
from lingpipe.layers.cost import Cost
from lingpipe.layers.ids import check_ids, ids_below
from lingpipe.layers.losses import Loss
from lingpipe.layers.nested import NestedMap
from lingpipe.layers.softmax import Logits, add_logs
from lingpipe.layers.static_shapes import num_elements, static_shape
from lingpipe.layers.weighting import check_weight, weight_by_row


class SoftmaxShard(Logits):
    """A shard of Logits that only says what the loss needs of them; x [..., D], labels [...] -> the values above, each [...]."""

    class Params(Logits.Params):
        """Those of Logits; use_bias, transpose_w and max_abs as there."""
        writes: str | dict[str, str] = field('softmax')

    def fprop(self, theta: NestedMap, ctx: Any, x: tf.Tensor, labels: tf.Tensor,  # type: ignore[override]  # labels too
              partial: NestedMap | None = None) -> NestedMap:
        """Floats are float32, argmax int32. partial: the same of the shards before."""
        self.check_partial(partial)
        self._check_labels(x, labels)
        logits = tf.cast(super().fprop(theta, ctx, x), tf.float32)  # [..., n]
        column = ids_below(labels, self.params.vocab_size) - self.columns.start  # negative if it is no id
        is_mine = tf.logical_and(column >= 0, column < len(self.columns))
        largest, argmax = tf.reduce_max(logits, -1), tf.argmax(logits, -1, tf.int32) + self.columns.start
        log_sum, own, total = _sums(logits, tf.stop_gradient(largest), column)
        if partial is None:
            return NestedMap(log_sum=log_sum, max=largest, argmax=argmax, label=tf.where(is_mine, own, math.nan), total=total)
        return NestedMap(log_sum=add_logs(partial['log_sum'], log_sum), max=tf.maximum(partial['max'], largest),
                         argmax=tf.where(largest > partial['max'], argmax, partial['argmax']),
                         label=tf.where(is_mine, own, partial['label']), total=partial['total'] + total)

    def cost(self, x: tf.TensorSpec, labels: tf.TensorSpec, partial: Any = None) -> Cost:  # type: ignore[override]
        """The cost of the logits, 6 operations each, and some a row."""
        self.check_partial(partial)
        self._check_labels(x, labels)
        made = super().cost(x)
        rows, n = num_elements(labels), num_elements(made.outputs)
        value, index = tf.TensorSpec(labels.shape), tf.TensorSpec(labels.shape, tf.int32)
        # max, argmax, total, subtract, exp, sum; a row compare, select, log, sum, select, and with what was before maximum, select and 13
        # for the sum of two logarithms
        flops = 6. * n + rows * (5. if partial is None else 20.)
        return made + Cost(flops, 0, NestedMap(log_sum=value, max=value, argmax=index, label=value, total=value))

    def _check_labels(self, x: Any, labels: Any) -> None:
        check_ids(labels, self.path, 'labels')
        if not x.shape[:-1].is_compatible_with(labels.shape):
            raise ValueError(f'{self.path}: labels is {labels.shape}, but x is {x.shape}: there must be one for each row of x, '
                             f'{x.shape[:-1]}; correct the input or Params.reads.')


@tf.custom_gradient
def _sums(logits: tf.Tensor, largest: tf.Tensor, column: tf.Tensor) -> Any:
    """log(sum(exp)), the logit of a column (any, if there is no such column) and the sum; [..., n], [...], [...] -> three of [...].

    Backward reads the logits alone. The automatic gradient keeps their exponentials too and makes more matrices of their size.
    """
    n = logits.shape[-1]
    largest = _finite(largest)
    log_sum = largest + tf.math.log(tf.reduce_sum(tf.exp(logits - largest[..., tf.newaxis]), -1))
    own = tf.gather(logits, tf.clip_by_value(column, 0, n - 1), batch_dims=column.shape.rank)

    def gradient(d_log_sum: tf.Tensor, d_own: tf.Tensor, d_total: tf.Tensor) -> tuple[tf.Tensor, None, None]:
        by_row = tf.exp(logits - _finite(log_sum)[..., tf.newaxis]) * d_log_sum[..., tf.newaxis] + d_total[..., tf.newaxis]
        return tf.where(tf.range(n) == column[..., tf.newaxis], by_row + d_own[..., tf.newaxis], by_row), None, None

    return (log_sum, own, tf.reduce_sum(logits, -1)), gradient


def _finite(largest: tf.Tensor) -> tf.Tensor:
    """0 in place of -inf, which a row has if a bias of -inf forbids all ids of this shard: -inf - -inf is NaN."""
    return tf.where(largest == -math.inf, 0., largest)


class StreamedCrossEntropyLoss(Loss):
    """What CrossEntropyLoss emits, from what the last SoftmaxShard wrote; labels [b] or [b, T], weight of their shape or [b]."""

    class Params(Loss.Params):
        """The vocabulary, and label smoothing."""
        vocab_size: int = field(REQUIRED, 'V, of all shards together.', least=1)
        label_smoothing: float = field(0., 'The part of the label that is spread over all classes.',
                                       least=0, below=1)

    def fprop(self, theta: NestedMap, ctx: Any, softmax: NestedMap, labels: tf.Tensor, weight: tf.Tensor) -> None:
        """Emits the loss 'loss' and, unless it is auxiliary, the metric 'accuracy'."""
        self._check(softmax, labels, weight)
        p = self.params
        weight = weight_by_row(weight, labels, self.path)
        counts, weight_sum = weight != 0, tf.reduce_sum(weight)
        losses = softmax['log_sum'] - (1 - p.label_smoothing) * softmax['label']
        if p.label_smoothing:
            losses -= p.label_smoothing / p.vocab_size * softmax['total']
        self._emit(ctx, tf.reduce_sum(tf.where(counts, losses, 0.) * weight), weight_sum)
        if not p.is_auxiliary:
            is_right = tf.cast(softmax['argmax'] == ids_below(labels, p.vocab_size), tf.float32)
            ctx.emit_metric(self.path, 'accuracy', tf.reduce_sum(is_right * weight), weight_sum)

    def cost(self, softmax: Any, labels: tf.TensorSpec, weight: tf.TensorSpec) -> Cost:
        """7 operations a row, 2 more each for label smoothing and for accuracy."""
        self._check(softmax, labels, weight)
        static_shape(labels, self.path, 'labels')
        p, rows = self.params, num_elements(labels)
        # which count, sum of weights, product, difference, select, product, sum; product, difference; product, sum
        return Cost(rows * (7. + 2 * bool(p.label_smoothing) + 2 * (not p.is_auxiliary)), 0)

    def id_ranges(self, **specs: Any) -> dict[str, int]:
        """Labels are below V."""
        return {'labels': self.params.vocab_size}

    def _check(self, softmax: Any, labels: Any, weight: Any) -> None:
        rows = softmax['max'].shape
        check_ids(labels, self.path, 'labels')
        check_weight(weight, rows, self.path)
        if not rows.is_compatible_with(labels.shape):
            raise ValueError(f'{self.path}: labels is {labels.shape}, but the logits are of {rows}; correct the input or Params.reads.')
