"""Alike layers: one traced function serves them all, each with variables of its own."""
from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from lingpipe import layers
from lingpipe.layers import Sequential
from lingpipe.layers.context import Context
from lingpipe.learning import learning_rates, optimizers
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution import trained_replicas
from lingpipe.pipeline.execution.alike_layers import AlikeLayers
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from tests.lingpipe.pipeline.execution import test_program


@pytest.mark.parametrize('jit_compile', [False, True])
def test_layers_that_are_alike_share_an_update_and_each_gets_its_own(
        jit_compile: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(trained_replicas, 'AlikeLayers', lambda _: AlikeLayers(jit_compile))
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


@pytest.mark.parametrize('jit_compile', [False, True])
def test_xla_compiles_them_if_it_is_asked_to(jit_compile: bool):
    sums = [tf.Variable([1., 2.]), tf.Variable(3.)]
    step = tf.function(lambda: AlikeLayers(jit_compile).reset(sums)).get_concrete_function()
    functions = step.graph.as_graph_def().library.function
    assert any(one.attr['_XlaMustCompile'].b for one in functions) == jit_compile
    step()
    assert [one.numpy().tolist() for one in sums] == [[0., 0.], 0.]


def test_xla_does_not_compile_updates_on_a_cpu(monkeypatch: pytest.MonkeyPatch):
    asked: list[bool] = []
    monkeypatch.setattr(trained_replicas, 'AlikeLayers',
                        lambda jit_compile: asked.append(jit_compile) or AlikeLayers(jit_compile))
    test_program.program_of(jit_compile=True).train_step(test_program.batches(1)[0], 0)
    assert asked == [False]


class EmbeddingWithRows(layers.Embedding):
    """Keeps the rows of gradients for the optimizer."""

    keeps_gradient_rows = True

    class Params(layers.Embedding.Params):
        """Those of Embedding."""


def test_xla_compiles_no_update_of_rows(monkeypatch: pytest.MonkeyPatch):
    net = Sequential.Params(name='model', layers=(
        EmbeddingWithRows.Params(name='embed', vocab_size=100, dim=8, reads={'ids': 'x'}),
        layers.MeanSquaredErrorLoss.Params(name='loss')))
    rng = np.random.default_rng(0)
    batch = {'x': rng.integers(0, 10, (8,), np.int32),
             'target': rng.standard_normal((8, 8)).astype(np.float32)}
    learn = Learner.Params(optimizer=optimizers.Adam.Params(),
                           learning_rate=learning_rates.Constant.Params(rate=0.1))
    weights = []
    for jit_compile in (False, True):
        monkeypatch.setattr(trained_replicas, 'AlikeLayers',
                            lambda _, jit_compile=jit_compile: AlikeLayers(jit_compile))
        program = Program(net.instantiate('model'), test_program.spec_of(batch), PipelineParams(),
                          learn.instantiate())
        for step in range(3):
            program.train_step(batch, step)
        weights += [variable.numpy() for variable in program.weights.values()]
    np.testing.assert_array_equal(*weights)
