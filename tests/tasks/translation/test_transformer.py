"""The Transformer has the papers' counts; shards and ties change no result, and cuts no bit."""
from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe import pricing
from lingpipe.layers.context import Context
from lingpipe.layers.low_rank import Adapters
from lingpipe.learning import learning_rates, optimizers
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.planning.dataflow import BATCH, wire
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.pipeline.planning.planner import make_plan
from lingpipe.tasks.translation.transformer import Transformer
from lingpipe.tasks.translation.translator import translation_learner, translator
from lingpipe.training import registry
from tests.support.calls import num_calls

B, S, T, V, D = 4, 6, 5, 13, 8
# A split layer and the whole one sum float32 in another order.
ROUNDING = 2e-6


def tiny(**fields: Any) -> Transformer.Params:
    return Transformer.Params(**{'name': 'model', 'num_encoder_layers': 2, 'num_decoder_layers': 2,
                                 'vocab_size': V, 'model_dim': D, 'hidden_dim': 12, 'num_heads': 2,
                                 'head_dim': 6, **fields})


def language_model(**fields: Any) -> Transformer.Params:
    return tiny(num_encoder_layers=0, **fields)


def batch(seed: int = 0, size: int = B) -> dict[str, np.ndarray]:
    """Returns sources of 3 to S tokens and targets of 2 to T, padded with 0."""
    rng = np.random.default_rng(seed)
    source, target = (rng.integers(1, V, [size, n]).astype(np.int32) for n in (S, T + 1))
    for i in range(size):
        source[i, 3 + i % (S - 2):] = 0
        target[i, 3 + i % (T - 1):] = 0
    return {'source': source, 'target': target[:, :-1], 'label': target[:, 1:],
            'weight': np.ones([size], np.float32)}


def specs(size: int = B) -> dict[str, tf.TensorSpec]:
    return {name: tf.TensorSpec(value.shape, value.dtype)
            for name, value in batch(size=size).items()}


def weights_of(network: Transformer, seed: int = 0) -> dict[str, tf.Tensor]:
    """Returns weights by path. Biases are not zero, and a tied weight is its owner's."""
    rng = np.random.default_rng(seed)
    owned = {w.path: w.initial_value(seed)
             + tf.constant(rng.normal(scale=0.1, size=w.shape), tf.float32)
             for w in network.weights() if w.shared_with is None}
    return {w.path: owned[w.shared_with or w.path] for w in network.weights()}


def run(network: Transformer, values: dict[str, tf.Tensor], given: dict[str, Any],
        training: bool = False) -> tuple[Any, Any]:
    """Returns all values that are written, and the emissions."""
    ctx = Context(training)
    inputs = {name: tf.constant(given[name]) for name in network.reads()}
    return network.fprop(network.theta(values), ctx, **inputs), ctx.emissions


def loss_of(emissions: Any) -> float:
    (loss,), (weight,) = emissions.losses.values(), emissions.weights.values()
    return float(loss / weight)


def losses_and_gradients(network: Transformer, values: dict[str, tf.Tensor],
                         given: dict[str, Any]) -> tuple[float, dict[str, np.ndarray]]:
    """Returns the loss, and the gradients of owned weights by path."""
    owned = {w.path: values[w.path] for w in network.weights() if w.shared_with is None}
    with tf.GradientTape() as tape:
        tape.watch(owned)
        all_values = {w.path: owned[w.shared_with or w.path] for w in network.weights()}
        _, emissions = run(network, all_values, given)
        (loss,) = emissions.losses.values()
    return loss_of(emissions), {path: tf.convert_to_tensor(g).numpy()
                                for path, g in tape.gradient(loss, owned).items()}


# Counts.

# L, H, A -> ours, the paper's.
T_MODELS = {(6, 8192, 16): (408_209_920, 0.408e9), (12, 16384, 32): (1_239_235_072, 1.24e9),
            (24, 8192, 16): (1_239_419_392, 1.24e9), (32, 16384, 32): (3_086_060_032, 3.08e9),
            (64, 16384, 32): (6_040_979_968, 6.04e9)}
