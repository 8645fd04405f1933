"""Low rank: what an adapter computes, what trains then, and what is refused."""
from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.hyperparams import ParamsError, field
from lingpipe.layers import (
    Dense,
    FeedForward,
    GroupedQueryAttention,
    MeanSquaredErrorLoss,
    PreNorm,
    Sequential,
    SwiGLU,
)
from lingpipe.layers.context import Context
from lingpipe.layers.low_rank import (
    Adaptable,
    Adapters,
    adapter_facts,
    adapters_of,
    freeze_all_but_adapters,
    scales_of,
)
from lingpipe.layers.nested import NestedMap
from lingpipe.learning import learning_rates, optimizers
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.planning.pipeline_params import PipelineParams

SPEC = {name: tf.TensorSpec([8, 6]) for name in ('x', 'target')}


def test_an_adapter_adds_the_formula_and_nothing_at_first() -> None:
    plain = Dense.Params(name='dense', input_dim=5, units=4).instantiate('dense')
    adapted = plain.params.copy().set(adapters=Adapters(rank=2, alpha=3.)).instantiate('dense')
    rng = np.random.default_rng(0)
    x = tf.constant(rng.normal(size=[2, 3, 5]), tf.float32)
    theta = adapted.initial_theta(7)
    np.testing.assert_array_equal(adapted.fprop(theta, Context(True), x),
                                  plain.fprop(plain.initial_theta(7), Context(True), x))
    assert np.ptp(theta.w_adapter.a) > 0

    theta.w_adapter.b = tf.constant(rng.normal(size=[2, 4]), tf.float32)
    expected = x @ theta.w + 3 / 2 * (x.numpy() @ theta.w_adapter.a.numpy()
                                      @ theta.w_adapter.b.numpy())
    np.testing.assert_allclose(adapted.fprop(theta, Context(), x), expected, atol=1e-5)


def test_adapters_alone_train_of_their_layer() -> None:
    layer = PreNorm.Params(dim=8, body=GroupedQueryAttention.Params(
        input_dim=8, num_heads=4, num_groups=2, biases='all',
        adapters=Adapters(rank=2, targets=('wv', 'wo')))).instantiate('model')
    of_body = {f'model/body/{name}_adapter/{matrix}' for name in ('wv', 'wo') for matrix in 'ab'}
    trained = {weight.path for weight in layer.weights() if weight.is_trainable}
    assert trained == of_body | {'model/norm/scale'}
    assert [path for path, _ in adapters_of(layer)] == ['model/body/wv', 'model/body/wo']
    assert scales_of(layer) == {'model/body/wv': 8., 'model/body/wo': 8.}
    freeze_all_but_adapters(layer)
    assert {weight.path for weight in layer.weights() if weight.is_trainable} == of_body
    assert layer.num_weights == (8 + 4) * 2 + (8 + 8) * 2


def test_what_is_kept_beside_weights_says_which_of_those_with_adapters_are_tied() -> None:
    sizes: dict[str, Any] = {'input_dim': 6, 'units': 6}
    tied = Dense.Params(name='b', share={'w': 'model/a/w'}, adapters=Adapters(rank=4), **sizes)
    plain = Dense.Params(name='a', **sizes)
    network = Sequential.Params(name='model', layers=(plain, tied)).instantiate('model')
    assert adapter_facts(network) == {'adapter_scales': {'model/b/w': 4.},
                                      'tied_adapters': {'model/b/w': 'model/a/w'}}
    assert adapter_facts(plain.instantiate('model/a')) == {}


def program_of(num_cells: int = 1, **pipeline: Any) -> Program:
    """A network of which two layers have adapters and the last trains as it is."""
    adapters = Adapters(rank=2, dropout_rate=0.3)
    sizes: dict[str, Any] = {'input_dim': 6, 'units': 6, 'activation': 'tanh'}
    network = Sequential.Params(name='model', layers=(
        *(Dense.Params(name=name, adapters=adapters.copy(), **sizes) for name in 'ab'),
        Dense.Params(name='head', **sizes), MeanSquaredErrorLoss.Params(name='loss')))
    learner = Learner.Params(optimizer=optimizers.Adam.Params(), ema_decay=0.9,
                             learning_rate=learning_rates.Constant.Params(rate=0.1))
    return Program(network.instantiate('model'), SPEC,
                   PipelineParams(num_cells=num_cells, num_micro_batches=2, **pipeline),
                   learner.instantiate(), seed=3)


