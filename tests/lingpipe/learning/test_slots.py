"""Slots: their names in checkpoints do not change, and there are no hidden copies."""
from __future__ import annotations

import pytest
import tensorflow as tf

from lingpipe.learning import optimizers
from tests.support.learners import learner, make_weights, train


def test_names_for_the_checkpoint_are_these():
    layer = learner(optimizer=optimizers.RMSProp.Params(momentum=0.9), ema_decay=0.9).for_layer(
        'model/dense', make_weights())
    assert sorted(layer.variables()) == [
        'ema/model/dense/bias', 'ema/model/dense/kernel', 'optimizer/model/dense/bias/momentums',
        'optimizer/model/dense/bias/velocities', 'optimizer/model/dense/iterations',
        'optimizer/model/dense/kernel/momentums', 'optimizer/model/dense/kernel/velocities']
    assert all(isinstance(v, tf.Variable) for v in layer.variables().values())


def test_what_an_optimizer_keeps_for_all_weights_has_the_same_name_in_every_process():
    keys = [
        sorted(learner(optimizer=optimizers.Nadam.Params())
               .for_layer('m', make_weights()).variables())
        for _ in range(2)]
    assert keys[0] == keys[1] and 'optimizer/m/u_product' in keys[0]


@pytest.mark.parametrize(('params', 'bytes_a_weight'), [
    (optimizers.SGD.Params(), 0),
    (optimizers.SGD.Params(momentum=0.9), 4),
    (optimizers.RMSProp.Params(), 4),
    (optimizers.RMSProp.Params(momentum=0.9), 8),
    (optimizers.RMSProp.Params(momentum=0.9, centered=True), 12),
    (optimizers.Adam.Params(), 8),
    (optimizers.Lion.Params(), 4),
], ids=str)
def test_an_optimizer_holds_its_slots_and_nothing_else(params, bytes_a_weight):
    layer, weights = train(learner(optimizer=params), 1)
    num_weights = sum(w.shape.num_elements() for w in weights.values())
    slot_bytes = sum(v.shape.num_elements() * v.dtype.size
                     for key, v in layer.variables().items() if not key.endswith('/iterations'))
    assert slot_bytes == bytes_a_weight * num_weights
    held = {id(v.value) for v in layer._optimizer.keras_optimizer.variables}
    # What Keras tracks is what is saved.
    assert held == {id(v) for v in layer.variables().values()}
