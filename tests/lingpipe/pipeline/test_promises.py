"""Promises that were once broken.

Each test is named after its promise, and its docstring says what went wrong.
"""
from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from lingpipe import layers
from lingpipe.layers import Sequential, nested
from lingpipe.layers.base import Layer
from lingpipe.layers.context import Context
from lingpipe.layers.cost import Cost
from lingpipe.learning import learning_rates, optimizers
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.planning.pipeline_params import PipelineParams

BATCH, D, SEED = 8, 4, 7
GRADIENT_TOLERANCE = 1e-6
MODES = [(2, 'cell'), (3, 'none'), (4, 'layer')]


class Given(Layer):
    """Applies any function of (theta, ctx, x); its cost is that of the identity."""

    fn = staticmethod(lambda layer, theta, ctx, x: x)
    outputs = staticmethod(lambda x: x)

    def fprop(self, theta, ctx, x):
        return type(self).fn(self, theta, ctx, x)

    def cost(self, x):
        return Cost(1.0, 0, type(self).outputs(x))


def given(fn, outputs=lambda x: x, **params) -> Layer.Params:
    """Returns the Params of a new class of layer."""
    made = type('One', (Given,), {'fn': staticmethod(fn), 'outputs': staticmethod(outputs)})
    return made.Params(name='one', **params)


class Mix(Layer):
    """x + 2 tanh(skip)."""

    def fprop(self, theta, ctx, x, skip):
        return x + 2 * tf.tanh(skip)

    def cost(self, x, skip):
        return Cost(4 * x.shape.num_elements(), 0, x)


class TwoUses(Layer):
    """tanh(x u) + tanh(x v^T)."""

    def __init__(self, params, path=''):
        super().__init__(params, path)
        self.add_weight('u', [D, D])
        self.add_weight('v', [D, D])

    def fprop(self, theta, ctx, x):
        return tf.tanh(x @ theta.u) + tf.tanh(tf.matmul(x, theta.v, transpose_b=True))

    def cost(self, x):
        return Cost(4 * x.shape[0] * D * D, self.num_weights, x)


class Fourier(Layer):
    """The complex spectrum of x."""

    def fprop(self, theta, ctx, x):
        return tf.signal.fft(tf.cast(x, tf.complex64))

    def cost(self, x):
        return Cost(100, 0, tf.TensorSpec(x.shape, tf.complex64))


class Magnitude(Layer):
    """|x|."""

    def fprop(self, theta, ctx, x):
        return tf.abs(x)

    def cost(self, x):
        return Cost(100, 0, tf.TensorSpec(x.shape, tf.float32))


def dense(name, **params) -> Layer.Params:
    return layers.Dense.Params(name=name,
                               **{'input_dim': D, 'units': D, 'activation': 'tanh', **params})


def net(*between, first=None) -> Sequential:
    return Sequential.Params(name='model', layers=(
        first or dense('in', reads={'x': 'image'}), *between, dense('out'),
        layers.CrossEntropyLoss.Params(name='loss'))).instantiate('model')