TABLE_1 = {3: (282_182_912, 282.2e6), 13: (785_765_632, 785.8e6), 103: (5_318_010_112, 5.3e9),
           415: (21_029_790_976, 21.0e9), 1663: (83_876_914_432, 83.9e9)}


@pytest.mark.parametrize('size', T_MODELS, ids=str)
@pytest.mark.parametrize('num_shards', [1, 8])
def test_the_multilingual_models_have_the_papers_parameters(size: Any, num_shards: int) -> None:
    num_layers, hidden_dim, num_heads = size
    params = Transformer.Params(num_encoder_layers=num_layers, num_decoder_layers=num_layers,
                                vocab_size=64_000, hidden_dim=hidden_dim, num_heads=num_heads,
                                head_dim=64, tied='embeddings', vocabulary_shards=num_shards,
                                feed_forward_shards=num_shards)
    exact, paper = T_MODELS[size]
    assert params.instantiate('model').num_weights == exact == pytest.approx(paper, rel=0.01)


@pytest.mark.parametrize('num_layers', TABLE_1)
def test_table_1_has_the_papers_parameters(num_layers: int) -> None:
    params = Transformer.Params(num_encoder_layers=0, num_decoder_layers=num_layers,
                                vocab_size=32_000, model_dim=2048, hidden_dim=8192, num_heads=32)
    exact, paper = TABLE_1[num_layers]
    assert params.instantiate('model').num_weights == exact == pytest.approx(paper, rel=0.01)


@pytest.mark.parametrize('tied, tables', [('none', 3), ('embeddings', 2), ('all', 1)])
def test_a_tied_table_counts_once(tied: Any, tables: int) -> None:
    def count(tied: Any) -> int:
        return tiny(tied=tied).instantiate().num_weights
    assert count('none') - count(tied) == (3 - tables) * V * D


def test_networks_are_built_and_planned_with_work_in_proportion() -> None:
    """The larger network has 4 times the layers in 4 times the cells.

    The partitioner once made all cells of every cut that it tried. For the largest network, which
    has 4 times as many again, that took 18 s.
    """
    small, large = (
        num_calls(lambda: registry.get(f'translation.table1.{name}').instantiate().make_plan())   # noqa: B023
        for name in ('Transformer103', 'Transformer415'))
    assert large < 6 * small


# Shapes, and who sees whom.

def test_every_named_value_has_its_shape() -> None:
    elements = wire(tiny().instantiate(), specs())
    found = {name: (tuple(value.spec.shape), value.spec.dtype) for e in elements
             for name, value in e.writes.items()}
    assert found == {'x': ((B, T, D), tf.float32), 'source_mask': ((B, S), tf.bool),
                     'encoded': ((B, S, D), tf.float32), 'logits': ((B, T, V), tf.float32),
                     'token_weight': ((B, T), tf.float32)}


def test_every_decoder_layer_reads_the_encoder_and_ids_come_from_the_mini_batch() -> None:
    elements = wire(tiny().instantiate(), specs())
    by_name = {e.layer.path: e for e in elements}
    encoded = by_name['model/encoder_norm'].writes['encoded']
    assert [elements[i].layer.path for i in encoded.readers] == [
        'model/decoder_0', 'model/decoder_1']
    from_batch = {(e.layer.path, value.name) for e in elements for value in e.reads.values()
                  if value.maker == BATCH}
    assert from_batch == {('model/source_mask', 'source'), ('model/source_embedding', 'source'),
                          ('model/target_embedding', 'target'), ('model/token_weight', 'label'),
                          ('model/token_weight', 'weight'), ('model/loss', 'label')}


@pytest.mark.parametrize('params', [tiny(), language_model()],
                         ids=['translation', 'language model'])
