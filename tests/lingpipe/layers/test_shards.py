"""Shards: their parts, their wiring, and how a streamed loss treats labels that do not exist."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe import layers
from lingpipe.layers.context import Context
from lingpipe.layers.nested import NestedMap
from lingpipe.layers.softmax import add_logs

V, D = 7, 4
X = np.random.default_rng(0).normal(size=[5, D]).astype(np.float32)
LABELS = np.array([0, 6, 2, 4, 3], np.int32)
WEIGHT = np.array([1., 0., 2., .5, 1.], np.float32)


def softmax(num_shards: int, **fields: Any) -> Any:
    """A network of a streamed softmax and its loss."""
    return layers.Sequential.Params(name='net', layers=(
        *layers.split(
            layers.SoftmaxShard.Params(name='softmax', input_dim=D, vocab_size=V, **fields),
            num_shards),
        layers.StreamedCrossEntropyLoss.Params(name='loss', vocab_size=V,
                                               label_smoothing=0.1))).instantiate()


def loss_of(network: Any, labels: Any = LABELS, x: Any = X, weight: Any = WEIGHT) -> float:
    ctx = Context(training=True)
    network.fprop(network.initial_theta(), ctx, x=tf.constant(x), labels=tf.constant(labels),
                  weight=tf.constant(weight))
    return float(ctx.emissions.losses['net/loss', 'loss'])


def test_shards_are_named_and_wired_in_order() -> None:
    ffn = layers.FeedForward.Params(name='ffn', input_dim=4, hidden_dim=7, reads={'x': 'h'},
                                    writes='y')
    assert [(p.name, p.shard, p.num_shards, p.reads, p.writes) for p in layers.split(ffn, 3)] == [
        ('ffn_0', 0, 3, {'x': 'h'}, 'y'), ('ffn_1', 1, 3, {'x': 'h', 'partial': 'y'}, 'y'),
        ('ffn_2', 2, 3, {'x': 'h', 'partial': 'y'}, 'y')]
    assert [next(p.instantiate().weights()).shape for p in layers.split(ffn, 3)] == [
        (4, 2), (4, 2), (4, 3)]
    assert layers.split(ffn, 1) == (ffn,)


def test_one_shard_of_a_streamed_softmax_is_the_plain_loss() -> None:
    ctx, network = Context(training=True), softmax(1)
    theta = network.initial_theta().softmax
    logits = X @ theta.w.numpy() + theta.b.numpy()
    layers.CrossEntropyLoss.Params(name='loss', label_smoothing=0.1).instantiate().fprop(
        NestedMap(), ctx, *map(tf.constant, (logits, LABELS, WEIGHT)))
    assert loss_of(network) == pytest.approx(float(ctx.emissions.losses['loss', 'loss']), rel=1e-6)


@pytest.mark.parametrize('num_shards', [1, 3, 7])
def test_logits_of_any_size_neither_overflow_nor_vanish(num_shards: int) -> None:
    network = softmax(num_shards)
    theta = network.initial_theta()
    x, smoothing = X * 1e4, 0.1
    logits = np.concatenate([x @ theta[name].w.numpy() for name in theta if 'w' in theta[name]],
                            -1).astype(np.float64)
    log_p = logits - logits.max(-1, keepdims=True)
    log_p -= np.log(np.exp(log_p).sum(-1, keepdims=True))
    expected = (-((1 - smoothing) * log_p[np.arange(5), LABELS] + smoothing * log_p.mean(-1))
                 @ WEIGHT)
    assert loss_of(network, x=x) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize('num_shards', [1, 3])
def test_a_label_outside_the_vocabulary_is_nan_unless_its_weight_is_0(num_shards: int) -> None:
    """The loss would have been computed without the label's logit: finite, but wrong."""
    network, outside = softmax(num_shards), LABELS.copy()
    outside[1] = 99
    assert loss_of(network, outside) == loss_of(network)
    outside[0] = -1
    assert np.isnan(loss_of(network, outside))


def test_the_gradient_of_an_example_of_weight_0_is_0() -> None:
    network, x = softmax(3), tf.constant(X)
    labels = LABELS.copy()
    labels[1] = 99
    with tf.GradientTape() as tape:
        tape.watch(x)
        ctx = Context(training=True)
        network.fprop(network.initial_theta(), ctx, x=x, labels=tf.constant(labels),
                      weight=tf.constant(WEIGHT))
        loss = ctx.emissions.losses['net/loss', 'loss']
    gradient = tape.gradient(loss, x).numpy()
    assert np.all(gradient[1] == 0) and np.all(np.any(gradient[[0, 2, 3, 4]], -1))


