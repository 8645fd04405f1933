"""Accumulators: complete once made, added to in place, summed in groups, and reset."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe import layers
from lingpipe.layers.context import Context, Emissions
from lingpipe.layers.weight import Weight
from lingpipe.pipeline.execution.accumulators import Accumulators
from lingpipe.pipeline.execution.emission_layout import EmissionLayout

PATH = 'model/dense/w'


def weights() -> list[Weight]:
    dense = layers.Dense.Params(name='dense', input_dim=2, units=3, use_bias=False)
    return list(dense.instantiate('model/dense').weights())


def emissions(loss: float, mean: float = 0., state: int = 0) -> Emissions:
    ctx = Context(training=True)
    ctx.emit_loss('model/loss', 'loss', tf.constant(loss), tf.constant(1.))
    ctx.emit_mean('model/a', 'mean', tf.constant([mean]))
    ctx.emit_state('model/a', 'state', tf.constant(state))
    return ctx.emissions


def make(**kwargs: Any) -> Accumulators:
    return Accumulators('CPU:0', weights(), EmissionLayout.of(emissions(0.)), **kwargs)


def test_they_are_complete_when_they_are_made():
    accumulators = make()
    assert [variable.shape.as_list() for variable in accumulators.variables()] == [
        [2, 3], [2], [2], []]   # the gradient; loss and weight; mean and its weight; the state
    assert all(not np.any(variable.numpy()) for variable in accumulators.variables())


def test_a_cell_that_emits_nothing_has_gradients_alone():
    assert len(Accumulators('CPU:0', weights(), EmissionLayout()).variables()) == 1


def test_micro_batches_add_up():
    accumulators = make()
    for m, (loss, mean, state) in enumerate([(1., 4., 7), (2., 8., 7)]):
        accumulators.add_gradient(PATH, tf.ones([2, 3]), m)
        accumulators.add_emissions(emissions(loss, mean, state))
    merged = accumulators.merged()
    np.testing.assert_array_equal(accumulators.gradients[PATH], np.full([2, 3], 2.))
    assert float(merged.losses['model/loss', 'loss']) == 3.
    assert float(merged.weights['model/loss', 'loss']) == 2.
    np.testing.assert_array_equal(merged.means['model/a', 'mean'], [6.])
    assert int(merged.states['model/a', 'state']) == 7


def test_rows_have_a_place_for_each_micro_batch():
    accumulators = make(num_micro_batches=2, num_groups=2, rows={PATH: 6})
    for m in (1, 0):
        rows = tf.IndexedSlices(tf.fill([2, 3], m + 1.), tf.constant([1, m], tf.int64))
        accumulators.add_gradient(PATH, rows, m)
        accumulators.end_of_group(m, adds_emissions=True, adds_gradients=True)
    gradient = accumulators.gradient(PATH)
    np.testing.assert_array_equal(gradient.values[:, 0], [1., 1., 2., 2., 0., 0.])
    np.testing.assert_array_equal(gradient.indices, [1, 0, 1, 1, 0, 0])
    accumulators.reset()
    assert not np.any(accumulators.gradient(PATH).values)


def test_a_reset_leaves_nothing():
    accumulators = make()
    accumulators.add_gradient(PATH, tf.ones([2, 3]), 0)
    accumulators.add_emissions(emissions(1., 2., 3))
    accumulators.reset()
    assert all(not np.any(variable.numpy()) for variable in accumulators.variables())


def test_groups_are_summed_by_themselves_and_then_together():
    """In float32, ((a + b) + (c + d)) and (((a + b) + c) + d) differ for these numbers."""
    gradients = [np.float32(value) for value in (1., 1e-8, 1e-8, 1.)]
    numbers = [np.float32(2 ** 24), np.float32(1.), np.float32(1.), np.float32(1.)]
    accumulators = make(num_micro_batches=4, num_groups=2)
    for m, (gradient, number) in enumerate(zip(gradients, numbers, strict=True)):
        accumulators.add_gradient(PATH, tf.fill([2, 3], gradient), m)
        accumulators.add_emissions(emissions(number))
        accumulators.end_of_group(m, adds_emissions=True, adds_gradients=True)
    loss = accumulators.merged().losses['model/loss', 'loss'].numpy()
    assert loss == (numbers[0] + numbers[1]) + (numbers[2] + numbers[3])
    assert loss != ((numbers[0] + numbers[1]) + numbers[2]) + numbers[3]
    assert accumulators.gradients[PATH].numpy()[0, 0] == (
        (gradients[0] + gradients[1]) + (gradients[2] + gradients[3]))


@pytest.mark.parametrize('adds_gradients', [False, True])
def test_a_task_sets_aside_what_it_adds_to(adds_gradients):
    accumulators = make(num_micro_batches=4, num_groups=2)
    accumulators.add_gradient(PATH, tf.ones([2, 3]), 0)
    accumulators.add_emissions(emissions(1.))
    accumulators.end_of_group(1, adds_emissions=not adds_gradients, adds_gradients=adds_gradients)
    assert np.any(accumulators.gradients[PATH].numpy()) != adds_gradients
    assert np.any(accumulators.merged().losses['model/loss', 'loss'].numpy()) == adds_gradients


def test_sums_of_replicas_are_merged_each_by_its_rule():
    gradient, scalars, averages, state = make().all()
    np.testing.assert_array_equal(gradient.merged([tf.constant(1.), tf.constant(2.)]), 3.)
    np.testing.assert_array_equal(scalars.merged([tf.constant([1., 2.])] * 3), [3., 6.])
    np.testing.assert_array_equal(   # a mean and its weight
        averages.merged([tf.constant([1., 1.]), tf.constant([4., 2.])]), [3., 3.])
    assert int(state.merged([tf.constant(5), tf.constant(5)])) == 5