def test_a_later_target_token_never_changes_an_earlier_logit(params: Transformer.Params) -> None:
    network = params.instantiate()
    values, given = weights_of(network), batch()
    logits = run(network, values, given)[0]['logits'].numpy()
    for t in range(T):
        changed = given['target'].copy()
        changed[:, t] = changed[:, t] % (V - 1) + 1
        found = run(network, values, {**given, 'target': changed})[0]['logits'].numpy()
        np.testing.assert_array_equal(found[:, :t], logits[:, :t])
        assert not np.any(np.all(found[:, t:] == logits[:, t:], (1, 2)))


@pytest.mark.parametrize('num_shards', [1, 3])
def test_padding_never_matters(num_shards: int) -> None:
    """The loss does not depend on padding.

    Neither the amount of padding after a source matters, nor the target where the label is padding.
    """
    network = tiny(vocabulary_shards=num_shards).instantiate()
    values, given = weights_of(network), batch()
    expected = loss_of(run(network, values, given)[1])
    longer = np.pad(given['source'], [[0, 0], [0, 4]])
    assert loss_of(run(network, values, {**given, 'source': longer})[1]) == pytest.approx(
        expected, rel=ROUNDING)
    other = np.where(given['label'] == 0, 7, given['target'])
    assert loss_of(run(network, values, {**given, 'target': other})[1]) == expected


def test_the_source_matters_up_to_its_padding() -> None:
    network = tiny().instantiate()
    values, given = weights_of(network), batch()
    logits = run(network, values, given)[0]['logits'].numpy()
    for s in range(3):  # all sources have 3 tokens
        changed = given['source'].copy()
        changed[:, s] = changed[:, s] % (V - 1) + 1
        found = run(network, values, {**given, 'source': changed})[0]['logits'].numpy()
        assert not np.any(np.all(found == logits, (1, 2)))


@pytest.mark.parametrize('padding_id', [0, 12])
def test_the_padding_id_is_a_field(padding_id: int) -> None:
    network = tiny(padding_id=padding_id).instantiate()
    given = batch()
    renamed = {name: np.where(ids == 0, padding_id, np.where(ids == padding_id, 0, ids))
               if ids.dtype == np.int32 else ids
               for name, ids in given.items()}
    _, emissions = run(network, weights_of(network), renamed)
    assert float(next(iter(emissions.weights.values()))) == np.sum(given['label'] != 0) == 14


def test_an_example_and_a_token_of_weight_0_count_nothing() -> None:
    network = tiny().instantiate()
    values, given = weights_of(network), batch()
    by_token = (given['label'] != 0).astype(np.float32)
    expected = loss_of(run(network, values, given)[1])
    assert loss_of(run(network, values, {**given, 'weight': by_token})[1]) == expected
    _, emissions = run(network, values, {**given, 'weight': np.array([0, 1, 1, 0], np.float32)})
    assert float(next(iter(emissions.weights.values()))) == by_token[1:3].sum()


# Stability.

def test_the_feed_forward_first_values_are_divided_by_the_depth_of_their_stack() -> None:
    def first_values(is_divided: bool) -> dict[str, tf.Tensor]:
        network = tiny(num_decoder_layers=3, divide_ffn_init_by_depth=is_divided).instantiate()
        return {w.path: w.initial_value(0) for w in network.weights() if '/w' in w.path}
    plain, divided = first_values(False), first_values(True)
    for path, value in plain.items():
        depth = (2 if 'encoder_' in path else 3) if '/ffn/' in path else 1
        np.testing.assert_allclose(divided[path] * depth, value, atol=1e-6, err_msg=path)


@pytest.mark.parametrize('num_shards', [1, 3])
def test_logits_are_clipped_at_the_threshold(num_shards: int) -> None:
    network = tiny(max_abs_logit=0.5, vocabulary_shards=num_shards,
                   label_smoothing=0.).instantiate()
    written, emissions = run(network, weights_of(network), batch())
    if num_shards == 1:
        assert np.max(np.abs(written['logits'])) == 0.5
    else:
        assert np.max(written['softmax']['max']) == 0.5
        assert np.min(written['softmax']['label']) == -0.5
    assert loss_of(emissions) <= 1 + np.log(V)


