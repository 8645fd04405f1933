"""Transfers: the bytes that cross from device to device in a step: the values at the ends of cells, and their gradients.

A value goes once to every device that has readers of it. Its gradient goes from the last of the cells that read it to the one
before, and so on to the maker, each adding its own.
"""
from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from lingpipe.pipeline.cell import Cell


def predicted_bytes(cells: Sequence[Cell], num_micro_batches: int, wire_dtype: tf.DType | None = None) -> float:
    """Of one training step of one replica, without the mini-batch itself and without weights that cells share.

    Args:
      cells: [K].
      num_micro_batches: M.
      wire_dtype: what float32 values are sent as; None: as they are.
    """
    cell_of = {element.index: cell for cell in cells for element in cell.elements}
    made = [value for cell in cells for value in cell.outputs]
    total = 0
    for value in made:
        maker = cell_of[value.maker]
        readers = list(dict.fromkeys(cell_of[i].index for i in value.readers if i in cell_of and cell_of[i] is not maker))
        for spec, carries in zip(value.specs, value.carries_gradient, strict=True):
            size = _bytes(spec, wire_dtype)
            total += size * len({cells[k].device for k in readers} - {maker.device})
            if carries:
                chain = [maker.index, *sorted(readers)]
                total += size * sum(cells[a].device != cells[b].device for a, b in zip(chain[:-1], chain[1:], strict=True))
    return float(total * num_micro_batches)


def measured_bytes(graph: tf.Graph) -> float:
    """The same of the graph of a step as it was built: what tasks make on one device and others read on another."""
    sent: dict[tuple[str, str], int] = {}
    for op in graph.get_operations():
        if not _is_task(op) and op.type != 'Cast':
            continue
        for tensor in op.inputs:
            maker = tensor.op.inputs[0].op if tensor.op.type == 'Cast' else tensor.op
            if _is_task(maker) and tensor.op.device != op.device:
                sent[tensor.name, op.device] = _bytes(tensor, None)
    return float(sum(sent.values()))


def bytes_between(cells: Sequence[Cell], sender: int, receiver: int, wire_dtype: tf.DType | None = None) -> float:
    """Of one micro-batch, from one cell to another: values to a later cell, gradients of what it made to an earlier one.

    Every reader's gradient counts as sent straight to the maker: as many bytes in all, and the same ones in a chain of cells.

    Args:
      cells: [K].
      sender, receiver: k of two cells.
      wire_dtype: as above.
    """
    maker, reader = sorted((sender, receiver))
    read = [value for value in cells[maker].outputs if value in cells[reader].inputs]
    return float(sum(_bytes(spec, wire_dtype) for value in read for spec, carries in zip(value.specs, value.carries_gradient, strict=True)
                     if carries or sender < receiver))


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


def _is_task(op: tf.Operation) -> bool:
    return op.type in ('StatefulPartitionedCall', 'PartitionedCall')


def _bytes(spec: tf.TensorSpec | tf.Tensor, wire_dtype: tf.DType | None) -> int:
    dtype = wire_dtype if wire_dtype and spec.dtype == tf.float32 else spec.dtype
    return int((spec.shape.num_elements() or 0) * dtype.size)
