"""Graph lifetime: nothing of a graph stays in the process after its end."""
from __future__ import annotations

import gc
import weakref

import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.framework import ops

from lingpipe import layers
from lingpipe.layers.base import Layer
from lingpipe.layers.cost import Cost
from lingpipe.layers.sequential import Sequential
from lingpipe.learning.learner import Learner
from lingpipe.learning.learning_rates import Constant
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.process.graph_lifetime import (
    custom_gradient,
    gradients_of,
    hold_gradients,
    wrap_function,
)

BATCH = {'x': tf.ones([4, 8]), 'target': tf.zeros([4, 8])}


class Silu(Layer):
    """TensorFlow's own custom gradient."""

    class Params(Layer.Params):
        """None of its own."""

    def fprop(self, theta, ctx, x):
        return tf.nn.silu(x)

    def cost(self, x):
        return Cost(4. * x.shape.num_elements(), 0, x)


class Sum(Layer):
    """Both inputs have the same gradient, of which TensorFlow's tape loses a reference."""

    class Params(Layer.Params):
        """None of its own."""

    def fprop(self, theta, ctx, x, y):
        return x + y

    def cost(self, x, y):
        return Cost(1. * x.shape.num_elements(), 0, x)


@custom_gradient
def doubled(x):
    """The gradient is 3, so that one sees whose it is."""
    return 2 * x, lambda dy: 3 * dy


def kept() -> set[str]:
    """Returns the names of the functions and of the custom gradients of this process."""
    gc.collect()
    return set(context.context().list_function_names()) | {
        name for name in ops.gradient_registry.list() if name.startswith('CustomGradient-')}


def train() -> None:
    """Trains two cells for a step."""
    network = Sequential.Params(name='model', layers=(
        layers.LayerNorm.Params(name='norm', dim=8, writes='normed'),
        layers.SwiGLU.Params(name='gated', input_dim=8, hidden_dim=8, reads={'x': 'normed'}),
        Silu.Params(name='silu'), Sum.Params(name='sum', reads={'y': 'normed'}),
        layers.MeanSquaredErrorLoss.Params(name='loss')))
    spec = {name: tf.TensorSpec(value.shape, value.dtype) for name, value in BATCH.items()}
    pipeline = PipelineParams(num_cells=2, num_micro_batches=2,
                              devices=('/device:CPU:0', '/device:CPU:1'))
    learner = Learner.Params(learning_rate=Constant.Params(rate=0.1)).instantiate()
    program = Program(network.instantiate('model'), spec, pipeline, learner)
    program.train_step(BATCH, 0)


def test_nothing_of_a_program_stays() -> None:
    train()   # What is remembered of its layers stays, a bounded number of them.
    before = kept()
    train()
    assert kept() <= before


def test_a_gradient_of_several_sources_ends_and_no_earlier() -> None:
    with tf.Graph().as_default():
        sources = [tf.compat.v1.placeholder(tf.float32, []) for _ in range(4)]
        with tf.GradientTape() as tape:
            tape.watch(sources)
            total = tf.nn.relu(tf.add_n(sources[:3])) * 2
        twice = [sources[0], *sources]   # A source that is named twice loses none.
        gradients = gradients_of(tape, [total], twice, [tf.ones([])])
    assert all(gradient is gradients[0] for gradient in gradients[:4]) and gradients[4] is None
    reference = weakref.ref(gradients[0])
    del sources, twice, tape, total
    gc.collect()
    assert reference() is gradients[0]
    gradients.clear()
    gc.collect()
    assert reference() is None


def test_functions_that_a_wrapped_function_calls_end_with_it_alone() -> None:
    def two_that_call_one() -> list[tf.types.experimental.ConcreteFunction]:
        inner = tf.function(lambda x: x + 1, autograph=False)
        return [wrap_function(lambda x: inner(x) * 2, [tf.TensorSpec([])]) for _ in range(2)]

    before = kept()
    wrapped = two_that_call_one()
    name, = {f.signature.name for f in wrapped[0].graph.as_graph_def().library.function}
    wrapped.pop()
    assert name in kept()
    assert wrapped[0](tf.constant(1.)).numpy() == 4
    wrapped.clear()
    assert kept() <= before


def test_a_custom_gradient_is_that_of_its_function_everywhere() -> None:
    x = tf.constant(1.)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = doubled(x)
    assert (y.numpy(), tape.gradient(y, x).numpy()) == (2, 3)

    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, [])
        dx, = tf.gradients(doubled(tf.nn.silu(x)), x)
        hold_gradients(graph)
        again, = tf.gradients(doubled(tf.nn.silu(x)), x)
        with tf.compat.v1.Session() as session:
            assert session.run([dx, again], {x: 0.}) == [1.5, 1.5]


def test_a_loop_that_is_traced_has_the_gradient_of_what_it_turns() -> None:
    @tf.function(autograph=False)
    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y, = tf.while_loop(lambda x: True, lambda x: [doubled(x)], [x], maximum_iterations=3)
        return y, tape.gradient(y, x)

    assert [value.numpy() for value in gradient(tf.constant(1.))] == [8, 27]
