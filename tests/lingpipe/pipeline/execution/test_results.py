"""Results: what was emitted on all devices, by the names that users see."""
from __future__ import annotations

import pytest
import tensorflow as tf

from lingpipe.pipeline.execution import results


def emitted(losses: dict, weights: dict, metrics: dict | None = None) -> results.Emitted:
    return {'losses': losses, 'weights': weights, 'metrics': metrics or {}}


def test_a_single_loss_is_the_objective():
    named = results.named_sums([emitted({'model/loss\nloss': 3.}, {'model/loss\nloss': 2.})])
    assert named == {'loss': (3., 2.)}


def test_several_losses_are_added_up_and_named_by_their_layers():
    cells = [emitted({'model/l2\npenalty': 1.}, {}),
             emitted({'model/loss\nloss': 3.}, {'model/loss\nloss': 2.})]
    assert results.named_sums(cells) == {
        'loss': (4., 2.), 'loss/model/l2/penalty': (1., 2.), 'loss/model/loss/loss': (3., 2.)}


def test_metrics_of_one_name_are_told_apart_by_their_layers():
    named = results.named_sums([emitted(
        {'m/loss\nloss': 3.}, {'m/loss\nloss': 2.},
        {'m/a\nerror': (1., 2.), 'm/b\nerror': (3., 4.), 'm/b\naccuracy': (5., 6.)})])
    assert named.keys() == {'loss', 'error/m/a', 'error/m/b', 'accuracy'}


@pytest.mark.parametrize(('weights', 'sentence'), [
    ({}, r'0 layers give a loss with a weight \(none\); exactly one must, the main loss: end the '
         r'network with one, as layers\.CrossEntropyLoss'),
    ({'m/a\nloss': 1., 'm/b\nloss': 1.}, r'2 layers give a loss with a weight \(m/a, m/b\)'),
])
def test_exactly_one_loss_has_a_weight(weights, sentence):
    with pytest.raises(ValueError, match=sentence):
        results.named_sums([emitted({'m/a\nloss': 1.}, weights)])


def test_a_metric_with_the_name_of_a_result_is_refused():
    one = emitted({'m/a\nloss': tf.constant(1.)}, {'m/a\nloss': tf.constant(1.)},
                  {'m/a\nweight': (1., 1.)})
    with pytest.raises(ValueError, match="m/a emits a metric named 'weight', which is the name of"):
        results.named_sums([one])