def test_an_id_outside_the_vocabulary_has_no_row_in_any_shard() -> None:
    network = layers.Sequential.Params(name='net', layers=layers.split(
        layers.Embedding.Params(name='table', vocab_size=V, dim=D, reads={'ids': 'ids'}),
        3)).instantiate()
    found = network.fprop(network.initial_theta(), Context(), ids=tf.constant([0, 6, 7, -1])).x
    np.testing.assert_array_equal(np.isnan(found).all(-1), [False, False, True, True])


@pytest.mark.parametrize('shard, num_shards, sentence', [
    (2, 2, 'shard=2 is none of num_shards=2; count from 0, or leave it to split'),
    (-1, 2, 'shard=-1 is below 0; use 0 or more'),
    (0, 0, 'num_shards=0 is below 1; use 1 to 10000'),
])
def test_a_shard_that_there_is_not_is_refused(shard: int, num_shards: int, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        layers.Embedding.Params(vocab_size=V, dim=D, shard=shard,
                                num_shards=num_shards).instantiate()


def test_more_shards_than_rows_are_refused() -> None:
    with pytest.raises(ValueError, match='table: num_shards=8 is more than vocab_size=7, so that a '
                                         'shard would be empty; use fewer'):
        layers.Embedding.Params(name='table', vocab_size=V, dim=D, num_shards=8).instantiate()


@pytest.mark.parametrize('shard, partial, found',
                         [(1, None, 'shard=1, but no partial'),
                          (0, tf.TensorSpec([2, D]), 'shard=0, but a partial')])
def test_the_first_shard_alone_reads_no_partial_result(
        shard: int, partial: Any, found: str) -> None:
    ffn = layers.FeedForward.Params(input_dim=D, hidden_dim=8, shard=shard,
                                    num_shards=2).instantiate('ffn')
    with pytest.raises(
            ValueError,
            match=f'ffn: {found} result is read; the first shard reads none, all others'):
        ffn.cost(tf.TensorSpec([2, D]), partial=partial)


def test_labels_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match=r'net/softmax: labels is \(4,\), but x is \(5, 4\): there '
                                         r'must be one for each row of x, \(5,\)'):
        loss_of(softmax(1), LABELS[:4])


@pytest.mark.parametrize('forbidden', [-1e9, -np.inf])
def test_a_shard_whose_ids_a_bias_forbids_leaves_the_others_as_they_are(forbidden: float) -> None:
    """log_sum was a + softplus(b - a), which rounds b away for a = -1e9 and is NaN for a = -inf."""
    theta = softmax(2).initial_theta()
    mine = theta.softmax_0
    mine.b = tf.fill(mine.b.shape, forbidden)
    labels = np.array([6, 6, 5, 4, 5], np.int32)

    def gradient(theta: Any, names: list[str]) -> tuple[float, Any]:
        x = tf.constant(X)
        with tf.GradientTape() as tape:
            tape.watch(x)
            logits = tf.concat([x @ theta[name].w + theta[name].b for name in names], -1)
            columns = labels - V + logits.shape[-1]
            loss = tf.reduce_sum(
                tf.nn.sparse_softmax_cross_entropy_with_logits(columns, logits) * WEIGHT)
        return float(loss), tape.gradient(loss, x)

    unsmoothed = layers.Sequential.Params(name='net', layers=(
        *layers.split(layers.SoftmaxShard.Params(name='softmax', input_dim=D, vocab_size=V), 2),
        layers.StreamedCrossEntropyLoss.Params(name='loss', vocab_size=V))).instantiate()
    ctx, x = Context(training=True), tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        unsmoothed.fprop(theta, ctx, x=x, labels=tf.constant(labels), weight=tf.constant(WEIGHT))
        loss = ctx.emissions.losses['net/loss', 'loss']
    expected, d_expected = gradient(theta, ['softmax_1'])   # As if there were no other ids.
    assert float(loss) == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(tape.gradient(loss, x), d_expected, atol=1e-6)


def test_logs_of_nothing_have_gradients_of_0() -> None:
    """They are those of two shards, all of whose ids a bias of -inf forbids."""
    a, b = tf.constant([-np.inf, 0., -np.inf]), tf.constant([-np.inf, -np.inf, 1.])
    with tf.GradientTape() as tape:
        tape.watch([a, b])
        total = add_logs(a, b)
    assert total.numpy().tolist() == [-np.inf, 0., 1.]
    gradients = tape.gradient(total, [a, b])
    assert [one.numpy().tolist() for one in gradients] == [[0., 1., 0.], [0., 0., 1.]]
