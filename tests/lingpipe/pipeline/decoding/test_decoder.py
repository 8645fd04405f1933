"""Decoder: gives the same tokens as the whole network run again on every prefix.

This holds for any number of cells, sentence groups and shards.
"""
from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from lingpipe import layers
from lingpipe.layers.base import Layer
from lingpipe.layers.context import Context
from lingpipe.layers.cost import Cost
from lingpipe.layers.sequential import arguments
from lingpipe.learning import learning_rates, optimizers
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.decoding.decoder import Decoder
from lingpipe.pipeline.decoding.search_params import SearchParams
from lingpipe.pipeline.decoding.sentence_group import SentenceGroup
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.planning.pipeline_params import PipelineParams

PAD, START, END = 0, 1, 2
V, D, S, LIMIT = 13, 16, 5, 9
BEAM = SearchParams(beam_size=3, alpha=1.0, max_length=LIMIT)
GREEDY = SearchParams(beam_size=1, max_length=LIMIT)
SCORE_TOLERANCE = 1e-4
BFLOAT16_TOLERANCE = 0.2


def network(has_memory=True, num_shards=1, is_tied=False, positions='sinusoidal',
            dtype='float32') -> layers.Sequential:
    """A Transformer of one or two layers with everything that a decoder may meet.

    That is positions, memory, a mask, shards and tied tables.
    """
    body = {'model_dim': D, 'num_heads': 2, 'hidden_dim': 24}

    def table(what, writes, **values):
        return layers.split(
            layers.Embedding.Params(name=what, vocab_size=V, dim=D, is_scaled=True, dtype=dtype,
                                    reads={'ids': what}, writes=writes, **values),
            num_shards)

    def position(name, **values):
        return layers.PositionEmbedding.Params(name=name, dim=D, kind=positions, max_length=LIMIT,
                                               **values)

    target, source = table('target', 'embedded'), table('source', 'x')
    if is_tied:   # The rows of both lookups come from the first cell.
        target = [one.set(share={'w': f'model/{theirs.name}/w'})
                  for one, theirs in zip(target, source, strict=True)]
    encoder = (*source, *(target if is_tied else ()),
               layers.Cast.Params(name='mask', dtype='bool', reads={'x': 'source'}, writes='mask'),
               position('source_position'),
               layers.TransformerEncoderLayer.Params(name='encoder', **body,
                                                     reads={'mask': 'mask'}),
               layers.LayerNorm.Params(name='encoder_norm', dim=D, writes='encoded'))
    memory = ({'memory_dim': D, 'reads': {'memory': 'encoded', 'memory_mask': 'mask'}}
              if has_memory else {})
    decoder = layers.TransformerDecoderLayer.Params(**body, **memory)
    fields = {'name': 'softmax', 'input_dim': D, 'vocab_size': V, 'max_abs': 20.}
    if num_shards == 1:
        output = (layers.Logits.Params(**fields, writes='logits'),
                  layers.CrossEntropyLoss.Params(
                      name='loss', reads={'x': 'logits', 'labels': 'label'}))
    else:
        output = (*layers.split(layers.SoftmaxShard.Params(**fields, reads={'labels': 'label'}),
                                num_shards),
                  layers.StreamedCrossEntropyLoss.Params(
                      name='loss', vocab_size=V, reads={'labels': 'label'}))
    if is_tied:
        output = tuple(
            one.set(transpose_w=True, share={'w': f'model/{ours.name}/w'}) if ours else one
            for one, ours in zip(output, [*source, None], strict=True))
    return layers.Sequential.Params(name='model', layers=(
        *(encoder if has_memory else ()), *(() if is_tied else target),
        position('target_position', reads={'x': 'embedded'}),
        layers.Dropout.Params(name='dropout', rate=0.5), decoder.copy().set(name='decoder_0'),
        layers.split_feed_forward(decoder.copy().set(name='decoder_1'), num_shards),
        layers.LayerNorm.Params(name='norm', dim=D), *output)).instantiate('model')


def make_program(model, num_cells=1, seed=0) -> Program:
    """A program on K devices, whose weights are large enough to tell tokens apart."""
    spec = ({name: tf.TensorSpec([2, S], tf.int32) for name in ('source', 'target', 'label')}
            | {'weight': tf.TensorSpec([2, S])})
    spec = {name: one for name, one in spec.items() if name in model.reads()}
    learner = Learner.Params(optimizer=optimizers.SGD.Params(),
                             learning_rate=learning_rates.Constant.Params(rate=0.1)).instantiate()
    program = Program(model, spec, PipelineParams(num_cells=num_cells), learner)
    for path in sorted(program.weights):   # The weights are the same for every K.
        variable = program.weights[path]
        scale = 0.6 if path.endswith(('/b', 'b1', 'b2')) else 2.
        noise = (np.random.default_rng([seed, *path.encode()]).standard_normal(variable.shape)
                 * scale / np.sqrt(variable.shape[0]))
        variable.assign(noise + (1 if path.endswith('scale') else 0))
    ends = program.weights[
        next(path for path in program.weights if path in ('model/softmax/b', 'model/softmax_0/b'))]
    ends.assign(ends + 3. * (np.arange(ends.shape[0]) == END))
    return program