# Shards.

def whole_to_shards(values: dict[str, tf.Tensor], network: Transformer) -> dict[str, tf.Tensor]:
    """Returns the weights of the plain network, cut up for the one with shards."""
    found = {}
    for layer in network.layers():
        parent, _, name = layer.path.rpartition('/')
        part = slice(None)
        if name.startswith(('softmax_', 'source_embedding_', 'target_embedding_')):
            part = slice(*[V * (layer.params.shard + i) // layer.params.num_shards
                           for i in range(2)])
            name = name.rpartition('_')[0]
        elif name.startswith('ffn_') and name[4:].isdigit():
            part = slice(*[12 * (layer.params.shard + i) // layer.params.num_shards
                           for i in range(2)])
            name = 'ffn'
        path = (f'{parent}/{name}'.replace('/attention/', '/', 1)
                if '/attention/' in layer.path else f'{parent}/{name}')
        for own, weight in layer.own_weights.items():
            value = values[f'{path}/{own}']
            axes = [axis for axis, (a, b) in enumerate(zip(value.shape, weight.shape, strict=True))
                    if a != b]
            found[weight.path] = value[tuple(part if axis in axes else slice(None)
                                             for axis in range(len(value.shape)))]
    return found


SHARDS = [{'vocabulary_shards': 2}, {'vocabulary_shards': 5}, {'feed_forward_shards': 3},
          {'vocabulary_shards': 3, 'feed_forward_shards': 5}]


@pytest.mark.parametrize('tied', ['none', 'embeddings', 'all'])
@pytest.mark.parametrize('shards', SHARDS, ids=str)
def test_shards_change_neither_loss_nor_accuracy_nor_gradients(
        tied: Any, shards: dict[str, int]) -> None:
    fields: dict[str, Any] = {'tied': tied, 'max_abs_logit': 1.5, 'label_smoothing': 0.1}
    whole, split = tiny(**fields).instantiate(), tiny(**fields, **shards).instantiate()
    values, given = weights_of(whole), batch()
    cut = whole_to_shards(values, split)

    assert whole.num_weights == split.num_weights
    metrics = [[float(v) for v in next(iter(run(n, w, given)[1].metrics.values()))]
               for n, w in ((whole, values), (split, cut))]
    assert metrics[0] == metrics[1]

    expected, expected_gradients = losses_and_gradients(whole, values, given)
    found, gradients = losses_and_gradients(split, cut, given)
    assert found == pytest.approx(expected, rel=ROUNDING)
    for path, gradient in whole_to_shards(
            {w.path: tf.constant(expected_gradients[w.shared_with or w.path])
             for w in whole.weights()}, split).items():
        if path in gradients:
            np.testing.assert_allclose(
                gradients[path], gradient, atol=ROUNDING * 10 * (1 + np.max(np.abs(gradient))),
                rtol=0, err_msg=path)


def test_the_first_of_equal_logits_is_the_answer_across_shards() -> None:
    label = np.tile([12, 1, 0, 0, 0], [B, 1]).astype(np.int32)  # padding, wrong, right three times
    for num_shards in (1, 3):
        network = language_model(vocabulary_shards=num_shards, padding_id=12).instantiate()
        zeros = {path: tf.zeros_like(value) for path, value in weights_of(network).items()}
        (right, weight), = run(network, zeros, {**batch(), 'label': label})[1].metrics.values()
        assert (float(right), float(weight)) == (3 * B, 4 * B)


@pytest.mark.parametrize('layer, own', [('softmax', 'w'), ('source_embedding', 'w'),
                                        ('decoder_0/ffn', 'w1'), ('decoder_0/ffn', 'w2')])
