"""Weights of losses: one rule, compared with NumPy.

It holds for single losses and for pipelines, in training and in evaluations with padding.
"""
from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe import layers
from lingpipe.hyperparams import field
from lingpipe.input import ArrayInput
from lingpipe.layers.context import Context
from lingpipe.layers.nested import NestedMap
from lingpipe.layers.sequential import Sequential
from lingpipe.learning import learning_rates, optimizers
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.training.evaluation import Evaluations

B, T, C = 8, 3, 4
LOSS_TOLERANCE = 1e-5  # The error of float32 sums of a hundred numbers.
RNG = np.random.default_rng(0)
X, TARGET = (RNG.normal(size=[10, T, C]).astype(np.float32) for _ in range(2))
LABELS = RNG.integers(0, C, [10, T]).astype(np.int32)
WEIGHTS = {rank: RNG.choice([0., .5, 1., 2.], [10, T, C][:rank]).astype(np.float32)
           for rank in (1, 2, 3)}


def squares(x: np.ndarray, target: np.ndarray) -> np.ndarray:
    return (x.astype(np.float64) - target) ** 2


def cross_entropies(x: np.ndarray, labels: np.ndarray) -> np.ndarray:
    log_p = x - np.log(np.exp(x.astype(np.float64)).sum(-1, keepdims=True))
    return -np.take_along_axis(log_p, labels[..., np.newaxis], -1)[..., 0]


