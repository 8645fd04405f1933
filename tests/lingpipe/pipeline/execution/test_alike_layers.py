"""Alike layers: one traced function serves them all, each with variables of its own."""
from __future__ import annotations

import numpy as np
import tensorflow as tf

from lingpipe import layers
from lingpipe.layers import Sequential
from lingpipe.layers.context import Context
from lingpipe.learning import learning_rates, optimizers
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from tests.lingpipe.pipeline.execution import test_program


def test_layers_that_are_alike_share_an_update_and_each_gets_its_own():
    twins = Sequential.Params(name='model', layers=(
        *[layers.Dense.Params(name=f'dense_{i}', input_dim=8, units=8) for i in range(3)],
        layers.MeanSquaredErrorLoss.Params(name='loss'))).instantiate('model')
    batch = {name: np.random.default_rng(i).standard_normal((8, 8)).astype(np.float32)
             for i, name in enumerate(('x', 'target'))}
    learn = Learner.Params(optimizer=optimizers.Lion.Params(), ema_decay=0.9, weight_decay=0.1,
                           learning_rate=learning_rates.Constant.Params(rate=0.01)).instantiate()

    program = Program(twins, test_program.spec_of(batch), PipelineParams(), learn)
    first = {path: variable.numpy() for path, variable in program.weights.items()}
    others = learn.for_layer('plain', {path: tf.Variable(value) for path, value in first.items()})

    for step in range(3):
        with tf.GradientTape() as tape:
            tape.watch(values := {p: tf.convert_to_tensor(v) for p, v in others.weights.items()})
            ctx = Context(True, 0, step)
            twins.fprop(twins.theta(values), ctx,
                        **{name: tf.constant(value) for name, value in batch.items()})
            loss = sum(ctx.emissions.losses.values()) / sum(ctx.emissions.weights.values())
        others.apply(tape.gradient(loss, values))
        program.train_step(batch, step)

    for path, variable in others.weights.items():
        assert not np.array_equal(variable.numpy(), first[path])
        np.testing.assert_allclose(program.weights[path].numpy(), variable.numpy(), atol=1e-6,
                                   err_msg=path)

    slots = {key.split('/', 2)[-1]: v.numpy()
             for key, v in others.variables().items() if 'momentum' in key}
    mine = {key.split('/', 2)[-1]: v.numpy()
            for key, v in program.variables().items() if 'momentum' in key}
    assert len(mine) == len(slots) == 6
    for key, value in slots.items():
        np.testing.assert_allclose(mine[key], value, atol=1e-6, err_msg=key)