def test_first_values_of_shards_have_the_distribution_of_the_whole(layer: str, own: str) -> None:
    def values(num_shards: int) -> np.ndarray:
        network = tiny(vocab_size=3000, model_dim=32, hidden_dim=3000, vocabulary_shards=num_shards,
                       feed_forward_shards=num_shards).instantiate()
        return np.concatenate([w.initial_value(0).numpy().ravel() for w in network.weights()
                               if w.path.startswith(f'model/{layer}')
                               and w.path.endswith(f'/{own}')])
    one, three = values(1), values(3)
    assert one.size == three.size
    assert np.std(three) == pytest.approx(np.std(one), rel=0.01)
    assert np.max(np.abs(three)) == pytest.approx(np.max(np.abs(one)), rel=0.2)


def test_full_logits_are_never_in_one_place() -> None:
    network = tiny(vocab_size=1000, vocabulary_shards=4).instantiate()
    shards = [e for e in wire(network, specs()) if 'softmax' in e.layer.path]
    assert len(shards) == 4
    for e in shards:
        graph = pricing.trace(e.layer,
                              **{argument: value.spec for argument, value in e.reads.items()}).graph
        assert max(t.shape.num_elements() or 0 for op in graph.get_operations()
                   for t in op.outputs) == 250 * B * T


def test_a_large_vocabulary_does_not_unbalance_the_pipeline() -> None:
    def balance(num_shards: int) -> float:
        network = language_model(vocab_size=64_000, model_dim=64, hidden_dim=256,
                                 num_decoder_layers=12, vocabulary_shards=num_shards).instantiate()
        params = PipelineParams(num_cells=4, num_micro_batches=2)
        return make_plan(network, specs(), params,
                         [f'device {k}' for k in range(4)]).forecast.balance
    assert balance(1) < 0.4
    assert balance(16) > 0.85


# Ties.

def test_the_gradient_of_a_tied_table_is_the_sum_of_its_uses() -> None:
    tied, untied = tiny(tied='all').instantiate(), tiny(tied='none').instantiate()
    values, given = weights_of(tied), batch()
    table = values['model/source_embedding/w']
    apart = ({path: tf.identity(values[path]) for path in weights_of(untied)}
             | {'model/softmax/w': tf.transpose(table)})

    (loss, gradients), (expected, apart_gradients) = (losses_and_gradients(tied, values, given),
                                                      losses_and_gradients(untied, apart, given))
    assert loss == pytest.approx(expected, rel=ROUNDING)

    uses = [apart_gradients['model/source_embedding/w'],
            apart_gradients['model/target_embedding/w'], apart_gradients['model/softmax/w'].T]
    assert all(np.any(use) for use in uses)
    np.testing.assert_allclose(gradients['model/source_embedding/w'], sum(uses), atol=1e-5)


# Costs.

@pytest.mark.parametrize('params', [
    tiny(),
    tiny(tied='all', dropout_rate=0.1, attention_dropout_rate=0.1, hidden_dropout_rate=0.1,
         max_abs_logit=5.),
    tiny(tied='embeddings', vocabulary_shards=3, feed_forward_shards=2, dropout_rate=0.1,
         target_word_dropout_rate=0.2),
    tiny(positions='learned', max_length=8, activation='gelu', dtype='bfloat16'),
    language_model(vocabulary_shards=2),
    tiny(num_encoder_layers=1, num_decoder_layers=1, adapters=Adapters(rank=2))],
    ids=['plain', 'tied', 'shards', 'bfloat16', 'language model', 'adapters'])
def test_every_layer_costs_what_its_graph_does(params: Transformer.Params) -> None:
    for e in wire(params.instantiate(), specs()):
        traced = pricing.traced_cost(
            e.layer, **{argument: value.spec for argument, value in e.reads.items()})
        assert e.cost.flops == pytest.approx(traced.flops, rel=0.05), e.layer.path
        assert e.cost.num_weights == traced.num_weights, e.layer.path


# The pipeline.

def trained(**fields: Any) -> Transformer.Params:
    dropout = {f'{what}dropout_rate': 0.1
               for what in ('', 'attention_', 'hidden_', 'source_word_', 'target_word_')}
    return tiny(**{'num_encoder_layers': 1, 'num_decoder_layers': 1, 'max_abs_logit': 5.,
                   'divide_ffn_init_by_depth': True, **dropout, **fields})


