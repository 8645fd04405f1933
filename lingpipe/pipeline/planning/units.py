"""Units: the runs of layers that a partition does not cut."""
from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np

from lingpipe.pipeline.planning.dataflow import Element


@dataclasses.dataclass(frozen=True)
class Units:
    """The units of a network.

    Attributes:
      starts: the layer where each unit begins, and at the end the number of layers.
    """
    starts: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.starts) - 1

    def sums(self, amounts: Sequence[float]) -> list[float]:
        """Adds up amounts of layers, [L], within each unit."""
        return [sum(amounts[start:stop]) for start, stop in itertools.pairwise(self.starts)]

    def layers(self, spans: Sequence[range]) -> tuple[range, ...]:
        """Turns spans of units into spans of layers."""
        return tuple(range(self.starts[span.start], self.starts[span.stop]) for span in spans)


def units_of(elements: Sequence[Element]) -> Units:
    """The units of a network's elements."""
    starts = [i for i, element in enumerate(elements)
              if i == 0 or element.unit != elements[i - 1].unit]
    return Units((*starts, len(elements)))


def spans_of(amounts: Sequence[float]) -> np.ndarray:
    """The sums of amounts of units, [U], over every span, by its first and its end [U + 1, U + 1].

    They are infinite where there is no span.
    """
    sums = np.concatenate([[0.0], np.cumsum(amounts)])
    spans = sums[None, :] - sums[:, None]
    spans[np.tril_indices(len(sums))] = np.inf
    return np.asarray(spans)
