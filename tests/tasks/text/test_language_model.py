"""The language model has LLaMA's counts, and neither cuts nor shards change it."""
from __future__ import annotations

import math
import pathlib
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe import layers as lib
from lingpipe.api.start import start
from lingpipe.input import ArrayInput
from lingpipe.layers.base import Layer
from lingpipe.layers.context import Context
from lingpipe.layers.low_rank import Adapters
from lingpipe.layers.nested import NestedMap
from lingpipe.learning import learning_rates, optimizers
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.tasks.text.language_model import LanguageModel
from lingpipe.tasks.text.task import Text, language_learner, language_problem
from lingpipe.training import registry
from lingpipe.training.experiment import Experiment
from lingpipe.training.train_params import TrainParams

V, T, B = 13, 6, 4


def tiny(**fields: Any) -> LanguageModel.Params:
    return LanguageModel.Params(**{'name': 'model', 'vocab_size': V, 'num_layers': 2,
                                   'model_dim': 8, 'hidden_dim': 6, 'num_heads': 4,
                                   'num_groups': 2, 'block_size': 4} | fields)


def batch(seed: int = 0) -> dict[str, np.ndarray]:
    ids = np.random.default_rng(seed).integers(0, V, [B, T + 1]).astype(np.int32)
    positions = np.tile(np.array([0, 1, 2, 0, 1, 2], np.int32), [B, 1])
    weight = np.ones([B, T], np.float32)
    weight[0, 3:] = 0
    return {'target': ids[:, :-1], 'label': ids[:, 1:], 'weight': weight, 'positions': positions,
            'documents': np.repeat([[0, 1]], 3, 1) + np.zeros([B, 1], np.int32),
            'bytes': np.full([B, T], 3, np.float32)}


def specs() -> dict[str, tf.TensorSpec]:
    return {name: tf.TensorSpec(value.shape, value.dtype) for name, value in batch().items()}


def run(network: LanguageModel, theta: Any, ctx: Context, given: dict[str, np.ndarray]) -> Any:
    return network.fprop(theta, ctx, **{name: tf.constant(value) for name, value in given.items()})


@pytest.mark.parametrize('name, num_weights', [
    ('G1B3', 1_345_423_360), ('G7B', 6_738_415_616), ('G70B', 68_976_648_192)])
def test_large_models_have_the_counts_of_llama_2(name: str, num_weights: int) -> None:
    params = registry.get(f'text.sizes.{name}').task.model
    assert params.instantiate('model').num_weights == num_weights


@pytest.mark.parametrize('fields, words', [
    ({'family': 'gpt2'}, "num_positions=0 with family='gpt2', but gpt2 learns 1 or more positions"),
    ({'num_positions': 9}, "num_positions=9 with family='llama', but gpt2 learns 1 or more"),
    ({'family': 'gpt2', 'num_positions': 9, 'num_experts': 2},
     "num_experts=2 with family='gpt2', but only llama has experts, rotary positions, gates and"),
    ({'family': 'gpt2', 'num_positions': 9, 'gate': 'gelu_tanh', 'is_zero_centered': True},
     "gate='gelu_tanh', is_zero_centered=True with family='gpt2', but only llama has"),
    ({'gate': 'gelu_tanh', 'num_experts': 2}, "gate='gelu_tanh' with num_experts=2, but experts"),
    ({'unrotated_layers': (1, 0)}, 'unrotated_layers=(1, 0), but they name some of the layers'),
    ({'window_rotary_base': 5e4}, 'window_rotary_base=50000 without a window, but it is the base'),
    ({'family': 'gpt2', 'num_positions': 9, 'rotary_base': 5e5, 'rotary_scaling.factor': 8.},
     "rotary_base=500000, rotary_scaling.factor=8 with family='gpt2', but only llama has")])
def test_parts_of_two_families_are_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError) as error:
        tiny(**fields).validate()
    assert words in str(error.value)


def test_a_tied_table_counts_once() -> None:
    counts = [tiny(is_tied=is_tied).instantiate().num_weights for is_tied in (False, True)]
    assert counts[0] - counts[1] == V * 8