@functools.cache
def train(fields: tuple[tuple[str, Any], ...], num_cells: int, recompute: Any = 'cell',
          num_steps: int = 3) -> dict[str, np.ndarray]:
    """Returns the weights after some steps with momentum."""
    learner = Learner.Params(optimizer=optimizers.SGD.Params(momentum=0.9),
                             learning_rate=learning_rates.Constant.Params(rate=0.1), clip_norm=1.)
    task = translator(trained(**dict(fields)), learner).instantiate()
    pipeline = PipelineParams(num_cells=num_cells, num_micro_batches=2, recompute=recompute)
    program = Program(task.network, specs(), pipeline, task.learner)
    for step in range(num_steps):
        assert bool(program.train_step(batch(step), step)['is_finite'])
    return {path: variable.numpy() for path, variable in program.weights.items()}


BFLOAT16 = (('dtype', 'bfloat16'),)
# Only in shards of the feed-forward layer is there dropout: graphs with more take long to build,
# and the plain network has it everywhere.
SHARDED = (('tied', 'all'), ('vocabulary_shards', 2), ('feed_forward_shards', 2),
           ('dropout_rate', 0.), ('attention_dropout_rate', 0.), ('source_word_dropout_rate', 0.),
           ('target_word_dropout_rate', 0.))


@pytest.mark.parametrize('fields, num_cells, recompute',
                         [((), 4, 'none'), (SHARDED, 4, 'cell'), (BFLOAT16, 2, 'cell')],
                         ids=['plain, 4', 'tied shards, 4', 'bfloat16, 2'])
def test_the_number_of_cells_changes_no_bit(fields: Any, num_cells: int, recompute: str) -> None:
    one, found = train(fields, 1), train(fields, num_cells, recompute)
    assert one.keys() == found.keys()
    assert [path for path in one if not np.array_equal(one[path], found[path])] == []


def test_adapters_alone_train_and_to_the_same_bit_in_two_cells() -> None:
    """Also those of a feed-forward part in shards, each of which has its own."""
    network = language_model(num_decoder_layers=1, tied='all', dropout_rate=0.1,
                             feed_forward_shards=2,
                             adapters=Adapters(rank=2, dropout_rate=0.1, targets=('wk', 'w2')))
    learner = Learner.Params(optimizer=optimizers.SGD.Params(),
                             learning_rate=learning_rates.Constant.Params(rate=0.1))
    given = {name: value for name, value in batch().items() if name != 'source'}
    before: dict[str, np.ndarray] = {}
    after = []
    for num_cells in (1, 2):
        program = Program(network.instantiate('model'),
                          {name: tf.TensorSpec(v.shape, v.dtype) for name, v in given.items()},
                          PipelineParams(num_cells=num_cells, num_micro_batches=2),
                          learner.instantiate())
        before = {path: variable.numpy() for path, variable in program.weights.items()}
        for step in range(2):   # In the first one, b is 0, so that a has no gradient.
            program.train_step(given, step)
        after.append({path: variable.numpy() for path, variable in program.weights.items()})
    one, two = after
    changed = {path for path in before if not np.array_equal(before[path], one[path])}
    assert changed == {path for path in before if '_adapter/' in path}
    assert {path.removeprefix('model/decoder_0/') for path in changed} == {
        f'{weight}_adapter/{matrix}' for matrix in 'ab'
        for weight in ('attention/attention/wk', 'ffn_0/w2', 'ffn_1/w2')}
    assert [path for path in one if not np.array_equal(one[path], two[path])] == []


