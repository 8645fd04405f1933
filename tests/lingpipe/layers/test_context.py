"""Context: what updated_state will get has one shape, which errors ask for."""
from __future__ import annotations

import re

import pytest
import tensorflow as tf

from lingpipe.layers.context import Context


@pytest.mark.parametrize('kind', ['emit_mean', 'emit_state'])
def test_what_updated_state_gets_has_the_same_shape_in_every_micro_batch(kind: str) -> None:
    """A part of the rows was an error of Python or TensorFlow, far from the layer that emits it."""
    ctx = Context(training=True)
    sentence = ("model/vq emits 'rows' of shape (None, 8), but what updated_state gets has the "
                'same shape in every micro-batch; reduce the dimension that is not known, or set '
                'it with tf.ensure_shape.')

    @tf.function
    def emit(x: tf.Tensor) -> None:
        getattr(ctx, kind)('model/vq', 'rows', tf.boolean_mask(x, x[:, 0] > 0))

    with pytest.raises(ValueError, match=re.escape(sentence)):
        emit(tf.ones([4, 8]))


@pytest.mark.parametrize('kind', ['emit_mean', 'emit_state'])
def test_a_shape_that_is_not_known_does_no_harm_where_nothing_is_updated(kind: str) -> None:
    """It was refused there too, as in predictions of any number of examples."""
    ctx = Context()

    @tf.function
    def emit(x: tf.Tensor) -> tf.Tensor:
        getattr(ctx, kind)('model/vq', 'rows', tf.boolean_mask(x, x[:, 0] > 0))
        return x

    emit(tf.ones([4, 8]))
    assert ctx.emissions.tensors() == []


def test_a_mean_and_its_variance_are_of_one_shape() -> None:
    """Others were cut to pieces by the sizes of the means, with an error of tf.split."""
    ctx = Context(training=True)
    sentence = ("model/norm emits as 'moments' a mean of shape () and a variance of shape (8,); "
                'give both the same shape.')
    with pytest.raises(ValueError, match=re.escape(sentence)):
        ctx.emit_moments('model/norm', 'moments', tf.constant(0.), tf.ones([8]))
