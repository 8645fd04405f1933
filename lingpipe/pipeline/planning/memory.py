"""Memory: the bytes that cells hold in a training step.

Only this file, layer_bytes.py and growing_cell.py count them. The partitioner keeps a limit by
these numbers, peaks.py follows them through a schedule, and inspection prints them. A device holds

    fixed     throughout the step: weights, and copies of those that layers use in a narrower
              dtype; for those that train, a gradient and optimizer slots, of the largest share if
              replicas share them out; sums of groups that are set aside; copies of tied weights
              that another cell owns
    held      for each *live* micro-batch, which is one between a cell's forward and its backward:
              what the backward takes over, residuals or, with recomputation, the cell's inputs
    working   once, while a backward runs: what it recomputes, layer by layer with the gradients of
              the layer's weights; if an R did that before, from then on until the backward ends
    handed    for each micro-batch between its B and its W, where the backward is split: what W
              reads, be it held, recomputed or a gradient that B has made
    received  from a cell's last backward on: the gradients of other replicas and the sums of all;
              or, where that is more, the temporaries of the update, which is made weight by weight

Values that have been sent and not yet been read are shown (waiting_values.py), and no part of the
limit. Nor is what a layer needs besides while it runs (`temporary_bytes`): temporaries of its ops,
gradients of values, and what its forward writes. The framework itself is not counted.

All numbers are integers, so that sums in any order agree and a limit is kept to the byte. There is
no closed formula for a span of layers: residuals that two of its layers share count once, and what
a span reads depends on where it begins. So a span grows layer by layer (growing_cell.py).
"""
from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from lingpipe.pipeline.planning.growing_cell import Activations, FixedBytes
from lingpipe.pipeline.planning.layer_bytes import LayerBytes, Leaves, layer_bytes
from lingpipe.pipeline.planning.update_traffic import UpdateTraffic, total_traffic, update_traffic

if TYPE_CHECKING:
    from lingpipe.layers.weight import Weight
    from lingpipe.pipeline.planning.dataflow import Element, Value
    from lingpipe.pricing import Recipe, Residuals


class Footprint(NamedTuple):
    """The bytes of one cell; see the head of this file.

    `residual` is what it would hold for a micro-batch without recomputation; `gradients` is the
    part of `handed` that B itself makes. Where no input of the cell wants a gradient
    (`gives_gradients` is False), a split backward leaves everything to W.
    """

    fixed: float = 0
    held: float = 0
    working: float = 0
    received: float = 0
    residual: float = 0
    handed: float = 0
    gradients: float = 0
    gives_gradients: bool = True


FIELDS = tuple(Footprint.__annotations__)
_ByMode: TypeAlias = dict[str, Footprint]   # by PipelineParams.recompute_of the cell


