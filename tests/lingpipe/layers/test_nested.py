"""Nested values: leaves have TensorFlow's order, and structures survive."""
from __future__ import annotations

import pytest
import tensorflow as tf

from lingpipe.layers.nested import NestedMap, flatten, leaves, map_leaves, pack_like

VALUE = NestedMap(b=1, a=NestedMap(d=2, c=3), e=None)


def test_leaves_come_in_sorted_order_with_their_paths() -> None:
    assert list(flatten(VALUE)) == [('a/c', 3), ('a/d', 2), ('b', 1)]
    assert list(flatten(7)) == [('', 7)]
    assert list(flatten({})) == list(flatten(None)) == []


def test_the_order_is_tensorflow_s() -> None:
    value = NestedMap(b=1, a=NestedMap(d=2, c=3))
    assert leaves(value) == tf.nest.flatten(value)


def test_mapping_keeps_structure_order_of_keys_and_type() -> None:
    mapped = map_leaves(lambda x, y: x + y, VALUE, {'b': 10, 'a': {'d': 20, 'c': 30}, 'e': None})
    assert mapped == {'b': 11, 'a': {'d': 22, 'c': 33}, 'e': None}
    assert isinstance(mapped, NestedMap) and list(mapped) == ['b', 'a', 'e']


def test_packing_undoes_flattening() -> None:
    assert pack_like(VALUE, leaves(VALUE)) == VALUE
    assert isinstance(pack_like(VALUE, [1, 2, 3]).a, NestedMap)


def test_too_many_leaves_are_a_mistake() -> None:
    with pytest.raises(AssertionError, match='more leaves than the structure has'):
        pack_like(VALUE, [1, 2, 3, 4])


def test_entries_are_attributes_and_a_wrong_one_names_the_right_ones() -> None:
    value = NestedMap(w=1)
    value.b = 2
    assert (value['b'], value.w) == (2, 1)
    with pytest.raises(AttributeError, match="no entry 'v'; there are: b, w"):
        value.v  # noqa: B018
