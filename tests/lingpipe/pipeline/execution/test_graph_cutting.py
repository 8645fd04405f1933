"""Graph cutting: functions cut out of a graph compute what the whole graph computes."""
from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.pipeline.execution.graph_cutting import Subgraphs, used_feeds

X = np.random.default_rng(0).standard_normal([2, 3]).astype(np.float32)


def traced(body) -> tf.Graph:
    return tf.function(body, autograph=False).get_concrete_function(tf.TensorSpec([2, 3])).graph


def output_of(graph: tf.Graph, op_type: str) -> tf.Tensor:
    """The output of the only op of a type."""
    op, = (op for op in graph.get_operations() if op.type == op_type)
    return op.outputs[0]


@pytest.fixture
def graph() -> tf.Graph:
    """exp(tanh(x)) - x"""
    return traced(lambda x: tf.exp(tf.tanh(x)) - x)


def test_two_parts_give_what_the_whole_gives(graph):
    subgraphs, x, y = Subgraphs(graph), graph.inputs[0], output_of(graph, 'Tanh')
    whole = subgraphs.function([x], [graph.outputs[0]])
    first = subgraphs.function([x], [y])
    second = subgraphs.function([y, x], [graph.outputs[0]])
    np.testing.assert_array_equal(second(*first(X), X)[0], whole(X)[0])


def test_the_whole_gives_what_the_graph_says(graph):
    whole = Subgraphs(graph).function([graph.inputs[0]], [graph.outputs[0]])
    np.testing.assert_allclose(whole(X)[0], np.exp(np.tanh(X)) - X, rtol=1e-5)


def test_an_op_that_only_makes_a_feed_is_left_out(graph):
    part = Subgraphs(graph).function([output_of(graph, 'Tanh')], [output_of(graph, 'Exp')])
    types = {op.type for op in part.graph.get_operations()}
    assert 'Exp' in types and 'Tanh' not in types


def test_an_op_waits_for_another_in_a_function_that_has_both(graph):
    exp, tanh = (output_of(graph, op_type) for op_type in ('Exp', 'Tanh'))
    sub = output_of(graph, 'Sub')
    subgraphs = Subgraphs(graph, {sub.op.name: [tanh.op.name]})
    both = subgraphs.function([graph.inputs[0]], [sub])
    assert [op.name for op in both.graph.get_operation_by_name(sub.op.name).control_inputs] == [
        tanh.op.name]
    alone = subgraphs.function([graph.inputs[0], exp], [sub])
    assert not alone.graph.get_operation_by_name(sub.op.name).control_inputs


def test_equal_constants_become_one_even_if_fetched_or_waited_for():
    def body(x: tf.Tensor) -> list[tf.Tensor]:
        """Returns x + 2 + 2, after two constants that nobody reads."""
        x = x + tf.constant(2.) + tf.constant(2.)
        with tf.control_dependencies([tf.constant(3), tf.constant(3)]):
            return [tf.identity(x)]

    graph = tf.compat.v1.wrap_function(body, [tf.TensorSpec([2, 3])]).graph
    constant = graph.get_operation_by_name('Const_1').outputs[0]
    part = Subgraphs(graph).function([graph.inputs[0]], [*graph.outputs, constant])
    constants = [tf.get_static_value(op.outputs[0]).tolist()
                 for op in part.graph.get_operations() if op.type == 'Const']
    assert sorted(constants) == [2., 3]
    whole, two = part(X)
    np.testing.assert_array_equal(whole, X + 2 + 2)
    assert two.numpy() == 2.


def test_an_op_waits_for_the_constant_that_stands_for_an_equal_one():
    """The gradients of two losses that layers write are equal: each is 1."""
    graph = traced(lambda x: tf.exp(x) * tf.constant(2.) * tf.constant(2.))
    first, second = (op.name for op in graph.get_operations() if op.type == 'Const')
    exp = output_of(graph, 'Exp').op.name
    part = Subgraphs(graph, {exp: [second]}).function([graph.inputs[0]], [graph.outputs[0]])
    control, = part.graph.get_operation_by_name(exp).control_inputs
    assert control.name == first


def test_what_is_printed_stays_in_order():
    def body(x: tf.Tensor) -> tf.Tensor:
        """Prints twice, in any order."""
        with tf.control_dependencies([tf.print('one', x), tf.print('two', x)]):
            return tf.identity(x)

    graph = tf.compat.v1.wrap_function(body, [tf.TensorSpec([2, 3])]).graph
    part = Subgraphs(graph).function([graph.inputs[0]], graph.outputs)
    first, second = [op for op in part.graph.get_operations() if op.type == 'PrintV2']
    assert first in second.control_inputs


def test_a_fetch_may_be_a_feed(graph):
    y = output_of(graph, 'Tanh')
    fetched, computed = Subgraphs(graph).function([y], [y, output_of(graph, 'Exp')])(X)
    np.testing.assert_array_equal(fetched, X)
    np.testing.assert_allclose(computed, np.exp(X), rtol=1e-5)


def test_one_output_of_an_op_may_be_fed_and_another_computed():
    """WrappedFunction.prune failed here."""
    def body(x):
        left, middle, right = tf.split(x, 3, 1)
        return left + 10. * middle + 100. * right

    graph = traced(body)
    middle = next(op for op in graph.get_operations() if op.type == 'Split').outputs[1]
    part = Subgraphs(graph).function([graph.inputs[0], middle], [graph.outputs[0]])
    fed = np.full([2, 1], 7., np.float32)
    np.testing.assert_allclose(part(X, fed)[0], X[:, :1] + 70. + 100. * X[:, 2:], rtol=1e-5)


def test_a_part_reads_variables_as_they_are_when_it_is_called():
    factor = tf.Variable(2.)
    graph = traced(lambda x: factor * x)
    part = Subgraphs(graph).function([graph.inputs[0]], [graph.outputs[0]])
    factor.assign(3.)
    np.testing.assert_array_equal(part(X)[0], np.float32(3.) * X)


def test_a_part_is_never_inlined(graph):
    part = Subgraphs(graph).function([graph.inputs[0]], [graph.outputs[0]])
    assert part.function_def.attr['_noinline'].b


def test_the_feeds_that_are_used_are_those_before_the_fetches(graph):
    x, y, z = graph.inputs[0], output_of(graph, 'Tanh'), output_of(graph, 'Exp')
    assert used_feeds([z], [x, y]) == {y.name}
    assert used_feeds([y], [x, z]) == {x.name}
    assert used_feeds([graph.outputs[0]], [x, y]) == {x.name, y.name}
