"""Sequential and Repeat: wiring by name, and the errors when it is wrong."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.layers import Activation, CrossEntropyLoss, Dense, Repeat, Sequential
from lingpipe.layers.base import Layer
from lingpipe.layers.context import Context
from lingpipe.layers.sequential import check_paths


class Split(Layer):
    """Returns the two halves of x."""

    def fprop(self, theta: Any, ctx: Any, x: tf.Tensor) -> dict[str, tf.Tensor]:
        left, right = tf.split(x, 2, -1)
        return {'left': left, 'right': right}


class Add(Layer):
    """x + skip."""

    def fprop(self, theta: Any, ctx: Any, x: tf.Tensor, skip: tf.Tensor) -> tf.Tensor:
        return x + skip


def dense(name: str = '', **values: Any) -> Dense.Params:
    return Dense.Params(name=name, input_dim=4, units=4, **values)


def network(*layers: Any) -> Any:
    return Sequential.Params(layers=layers).instantiate('net')


def test_values_are_read_by_name_and_written_again() -> None:
    net = network(dense('a', writes='skip'), dense('b', reads={'x': 'skip'}), Add.Params())
    assert net.reads() == {'x': 'x'}
    theta = net.initial_theta()
    x = tf.ones([2, 4])
    found = net.fprop(theta, Context(), x=x)
    skip = x @ theta.a.w
    np.testing.assert_allclose(found['x'], skip @ theta.b.w + skip, rtol=1e-5)
    assert set(found) == {'x', 'skip'}


def test_several_outputs_get_names_of_their_own() -> None:
    net = network(Split.Params(writes={'left': 'x', 'right': 'skip'}), Add.Params())
    np.testing.assert_array_equal(
        net.fprop(net.initial_theta(), Context(), x=tf.constant([[1., 2.]]))['x'], [[3.]])


def test_a_loss_reads_the_mini_batch_and_writes_nothing() -> None:
    net = network(dense(), CrossEntropyLoss.Params())
    assert net.reads() == {'x': 'x', 'labels': 'labels', 'weight': 'weight'}
    found = net.fprop(net.initial_theta(), Context(), x=tf.ones([2, 4]), labels=tf.constant([0, 1]),
                      weight=tf.ones([2]))
    assert set(found) == {'x'}


def test_nested_networks_share_names_and_are_opened() -> None:
    net = network(Sequential.Params(name='inner', layers=(dense('a', writes='skip'),)),
                  Add.Params(name='add'))
    assert [layer.path for layer in net.elements()] == ['net/inner/a', 'net/add']
    assert net.reads() == {'x': 'x'}


def test_a_unit_is_one_group_of_layers_that_run_one_by_one() -> None:
    inner = Sequential.Params(name='inner', layers=(dense('b'), dense('c')))
    net = network(dense('a'),
                  Sequential.Params(name='unit', is_unit=True, layers=(inner, dense('d'))), inner)
    assert [[layer.path for layer in unit] for unit in net.units()] == [
        ['net/a'], ['net/unit/inner/b', 'net/unit/inner/c', 'net/unit/d'], ['net/inner/b'],
        ['net/inner/c']]


def test_a_repeated_layer_has_weights_of_its_own() -> None:
    net = network(Repeat.Params(name='stack', body=dense(), times=2))
    assert [w.path for w in net.weights()] == ['net/stack/layer_0/w', 'net/stack/layer_0/b',
                                               'net/stack/layer_1/w', 'net/stack/layer_1/b']


@pytest.mark.parametrize('layers, message', [
    ((dense('a'), dense('a')), r"net: two layers are named 'a'; .*: rename layers\[1\]"),
    ((Add.Params(name='add'),), r"net/add reads 'skip' \(its argument 'skip'\), .*; there are: x"),
    ((Activation.Params(name='act', reads={'y': 'x'}),),
     "net/act: reads names the argument 'y', but fprop of Activation takes x"),
    ((Split.Params(name='split', writes={'middle': 'x'}),),
     "net/split: writes names the output 'middle', .* returns left, right"),
    ((Repeat.Params(body=dense(), times=1, layers=(dense(),)),),
     'Repeat.layers is made from body and times; leave it empty')])
def test_wrong_wiring_is_explained(layers: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        net = network(*layers)
        net.fprop(net.initial_theta(), Context(), x=tf.ones([2, 4]))


def test_an_fprop_without_a_context_is_refused() -> None:
    class NoContext(Activation):
        def fprop(self, theta: Any, x: tf.Tensor) -> tf.Tensor:   # type: ignore[override]
            return x

    with pytest.raises(ValueError, match=r'net/a: fprop of NoContext takes theta, x first, but is '
                                         r'given the weights and the context; write def fprop\('):
        network(NoContext.Params(name='a')).reads()


def test_whole_numbers_are_refused_by_a_layer_with_weights() -> None:
    """TensorFlow said that it has no kernel, after the run had begun."""
    spec = tf.TensorSpec([2, 4], tf.uint8)
    with pytest.raises(ValueError, match='net/a: x is uint8, and a layer with weights computes '
                                         'with floating-point numbers; make them in the input'):
        network(dense('a')).children['a'].cost(spec)


def test_a_weight_before_the_base_class_is_refused() -> None:
    class Early(Activation):
        def __init__(self, params: Any, path: str = ''):
            self.add_weight('w', [1])

    with pytest.raises(ValueError, match=r'__init__ of Early declares a weight or a child before '
                                         r'it calls super\(\).__init__\(params, path\)'):
        network(Early.Params(name='a'))


@pytest.mark.parametrize('times, found', [(0, 'below 1'), (10 ** 22, 'above 10000')])
def test_a_number_of_repetitions_that_makes_no_network_is_refused(times: int, found: str) -> None:
    with pytest.raises(ValueError, match=f'times={times} is {found}; use 1 to 10000'):
        Repeat.Params(body=dense(), times=times)


def test_two_layers_of_one_path_are_refused() -> None:
    """They shared their weights, since a network holds one weight for each path."""
    net = network(Sequential.Params(name='a', layers=(dense('b'),)), dense('a/b'))
    with pytest.raises(ValueError, match="2 layers have the path 'net/a/b', but a path belongs to "
                                         'one.*; give them names without a slash'):
        check_paths(net)


class SlashedWeight(Layer):
    """Has a weight whose name is the path of its child's."""

    def __init__(self, params: Any, path: str = ''):
        super().__init__(params, path)
        self.add_child(dense('b'))
        self.add_weight('b/w', [4, 4])


def test_two_weights_of_one_path_are_refused() -> None:
    with pytest.raises(ValueError, match="2 weights have the path 'net/a/b/w'"):
        check_paths(network(SlashedWeight.Params(name='a')))
