"""Shapes: what a layer with weights does not take is refused with what to do about it."""
from __future__ import annotations

import pytest
import tensorflow as tf

from lingpipe.layers import shapes


@pytest.mark.parametrize(('dtype', 'remedy'), [
    (tf.complex64, 'give real and imaginary part as channels, in the input or by a layer before'),
    (tf.uint8, r'make them in the input, or by a layer before it \(layers\.Cast, or Normalize')])
def test_what_is_no_floating_point_number_is_refused(dtype: tf.DType, remedy: str) -> None:
    """The error advised layers.Cast, which drops the imaginary part."""
    with pytest.raises(ValueError, match=rf'^model/d: x is {dtype.name}, and a layer with weights '
                                         rf'computes with floating-point numbers; {remedy}'):
        shapes.check_last_dim(tf.TensorSpec([4, 3], dtype), 3, 'model/d')
    shapes.check_last_dim(tf.TensorSpec([4, 3]), 3, 'model/d')
