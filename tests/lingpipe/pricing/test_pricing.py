"""Tracing: FLOPs and residuals of known graphs, as literals."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from lingpipe import pricing
from lingpipe.layers import static_shapes
from lingpipe.layers.base import Layer
from lingpipe.layers.cost import Cost
from lingpipe.layers.nested import NestedMap, leaves


def flops(fn: Callable[..., Any], *shapes: list[int | None], dtype: tf.DType = tf.float32) -> float:
    return pricing.count_flops(tf.function(fn, autograph=False).get_concrete_function(
        *[tf.TensorSpec(s, dtype) for s in shapes]).graph)


@pytest.mark.parametrize('expected, fn, shapes', [
    (2 * 3 * 4 * 5, tf.matmul, [[3, 4], [4, 5]]),
    (2 * 3 * 4 * 5, lambda a, b: tf.matmul(a, b, transpose_a=True), [[4, 3], [4, 5]]),
    (2 * 7 * 3 * 4 * 5, lambda a, b: tf.matmul(a, b, transpose_b=True), [[7, 3, 4], [7, 5, 4]]),
    (2 * 7 * 3 * 4 * 5, lambda a, b: tf.einsum('bij,jk->bik', a, b), [[7, 3, 4], [4, 5]]),
    (2 * 7 * 3 * 4 * 5, lambda a, b: tf.einsum('...ij,...jk->...ik', a, b), [[7, 3, 4], [1, 4, 5]]),
    (3 * 4, lambda a, b: tf.einsum('i,j->ij', a, b), [[3], [4]]),
    (3 * 4, lambda a: tf.einsum('ij->i', a), [[3, 4]]),
    (0, lambda a: tf.einsum('ij->ji', a), [[3, 4]]),
    (2 * (2 * 4 * 4 * 6) * 9 * 5,
     lambda x, w: tf.nn.conv2d(x, w, 2, 'SAME'), [[2, 8, 8, 5], [3, 3, 5, 6]]),
    # A convolution in 2 groups.
    (2 * (2 * 4 * 4 * 6) * 9 * 2,
     lambda x, w: tf.nn.conv2d(x, w, 2, 'SAME'), [[2, 8, 8, 4], [3, 3, 2, 6]]),
    (2 * (2 * 8 * 8 * 10) * 9,
     lambda x, w: tf.nn.depthwise_conv2d(x, w, [1] * 4, 'SAME'), [[2, 8, 8, 5], [3, 3, 5, 2]]),
    (2 * (2 * 8 * 8 * 5) * 9 * 6,
     lambda x, w: tf.nn.conv2d_transpose(x, w, [2, 8, 8, 6], 1), [[2, 8, 8, 5], [3, 3, 6, 5]]),
    (2 * 4 * 4 * 5 * 9, lambda x: tf.nn.max_pool2d(x, 3, 2, 'SAME'), [[2, 8, 8, 5]]),
    (2 * 4 * 4 * 5 * 4, lambda x: tf.nn.avg_pool2d(x, 2, 2, 'SAME'), [[2, 8, 8, 5]]),
    (12, tf.reduce_sum, [[3, 4]]),
    (12, lambda x: tf.argmax(x, -1), [[3, 4]]),
    (12, tf.exp, [[3, 4]]),
    (12, tf.math.rsqrt, [[3, 4]]),
    (12, lambda x, y: x + y, [[3, 4], [4]]),
    (24, tf.math.squared_difference, [[3, 4], [3, 4]]),
    (24, lambda x, y, z: tf.add_n([x, y, z]), [[3, 4]] * 3),
    (60, tf.nn.softmax, [[3, 4]]),
    (0, lambda x: tf.transpose(tf.reshape(tf.concat([x, x], 0), [4, 6])), [[3, 4]]),
    (0, lambda x: tf.gather(tf.pad(x, [[1, 1], [0, 0]]), [0, 2]), [[3, 4]]),
    (0, lambda x: tf.cast(x, tf.bfloat16)[1:], [[3, 4]]),
    # The random numbers are free, but their scale and mean are not.
    (200, lambda x: tf.random.stateless_normal([100], [1, 2]), [[1]])])
def test_flops_are_known(expected: int, fn: Callable[..., Any], shapes: list[Any]) -> None:
    assert flops(fn, *shapes) == expected


def test_integers_are_no_floating_point_operations() -> None:
    assert flops(lambda x: x * x + tf.reduce_sum(x), [3, 4], dtype=tf.int32) == 0


def test_functions_are_opened_and_the_dearer_branch_counts() -> None:
    double = tf.function(lambda x: x + x, experimental_attributes={'_noinline': True},
                         autograph=False)
    assert flops(lambda x: double(double(x)), [5]) == 10
    assert (flops(lambda x: tf.cond(tf.shape(x)[0] > 3, lambda: tf.exp(tf.exp(x)), lambda: x), [5])
            == 10)


def test_a_loop_counts_as_often_as_it_can_run() -> None:
    def loop(x: tf.Tensor, turns: int | None = 7) -> Any:
        return tf.while_loop(lambda i, x: i < 10, lambda i, x: (i + 1, tf.exp(x)), [0, x],
                             maximum_iterations=turns)

    assert flops(loop, [5]) == 35
    with pytest.raises(ValueError, match='may run any number of times, but its FLOPs need a bound; '
                                         'give tf.while_loop its maximum'):
        flops(lambda x: loop(x, None), [5])


def test_an_unknown_shape_names_the_tensor() -> None:
    with pytest.raises(ValueError,
                       match=r"tensor '.*' is \[\?, 4\], but every dimension must be known"):
        flops(tf.exp, [None, 4])


class Traced(Layer):
    """A layer without a cost of its own."""

    def __init__(self, fn: Callable[..., Any], shape: list[int] | None = None):
        super().__init__(Traced.Params(name='traced'))
        self.fn = fn
        if shape:
            self.add_weight('w', shape)

    def fprop(self, theta: NestedMap, ctx: Any, x: tf.Tensor) -> Any:
        return self.fn(x, theta.w) if theta else self.fn(x)


def kept(fn: Callable[..., Any], shape: list[int] | None = None) -> float:
    """Returns the bytes of the residuals that are not inputs, if everything gets a gradient."""
    layer, x = Traced(fn, shape), tf.TensorSpec([2, 8])
    found = pricing.residuals_of_layer(layer, {'x': x}, [w.path for w in layer.weights()],
                                       lambda leaf: True, lambda leaf: True)
    outputs = leaves(pricing.price(layer, x).outputs)
    return (found.inner_bytes
            + sum(4 * static_shapes.num_elements(outputs[i]) for _, i in found.outputs))


def test_a_layer_without_cost_is_traced() -> None:
    layer = Traced(lambda x, w: {'y': tf.nn.relu(x @ w)}, [8, 4])
    assert pricing.price(layer, tf.TensorSpec([2, 8])) == Cost(
        flops=2 * 2 * 8 * 4 + 8, num_weights=32, outputs={'y': tf.TensorSpec([2, 4])})


@pytest.mark.parametrize('expected, fn, shape', [
    (0, lambda x: x + 1, None),
    (0, lambda x: x * x, None),                                   # It reads only the input.
    (0, lambda x, w: x @ w, [8, 4]),                              # It reads both inputs.
    (0, lambda x, w: tf.reshape(x, [4, 4]) @ w, [4, 4]),          # It reads a view of the input.
    (0, lambda x, w: x @ tf.exp(w), [8, 4]),                      # exp(w) needs only the weight.
    (64, tf.exp, None),                                           # It reads its result.
    (64, lambda x: tf.reshape(tf.exp(x), [4, 4]) ** 2, None),     # A view is not a second tensor.
    (16, lambda x: tf.where(x > 0, 2 * x, 0), None),              # It reads only bools.
    (64 + 64, lambda x, w: (tf.exp(x) * tf.exp(x + 1)) @ tf.ones([8, 8]), [8, 4]),
    (64, lambda x, w: tf.exp(x) @ w, [8, 4])])                    # It is read twice and kept once.
def test_residuals_are_what_backward_reads(expected: int, fn: Callable[..., Any],
                                           shape: Any) -> None:
    assert kept(fn, shape) == expected


def test_a_loop_keeps_its_turns() -> None:
    def loop(x: tf.Tensor) -> tf.Tensor:
        return tf.while_loop(lambda i, x: i < 7, lambda i, x: (i + 1, tf.exp(x)), [0, x],
                             maximum_iterations=7)[1]

    assert kept(loop) >= 7 * 64


def test_an_unknown_batch_size_is_refused_with_the_layer_s_path() -> None:
    with pytest.raises(ValueError,
                       match=r'traced: input 0 is \[\?, 8\], but every dimension must be known '
                             r'before anything runs; give '
                             'the shape of one micro-batch: batch the input with a fixed size'):
        pricing.price(Traced(tf.exp), tf.TensorSpec([None, 8]))


@pytest.mark.parametrize('outputs, found',
                         [(lambda x: (x, x), 'tuple'),
                          (lambda x: {'y': {'z': [x]}}, "list as 'y/z'"), (lambda x: 3., 'float'),
                          (tf.RaggedTensor.from_tensor, 'RaggedTensor'),
                          (lambda x: {'y': tf.sparse.from_dense(x)}, "SparseTensor as 'y'")])
def test_what_is_no_tensor_is_refused_as_an_output(outputs: Callable[..., Any], found: str) -> None:
    with pytest.raises(ValueError, match=f'^traced: fprop of Traced returns a value of type '
                                         f'{found}, but a layer returns a tensor or a '
                                         "dict of tensors; return several as {'key': tensor, ...} "
                                         "and name them in Params.writes.$"):
        pricing.price(Traced(outputs), tf.TensorSpec([2, 8]))


def test_a_layer_whose_weights_have_no_effect_is_refused() -> None:
    """A forgotten return made a layer without effect, whose weights never trained."""
    pricing.price(Traced(lambda x: None), tf.TensorSpec([2, 8]))   # It may check its input.
    forgetful = Traced(lambda x, w: None)
    forgetful.add_weight('w', [8])
    with pytest.raises(ValueError, match='^traced: fprop of Traced returns nothing and emits '
                                         'nothing, so that its weights have no effect; return its'):
        pricing.price(forgetful, tf.TensorSpec([2, 8]))


def test_a_layer_that_computes_in_vain_is_refused() -> None:
    """A forgotten return left the layer without effect, and nothing said so."""
    with pytest.raises(ValueError, match='^traced: fprop of Traced computes something, but returns '
                                         'nothing and emits nothing, so that it has no effect; '
                                         'return its output, or, if its Params decide whether it '
                                         r'emits, compute only what is emitted\.$'):
        pricing.price(Traced(lambda x: (2 * x, None)[1]), tf.TensorSpec([2, 8]))


@pytest.mark.parametrize('check', [
    lambda x: tf.debugging.assert_rank(x, 2), lambda x: tf.debugging.assert_less(x, 1.),
    lambda x: tf.ensure_shape(x, [2, 8]), tf.print], ids=['rank', 'values', 'shape', 'print'])
def test_a_layer_may_check_and_print_its_input_alone(check: Callable[..., Any]) -> None:
    pricing.price(Traced(lambda x: (check(x), None)[1]), tf.TensorSpec([2, 8]))


class Watch(Layer):
    """A metric that is of evaluations alone, though always computed."""

    def fprop(self, theta: NestedMap, ctx: Any, x: tf.Tensor) -> None:
        total = tf.reduce_sum(x)
        if not ctx.training:
            ctx.emit_metric(self.path, 'total', total, tf.constant(1.))


def test_a_layer_may_emit_outside_training_alone() -> None:
    pricing.price(Watch.Params(name='watch').instantiate(), tf.TensorSpec([2, 8]))


@pytest.mark.parametrize('name, found', [(None, ''), ('scale', " 'scale'")])
# TensorFlow silently makes a variable of a constant.
@pytest.mark.parametrize('initial_value', [lambda x: 2., tf.exp])
def test_a_variable_made_in_fprop_is_refused(initial_value: Callable[..., Any], name: str | None,
                                             found: str) -> None:
    with pytest.raises(ValueError,
                       match=f'^traced: fprop of Traced makes the tf.Variable{found}, but a layer '
                             f'owns no variable; declare '
                             'the weight in __init__ with add_weight, and read it from theta.$'):
        pricing.price(Traced(lambda x: x * tf.Variable(initial_value(x), name=name)),
                      tf.TensorSpec([2, 8]))


def stateful(graph: Any) -> list[str]:
    return [kind for op in graph.get_operations() for kind in pricing.stateful_types(op)]


def test_stateful_ops_are_found_at_any_depth() -> None:
    @tf.function
    def noisy(x: tf.Tensor) -> tf.Tensor:
        tf.print(x)
        return x + tf.random.uniform([2])

    graph = tf.function(lambda x: noisy(x)).get_concrete_function(tf.TensorSpec([2])).graph
    assert sorted(stateful(graph)) == ['PrintV2', 'RandomUniform']
    assert stateful(pricing.trace(Traced(tf.exp), tf.TensorSpec([2])).graph) == []


def test_a_stateful_op_is_refused_when_a_layer_is_traced() -> None:
    with pytest.raises(ValueError, match=r'^traced makes the stateful op RandomUniform .*use '
                                         r'tf.random.stateless_\* with ctx.seed'):
        pricing.trace(Traced(lambda x: x * tf.random.uniform([])), tf.TensorSpec([2]))

    def printing(x: tf.Tensor) -> tf.Tensor:
        tf.print(x)
        return x

    assert stateful(pricing.trace(Traced(printing), tf.TensorSpec([2])).graph) == ['PrintV2']
