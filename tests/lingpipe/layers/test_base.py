"""Layer: what is declared wrongly is told at once, with what to write."""
from __future__ import annotations

import re

import pytest
import tensorflow as tf

from lingpipe.layers.base import Layer
from lingpipe.layers.context import Context


class Own(Layer):
    """A layer of a user."""


def refuses(sentence: str, error: type[Exception] = ValueError) -> object:
    return pytest.raises(error, match='^' + re.escape(sentence) + '$')


def test_a_name_is_given_to_one_weight_or_child() -> None:
    """It was an AssertionError that said the name alone."""
    layer = Own.Params(name='own').instantiate('model/own')
    layer.add_weight('w', [8])
    taken = "model/own has a weight or a child 'w' already; give this one another name."
    with refuses(taken):
        layer.add_weight('w', [8])
    with refuses(taken):
        layer.add_child(Own.Params(name='w'))
    with refuses('model/own: a child has no name; set name of its Params, or give it one by '
                 'add_child(params, name).'):
        layer.add_child(Own.Params())


@pytest.mark.parametrize('shape, shown', [(8, '8'), ([None, 8], '[None, 8]')])
def test_the_shape_of_a_weight_is_a_list_of_whole_numbers(shape: object, shown: str) -> None:
    layer = Own.Params(name='own').instantiate('model/own')
    with refuses(f"model/own: the shape of 'w' is {shown}, but must be a list of whole numbers; "
                 'write [8] for a vector of 8.'):
        layer.add_weight('w', shape)


def test_the_dtype_of_a_weight_may_be_a_name() -> None:
    layer = Own.Params(name='own').instantiate('model/own')
    layer.add_weight('count', [], 'zeros', is_trainable=False, dtype='int64')
    assert layer.own_weights['count'].dtype == tf.int64


@pytest.mark.parametrize('method, end', [('', '.'), ('call', ' in place of call.'),
                                         ('forward', ' in place of forward.')])
def test_a_layer_without_fprop_is_told_what_to_write(method: str, end: str) -> None:
    kind = type('Foreign', (Layer,), {method: lambda self, x: x} if method else {})
    with refuses(f'Foreign has no fprop; write def fprop(self, theta, ctx, x){end}',
                 NotImplementedError):
        layer = kind.Params(name='own').instantiate()
        layer.fprop(layer.initial_theta(), Context(), tf.ones([2]))