def batches(n: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [{'image': rng.standard_normal((BATCH, D)).astype(np.float32),
             'labels': rng.integers(0, D, BATCH).astype(np.int32),
             'weight': np.ones(BATCH, np.float32)}
            for _ in range(n)]


def program_of(network: Sequential, num_cells=1, recompute='none', num_micro_batches=2, batch=None,
               **learner) -> Program:
    learn = Learner.Params(**{'optimizer': optimizers.SGD.Params(),
                              'learning_rate': learning_rates.Constant.Params(rate=1.0), **learner})
    spec = nested.map_leaves(lambda v: tf.TensorSpec(v.shape, v.dtype), batch or batches(1)[0])
    params = PipelineParams(num_cells=num_cells, num_micro_batches=num_micro_batches,
                            recompute=recompute)
    return Program(network, spec, params, learn.instantiate(), seed=SEED)


def values_of(program: Program) -> dict[str, np.ndarray]:
    return {path: v.numpy() for path, v in program.variables().items()}


def assert_same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for path, value in expected.items():
        np.testing.assert_array_equal(found[path], value, err_msg=path)


def assert_first_step_is_that_of_a_plain_tape(network: Sequential) -> Program:
    """Compares one step of SGD with a tape over the whole sequence, and returns the program.

    The rate is 1, so the weights move by the gradient.
    """
    batch = batches(1)[0]
    program = program_of(network)
    values = {w.path: w.initial_value(SEED) for w in network.weights()}
    values.update({w.path: values[w.shared_with] for w in network.weights() if w.shared_with})
    owned = [w.path for w in network.weights() if w.shared_with is None]
    ctx = Context(True, SEED, 0, 0)
    with tf.GradientTape() as tape:
        tape.watch([values[path] for path in owned])
        network.fprop(network.theta(values), ctx, **{k: tf.constant(v) for k, v in batch.items()})
        loss = (tf.add_n(list(ctx.emissions.losses.values()))
                / tf.add_n(list(ctx.emissions.weights.values())))
    gradients = tape.gradient(loss, [values[path] for path in owned])
    program.train_step(batch, 0)
    for path, gradient in zip(owned, gradients, strict=True):
        assert np.abs(gradient).max() > 0, path
        np.testing.assert_allclose(values[path].numpy() - program.weights[path].numpy(), gradient,
                                   atol=GRADIENT_TOLERANCE, err_msg=path)
    return program


def assert_partition_is_invisible(plain: Program) -> None:
    """Compares two steps with those of a program that has made the first."""
    first, second = batches(2)
    plain.train_step(second, 1)
    for num_cells, recompute in MODES:
        program = program_of(plain.network, num_cells, recompute)
        program.train_step(first, 0)
        program.train_step(second, 1)
        assert_same(values_of(program), values_of(plain))


NETWORKS = {
    # In one cell the two names were one tensor, whose gradient counted once for each name.
    'a layer that returns its input under another name': lambda: net(
        given(lambda layer, theta, ctx, x: x, writes='skip'), Mix.Params(name='mix'), dense('d2')),
    'a layer that returns its input under two names': lambda: net(
        given(lambda layer, theta, ctx, x: {'a': x, 'b': x}, lambda x: {'a': x, 'b': x},
              writes={'a': 'x', 'b': 'skip'}),
        Mix.Params(name='mix'),
        dense('d2')),
    # In a cell that does not own the weight, both uses were one tensor, whose gradient counted
    # once for each use.
    'a layer that uses one shared weight twice': lambda: net(
        TwoUses.Params(name='two', share={'u': 'model/in/w', 'v': 'model/in/w'}), dense('d2')),
    # Only floating-point values carried gradients.
    'complex values between layers': lambda: net(Fourier.Params(name='fft'),
                                                 Magnitude.Params(name='abs')),
}


@pytest.mark.parametrize('name', NETWORKS)
def test_gradients_are_those_of_a_plain_tape_and_the_partition_is_invisible(name):
    assert_partition_is_invisible(assert_first_step_is_that_of_a_plain_tape(NETWORKS[name]()))


@pytest.mark.parametrize('recompute', ['none', 'cell', 'layer'])
def test_an_embedding_may_be_in_any_cell(recompute):
    """TensorFlow wants the gradient of an embedding to be placed beside its table.

    Without recomputation the table is in another task.
    """
    network = net(layers.GlobalAvgPool2D.Params(name='pool'), first=layers.Embedding.Params(
        name='in', vocab_size=9, dim=D, reads={'ids': 'image'}))
    batch = {**batches(1)[0],
             'image': np.arange(BATCH * 4, dtype=np.int32).reshape(BATCH, 2, 2) % 9}
    one, two = program_of(network, batch=batch), program_of(network, 2, recompute, batch=batch)
    one.train_step(batch, 0)
    two.train_step(batch, 0)
    assert_same(values_of(two), values_of(one))


@pytest.mark.parametrize('num_cells', [1, 2])
def test_a_step_that_fails_leaves_nothing_behind_and_says_why(num_cells):
    """The partial sums of a failed step stayed in the accumulators.

    With more than one cell, TensorFlow said only 'RecvAsync is cancelled'.
    """
    def checked(layer, theta, ctx, x):
        with tf.control_dependencies(
                [tf.debugging.assert_less(tf.abs(x), 1e6, 'an activation is no number')]):
            return tf.identity(x)

    first, bad, second = batches(3)
    bad['image'][BATCH - 1] = np.nan
    program, clean = program_of(net(given(checked)), num_cells), program_of(net(given(checked)))
    program.train_step(first, 0)
    evaluator = program.evaluator(program.batch_spec)
    loss = evaluator.step(first)[0]['loss'][0].numpy()
    with pytest.raises(tf.errors.InvalidArgumentError, match='an activation is no number'):
        program.train_step(bad, 1)
    with pytest.raises(tf.errors.OpError):
        evaluator.step(bad)
    assert evaluator.step(first)[0]['loss'][0].numpy() == loss
    program.train_step(second, 1)
    clean.train_step(first, 0)
    clean.train_step(second, 1)
    assert_same(values_of(program), values_of(clean))


def test_an_evaluation_that_is_cut_off_says_why(monkeypatch):
    """When an evaluation fails, TensorFlow mostly says only that something was cancelled.

    With workers, that counts as a lost worker.
    """
    wrap_function = tf.compat.v1.wrap_function

    def cut_off_on_mini_batches(body, signature):
        function = wrap_function(body, signature)

        def call(*args):
            if isinstance(args[0], np.ndarray):
                raise tf.errors.CancelledError(None, None, 'RecvAsync is cancelled.')
            return function(*args)

        call.graph = function.graph
        return call

    def checked(layer, theta, ctx, x):
        with tf.control_dependencies(
                [tf.debugging.assert_less(tf.abs(x), 1e6, 'an activation is no number')]):
            return tf.identity(x)

    bad, = batches(1)
    bad['image'][BATCH - 1] = np.nan
    evaluator = program_of(net(given(checked)), 2).evaluator(
        nested.map_leaves(lambda v: tf.TensorSpec(v.shape, v.dtype), bad))
    monkeypatch.setattr(tf.compat.v1, 'wrap_function', cut_off_on_mini_batches)
    with pytest.raises(tf.errors.InvalidArgumentError, match='an activation is no number'):
        evaluator.step(bad)


def test_a_step_that_is_not_finite_touches_no_slot_no_average_and_no_state_of_a_keras_layer():
    network = net(layers.BatchNorm.Params(name='bn', dim=D), layers.KerasLayer.Params(
        name='keras', class_name='BatchNormalization', input_shape=(D,)))
    program = program_of(network, 3, optimizer=optimizers.AdamW.Params(), weight_decay=0.1, l2=0.1,
                         ema_decay=0.9)
    good, bad = batches(2)
    bad['image'][3] = np.nan
    program.train_step(good, 0)
    before = values_of(program)
    assert not program.train_step(bad, 1)['is_finite']
    assert_same(values_of(program), before)


@pytest.mark.parametrize('recompute', ['none', 'cell', 'layer'])
def test_a_layer_may_print(recompute, capfd):
    """A print was cut away with everything that no result of a task depends on.

    Inside tf.cond it was refused as a stateful op.
    """
    def plainly(layer, theta, ctx, x):
        tf.print('here is', layer.path)
        return x

    def in_a_branch(layer, theta, ctx, x):
        def say():
            tf.print('there is', layer.path)
            return tf.constant(0)
        return x + tf.cast(tf.cond(tf.reduce_sum(x) > -1e9, say, lambda: tf.constant(1)), x.dtype)
    network = net(given(plainly), given(in_a_branch).set(name='other'))
    program_of(network, 2, recompute).train_step(batches(1)[0], 0)
    # Each prints once for each micro-batch, and once more if it is recomputed.
    printed = capfd.readouterr().err
    assert printed.count('here is model/one') >= 2
    assert printed.count('there is model/other') >= 2


def test_an_assertion_is_checked():
    def asserting(layer, theta, ctx, x):
        tf.debugging.assert_less(x, -100.0, message='too large')
        return x
    with pytest.raises(tf.errors.InvalidArgumentError, match='too large'):
        program_of(net(given(asserting)), 2).train_step(batches(1)[0], 0)


def assigning(layer, theta, ctx, x):
    COUNT.assign_add(1.0)
    return x


COUNT = tf.Variable(0.0, trainable=False)
MISTAKES = [
    (lambda layer, theta, ctx, x: tf.cond(tf.reduce_sum(x) > 0, lambda: x * tf.random.uniform([]),
                                          lambda: x),
     r'model/one makes the stateful op RandomUniform '),
    (lambda layer, theta, ctx, x: tf.while_loop(
         lambda i, x: i < 2, lambda i, x: (i + 1, x * tf.random.uniform([])), [0, x])[1],
     r'model/one makes the stateful op RandomUniform '),
    # The op was silently cut away.
    (assigning, r'model/one makes the stateful op AssignAddVariableOp '),
    (lambda layer, theta, ctx, x: x * COUNT,
     r'model/one makes the stateful op ReadVariableOp .* declare weights with add_weight'),
    (lambda layer, theta, ctx, x: None,
     r'model/one writes nothing, but its cost says x float32 \(4, 4\); correct One.cost.'),
    (lambda layer, theta, ctx, x: {'a': x},
     r'model/one writes x/a float32 \(4, 4\), but its cost says x float32 \(4, 4\)'),
    (lambda layer, theta, ctx, x: (x, x), r'model/one returns tuple; fprop of One must return a '
                                          r'tensor, or a dict of tensors with names.'),
    (lambda layer, theta, ctx, x: tf.reshape(x, tf.cast(tf.where(x[0] < 9.0)[:, 0], tf.int32)),
     r'model/one writes x float32 <unknown>, but its cost says x float32 \(4, 4\)'),
    (lambda layer, theta, ctx, x: ctx.emit_loss(layer.path, 'l', tf.reduce_sum(x, -1)) or x,
     r"model/one emits 'l' of shape \(4,\), but losses, metrics and their weights are scalars"),
    (lambda layer, theta, ctx, x: ctx.emit_loss(layer.path, 'l', 1.0)
                                  or ctx.emit_loss(layer.path, 'l', 2.0)
                                  or x,
     r"model/one emits 'l' twice in one call, and only one would count"),   # Only one counted.
    (lambda layer, theta, ctx, x: ctx.emit_metric(layer.path, 'loss', 1.0, 1.0) or x,
     # Such a metric replaced the objective's weight.
     r"model/one emits a metric named 'loss', which is the name of a result of every step"),
]


@pytest.mark.parametrize(('fn', 'sentence'), MISTAKES, ids=[sentence for _, sentence in MISTAKES])
def test_a_mistake_in_fprop_is_one_clear_sentence_every_time(fn, sentence):
    program = program_of(net(given(fn)), 2)
    for _ in range(2):  # The second time, only some cells had tasks.
        with pytest.raises(ValueError, match=sentence):
            program.train_step(batches(1)[0], 0)


def test_a_cost_without_outputs_is_refused_if_fprop_returns_something():
    """The layers after it would silently have read the older value."""
    with pytest.raises(ValueError, match=r'model/one writes x float32 \(4, 4\), but its cost says '
                                         r'nothing; correct One.cost.'):
        program_of(net(given(lambda layer, theta, ctx, x: 2 * x, lambda x: None))).train_step(
            batches(1)[0], 0)


def test_sharing_a_weight_under_a_wrong_name_is_refused():
    """The wrong name was ignored, and the weights were not tied."""
    with pytest.raises(ValueError, match=r"model/d: share names the weight 'kernel', but Dense has "
                                         r"w, b; correct the name"):
        program_of(net(dense('d', share={'kernel': 'model/in/w'})))


def test_writes_that_names_outputs_needs_a_layer_that_returns_some():
    with pytest.raises(ValueError, match=r'model/d: writes names the outputs y, but fprop of Dense '
                                         r'returns one value without a name'):
        program_of(net(dense('d', writes={'y': 'x'})))


def test_a_layer_may_have_any_name():
    names = values_of(program_of(net(dense('größe (1) [a b]')), 2))
    assert 'weights/model/größe (1) [a b]/w' in names
    program_of(net(dense('größe (1) [a b]')), 2).train_step(batches(1)[0], 0)


def test_checkpoints_of_four_cells_are_those_of_one():
    network = net(layers.BatchNorm.Params(name='bn', dim=D),
                  dense('tied', share={'w': 'model/in/w'}), dense('d3'))
    learner = {'optimizer': optimizers.Adafactor.Params(), 'weight_decay': 0.01, 'ema_decay': 0.9}
    four, one = program_of(network, 4, 'cell', **learner), program_of(network, 1, **learner)
    first, second = batches(2)
    four.train_step(first, 0)
    for path, value in values_of(four).items():
        one.variables()[path].assign(value)
    four.train_step(second, 1)
    one.train_step(second, 1)
    assert_same(values_of(one), values_of(four))