def sentences(n=6) -> np.ndarray:
    """Draws ids [n, S], with padding after the end of each sentence."""
    rng = np.random.default_rng(1)
    found = rng.integers(3, V, [n, S]).astype(np.int32)
    return np.where(np.arange(S) < rng.integers(2, S + 1, [n, 1]), found, PAD)


def log_probs_of(program) -> Callable[[np.ndarray, list], np.ndarray]:
    """Returns a function from a source [S] and prefixes [k, t] to log p [k, V] of the next id.

    It runs the whole network on whole prefixes.
    """
    weights = {path: tf.convert_to_tensor(variable) for path, variable in program.weights.items()}
    weights |= {w.path: weights[w.shared_with] for w in program.network.weights() if w.shared_with}

    @tf.function(input_signature=[tf.TensorSpec([None, S], tf.int32),
                                  tf.TensorSpec([None, None], tf.int32)],
                 autograph=False)
    def logits(source, target):
        values, found = {'source': source, 'target': target}, []
        for layer in program.network.elements():
            if isinstance(layer, layers.Logits):
                found.append(
                    layers.Logits.fprop(layer, layer.theta(weights), Context(), values['x'])[:, -1])
            elif not layer.path.endswith('loss'):
                values.update(layer.written(
                    layer.fprop(layer.theta(weights), Context(), **arguments(layer, values))))
        return tf.concat(found, -1)

    def log_probs(source, prefixes):
        found = logits(np.repeat(source[np.newaxis], len(prefixes), 0),
                       np.array(prefixes, np.int32)).numpy().astype(np.float64)
        return found - np.log(np.exp(found).sum(-1, keepdims=True))
    return log_probs


def reference(log_probs, source, limit, k, alpha, ends=(END,)) -> tuple[float, tuple[int, ...]]:
    """Finds the best (score, ids) by a beam search in plain Python that never stops early."""
    live: list[tuple[float, tuple[int, ...]]] = [(0., ())]
    best: tuple[float, tuple[int, ...]] = (-np.inf, ())
    penalty = [((5 + length) / 6) ** alpha for length in range(limit + 1)]
    for length in range(1, limit + 1):
        found = log_probs(source, [[START, *ids] for _, ids in live])
        continued = sorted(
            ((score + p, (*ids, v))
             for (score, ids), row in zip(live, found, strict=True) for v, p in enumerate(row)),
            reverse=True)[:1 if k == 1 else (1 + len(ends)) * k]
        best = max([best, *((score / penalty[length], ids)
                            for score, ids in continued if ids[-1] in ends)])
        live = [one for one in continued if one[1][-1] not in ends][:k]
        if not live:
            break
    return best if best[1] else (live[0][0] / penalty[limit], live[0][1])


def cut(ids, ends=(END,)) -> tuple[int, ...]:
    """Returns the ids up to the first end."""
    places = np.flatnonzero(np.isin(ids, ends))
    return tuple(int(i) for i in ids[:min(places + 1, default=len(ids))])


def decoded(program, params, groups, limit=LIMIT,
            ends=(END,)) -> list[tuple[float, tuple[int, ...]]]:
    found = Decoder(program, params, START, *ends).decode(
        [SentenceGroup({'source': group}, [limit] * len(group)) for group in groups])
    return [(float(score), cut(row, ends))
            for ids, scores in found for row, score in zip(ids, scores, strict=True)]


def assert_equal(found, expected):
    assert [ids for _, ids in found] == [ids for _, ids in expected]
    np.testing.assert_allclose([score for score, _ in found], [score for score, _ in expected],
                               atol=SCORE_TOLERANCE)


@functools.cache
def log_probs_of_network(seed, **model) -> Callable[[np.ndarray, list], np.ndarray]:
    """What `log_probs_of` returns for a network in one cell."""
    return log_probs_of(make_program(network(**model), seed=seed))


@functools.cache
def decoded_together() -> list[tuple[float, tuple[int, ...]]]:
    """What a plain network in two cells makes of `sentences` in one group."""
    return decoded(make_program(network(), 2, seed=3), BEAM, [sentences()])


PLAIN, SHARDS, TIED = {}, {'num_shards': 3}, {'is_tied': True}
ALL = {'is_tied': True, 'num_shards': 2, 'positions': 'learned'}


