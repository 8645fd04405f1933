"""Cell: a span of layers on one device, and the values that cross its ends."""
from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Sequence

import tensorflow as tf

from lingpipe.pipeline.planning.dataflow import BATCH, Element, Value

# A leaf of a value, by its number: what compiled tasks take and give.
Leaf = tuple[Value, int]


@dataclasses.dataclass(frozen=True, eq=False)
class Cell:
    """A span of elements on a device.

    Attributes:
      index: k.
      elements: its layers, in order.
      device: the tf.device string.
      fetched: values of any cell that are asked for when all cells have run, as an evaluation does.
    """
    index: int
    elements: Sequence[Element]
    device: str
    fetched: frozenset[Value] = frozenset()

    @functools.cached_property
    def inputs(self) -> list[Value]:
        """The values that it reads and does not make, the mini-batch's included."""
        read = [value for element in self.elements for value in element.reads.values()]
        return list(dict.fromkeys(value for value in read if value.maker not in self._indices))

    @functools.cached_property
    def outputs(self) -> list[Value]:
        """The values that it makes and that later cells read, or that are fetched."""
        written = [value for element in self.elements for value in element.writes.values()]
        return [value for value in written
                if value in self.fetched or not self._indices.issuperset(value.readers)]

    @functools.cached_property
    def _indices(self) -> frozenset[int]:
        return frozenset(element.index for element in self.elements)

    @property
    def has_backward(self) -> bool:
        """Whether any layer of it is asked for a gradient."""
        return any(element.has_backward for element in self.elements)

    @property
    def gradients_wanted(self) -> list[Leaf]:
        """The leaves of inputs whose gradient it must pass on."""
        return [(value, i) for value, i in leaves_of(self.inputs) if value.carries_gradient[i]]


def leaves_of(values: Iterable[Value]) -> list[Leaf]:
    """All leaves of values."""
    return [(value, i) for value in values for i in range(len(value.specs))]


def edges_of_tasks(cells: Sequence[Cell]) -> set[tuple[int, int]]:
    """The pairs of cells between which values and gradients are passed.

    They are the maker of a value with its first reader, and each reader with the next one, from
    which it takes the gradient so far.
    """
    return {pair for chain in cells_of_values(cells).values() for pair in itertools.pairwise(chain)}


def cells_of_values(cells: Sequence[Cell]) -> dict[Value, list[int]]:
    """Value that cells pass on -> its maker and then its readers, as indices of cells."""
    indices: dict[Value, list[int]] = {}
    for cell in cells:
        for value in dict.fromkeys([*cell.inputs, *cell.outputs]):
            if value.maker != BATCH and value.specs:
                indices.setdefault(value, []).append(cell.index)
    return indices


def bytes_between(cells: Sequence[Cell], sender: int, receiver: int,
                  wire_dtype: tf.DType | None = None) -> float:
    """What one cell sends to another for one micro-batch.

    To a later cell it sends values, and to an earlier one the gradients of that cell's values.
    Every reader's gradient is counted as sent straight to the maker. In total these are as many
    bytes as are really sent, and in a plain chain of cells they are the same ones.

    Args:
      cells: [K].
      sender, receiver: the indices of two cells.
      wire_dtype: the dtype in which float32 values are sent to other cells; None: float32.
    """
    maker, reader = sorted((sender, receiver))
    read = [value for value in cells[maker].outputs if value in cells[reader].inputs]
    return float(sum(
        bytes_sent(spec, wire_dtype) for value in read
        for spec, carries in zip(value.specs, value.carries_gradient, strict=True)
        if carries or sender < receiver))


def bytes_sent(spec: tf.TensorSpec | tf.Tensor | tf.Variable,
               wire_dtype: tf.DType | None = None) -> int:
    """The bytes of a tensor that is sent, if float32 values are sent as `wire_dtype`."""
    dtype = wire_dtype if wire_dtype and spec.dtype == tf.float32 else spec.dtype
    return int((spec.shape.num_elements() or 0) * dtype.size)