def weighted(values: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """Returns (sum of weighted values, sum of weights).

    Each weight counts once for every value below its dimensions.
    """
    by_value = np.broadcast_to(weight.reshape([*weight.shape, *[1] * (values.ndim - weight.ndim)]),
                               values.shape)
    return float((values * by_value).sum()), float(by_value.sum())


def emitted(params: Any, **inputs: Any) -> tuple[float, float]:
    ctx = Context(training=True)
    params.instantiate('loss').fprop(NestedMap(), ctx,
                                     **{name: tf.constant(value) for name, value in inputs.items()})
    return float(ctx.emissions.losses['loss', 'loss']), float(ctx.emissions.weights['loss', 'loss'])


@pytest.mark.parametrize('rank', [1, 2, 3])
@pytest.mark.parametrize('dtype', [np.float32, np.float64, np.uint8])
def test_a_weight_applies_to_every_element_below_its_dimensions(rank: int, dtype: Any) -> None:
    weight = WEIGHTS[rank].astype(dtype)
    found = emitted(layers.MeanSquaredErrorLoss.Params(), x=X, target=TARGET, weight=weight)
    assert found == pytest.approx(weighted(squares(X, TARGET), weight), rel=LOSS_TOLERANCE)


@pytest.mark.parametrize('rank', [1, 2])
def test_a_weight_applies_to_every_row_below_its_dimensions(rank: int) -> None:
    found = emitted(layers.CrossEntropyLoss.Params(), x=X, labels=LABELS, weight=WEIGHTS[rank])
    assert found == pytest.approx(weighted(cross_entropies(X, LABELS), WEIGHTS[rank]),
                                  rel=LOSS_TOLERANCE)


@pytest.mark.parametrize(('shape', 'fitting'),
                         [((3,), r'\(10,\), \(10, 3\) or \(10, 3, 4\)'),
                          ((10, 1), r'\(10,\), \(10, 3\) or \(10, 3, 4\)'),
                          ((10, 3, 4, 1), r'\(10,\), \(10, 3\) or \(10, 3, 4\)'),
                          ((), r'\(10,\), \(10, 3\) or \(10, 3, 4\)')])
def test_a_weight_that_does_not_fit_is_refused_by_shape(
        shape: tuple[int, ...], fitting: str) -> None:
    with pytest.raises(ValueError, match=rf'loss: weight is .*, but what it weighs is \(10, 3, '
                                         rf'4\): a weight has the first dimensions of what it '
                                         rf'weighs .* so it must be {fitting}; correct the input'):
        emitted(layers.MeanSquaredErrorLoss.Params(), x=X, target=TARGET,
                weight=np.ones(shape, np.float32))


def test_a_weight_of_classes_is_refused_where_rows_are_weighed() -> None:
    with pytest.raises(ValueError, match=r'loss: weight is \(10, 3, 4\), but what it weighs is '
                                         r'\(10, 3\): .* must be \(10,\) or \(10, 3\)'):
        emitted(layers.CrossEntropyLoss.Params(), x=X, labels=LABELS, weight=WEIGHTS[3])


# In a pipeline: no loss names the mini-batch's `weight`, and all use it.

class Examples(ArrayInput):
    """Ten examples with weights of a given rank.

    In batches of 8, the last six examples of the second batch are padding.
    """

    class Params(ArrayInput.Params):
        rank: int = field(1, 'Dimensions of the weights.')

    params: Params

    def load(self) -> dict[str, np.ndarray]:
        return {'x': X, 'target': TARGET, 'labels': LABELS, 'weight': WEIGHTS[self.params.rank]}


def network(rank: int) -> Sequential:
    rows = (
        layers.CrossEntropyLoss.Params(name='rows', is_auxiliary=True),
        layers.SoftmaxShard.Params(name='shard', input_dim=C, vocab_size=C),
        layers.StreamedCrossEntropyLoss.Params(name='streamed', vocab_size=C, is_auxiliary=True))
    return Sequential.Params(name='model', layers=(
        layers.Dense.Params(name='dense', input_dim=C, units=C), *rows[:0 if rank == 3 else None],
        layers.MeanSquaredErrorLoss.Params(name='squares', scale=2.))).instantiate('model')


def expected(weights: dict[str, np.ndarray], rank: int, num_examples: int) -> dict[str, float]:
    """Computes the results of the first examples with NumPy, without padding."""
    some = slice(num_examples)
    x, weight = X[some] @ weights['model/dense/w'] + weights['model/dense/b'], WEIGHTS[rank][some]
    total, num_weights = weighted(squares(x, TARGET[some]), weight)
    found = {'squares': 2 * total}
    if rank < 3:
        logits = x @ weights['model/shard/w'] + weights['model/shard/b']
        found |= {'rows': weighted(cross_entropies(x, LABELS[some]), weight)[0],
                  'streamed': weighted(cross_entropies(logits, LABELS[some]), weight)[0]}
    return {'loss': sum(found.values()) / num_weights,
            **{f'loss/model/{name}/loss': value / num_weights
               for name, value in found.items() if rank < 3}}


@pytest.mark.parametrize(('rank', 'num_cells', 'num_micro_batches'), [
    (1, 1, 1), (1, 2, 4), (2, 2, 4), (3, 2, 4)])
def test_every_loss_uses_the_weights_of_the_mini_batch(
        rank: int, num_cells: int, num_micro_batches: int) -> None:
    """Ten examples in batches of 8 gave a loss of 55.463 instead of 13.789.

    Padding counted unless Params.reads named the weight.
    """
    source = Examples.Params(batch_size=B, shuffle=False, rank=rank).instantiate()
    learner = Learner.Params(optimizer=optimizers.SGD.Params(),
                             learning_rate=learning_rates.Constant.Params(rate=0.1)).instantiate()
    params = PipelineParams(num_cells=num_cells, num_micro_batches=num_micro_batches)
    program = Program(network(rank), source.spec(), params, learner)

    wanted = expected({path: variable.numpy() for path, variable in program.weights.items()}, rank,
                      B)
    results = {name: float(value)
               for name, value in program.train_step(next(source.batches()), 0).items()}
    assert {name: results[name] for name in wanted} == pytest.approx(wanted, rel=LOSS_TOLERANCE)

    padded = Examples.Params(batch_size=B, shuffle=False, num_epochs=1, rank=rank).instantiate()
    task = types.SimpleNamespace(review=lambda source: None,
                                 derived_metrics=lambda metrics: {})
    # Evaluations uses nothing else of a task.
    evaluation = Evaluations(
        program, {'test': padded}, task, '').run('test')  # type: ignore[arg-type]
    wanted = expected({path: variable.numpy() for path, variable in program.weights.items()}, rank,
                      10)
    assert evaluation is not None
    assert ({name: evaluation.metrics[name] for name in wanted}
            == pytest.approx(wanted, rel=LOSS_TOLERANCE))