@dataclass(frozen=True)
class Memory:
    """What any cell of a network would hold.

    Attributes:
      elements: the layers of the network.
      residuals: finds what the backward of each layer takes over. It is slow, and called only when
        bytes are asked for.
      slot_bytes: weight that trains -> bytes of its optimizer slots and averages.
      update_bytes: (weight that trains, whether its gradient is rows) -> bytes of the temporaries
        of its update.
      num_replicas: R.
      is_summed_in_groups: whether sums of gradients are set aside (PipelineParams.sum_groups).
      receives_gradients: whether replicas send each other all gradients at once, as with the
        PipelineParams.replica_reduction 'add'.
      shards_slots: whether each replica keeps the slots of its share (PipelineParams.shard_slots).
    """

    elements: Sequence[Element]
    residuals: Callable[[], Sequence[Residuals]]
    slot_bytes: Callable[[Weight], int] = lambda weight: 0
    update_bytes: Callable[[Weight, bool], int] = lambda weight, has_rows: 0
    num_replicas: int = 1
    is_summed_in_groups: bool = False
    receives_gradients: bool = True
    shards_slots: bool = False

    def of_span(self, span: range, mode: str) -> Footprint:
        """The footprint of a cell of the layers `span`, with that mode of recomputation."""
        known, others = self._grown.setdefault(span.start, ([], self._growing(span.start)))
        while len(known) < len(span):
            known.append(next(others))
        return known[len(span) - 1][mode]

    def table(self, mode: str, starts: Sequence[int]) -> np.ndarray:
        """The bytes of every span of units, by its first unit and its end, float [9, U + 1, U + 1].

        They are those of Footprint in their order, and whether a layer of the span has a backward.
        Where there is no span, they are 0, but `fixed` is infinite.

        Args:
          mode: as of `of_span`.
          starts: the layer where each unit begins, and the number of layers.
        """
        key = mode, tuple(starts)
        if key not in self._tables:
            size = len(starts)
            table = np.zeros((len(FIELDS) + 1, size, size))
            table[0] = np.inf
            have_backward = [any(element.has_backward for element in self.elements[start:end])
                             for start, end in itertools.pairwise(starts)]
            for unit, start in enumerate(starts[:-1]):
                footprints = [self.of_span(range(start, end), mode) for end in starts[unit + 1:]]
                table[:-1, unit, unit + 1:] = np.transpose(footprints)
                table[-1, unit, unit + 1:] = np.logical_or.accumulate(have_backward[unit:])
            self._tables[key] = table
        return self._tables[key]

    def growing(self, start: int, mode: str = 'none') -> Iterator[Footprint]:
        """The footprints of cells that begin at layer `start` and hold one layer, two and so on.

        Args:
          start: the first layer of all of them.
          mode: PipelineParams.recompute_of each of them.
        """
        return (in_mode[mode] for in_mode in self._growing(start))

    def _growing(self, start: int) -> Iterator[_ByMode]:
        """As `growing`, of all modes at once."""
        fixed = FixedBytes(self.num_replicas, self.is_summed_in_groups, self.receives_gradients,
                           self.shards_slots)
        activations = Activations(start, self._leaves)
        for layer in self._layers[start:]:
            fixed.add(layer)
            activations.add(layer)
            handed = activations.handed
            by_mode = {}
            for mode in ('none', 'cell', 'layer'):
                held, working = activations.held_and_working(mode)
                by_mode[mode] = Footprint(
                    fixed.total, held, working, fixed.received, activations.residual,
                    handed.total, handed.gradient_bytes, handed.gives_gradients)
            yield by_mode

    def traffic_of(self, span: range) -> UpdateTraffic:
        """What the layers of a cell train together."""
        return total_traffic(self._traffic[span.start:span.stop])

    @functools.cached_property
    def temporary_bytes(self) -> list[int]:
        """[L] the most that each layer needs besides while it runs; it runs alone on its device."""
        return [residuals.temporary_bytes for residuals in self._residuals]

    def keeps(self, value: Value, leaf: int, elements: Sequence[Element]) -> bool:
        """Whether the backward of any of the layers that make or read a value needs a leaf of it.

        Args:
          value: one that layers of the network make.
          leaf: its number in the value.
          elements: only these layers count.
        """
        return any(
            (n, leaf) in kept for element in elements
            for values, kept in ((element.reads, self._residuals[element.index].inputs),
                                 (element.writes, self._residuals[element.index].outputs))
            for n, other in enumerate(values.values()) if other is value)

    @functools.cached_property
    def _grown(self) -> dict[int, tuple[list[_ByMode], Iterator[_ByMode]]]:
        """First layer -> the footprints of the cells that were asked for, and those to come."""
        return {}

    @functools.cached_property
    def _tables(self) -> dict[tuple[str, tuple[int, ...]], np.ndarray]:
        """(mode, starts of units) -> the tables that were asked for."""
        return {}

    @functools.cached_property
    def recipes(self) -> Sequence[Recipe]:
        """How each layer makes what its backward reads."""
        return [residuals.recipe for residuals in self._residuals]

    @functools.cached_property
    def _leaves(self) -> Leaves:
        return Leaves(self.elements, self._residuals)

    @functools.cached_property
    def _residuals(self) -> Sequence[Residuals]:
        return self.residuals()

    @functools.cached_property
    def _traffic(self) -> list[UpdateTraffic]:
        """What each layer trains."""
        return [update_traffic(element, self.slot_bytes) for element in self.elements]

    @functools.cached_property
    def _layers(self) -> list[LayerBytes]:
        """What each layer adds to a cell: computed once, since thousands of cells may hold it."""
        weights = [weight for element in self.elements for weight in element.layer.weights()]
        shared = {weight.shared_with for weight in weights if weight.shared_with is not None}
        return [layer_bytes(element, residuals, self._leaves, self.slot_bytes, self.update_bytes,
                            shared)
                for element, residuals in zip(self.elements, self._residuals, strict=True)]
