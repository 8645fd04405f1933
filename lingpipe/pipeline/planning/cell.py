"""Cell: a span of layers on one device, the values at its ends, and what a task of it takes and gives."""
from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from lingpipe.pipeline.planning.dataflow import BATCH, Element, Value

# A leaf of a value: what tasks are given and give.
Leaf = tuple[Value, int]


@dataclasses.dataclass(eq=False)
class Cell:
    """A span of elements on a device.

    Attributes:
      index: k.
      elements: its layers, in order.
      device: the tf.device string.
      inputs: values that it reads and does not make, the mini-batch's included.
      outputs: values that it makes and later cells read.
    """
    index: int
    elements: Sequence[Element]
    device: str

    def __post_init__(self) -> None:
        first, last = self.elements[0].index, self.elements[-1].index
        read = [v for e in self.elements for v in e.reads.values() if v.maker < first]
        self.inputs: list[Value] = list(dict.fromkeys(read))
        self.outputs: list[Value] = [v for e in self.elements for v in e.writes.values() if any(r > last for r in v.readers)]

    @property
    def has_backward(self) -> bool:
        """Whether any layer of it is asked for a gradient."""
        return any(e.has_backward for e in self.elements)

    @property
    def gradients_wanted(self) -> list[Leaf]:
        """The leaves of inputs whose gradient it must pass on."""
        return [leaf for leaf in leaves_of(self.inputs) if leaf[0].carries_gradient[leaf[1]]]


def leaves_of(values: Iterable[Value]) -> list[Leaf]:
    """All leaves of values."""
    return [(value, i) for value in values for i in range(len(value.specs))]


def edges_of_tasks(cells: Sequence[Cell]) -> set[tuple[int, int]]:
    """(maker, reader), and each reader with the next one of the same value, from which it takes the gradient so far."""
    touched: dict[Value, list[int]] = {}
    for cell in cells:
        for value, _ in leaves_of([*cell.inputs, *cell.outputs]):
            if value.maker != BATCH and cell.index not in touched.setdefault(value, []):
                touched[value].append(cell.index)
    return {(a, b) for chain in touched.values() for a, b in zip(chain[:-1], chain[1:], strict=True)}
