"""Wire: how a tensor is sent from one device to another."""
from __future__ import annotations

import tensorflow as tf


class Wire:
    """Sends tensors to other cells: float32 ones as `dtype`, all others unchanged."""

    def __init__(self, dtype: tf.DType | None):
        """
        Args:
          dtype: what float32 tensors are cast to on the way; None: they are sent unchanged.
        """
        self._dtype = dtype
        self._sent: dict[str, tf.Tensor] = {}
        self._received: dict[tuple[str, str], tf.Tensor] = {}

    def carried(self, tensor: tf.Tensor, maker: str, reader: str) -> tf.Tensor:
        """Returns a tensor of the device `maker` as a tensor on the device `reader`.

        It is sent to a device only once, however many cells read it there.
        """
        if self._dtype is None or tensor.dtype != tf.float32 or maker == reader:
            return tensor
        if tf.executing_eagerly():
            return tf.cast(tf.cast(tensor, self._dtype), tf.float32)

        if tensor.name not in self._sent:
            with tf.device(maker):
                self._sent[tensor.name] = tf.cast(tensor, self._dtype)
        if (tensor.name, reader) not in self._received:
            with tf.device(reader):
                self._received[tensor.name, reader] = tf.cast(self._sent[tensor.name], tf.float32)
        return self._received[tensor.name, reader]
