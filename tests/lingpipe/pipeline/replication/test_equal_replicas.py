"""Equal replicas: copied from the first, and told apart by a single bit."""
from __future__ import annotations

import types

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.pipeline.replication.equal_replicas import check_equal, copy_first


def replica(weight: list[float], slot: float) -> types.SimpleNamespace:
    """Returns what stands for the variables of a replica."""
    by_key = {'weights/w': tf.Variable(weight), 'optimizer/w/velocities': tf.Variable(slot)}
    return types.SimpleNamespace(by_key=lambda: by_key)


def test_replicas_begin_as_copies_of_the_first():
    replicas = [replica([1., 2.], 3.), replica([0., 0.], 0.), replica([9., 9.], 9.)]
    copy_first(replicas)
    check_equal(replicas)
    np.testing.assert_array_equal(replicas[2].by_key()['weights/w'], [1., 2.])


@pytest.mark.parametrize(('other', 'key'), [
    (([1., np.nextafter(np.float32(2), np.float32(3))], 3.), 'weights/w'),
    (([1., 2.], -3.), 'optimizer/w/velocities')])
def test_a_replica_that_differs_in_one_bit_is_named(other, key):
    replicas = [replica([1., 2.], 3.), replica([1., 2.], 3.), replica(*other)]
    with pytest.raises(ArithmeticError, match=f'{key} of replica 2 differs from that of replica 0'):
        check_equal(replicas)
