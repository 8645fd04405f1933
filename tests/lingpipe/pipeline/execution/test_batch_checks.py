"""Batch checks: a mini-batch that does not fit is reported in one clear sentence."""
from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.pipeline.execution.batch_checks import check_batch, explained, is_of_spec

SPEC = {'x': tf.TensorSpec([4, 2]), 'labels': tf.TensorSpec([4], tf.int32)}


def batch(**changed: object) -> dict[str, object]:
    return {'x': np.zeros([4, 2], np.float32), 'labels': np.zeros([4], np.int32), **changed}


def test_other_values_are_left_out():
    assert check_batch(batch(other=1), SPEC).keys() == {'x', 'labels'}


@pytest.mark.parametrize(('wrong', 'sentence'), [
    ({'x': np.zeros([3, 2], np.float32)},
     r"'x' of the mini-batch is float32 \(3, 2\), but the network was built for float32 \(4, 2\); "
     r'all mini-batches must be alike: drop or pad the last one.'),
    ({'labels': np.zeros([4], np.int64)},
     r"'labels' of the mini-batch is int64 \(4,\), but the network was built for int32 \(4,\)"),
    ({'x': {'a': np.zeros([4, 2], np.float32)}},
     'the mini-batch has labels, x/a, but the network was built for labels, x.'),
])
def test_a_mini_batch_of_another_shape_is_refused(wrong, sentence):
    assert is_of_spec(batch(), SPEC)
    assert not is_of_spec(batch(**wrong), SPEC)
    with pytest.raises(ValueError, match=sentence):
        check_batch(batch(**wrong), SPEC)


def test_a_missing_value_is_refused():
    with pytest.raises(ValueError, match='the mini-batch has x, but the network was built for'):
        check_batch({'x': batch()['x']}, SPEC)


def test_an_error_that_nothing_explains_stays_as_it_is():
    error = tf.errors.InvalidArgumentError(None, None, 'something else')
    with pytest.raises(tf.errors.InvalidArgumentError) as found, explained([], batch()):
        raise error
    assert found.value is error


def test_an_op_that_xla_cannot_compile_is_named():
    message = ('tf2xla conversion failed while converting f. unsupported operations when compiling '
               'XLA: PyFunc (No registered) {{node model/sleep./PyFunc}}')
    with pytest.raises(ValueError, match='XLA cannot compile PyFunc of model/sleep, and it must'):
        with explained([], batch()):
            raise tf.errors.InvalidArgumentError(None, None, message)