def test_activations_of_bfloat16_learn_what_those_of_float32_do() -> None:
    exact, rounded = (train(fields, 1) for fields in ((), BFLOAT16))
    first = {w.path: w.initial_value(0).numpy() for w in trained().instantiate('model').weights()}
    moved, other = (np.concatenate([(found[path] - first[path]).ravel() for path in sorted(first)])
                    for found in (exact, rounded))
    assert not np.array_equal(moved, other)
    assert np.dot(moved, other) > 0.95 * np.linalg.norm(moved) * np.linalg.norm(other)


def test_encoder_is_sent_once_to_each_device_that_reads_it_and_its_gradient_from_one_to_the_next(
        ) -> None:
    learner = Learner.Params(optimizer=optimizers.SGD.Params(),
                             learning_rate=learning_rates.Constant.Params(rate=0.1))
    task = translator(tiny(num_encoder_layers=1, num_decoder_layers=4), learner).instantiate()
    names = [layer.params.name for layer in task.network.elements()]
    starts = [0, *(names.index(f'decoder_{i}') for i in (0, 1, 3)), len(names)]
    counts = tuple(b - a for a, b in itertools.pairwise(starts))
    program = Program(task.network, specs(),
                      PipelineParams(num_cells=4, num_micro_batches=2, layers_per_cell=counts),
                      task.learner)

    encoded, x, mask = B * S * D * 4, B * T * D * 4, B * S
    # The encoder's output (and its gradient back) and its mask go to three cells; x (and its
    # gradient back) goes to the next of four cells.
    sent = program.sent_bytes()
    assert (sent.values, sent.gradients) == (3 * encoded + 3 * mask + 3 * x, 3 * encoded + 3 * x)


def test_variables_are_as_many_as_params_say_and_all_of_them_train() -> None:
    network = trained().instantiate('model')
    values = train((), 1)
    assert sum(value.size for value in values.values()) == network.num_weights == 2_145
    untouched = [w.path for w in network.weights()
                 if np.array_equal(values[w.path], w.initial_value(0))]
    assert untouched == []


def test_the_recipe_is_vaswani_s() -> None:
    rate = translation_learner(model_dim=512, warmup_steps=4000).instantiate().learning_rate
    for step in (0, 99, 3999, 99_999):
        assert float(rate(step)) == pytest.approx(
            512 ** -0.5 * min((step + 1) ** -0.5, (step + 1) * 4000 ** -1.5), rel=1e-5)


# Errors.

@pytest.mark.parametrize('fields, sentence', [
    ({'num_decoder_layers': 0}, 'num_decoder_layers=0 is below 1; use 1 to 10000'),
    ({'vocabulary_shards': 0}, 'vocabulary_shards=0 is below 1; use 1 to 10000'),
    ({'num_encoder_layers': 0, 'tied': 'embeddings'},
     "tied='embeddings', but without encoder layers there is one embedding only"),
    ({'vocabulary_shards': 14}, 'model/source_embedding_0: num_shards=14 is more than '
                                'vocab_size=13, so that a shard would be empty'),
    ({'adapters': Adapters(targets=('w_up',))},
     r"adapters\.targets has 'w_up', but the projections of this Transformer are wq, wk, wv, wo"),
    ({'label_smoothing': 1.}, 'label_smoothing=1.0 is not below 1; use 0 or more and less than 1'),
    ({'layers': (translator(tiny(), Learner.Params()).model,)},
     'Transformer.Params.layers is made from the other fields; leave it empty'),
])
def test_wrong_fields_are_refused(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        tiny(**fields).instantiate('model')


def test_a_weight_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r'token_weight: weight is \(4, 3\), but what it weighs is '
                                         r'\(4, 5\): .* be \(4,\) or \(4, 5\)'):
        wire(tiny().instantiate(), {**specs(), 'weight': tf.TensorSpec([B, 3])})


def test_logits_are_the_outputs_and_a_softmax_in_shards_has_none():
    """An export had the mask of the labels, and asked for labels."""
    assert tiny().instantiate().output_names() == ('logits',)
    with pytest.raises(ValueError, match='vocabulary_shards=2 of model makes no logits, which '):
        tiny(vocabulary_shards=2).instantiate().output_names()