@pytest.mark.parametrize('num_cells, params, model, seed',
                         [(1, BEAM, PLAIN, 3), (2, GREEDY, PLAIN, 3), (3, BEAM, PLAIN, 3),
                          (3, BEAM, SHARDS, 9), (3, BEAM, TIED, 8), (1, GREEDY, ALL, 10),
                          (3, BEAM, ALL, 10)])
def test_equals_the_whole_network_on_every_prefix(num_cells, params, model, seed):
    log_probs, source = log_probs_of_network(seed, **model), sentences()
    expected = [reference(log_probs, row, LIMIT, params.beam_size, params.alpha) for row in source]
    assert len({len(ids) for _, ids in expected}) > 1   # Otherwise the seed tests little.
    program = make_program(network(**model), num_cells, seed)
    assert_equal(decoded(program, params, np.split(source, num_cells)), expected)


@pytest.mark.parametrize(('params', 'seed', 'ends'), [
    (GREEDY, 0, (9, 10, 11, 12)), (BEAM, 5, (4, 6, 10, 12))], ids=['greedy', 'beam'])
def test_any_of_several_ends_ends_a_sentence(params, seed, ends):
    log_probs, source = log_probs_of_network(seed=seed), sentences()
    expected = [reference(log_probs, row, LIMIT, params.beam_size, params.alpha, ends)
                for row in source]
    assert len({ids[-1] for _, ids in expected} & {*ends}) > 1
    program = make_program(network(), 2, seed)
    assert_equal(decoded(program, params, [source], ends=ends), expected)


def test_half_precision_changes_scores_a_little():
    expected = decoded_together()
    found = decoded(make_program(network(dtype='bfloat16'), 2, seed=3), BEAM, [sentences()])
    np.testing.assert_allclose([score for score, _ in found], [score for score, _ in expected],
                               atol=BFLOAT16_TOLERANCE)


@pytest.mark.parametrize('params', [GREEDY, BEAM], ids=['greedy', 'beam'])
def test_sentences_of_a_language_model_have_no_source(params):
    program = make_program(network(has_memory=False), 2)
    log_probs = log_probs_of(program)
    (ids, scores), = Decoder(program, params, START, END).decode([SentenceGroup({}, [LIMIT, 4])])
    for row, score, limit in zip(ids, scores, (LIMIT, 4), strict=True):
        expected = reference(log_probs, sentences(1)[0], limit, params.beam_size, params.alpha)
        assert cut(row)[:limit] == expected[1] and abs(score - expected[0]) < SCORE_TOLERANCE


def test_group_sizes_lengths_and_padding_change_nothing():
    program, source = make_program(network(), 2, seed=3), sentences()
    longer = np.pad(source[:1], [(0, 0), (0, 4)])
    assert_equal(decoded(program, BEAM, [longer, source[1:2], source[2:]]), decoded_together())


def test_every_sentence_has_a_limit_of_its_own():
    program, source = make_program(network()), sentences()
    limits, log_probs = [1, LIMIT, 3, 0, 5, 2], log_probs_of_network(seed=0)
    group = SentenceGroup({'source': source}, limits)
    (ids, scores), = Decoder(program, BEAM, START, END).decode([group])
    for row, score, one, limit in zip(ids, scores, source, limits, strict=True):
        if limit:
            assert_equal([(score, cut(row)[:limit])],
                         [reference(log_probs, one, limit, BEAM.beam_size, BEAM.alpha)])
        else:
            assert score == -np.inf and set(row) == {END}


class Checked(Layer):
    """Returns x if it is finite, and fails otherwise."""

    is_positionwise = True

    def fprop(self, theta, ctx, x):
        with tf.control_dependencies(
                [tf.debugging.assert_all_finite(x, 'an activation is no number')]):
            return tf.identity(x)

    def cost(self, x):
        return Cost(0, 0, x)


@pytest.mark.parametrize(('params', 'where'), [(GREEDY, 'source'), (BEAM, 'target'), (BEAM, None)],
                         ids=['prepare', 'step', 'none'])