@pytest.mark.parametrize('is_tied', [False, True])
def test_shards_of_the_vocabulary_change_nothing_but_rounding(is_tied: bool) -> None:
    rng = np.random.default_rng(0)
    embedding, softmax = rng.normal(size=[2, V, 8]).astype(np.float32)

    def loss(num_shards: int) -> float:
        network = tiny(vocabulary_shards=num_shards, is_tied=is_tied).instantiate()
        values = {weight.path: weight.initial_value(0) for weight in network.weights()}
        for shard in range(num_shards):
            rows = slice(V * shard // num_shards, V * (shard + 1) // num_shards)
            suffix = f'_{shard}' if num_shards > 1 else ''
            values[f'model/embedding{suffix}/w'] = tf.constant(embedding[rows])
            values[f'model/softmax{suffix}/w'] = tf.constant(
                embedding[rows] if is_tied else softmax[rows].T)
        ctx = Context()
        run(network, network.theta(values), ctx, batch())
        (value,), (weight_sum,) = ctx.emissions.losses.values(), ctx.emissions.weights.values()
        return float(value / weight_sum)

    assert loss(3) == pytest.approx(loss(1), rel=1e-5)


def test_one_document_does_not_see_another() -> None:
    network = tiny().instantiate()
    given, theta = batch(), network.initial_theta()
    logits = run(network, theta, Context(), given)['logits'].numpy()
    given['target'][:, :3] = (given['target'][:, :3] + 1) % V
    changed = run(network, theta, Context(), given)['logits'].numpy()
    np.testing.assert_array_equal(changed[:, 3:], logits[:, 3:])
    assert not np.any(changed[:, :3] == logits[:, :3])


ADAPTERS = Adapters(rank=2, dropout_rate=0.2)


@pytest.mark.parametrize('fields', [
    {'num_layers': 1, 'num_experts': 3, 'is_tied': True},
    {'num_layers': 2, 'num_experts': 3, 'window': 2, 'full_layers': (1,), 'vocabulary_shards': 2,
     'adapters': ADAPTERS, 'capacity_factor': 0.}], ids=['experts', 'adapters, window, shards'])
def test_experts_adapters_windows_and_documents_train_to_the_same_bit_in_one_cell_and_in_two(
        fields: dict[str, Any]) -> None:
    def weights(num_cells: int) -> dict[str, np.ndarray]:
        model = tiny(**fields)
        learner = Learner.Params(optimizer=optimizers.SGD.Params(momentum=0.9),
                                 learning_rate=learning_rates.Constant.Params(rate=0.1))
        problem = language_problem(model, learner).instantiate()
        program = Program(problem.network, specs(),
                          PipelineParams(num_cells=num_cells, num_micro_batches=2),
                          problem.learner,
                          devices=[f'/device:CPU:{k}' for k in range(num_cells)])
        for step in range(2):
            program.train_step(batch(step), step)
        return {path: variable.numpy() for path, variable in program.variables().items()}

    one, two = weights(1), weights(2)
    for path, value in one.items():
        np.testing.assert_array_equal(two[path], value, err_msg=path)


def test_flags_give_a_network_adapters_and_its_text_keeps_them() -> None:
    by_flags = language_problem(tiny(), language_learner(0.1, 10, warmup_steps=1)).override_all([
        'model.adapters=lingpipe.layers.low_rank:Adapters', 'model.adapters.rank=2',
        'model.adapters.targets=[wq, w_up]'])
    assert by_flags == language_problem(tiny(adapters=Adapters(rank=2, targets=('wq', 'w_up'))),
                                        language_learner(0.1, 10, warmup_steps=1))
    assert Text.Params.from_text(by_flags.to_text()) == by_flags


@pytest.mark.parametrize('capacity_factor', [1.25, 0.])
def test_two_cells_take_the_gradient_of_loss_and_auxiliary_loss_that_a_plain_tape_takes(
        capacity_factor: float) -> None:
    model = tiny(num_layers=1, num_experts=3, num_chosen=2, balance=0.5, has_bytes=False,
                 capacity_factor=capacity_factor)
    learner = Learner.Params(optimizer=optimizers.SGD.Params(),
                             learning_rate=learning_rates.Constant.Params(rate=1.))
    given = {name: value for name, value in batch().items() if name != 'bytes'}
    program = Program(model.instantiate('model'),
                      {name: spec for name, spec in specs().items() if name != 'bytes'},
                      PipelineParams(num_cells=2, num_micro_batches=2), learner.instantiate(),
                      devices=['/device:CPU:0', '/device:CPU:1'])
    before = {path: tf.constant(variable.numpy()) for path, variable in program.weights.items()}

    with tf.GradientTape() as tape:
        tape.watch(before)
        ctx = Context(training=True)
        run(program.network, program.network.theta(before), ctx, given)
        (weight_sum,) = ctx.emissions.weights.values()
        total = sum(ctx.emissions.losses.values()) / weight_sum
    gradients = tape.gradient(total, before)
    assert len(ctx.emissions.losses) == 2
    step = program.train_step(given, 0)
    np.testing.assert_allclose(step['loss'], total, rtol=1e-5)
    for path, variable in program.weights.items():
        expected = before[path] - tf.convert_to_tensor(gradients[path])
        np.testing.assert_allclose(variable, expected, atol=1e-6, err_msg=path)


def test_perplexity_and_bits_per_byte_follow_from_the_loss() -> None:
    problem = language_problem(tiny(), language_learner(0.01, 10, warmup_steps=1)).instantiate()
    assert problem.derived_metrics({'loss': math.log(8), 'bytes_per_token': 2.}) == pytest.approx(
        {'perplexity': 8, 'bits_per_byte': 1.5})


@pytest.mark.parametrize('fields', [{'label_smoothing': 0.1}, {'scale': 2.}])
def test_a_loss_that_is_not_the_cross_entropy_has_no_perplexity(fields: dict[str, float]) -> None:
    """With label smoothing, exp(loss) was reported as the perplexity."""
    softmax = lib.Logits.Params(name='softmax', input_dim=4, vocab_size=V)
    loss = lib.CrossEntropyLoss.Params(name='loss', reads={'labels': 'label'}, **fields)
    problem = Text.Params(model=lib.Sequential.Params(layers=(softmax, loss)),
                          learner=language_learner(0.01, 10, warmup_steps=1)).instantiate()
    assert problem.derived_metrics({'loss': math.log(8), 'bytes_per_token': 2.}) == {}


def test_a_best_metric_that_is_not_measured_is_refused_with_the_reason(
        tmp_path: pathlib.Path) -> None:
    """A run of before that was resumed was told that there is no perplexity, and not why."""
    ids = np.random.default_rng(0).integers(0, V, [8, T]).astype(np.int32)
    source = ArrayInput.of({'ids': ids, 'label': ids, 'weight': np.ones([8, T], np.float32)},
                           batch_size=B)
    layers = (lib.Embedding.Params(name='table', vocab_size=V, dim=4, reads={'ids': 'ids'}),
              lib.Logits.Params(name='softmax', input_dim=4, vocab_size=V),
              lib.CrossEntropyLoss.Params(name='loss', reads={'labels': 'label'},
                                          label_smoothing=0.1))
    task = Text.Params(model=lib.Sequential.Params(name='model', layers=layers),
                       learner=language_learner(0.01, 10, warmup_steps=1), best_metric='perplexity')
    experiment = Experiment.Params(
        task=task, train_input=source, train=TrainParams(num_steps=1),
        eval_inputs={'test': source.copy().set(shuffle=False, num_epochs=1)})
    with start(experiment, logdir=tmp_path) as run, pytest.raises(
            ValueError, match=r"task\.best_metric='perplexity' is not among the metrics of test: "
                              r'loss.* \(perplexity is measured only where the loss is the cross-'
                              r'entropy alone, without label smoothing, .*\); name one of them'):
        run.train()
    assert task.instantiate().why_not_measured('accuracy') == ''


class ZLoss(Layer):
    """A loss that is no Loss: the squared logarithm of the softmax's denominator."""

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor, weight: tf.Tensor) -> None:
        squares = tf.square(tf.reduce_logsumexp(x, -1))
        ctx.emit_loss(self.path, 'z', tf.reduce_sum(weight * squares), tf.reduce_sum(weight))


def test_a_second_loss_or_one_of_a_layer_of_ones_own_leaves_no_perplexity() -> None:
    """exp(loss) was reported, of the sum of a cross-entropy and a z-loss: 459 billion."""
    problem = language_problem(tiny(), language_learner(0.01, 10, warmup_steps=1)).instantiate()
    assert problem.derived_metrics({'loss': 3., 'loss/model/loss/loss': 1., 'loss/model/z/z': 2.,
                                    'bytes_per_token': 2.}) == {}
    softmax = lib.Logits.Params(name='softmax', input_dim=4, vocab_size=V)
    own = ZLoss.Params(name='alone', writes={})
    problem = Text.Params(model=lib.Sequential.Params(layers=(softmax, own)),
                          learner=language_learner(0.01, 10, warmup_steps=1)).instantiate()
    assert problem.derived_metrics({'loss': 1., 'bytes_per_token': 2.}) == {}