def trained(program: Program) -> dict[str, bytes]:
    rng = np.random.default_rng(0)
    for step in range(3):
        program.train_step({name: tf.constant(rng.normal(size=spec.shape), tf.float32)
                            for name, spec in SPEC.items()}, step)
    return {key: variable.numpy().tobytes() for key, variable in program.variables().items()}


@functools.cache
def trained_in_one_cell() -> dict[str, bytes]:
    return trained(program_of())


@pytest.mark.parametrize(('num_cells', 'pipeline'), [
    (3, {'recompute': 'none'}), (3, {'recompute': 'layer'}), (2, {'schedule': 'gpipe'}),
    (2, {'schedule': 'zb_h1', 'recompute': 'none'})])
def test_cells_schedules_and_recomputation_change_no_bit(
        num_cells: int, pipeline: dict[str, Any]) -> None:
    assert trained(program_of(num_cells, **pipeline)) == trained_in_one_cell()


def test_a_frozen_weight_stays_and_has_no_slot_no_average_and_no_forecast_of_them() -> None:
    program = program_of()
    before = {path: weight.numpy() for path, weight in program.weights.items()}
    keys = trained(program)
    frozen = {f'model/{layer}/{name}' for layer in 'ab' for name in 'wb'}
    assert {path for path, value in before.items()
            if np.array_equal(program.weights[path].numpy(), value)} == frozen
    assert {path for path in before for key in keys
            if key.startswith(('ema/', 'optimizer/')) and f'{path}/' in f'{key}/'
            } == set(before) - frozen
    sizes = {path: value.size for path, value in before.items()}
    num_trained = sum(size for path, size in sizes.items() if path not in frozen)
    # A weight of 4 bytes; and where it trains its gradient, two slots and its average.
    assert program.plan.forecast.footprints[0].fixed == (
        4 * sum(sizes.values()) + 16 * num_trained)


@pytest.mark.parametrize('layer, projections', [
    (Dense.Params(input_dim=8, units=6), 'Dense are w'),
    (FeedForward.Params(input_dim=8, hidden_dim=6), 'FeedForward are w1, w2'),
    (SwiGLU.Params(input_dim=8, hidden_dim=6), 'SwiGLU are w_gate, w_up, w_down')])
def test_adapters_of_what_the_layer_lacks_are_refused(layer: Any, projections: str) -> None:
    """Layers that can be shards took any name, and nothing of them trained."""
    with pytest.raises(ParamsError, match=r"adapters\.targets has 'wq', but the projections of "
                                          f'{projections}; name some of these, or none for all'):
        layer.copy().set(adapters=Adapters(targets=('wq',))).instantiate()


class Projected(Adaptable):
    """x @ w, of a class that may name another projection."""
    projections = ('w',)

    class Params(Adaptable.Params):
        shape: tuple[int, ...] = field((6, 6), 'The shape of w.')

    def __init__(self, params: Params, path: str = ''):
        super().__init__(params, path)
        self.add_weight('w', params.shape)

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor) -> tf.Tensor:
        return self.project(theta, ctx, x, 'w')


class Misspelt(Projected):
    projections = ('kernel',)


def test_a_layer_of_ones_own_names_its_matrices() -> None:
    """One that misspelt them trained nothing, and said nothing."""
    def run(layer: type[Projected], **fields: Any) -> None:
        made = layer.Params(name='model', **fields).instantiate('model')
        made.fprop(made.initial_theta(), Context(), tf.ones([2, 6]))

    run(Projected, adapters=Adapters(rank=2))
    run(Misspelt)
    with pytest.raises(ValueError, match=r"^model: fprop projects by 'w', which Misspelt\.project"
                                         r"ions = \('kernel',\) does not name, so that it has no "):
        run(Misspelt, adapters=Adapters(rank=2))
    with pytest.raises(ValueError, match=r'^model/w \[6, 2, 3\] is named in projections, but an'):
        run(Projected, adapters=Adapters(rank=2), shape=(6, 2, 3))


def test_a_rank_is_refused_that_no_matrix_of_the_shape_has() -> None:
    with pytest.raises(ParamsError, match=r'rank=0 is below 1; use 1 or more'):
        Adapters(rank=0)
    with pytest.raises(ValueError, match=r'^model/w \[8, 6\] has adapters of rank=7, but no matrix '
                                         r'of this shape has a rank above 6; use at most 6, or '
                                         r'leave it out of adapters\.targets\.$'):
        Dense.Params(input_dim=8, units=6, adapters=Adapters(rank=7)).instantiate('model')
