"""Wire: what becomes of a tensor on its way from one device to another."""
from __future__ import annotations

import tensorflow as tf


class Wire:
    """Gives cells the values of others: float32 as `dtype` on the way, all else as it is."""

    def __init__(self, dtype: tf.DType | None):
        """dtype: None: float32 too goes as it is."""
        self._dtype = dtype
        self._sent: dict[str, tf.Tensor] = {}
        self._received: dict[tuple[str, str], tf.Tensor] = {}

    def carried(self, tensor: tf.Tensor, maker: str, reader: str) -> tf.Tensor:
        """The tensor, made on the device `maker`, on the device `reader`; sent once for all that read it there."""
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
