"""Slow link: a program whose values and gradients take time to reach other devices.

It emulates a network of limited bandwidth.
"""
from __future__ import annotations

from typing import Any

import tensorflow as tf

from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.execution.wire import Wire
from lingpipe.tools import stacks


class SlowWire(Wire):
    """Links between devices that carry one tensor at a time, in the order in which they are read.

    Each pair of devices has one link each way. A transfer is an op of its own on the receiving
    device, outside the order of the device's tasks, so that the device computes on meanwhile.
    """

    def __init__(self, bytes_s: float):
        """
        Args:
          bytes_s: bandwidth of a link, in bytes a second.
        """
        super().__init__(None)
        self._bytes_s = bytes_s
        # (maker, reader) -> the tensor that their link carried last.
        self._last_on_link: dict[tuple[str, str], tf.Tensor] = {}
        # (name of a tensor, reader) -> the tensor there.
        self._arrived: dict[tuple[str, str], tf.Tensor] = {}

    def carried(self, tensor: tf.Tensor, maker: str, reader: str) -> tf.Tensor:
        """Returns the tensor on the device `reader`.

        It is there bytes / bandwidth after it is made and the link is free.
        """
        if maker == reader or tf.executing_eagerly():
            return tensor

        link = (maker, reader)
        arrival = (tensor.name, reader)
        if arrival not in self._arrived:
            before = [self._last_on_link[link]] if link in self._last_on_link else []
            num_bytes = tensor.shape.num_elements() * tensor.dtype.size
            with tf.device(reader), tf.control_dependencies(before):
                self._arrived[arrival] = stacks.sleep(tensor, num_bytes / self._bytes_s * 1e3)
            self._last_on_link[link] = self._arrived[arrival]
        return self._arrived[arrival]


class SlowProgram(Program):
    """A Program over a SlowWire."""

    def __init__(self, *args: Any, link_bytes_s: float, **kwargs: Any):
        """
        Args:
          *args, **kwargs: those of Program.
          link_bytes_s: bandwidth of every link, in bytes a second.
        """
        self._link_bytes_s = link_bytes_s
        super().__init__(*args, **kwargs)

    def make_wire(self) -> Wire:
        return SlowWire(self._link_bytes_s)
