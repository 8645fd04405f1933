"""Gradients: a weight has one if any use of it, in any mini-batch of the update, gives one."""
from __future__ import annotations

import numpy as np

from lingpipe.layers import Sequential
from lingpipe.layers.base import Layer
from lingpipe.layers.cost import Cost
from lingpipe.learning import learning_rates, optimizers
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from tests.lingpipe.pipeline.execution import test_update
from tests.lingpipe.pipeline.execution.test_update import D


def test_a_tied_weight_has_a_gradient_if_any_use_of_it_has():
    learner = {'optimizer': optimizers.SGD.Params(), 'l2': 0.2,
               'kernel': np.eye(D, dtype=np.float32)}
    alone, _ = test_update.forked(tuple(one for one in test_update.fork() if one.name != 'side'),
                      PipelineParams(num_micro_batches=2), **learner)
    for owner, other, num_cells in (('side', 'last', 1), ('side', 'last', 3), ('last', 'side', 3)):
        tied, _ = test_update.forked(test_update.fork(('first', owner, other),
                              **{other: {'kernel': f'model/{owner}/kernel'}}),
                         PipelineParams(num_cells=num_cells, num_micro_batches=2), **learner)
        np.testing.assert_array_equal(tied.weights[f'model/{owner}/kernel'],
                                      alone.weights['model/last/kernel'])


class OfMany(Layer):
    """Returns x + w in micro-batches of more than two examples, and x in others."""

    def __init__(self, params, path=''):
        super().__init__(params, path)
        self.add_weight('w', [D], 'ones')

    def fprop(self, theta, ctx, x):
        return x + theta.w if x.shape[0] > 2 else x

    def cost(self, x):
        return Cost(0., self.num_weights, x)


def test_accumulated_mini_batches_give_a_weight_a_gradient_if_any_of_them_does():
    network = Sequential.Params(name='model', layers=(
        OfMany.Params(name='many'), test_update.Linear.Params(name='loss'))).instantiate('model')
    many, few = test_update.batch_of(np.ones([8, D])), test_update.batch_of(np.ones([4, D]))
    learn = Learner.Params(learning_rate=learning_rates.Constant.Params(rate=0.5), weight_decay=0.1,
                           decay_vectors=True).instantiate()
    program = Program(network, [test_update.spec_of(many), test_update.spec_of(few)],
                      PipelineParams(num_cells=2, num_micro_batches=2), learn)
    for step, (mini_batches, moves) in enumerate(
            [([few, few], False), ([many, few], True), ([few, few], False), ([few, many], True),
             ([few], False), ([many], True)]):
        before = program.weights['model/many/w'].numpy()
        for index, batch in enumerate(mini_batches[:-1]):
            program.accumulate(batch, step, index)
        program.train_step(mini_batches[-1], step, len(mini_batches) - 1)
        assert np.array_equal(program.weights['model/many/w'], before) != moves, step
