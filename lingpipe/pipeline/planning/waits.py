"""Waits: how long a device waits at least for its first micro-batch, and others for its last one.

A micro-batch comes to a cell when the layers that its first layer depends on have run, and these
have their backwards when that layer has had its own. Where backwards may be split, only the part
of them counts that finds the gradients of the inputs.

L layers, U units of them.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lingpipe.pipeline.planning.dataflow import BATCH, Element


@dataclass(frozen=True, eq=False)
class Waits:
    """What a cell that begins at a unit waits, and is waited for, at least.

    Attributes:
      before: [U + 1] seconds from the start of a step to its first slot.
      after: [U + 1] seconds from the end of its last B to the end of the step.
      path_s: seconds from the first forward of a micro-batch to its last backward, for any cuts.
    """
    before: np.ndarray
    after: np.ndarray
    path_s: float

    def of_later_units(self) -> Waits:
        """The least that holds for cells that begin at a unit or behind it."""
        before, after = (np.minimum.accumulate(seconds[-2::-1])[::-1]
                         for seconds in (self.before, self.after))
        return Waits(np.append(before, 0.0), np.append(after, 0.0), self.path_s)


def waits(elements: Sequence[Element], forward_s: Sequence[float], backward_s: Sequence[float],
          starts: Sequence[int]) -> Waits:
    """Finds how long cells wait.

    Args:
      elements: the network.
      forward_s: [L] of each layer.
      backward_s: [L] of each layer's B, without its W where that may run later.
      starts: the layer where each unit begins, and the number of layers.
    """
    before, after = [0.0] * len(elements), [0.0] * len(elements)
    for i, element in enumerate(elements):
        for value in element.reads.values():
            j = value.maker
            if j == BATCH:
                continue
            before[i] = max(before[i], before[j] + forward_s[j])
            if element.has_backward and elements[j].has_backward and any(value.carries_gradient):
                after[i] = max(after[i], after[j] + backward_s[j])
    longest = max(waited + forward + backward * element.has_backward + waiting
                  for element, waited, forward, backward, waiting in zip(
                      elements, before, forward_s, backward_s, after, strict=True))
    first_layers = list(starts[:-1])
    return Waits(np.append(np.array(before)[first_layers], 0.0),
                 np.append(np.array(after)[first_layers], 0.0), longest)
