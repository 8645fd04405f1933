"""Losses: sums and weights against NumPy, with garbage where the weight is 0."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.layers import (
    CrossEntropyLoss,
    MeanSquaredErrorLoss,
    Sequential,
    SigmoidCrossEntropyLoss,
    SoftmaxShard,
    StreamedCrossEntropyLoss,
)
from lingpipe.layers.context import Context, Emissions
from lingpipe.layers.losses import Loss
from lingpipe.layers.nested import NestedMap
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.pipeline.planning.planner import make_plan

LOGITS = np.random.default_rng(0).normal(size=[4, 7]).astype(np.float32)
LABELS = np.array([1, 6, 0, 3])
WEIGHT = np.array([1., 0., 2., .5], np.float32)


def emissions(params: Any, *inputs: Any) -> Emissions:
    ctx = Context(training=True)
    assert params.instantiate('loss').fprop(NestedMap(), ctx, *map(tf.constant, inputs)) is None
    return ctx.emissions


def by_name(found: dict[tuple[str, str], Any]) -> dict[str, Any]:
    return {name: [float(v) for v in value] if isinstance(value, tuple) else float(value)
            for (_, name), value in found.items()}


def cross_entropies(smoothing: float = 0.) -> np.ndarray:
    log_p = LOGITS - np.log(np.exp(LOGITS).sum(-1, keepdims=True))
    targets = (1 - smoothing) * np.eye(7)[LABELS] + smoothing / 7
    return -(targets * log_p).sum(-1)


@pytest.mark.parametrize('smoothing', [0., 0.1])
def test_the_loss_is_a_weighted_sum_and_so_is_its_weight(smoothing: float) -> None:
    found = emissions(CrossEntropyLoss.Params(label_smoothing=smoothing), LOGITS, LABELS, WEIGHT)
    assert by_name(found.losses) == {'loss': pytest.approx(cross_entropies(smoothing) @ WEIGHT)}
    assert by_name(found.weights) == {'loss': 3.5}


MIXED = {'other_labels': 'other_labels', 'share': 'share'}


@pytest.mark.parametrize('smoothing', [0., 0.1])
def test_mixed_labels_share_the_loss(smoothing: float) -> None:
    params, others, share = (
        CrossEntropyLoss.Params(label_smoothing=smoothing, reads=MIXED),
        LABELS[::-1].copy(),
        [1., .5, .25, 0.])
    found = emissions(params, LOGITS, LABELS, WEIGHT, others, np.array(share, np.float32))
    own, other = (emissions(CrossEntropyLoss.Params(label_smoothing=smoothing), LOGITS, labels,
                            WEIGHT * part)
                  for labels, part in ((LABELS, np.array(share, np.float32)),
                                       (others, 1 - np.array(share, np.float32))))
    assert (by_name(found.losses)['loss']
            == pytest.approx(by_name(own.losses)['loss'] + by_name(other.losses)['loss']))
    assert by_name(found.weights) == {'loss': 3.5}


def test_an_example_of_weight_0_may_have_any_share_and_other_label() -> None:
    share = np.array([1., np.nan, 1., 1.], np.float32)
    found = emissions(CrossEntropyLoss.Params(reads=MIXED), LOGITS, LABELS, WEIGHT,
                      np.array([0, 99, 0, 0]), share)
    assert (by_name(found.losses)
            == by_name(emissions(CrossEntropyLoss.Params(), LOGITS, LABELS, WEIGHT).losses))


def test_other_labels_without_share_are_refused() -> None:
    with pytest.raises(
            ValueError,
            match='loss: reads names only one of other_labels and share; name both, or neither'):
        emissions(CrossEntropyLoss.Params(), LOGITS, LABELS, WEIGHT, LABELS)


def test_tokens_are_rows_of_one_batch() -> None:
    flat = emissions(CrossEntropyLoss.Params(), LOGITS, LABELS, WEIGHT)
    nested = emissions(CrossEntropyLoss.Params(), LOGITS.reshape(2, 2, 7), LABELS.reshape(2, 2),
                       WEIGHT.reshape(2, 2))
    assert by_name(flat.losses) == by_name(nested.losses)


def test_accuracy_and_top5_are_weighted_counts() -> None:
    logits = np.array([[9, 8, 7, 6, 5, 4, 3]] * 4, np.float32)
    found = emissions(CrossEntropyLoss.Params(has_top5=True), logits, np.array([0, 4, 5, 0]),
                      np.array([1., 2., 4., 8.], np.float32))
    assert by_name(found.metrics) == {'accuracy': [9., 15.], 'top5': [11., 15.]}


def test_logits_that_are_nan_are_no_hit() -> None:
    found = emissions(CrossEntropyLoss.Params(has_top5=True), np.full([3, 7], np.nan, np.float32),
                      np.array([4, 5, 6]), np.ones(3, np.float32))
    assert by_name(found.metrics)['top5'] == [0., 3.]


def test_equal_logits_are_no_hit() -> None:
    """A network that returns only zeros knows nothing.

    It would seem perfect if only larger logits counted against it.
    """
    found = emissions(CrossEntropyLoss.Params(has_top5=True), np.zeros([7, 7], np.float32),
                      np.arange(7), np.ones(7, np.float32))
    assert by_name(found.metrics) == {'accuracy': [1., 7.], 'top5': [5., 7.]}


@pytest.mark.parametrize('params',
                         [CrossEntropyLoss.Params(has_top5=True),
                          CrossEntropyLoss.Params(label_smoothing=0.1)])
@pytest.mark.parametrize('garbage', [np.nan, np.inf, -1e38])
def test_an_example_of_weight_0_may_hold_anything(params: Any, garbage: float) -> None:
    dirty_logits, dirty_labels = LOGITS.copy(), LABELS.copy()
    dirty_logits[1], dirty_labels[1] = garbage, 12345

    def run(logits: np.ndarray, labels: np.ndarray) -> list[Any]:
        x = tf.constant(logits)
        ctx = Context(training=True)
        with tf.GradientTape() as tape:
            tape.watch(x)
            params.instantiate('loss').fprop(NestedMap(), ctx, x, tf.constant(labels),
                                             tf.constant(WEIGHT))
            loss = ctx.emissions.losses['loss', 'loss']
        return [by_name(ctx.emissions.losses), by_name(ctx.emissions.metrics),
                tape.gradient(loss, x).numpy()]

    (*clean, clean_gradient), (*dirty, dirty_gradient) = (
        run(LOGITS, LABELS), run(dirty_logits, dirty_labels))
    assert clean == dirty
    np.testing.assert_array_equal(clean_gradient, dirty_gradient)
    assert not dirty_gradient[1].any()


def test_an_auxiliary_loss_is_scaled_and_has_no_weight() -> None:
    found = emissions(CrossEntropyLoss.Params(is_auxiliary=True, scale=0.4), LOGITS, LABELS, WEIGHT)
    assert by_name(found.losses) == {'loss': pytest.approx(0.4 * (cross_entropies() @ WEIGHT))}
    assert found.weights == {}


@pytest.mark.parametrize(
    ('fields', 'expected'),
    [({}, {'accuracy'}), ({'is_auxiliary': True}, set()), ({'has_metrics': False}, set()),
     ({'is_auxiliary': True, 'has_metrics': True}, {'accuracy'}),
     ({'is_auxiliary': True, 'has_metrics': True, 'has_top5': True}, {'accuracy', 'top5'})])
def test_a_second_task_has_metrics_if_asked_for(fields: dict[str, Any], expected: set[str]) -> None:
    found = emissions(CrossEntropyLoss.Params(**fields), LOGITS, LABELS, WEIGHT)
    assert {name for _, name in found.metrics} == expected

    if 'has_top5' not in fields:
        streamed = StreamedCrossEntropyLoss.Params(vocab_size=7, **fields)
        rows = {name: tf.zeros([4]) for name in ('log_sum', 'max', 'label', 'total')}
        ctx = Context(training=True)
        streamed.instantiate('loss').fprop(
            NestedMap(), ctx, {**rows, 'argmax': tf.constant(LABELS, tf.int32)},
            tf.constant(LABELS), tf.constant(WEIGHT))
        assert by_name(ctx.emissions.metrics) == {name: [3.5, 3.5] for name in expected}


def test_squares_are_summed_over_elements() -> None:
    found = emissions(MeanSquaredErrorLoss.Params(), np.array([[1., 2.], [3., 4.]], np.float32),
                      np.zeros([2, 2], np.float32))
    assert (by_name(found.losses), by_name(found.weights)) == ({'loss': 30.}, {'loss': 4.})


def test_weighted_squares_count_their_elements_and_ignore_nan_at_weight_0() -> None:
    x = tf.constant([[1., 2.], [np.nan, 4.]])
    ctx = Context(training=True)
    with tf.GradientTape() as tape:
        tape.watch(x)
        MeanSquaredErrorLoss.Params().instantiate('loss').fprop(
            NestedMap(), ctx, x, tf.zeros([2, 2]), tf.constant([3., 0.]))
        loss = ctx.emissions.losses['loss', 'loss']
    assert (by_name(ctx.emissions.losses), by_name(ctx.emissions.weights)) == (
        {'loss': 15.}, {'loss': 6.})
    np.testing.assert_array_equal(tape.gradient(loss, x), [[6., 12.], [0., 0.]])


ANSWERS = np.random.default_rng(1).random([4, 7]).astype(np.float32)


def test_answers_of_yes_and_no_are_summed_over_elements() -> None:
    """A weight counts once for each element of its example."""
    emitted = emissions(SigmoidCrossEntropyLoss.Params(scale=2.), LOGITS, ANSWERS, WEIGHT)
    p = 1 / (1 + np.exp(-LOGITS))
    losses = -(ANSWERS * np.log(p) + (1 - ANSWERS) * np.log(1 - p))
    is_right = (p > 0.5) == (ANSWERS > 0.5)
    assert by_name(emitted.losses) == {'loss': pytest.approx(2 * WEIGHT @ losses.sum(-1))}
    assert by_name(emitted.weights) == {'loss': 7 * 3.5}
    assert by_name(emitted.metrics) == {'accuracy': [WEIGHT @ is_right.sum(-1), 7 * 3.5]}

    plain = emissions(SigmoidCrossEntropyLoss.Params(), LOGITS, ANSWERS > 0.5)
    keras_loss = tf.keras.losses.BinaryCrossentropy(from_logits=True)(ANSWERS > 0.5, LOGITS)
    keras_accuracy = tf.keras.metrics.BinaryAccuracy(threshold=0.)(ANSWERS > 0.5, LOGITS)
    assert by_name(plain.weights) == {'loss': 28.}
    assert by_name(plain.losses) == {'loss': pytest.approx(28 * float(keras_loss))}
    assert by_name(plain.metrics) == {'accuracy': [pytest.approx(28 * float(keras_accuracy)), 28.]}


def test_large_logits_have_finite_losses() -> None:
    emitted = emissions(SigmoidCrossEntropyLoss.Params(), np.float32([[1e4, -1e4, 1e4, -1e4]]),
                        np.float32([[1., 0., 0., 1.]]))
    assert by_name(emitted.losses) == {'loss': 2e4}


@pytest.mark.parametrize(('answer', 'weight', 'is_nan'), [
    (1.25, 1., True), (-0.25, 1., True), (np.nan, 1., True), (1.25, 0., False),
    (np.nan, 0., False), (1., 1., False)])
def test_an_answer_that_counts_is_from_0_to_1(answer: float, weight: float, is_nan: bool) -> None:
    x = tf.constant([[1., 2.], [np.nan if weight == 0 else 3., 4.]])
    ctx = Context(training=True)
    with tf.GradientTape() as tape:
        tape.watch(x)
        SigmoidCrossEntropyLoss.Params().instantiate('loss').fprop(
            NestedMap(), ctx, x, tf.constant([[0., 1.], [answer, 0.]]), tf.constant([1., weight]))
        loss = ctx.emissions.losses['loss', 'loss']
    assert np.isnan(float(loss)) == is_nan
    if weight == 0:
        np.testing.assert_array_equal(tape.gradient(loss, x)[1], [0., 0.])


def test_complex_logits_are_refused() -> None:
    with pytest.raises(ValueError, match='loss: x is of complex64, but logits are real numbers; '):
        emissions(CrossEntropyLoss.Params(), LOGITS.astype(np.complex64), LABELS, WEIGHT)
    with pytest.raises(ValueError, match='loss: x is of complex64, but must be real numbers; '):
        emissions(SigmoidCrossEntropyLoss.Params(), LOGITS.astype(np.complex64), ANSWERS)


def test_labels_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match=r'loss: labels is \(4, 1\), but x is \(4, 7\): there must '
                                         r'be one for each row of logits, \(4,\)'):
        emissions(CrossEntropyLoss.Params(), LOGITS, LABELS[:, np.newaxis], WEIGHT)


@pytest.mark.parametrize('dtype',
                         [np.uint8, np.int8, np.int16, np.uint16, np.uint32, np.int64, np.uint64,
                          np.float16, np.float32, np.float64])
def test_labels_may_be_of_any_type_of_number(dtype: Any) -> None:
    expected = emissions(CrossEntropyLoss.Params(has_top5=True), LOGITS, LABELS.astype(np.int32),
                         WEIGHT)
    found = emissions(CrossEntropyLoss.Params(has_top5=True), LOGITS, LABELS.astype(dtype), WEIGHT)
    assert by_name(found.losses) == by_name(expected.losses)
    assert by_name(found.metrics) == by_name(expected.metrics)


def streamed(labels: np.ndarray) -> float:
    network = Sequential.Params(name='net', layers=(
        SoftmaxShard.Params(name='shard', input_dim=7, vocab_size=7),
        StreamedCrossEntropyLoss.Params(name='loss', vocab_size=7))).instantiate()
    ctx = Context(training=True)
    network.fprop(network.initial_theta(), ctx, x=tf.constant(LOGITS), labels=tf.constant(labels),
                  weight=tf.constant(WEIGHT))
    return by_name(ctx.emissions.losses)['loss']


@pytest.mark.parametrize('label', [7, -1, 2.5, np.nan, 2 ** 32, 2 ** 64 - 1])
def test_a_label_that_is_no_class_makes_the_loss_nan(label: Any) -> None:
    """2^32 must not wrap around to class 0, nor 2.5 become class 2.

    Where the weight is 0, any label is allowed.
    """
    dtype = np.float64 if isinstance(label, float) else np.uint64 if label > 2 ** 63 else np.int64
    counted, padding = LABELS.astype(dtype), LABELS.astype(dtype)
    counted[0], padding[1] = label, label
    for smoothing in (0., 0.1):
        params = CrossEntropyLoss.Params(label_smoothing=smoothing)
        assert np.isnan(by_name(emissions(params, LOGITS, counted, WEIGHT).losses)['loss'])
        assert (by_name(emissions(params, LOGITS, padding, WEIGHT).losses)
                == by_name(emissions(params, LOGITS, LABELS, WEIGHT).losses))
    assert np.isnan(streamed(counted))
    assert streamed(padding) == streamed(LABELS)


def test_labels_of_strings_are_refused() -> None:
    with pytest.raises(ValueError, match='loss: labels is of string, but must be whole numbers '
                                         'counted from 0; make numbers of them in'):
        emissions(CrossEntropyLoss.Params(), LOGITS, np.array(['cat'] * 4), WEIGHT)


def test_a_target_of_strings_is_refused() -> None:
    with pytest.raises(ValueError, match='loss: target is of string, but must be real numbers; '
                                         'make numbers of it in the input'):
        emissions(MeanSquaredErrorLoss.Params(), LOGITS, np.array([['cat'] * 7] * 4))


class Contrastive(Loss):
    """A loss whose result for an example depends on the other examples."""

    needs_whole_batch = True

    def fprop(self, theta: Any, ctx: Any, x: tf.Tensor, weight: tf.Tensor | None = None) -> None:
        self._emit(ctx, tf.reduce_sum(tf.matmul(x, x, transpose_b=True)),
                   tf.cast(tf.shape(x)[0], tf.float32))


@pytest.mark.parametrize(('parts', 'is_refused'),
                         [({}, False), ({'num_micro_batches': 2}, True),
                          ({'num_replicas': 2}, True)])
def test_a_loss_over_the_mini_batch_is_refused_a_part_of_it(
        parts: dict[str, int], is_refused: bool) -> None:
    network = Sequential.Params(name='net', layers=(Contrastive.Params(name='loss'),)).instantiate()

    def plan() -> Any:
        return make_plan(network, {'x': tf.TensorSpec([4, 7])}, PipelineParams(**parts),
                         ['CPU:0'] * 2)

    if not is_refused:
        plan()
        return
    with pytest.raises(ValueError, match=r'net/loss: Contrastive needs the whole mini-batch, .* '
                                         r'one of 2 parts at a time; set both to 1'):
        plan()