def test_decoding_that_is_cut_off_says_why(monkeypatch, params, where):
    """If one of several devices fails, TensorFlow often says only that something was cancelled."""
    wrap_function, wrapped = tf.compat.v1.wrap_function, []

    def cut_off(body, signature):
        wrapped.append(wrap_function(body, signature))

        def call(*args):
            raise tf.errors.CancelledError(None, None, 'RecvAsync is cancelled.')

        call.graph = wrapped[-1].graph
        return wrapped[-1] if len(wrapped) > 1 else call

    decoder_layer = layers.TransformerDecoderLayer.Params(
        name='decoder', model_dim=D, num_heads=2, hidden_dim=24, memory_dim=D,
        reads={'memory': 'encoded'})
    model = layers.Sequential.Params(name='model', layers=(
        layers.Embedding.Params(name='source', vocab_size=V, dim=D, reads={'ids': 'source'}),
        Checked.Params(name='checked_source', writes='encoded'),
        layers.Embedding.Params(name='target', vocab_size=V, dim=D, reads={'ids': 'target'}),
        decoder_layer, Checked.Params(name='checked_target'),
        layers.Logits.Params(name='softmax', input_dim=D, vocab_size=V, writes='logits'),
        layers.CrossEntropyLoss.Params(
            name='loss', reads={'x': 'logits', 'labels': 'label'}))).instantiate('model')
    program = make_program(model, 3)
    if where:
        program.weights[f'model/{where}/w'].assign(np.full([V, D], np.nan))
    monkeypatch.setattr(tf.compat.v1, 'wrap_function', cut_off)
    error, sentence = (
        (tf.errors.InvalidArgumentError, 'an activation is no number') if where
        else (tf.errors.CancelledError, 'RecvAsync'))
    with pytest.raises(error, match=sentence):
        Decoder(program, params, START, END).decode(
            [SentenceGroup({'source': one}, [LIMIT] * len(one))
             for one in np.split(sentences(), 2)])


def test_averages_of_weights_are_used():
    model = network()
    spec = ({name: tf.TensorSpec([2, S], tf.int32) for name in ('source', 'target', 'label')}
            | {'weight': tf.TensorSpec([2, S])})
    learner = Learner.Params(optimizer=optimizers.SGD.Params(),
                             learning_rate=learning_rates.Constant.Params(rate=0.1), ema_decay=0.9)
    program = Program(model, spec, PipelineParams(num_cells=2), learner.instantiate())
    decoder = Decoder(program, BEAM, START, END)
    group = SentenceGroup({'source': sentences()}, [LIMIT] * 6)
    (expected_ids, expected_scores), = decoder.decode([group])
    for variable in program.weights.values():
        variable.assign(variable * np.nan)
    (ids, scores), = decoder.decode([group])
    np.testing.assert_array_equal(ids, expected_ids)
    np.testing.assert_array_equal(scores, expected_scores)
    assert np.all(np.isfinite(scores))


@pytest.mark.parametrize('make, error',
                         [(lambda program: Decoder(program, BEAM, START, END).decode(
                               [SentenceGroup({'sauce': sentences()}, [2] * 6)]),
                           r'a group has sauce, but decoding reads source\.'),
                          (lambda program: Decoder(program, BEAM, START, END).decode(
                               [SentenceGroup({'source': sentences()}, [10] * 6)]),
                           r'a limit of 10 ids is above max_length=9; raise max_length\.'),
                          (lambda program: Decoder(program, BEAM, START),
                           'no end is given, but a decoder has one or more; give the ids that '),
                          (lambda program: Decoder(program, SearchParams(beam_size=0), START, END),
                           'beam_size=0 is below 1; use 1 or more'),])
def test_mistake_is_one_sentence(make, error):
    with pytest.raises(ValueError, match=error):
        make(make_program(network()))


@pytest.mark.parametrize('layer, error', [
    (layers.TransformerEncoderLayer.Params(name='encoder', model_dim=D, num_heads=2, hidden_dim=8),
     r'model/encoder: TransformerEncoderLayer does not say how it is decoded position by position; '
     r'give it decode\(\)'),
    (layers.KerasLayer.Params(name='norm', class_name='LayerNormalization', input_shape=(S, D)),
     'model/norm: KerasLayer does not say how .*; use a layer of lingpipe in place of '
     r'LayerNormalization, as layers\.LayerNorm, or a subclass of KerasLayer with is_positionwise'),
    (layers.MultiHeadAttention.Params(name='attention', input_dim=D, num_heads=2),
     r'model/attention: is_causal=False, but self-attention'),
    (layers.PositionEmbedding.Params(name='position', dim=D, kind='learned', max_length=8),
     r'model/position: up to 9 positions are decoded, but max_length=8 were learned'),
])
def test_layer_that_cannot_be_decoded_says_so(layer, error):
    model = layers.Sequential.Params(name='model', layers=(
        layers.Embedding.Params(name='target', vocab_size=V, dim=D, reads={'ids': 'target'}), layer,
        layers.Logits.Params(name='softmax', input_dim=D, vocab_size=V, writes='logits'),
        layers.CrossEntropyLoss.Params(
            name='loss', reads={'x': 'logits', 'labels': 'label'}))).instantiate('model')
    with pytest.raises(ValueError, match=error):
        Decoder(make_program(model), BEAM, START, END).decode([SentenceGroup({}, [3])])
