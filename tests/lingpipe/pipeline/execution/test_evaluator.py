"""Evaluator: the sums, weights and values of a network that is placed on two devices."""
from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from lingpipe import layers
from lingpipe.layers import Sequential
from lingpipe.layers.base import Layer
from lingpipe.layers.cost import Cost
from lingpipe.learning import learning_rates
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution.evaluator import Evaluator
from lingpipe.pipeline.execution.placed_network import PlacedNetwork
from lingpipe.pipeline.execution.variables import Variables
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.pipeline.planning.planner import make_plan

B, M, D = 8, 4, 3
TOLERANCE = 1e-5


class Penalty(Layer):
    """A term of the objective that does not depend on the examples."""

    def fprop(self, theta, ctx, x):
        ctx.emit_penalty(self.path, 'penalty', tf.constant(2.5))
        return tf.identity(x)

    def cost(self, x):
        return Cost(0, 0, x)


class CountsCopies(Penalty):
    """A layer to which copies of examples matter."""
    counts_copies = True


def batch_of(num_examples: int = B) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {'image': random.standard_normal([num_examples, D]).astype(np.float32),
            'labels': random.integers(0, D, num_examples).astype(np.int32),
            'weight': random.integers(1, 4, num_examples).astype(np.float32)}


def spec_of(batch: dict[str, np.ndarray]) -> dict[str, tf.TensorSpec]:
    return {name: tf.TensorSpec(value.shape, value.dtype) for name, value in batch.items()}


def placed_network(*extra: Layer.Params, ema_decay: float | None = None) -> PlacedNetwork:
    """A Dense layer on one device, and the loss on another."""
    network = Sequential.Params(name='model', layers=(
        layers.Dense.Params(name='out', input_dim=D, units=D, reads={'x': 'image'}), *extra,
        layers.CrossEntropyLoss.Params(name='loss'))).instantiate('model')
    params = PipelineParams(num_cells=2, num_micro_batches=M, layers_per_cell=(1, 1 + len(extra)))
    plan = make_plan(network, spec_of(batch_of()), params, ['/device:CPU:1', '/device:CPU:2'])
    learner = Learner.Params(learning_rate=learning_rates.Constant.Params(rate=0.1),
                             ema_decay=ema_decay).instantiate()
    return PlacedNetwork(network, [Variables(network, plan.cells, learner, 0)], plan, seed=0)


def evaluator_of(*extra: Layer.Params, **kwargs) -> Evaluator:
    return Evaluator(placed_network(*extra), spec_of(batch_of()), **kwargs)


def logits(of: PlacedNetwork, batch: dict[str, np.ndarray]) -> np.ndarray:
    weights = of.variables.weights
    return batch['image'] @ weights['model/out/w'].numpy() + weights['model/out/b'].numpy()


def losses(of: PlacedNetwork, batch: dict[str, np.ndarray]) -> np.ndarray:
    """The loss of every example, [B]."""
    x = logits(of, batch)
    of_label = x[np.arange(len(x)), batch['labels']]
    return np.log(np.exp(x).sum(-1)) - of_label


def test_a_loss_is_the_weighted_sum_over_the_mini_batch_and_its_weight():
    of, batch = placed_network(), batch_of()
    total, weight = Evaluator(of, spec_of(batch)).step(batch)[0]['loss']
    assert float(total) == pytest.approx((losses(of, batch) * batch['weight']).sum(), rel=TOLERANCE)
    assert float(weight) == batch['weight'].sum()


def test_a_metric_is_a_sum_and_a_weight_as_well():
    of, batch = placed_network(), batch_of()
    num_right, weight = Evaluator(of, spec_of(batch)).step(batch)[0]['accuracy']
    is_right = logits(of, batch).argmax(-1) == batch['labels']
    assert float(num_right) == (is_right * batch['weight']).sum()
    assert float(weight) == batch['weight'].sum()


def test_a_second_step_does_not_add_to_the_first():
    evaluator, batch = evaluator_of(), batch_of()
    first, second = (evaluator.step(batch)[0]['loss'] for _ in range(2))
    assert [float(value) for value in first] == [float(value) for value in second]


def test_fetched_values_are_in_the_order_of_examples():
    of, batch = placed_network(), batch_of()
    _, fetched = Evaluator(of, spec_of(batch), fetch=['x']).step(batch)
    np.testing.assert_allclose(fetched['x'], logits(of, batch), rtol=TOLERANCE, atol=TOLERANCE)


def test_a_value_that_no_layer_writes_cannot_be_fetched():
    with pytest.raises(ValueError, match="no layer writes 'y'; there are x."):
        evaluator_of(fetch=['y'])


def test_a_mini_batch_may_be_of_a_size_that_training_cannot_divide():
    of, batch = placed_network(), batch_of(num_examples=5)
    total, _ = Evaluator(of, spec_of(batch)).step(batch)[0]['loss']
    assert float(total) == pytest.approx((losses(of, batch) * batch['weight']).sum(), rel=TOLERANCE)


def test_the_moving_averages_of_weights_are_evaluated():
    of, batch = placed_network(ema_decay=0.9), batch_of()
    expected = (losses(of, batch) * batch['weight']).sum()
    of.variables.weights['model/out/b'].assign([100., 0., 0.])
    total, _ = Evaluator(of, spec_of(batch)).step(batch)[0]['loss']
    assert float(total) == pytest.approx(expected, rel=TOLERANCE)


def test_a_penalty_counts_once_for_the_mini_batch_however_it_is_split():
    batch = batch_of()
    sums, _ = evaluator_of(Penalty.Params(name='l2')).step(batch)
    total, weight = sums['loss/model/l2/penalty']
    assert float(total) / float(weight) == pytest.approx(2.5, rel=TOLERANCE)


@pytest.mark.parametrize(('metric', 'names'), [
    ('loss', []), ('accuracy', []), ('accuracy/model/loss', []), ('recall', ['loss', 'accuracy'])])
def test_the_names_of_results_are_listed_for_a_metric_that_is_not_among_them(metric, names):
    assert evaluator_of().names_without(metric) == names


def test_a_label_that_is_no_class_is_found_before_a_step():
    batch = batch_of()
    batch['labels'][3] = 7
    assert evaluator_of().check(batch).sentence().startswith(
        'example 3 of the mini-batch has labels 7 but model/loss takes whole numbers from 0 to 2')


@pytest.mark.parametrize(('layer', 'counts'), [(Penalty, False), (CountsCopies, True)])
def test_copies_of_weight_0_count_only_if_a_layer_says_so(layer, counts):
    assert evaluator_of(layer.Params(name='extra')).counts_copies == counts
