"""Fitting modes: what the cells of `recompute=fit` keep, so that devices hold what they can.

A cell that fits as it is recomputes nothing. If a device would hold too much, its cells keep fewer
tensors (kept_tensors.py); if they hold too much even so, they recompute by layers, which mostly has
the fewest bytes of all. Cells that share a device, in any replica, are chosen for together.
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from lingpipe.pipeline.planning.kept_tensors import CellGraph, KeptTensors, fewest_repeats
from lingpipe.pipeline.planning.memory import Footprint, Memory
from lingpipe.pipeline.planning.partition import Partition
from lingpipe.pipeline.planning.peaks import most_live, peaks_of_devices
from lingpipe.pipeline.planning.placement import Placement
from lingpipe.pipeline.planning.schedule import Schedule


@dataclass(frozen=True)
class Recomputation:
    """What runs again in the backward of each cell.

    Attributes:
      modes: [K] 'none', 'cell' or 'layer', or 'fit' for a cell in `kept`.
      kept: cell -> the tensors that it keeps.
    """
    modes: tuple[str, ...]
    kept: Mapping[int, KeptTensors] = field(default_factory=dict)

    def footprints(self, memory: Memory, partition: Partition) -> list[Footprint]:
        """[K] the bytes of each cell."""
        return [
            memory.of_span(span, 'none')._replace(held=self.kept[k].held,
                                                  working=self.kept[k].working)
            if k in self.kept else memory.of_span(span, mode)
            for k, (span, mode) in enumerate(zip(partition.spans, self.modes, strict=True))]

    def with_cells(self, mode: str, kept: Mapping[int, KeptTensors],
                   cells: Collection[int]) -> Recomputation:
        """The same, but for these cells, which have another mode."""
        modes = tuple(mode if k in cells else other for k, other in enumerate(self.modes))
        others = {k: one for k, one in self.kept.items() if k not in cells}
        return Recomputation(modes, {**others, **kept})


def fitting_recomputation(modes: Sequence[str], partition: Partition, memory: Memory,
                          schedule: Schedule, placement: Placement, limit: float | None,
                          graph_of: Callable[[range], CellGraph]) -> Recomputation:
    """Chooses for the cells whose mode is 'fit'; the others stay as they are.

    Args:
      modes: [K] PipelineParams.recompute_of each cell.
      partition: the cells.
      memory: what they hold.
      schedule: the order of slots on each device.
      placement: which cell is on which device.
      limit: the bytes of a device; None if they do not matter.
      graph_of: the graph of the cell of some layers.
    """
    recomputation = Recomputation(tuple('none' if mode == 'fit' else mode for mode in modes))
    if limit is None or 'fit' not in modes:
        return recomputation
    search = _Search(partition, memory, schedule, placement, limit, graph_of)
    for cells in placement.cells_that_share():
        fitting = [k for k in cells if modes[k] == 'fit' and partition.has_backward(k)]
        if fitting and not search.fits(recomputation, cells):
            recomputation = search.chosen(recomputation, cells, fitting)
    return recomputation


@dataclass(frozen=True)
class _Search:
    partition: Partition
    memory: Memory
    schedule: Schedule
    placement: Placement
    limit: float
    graph_of: Callable[[range], CellGraph]

    def fits(self, recomputation: Recomputation, cells: Collection[int]) -> bool:
        """Whether the devices of these cells hold no more than the limit."""
        footprints = recomputation.footprints(self.memory, self.partition)
        places = {of_replica[k] for of_replica in self.placement.places for k in cells}
        peaks = peaks_of_devices(self.schedule, self.placement, footprints, places)
        return max(peaks.values()) <= self.limit

    def chosen(self, before: Recomputation, cells: Collection[int],
               fitting: Sequence[int]) -> Recomputation:
        """Chooses for cells that share devices.

        Args:
          before: how all cells recompute.
          cells: those that share the devices.
          fitting: those of them that may change.
        """
        last = self.partition.num_cells - 1
        unfused = [k for k in fitting if k != last]

        def with_kept(kept: Sequence[KeptTensors]) -> Recomputation:
            return before.with_cells('fit', dict(zip(unfused, kept, strict=True)), unfused)

        if unfused:
            live = most_live(self.schedule)
            kept = fewest_repeats([self.graph_of(self.partition.spans[k]) for k in unfused],
                                  [live[k] for k in unfused],
                                  lambda kept: self.fits(with_kept(kept), cells))
            if kept is not None:
                return with_kept(kept)
        by_cells = before.with_cells('cell', {}, fitting)
        return by_cells if self.fits(by_cells, cells) else before.with_cells('layer', {}, fitting)
