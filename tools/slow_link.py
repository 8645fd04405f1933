"""Slow link: a program whose values and gradients take time to reach other devices, as on a network of limited bandwidth."""
from __future__ import annotations

from typing import Any

import tensorflow as tf

from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.execution.wire import Wire
from lingpipe.tools import stacks


class SlowWire(Wire):
    """Links between devices, each way of its own, that carry one tensor at a time, in the order in which they are read.

    A transfer is an op of its own on the receiving device, outside the order of its tasks: the device computes on meanwhile.
    """

    def __init__(self, bytes_s: float):
        """bytes_s: bandwidth of a link in bytes a second."""
        super().__init__(None)
        self._bytes_s = bytes_s
        self._last: dict[tuple[str, str], tf.Tensor] = {}  # (maker, reader) -> what its link carried last
        self._arrived: dict[tuple[str, str], tf.Tensor] = {}

    def carried(self, tensor: tf.Tensor, maker: str, reader: str) -> tf.Tensor:
        """The tensor on the device `reader`, bytes / bandwidth after it is made and the link is free."""
        if maker == reader or tf.executing_eagerly():
            return tensor
        if (tensor.name, reader) not in self._arrived:
            before = [self._last[maker, reader]] if (maker, reader) in self._last else []
            size = tensor.shape.num_elements() * tensor.dtype.size
            with tf.device(reader), tf.control_dependencies(before):
                self._last[maker, reader] = self._arrived[tensor.name, reader] = stacks.sleep(tensor, size / self._bytes_s * 1e3)
        return self._arrived[tensor.name, reader]


class SlowProgram(Program):
    """A Program over a SlowWire."""

    def __init__(self, *args: Any, link_bytes_s: float, **kwargs: Any):
        """As a Program, and link_bytes_s: bandwidth of every link."""
        self._link_bytes_s = link_bytes_s
        super().__init__(*args, **kwargs)

    def make_wire(self) -> Wire:
        return SlowWire(self._link_bytes_s)
