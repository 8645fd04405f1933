"""Fitting partition: the best partition whose devices hold no more bytes than a limit.

If no device has different cells, what a cell may hold is known, and the partitioner finds the best
partition among those that fit. If different cells share a device, only their sum is limited. Then
all partitions are tried if they are few. If they are many, and the order of slots is known on
devices that have one cell or two in a V, dynamic programming over both cells finds what fits. Else
the devices' bytes are divided among their cells in two ways, and if neither leads to a partition,
cuts are moved until one fits.
"""
from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from lingpipe.pipeline.planning import partitioner
from lingpipe.pipeline.planning.device_bytes import DeviceBytes, Rows
from lingpipe.pipeline.planning.forecast import Forecast
from lingpipe.pipeline.planning.layout import layout_of
from lingpipe.pipeline.planning.least_peaks import least_peaks
from lingpipe.pipeline.planning.memory import Footprint
from lingpipe.pipeline.planning.memory_limit import Needs, as_bits
from lingpipe.pipeline.planning.partition import Partition, costs_of_cells
from lingpipe.pipeline.planning.peaks import most_live
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.pipeline.planning.placement import Place, Placement
from lingpipe.pipeline.planning.schedule import Schedule
from lingpipe.pipeline.planning.schedules import SEVERAL_CELLS_A_DEVICE, make_schedule
from lingpipe.pipeline.planning.splitting import whole_everywhere
from lingpipe.pipeline.planning.units import Units, spans_of, units_of
from lingpipe.pipeline.planning.zigzag_partition import balanced_devices, is_v
from lingpipe.wording.counts import counted

MAX_TRIED = 2_000  # partitions of cells that share devices


@dataclasses.dataclass(frozen=True)
class Trials:
    """The bytes and the time of a partition, once it is placed and scheduled.

    Attributes:
      peak_bytes: the most that each device holds at a time.
      step_s: how long a step takes.
    """
    peak_bytes: Callable[[Partition], Mapping[Place, float]]
    step_s: Callable[[Partition], float]

    def fits(self, partition: Partition, limit: float) -> bool:
        """Whether no device holds more than `limit` bytes."""
        return max(self.peak_bytes(partition).values()) <= limit


def fitting_partition(fullest: Forecast, placement: Placement, params: PipelineParams,
                      limit: float, trials: Trials, splits: bool = True) -> Partition | None:
    """Returns the best partition that was found whose devices hold no more than `limit` bytes.

    It is None if none was found.

    Args:
      fullest: of the partition that is best without a limit, whose devices hold more.
      placement: which cell is on which device.
      params: K, M, the schedule and the rule of the partitioner.
      limit: bytes.
      trials: what comes of any partition.
      splits: whether the schedule may split backwards.
    """
    search = _Search(fullest, placement, params, limit, trials, splits)
    if search.is_exact:
        return search.among_equal_parts()
    if search.num_partitions <= MAX_TRIED:
        return search.fastest_of_all()
    if search.has_known_bytes:
        return search.by_known_bytes()
    partition = search.among_equal_parts() or search.among_weighted_parts()
    # A partition in which every cell may choose is slow to work out. Where all may, those for
    # which all recompute by layers, with fewest bytes, have been searched before.
    if partition is None and set(params.modes) != {'fit'}:
        partition = search.descended()
    return partition


def why_none_fits(fullest: Forecast, peak_bytes: Mapping[Place, float], placement: Placement,
                  params: PipelineParams, limit: float, splits: bool = True) -> str:
    """Returns the sentence of the error if no partition was found: what needs how much.

    Args:
      fullest, placement, params, limit, splits: as of `fitting_partition`.
      peak_bytes: what the devices hold in the partition of `fullest`.
    """
    trials = Trials(peak_bytes=lambda partition: peak_bytes, step_s=lambda partition: math.inf)
    return _Search(fullest, placement, params, limit, trials, splits).why_none_fits()


def why_not_by_hand(layers_per_cell: Sequence[int], peak_bytes: Mapping[Place, float],
                    placement: Placement, limit: float) -> str:
    """Returns the sentence of the error if a partition that is given does not fit."""
    place = max(peak_bytes, key=lambda place: peak_bytes[place])
    return (
        f'layers_per_cell={list(layers_per_cell)} needs {peak_bytes[place]:,.0f} bytes on '
        f'{placement.device_at(place)}, which is more than device_bytes={limit:,.0f}; leave '
        'layers_per_cell empty, use recomputation, smaller micro-batches or larger devices.')


@dataclasses.dataclass(frozen=True, eq=False)
class _Search:
    fullest: Forecast
    placement: Placement
    params: PipelineParams
    limit: float
    trials: Trials
    splits: bool

    @functools.cached_property
    def units(self) -> Units:
        return units_of(self.fullest.partition.elements)

    @functools.cached_property
    def schedule(self) -> Schedule:
        """The schedule, or one that is like it, of cells that all have a backward."""
        params = self.params
        if params.schedule == 'text':
            return params.given_schedule
        name = '1f1b' if params.schedule == 'auto' else params.schedule
        homes = layout_of(self.placement.places[0])
        schedule = make_schedule(name, params.num_cells, params.num_micro_batches, layout=homes)
        return schedule if self.splits else whole_everywhere(schedule)

    @functools.cached_property
    def live(self) -> Sequence[int]:
        """[K] the most micro-batches of a cell with a backward that are live at once."""
        return most_live(self.schedule)

    @functools.cached_property
    def needs(self) -> Needs:
        return Needs(self.fullest.memory, self.params.modes, self.units.starts, self.live,
                     self.limit)

    @property
    def is_exact(self) -> bool:
        """Whether what a device needs follows from the live micro-batches of its only cell."""
        if self.params.schedule == 'auto' or any(
                slot.kind in 'WR' for slot in self.schedule.device_of):
            return False
        return all(len(set(cells)) == 1 for cells in self.placement.cells_of_place.values())

    @property
    def num_partitions(self) -> int:
        return math.comb(len(self.units) - 1, self.params.num_cells - 1)

    def among_equal_parts(self) -> Partition | None:
        """The best if each cell of a device gets an equal part of its memory."""
        return self._among([1.0] * self.params.num_cells)

    def among_weighted_parts(self) -> Partition | None:
        """The best if a device's memory is divided in proportion to what its cells hold now."""
        weights = [footprint.fixed + live * footprint.held + footprint.working
                   for footprint, live in zip(self.fullest.footprints, self.live, strict=True)]
        return self._among(weights)

    @property
    def has_known_bytes(self) -> bool:
        """Whether what a device holds follows from its cells, of which it has one or two in a V."""
        homes = layout_of(self.placement.places[0])
        is_one_replica_each = all(len(set(cells)) == len(cells)
                                  for cells in self.placement.cells_of_place.values())
        return (self._known_order is not None and 'fit' not in self.params.modes
                and is_one_replica_each and (len(set(homes)) == len(homes) or is_v(homes)))

    def by_known_bytes(self) -> Partition | None:
        """The fastest that was found if the order of slots tells what a device holds.

        No partition fits unless one does by what devices hold at least. The best of those may hold
        more, depending on which backwards are split. If they are split as in the named schedule,
        what fits is known.
        """
        at_least = self._balanced('least')
        if at_least is None:
            return None
        if self.trials.fits(at_least, self.limit):
            fitting = [at_least]
        else:
            fitting = [partition for partition in [
                self._balanced('exact'), self.among_equal_parts(), self.among_weighted_parts()]
                if partition is not None and self.trials.fits(partition, self.limit)]
        return min(fitting, key=self.trials.step_s, default=None)

    def _balanced(self, rows: Rows) -> Partition | None:
        """The partition with the fastest slowest device, of those with no more bytes by `rows`."""
        homes = layout_of(self.placement.places[0])
        of_devices = DeviceBytes(self.fullest.memory, self.params.modes, self.units.starts,
                                 self.schedule, rows)
        costs = costs_of_cells(self.units, self.fullest.times, self.params)
        if len(set(homes)) < len(homes):
            of_spans = [spans_of(of_cell) for of_cell in costs]
            spans = balanced_devices(homes, of_spans, lambda device, left, right: of_devices.needs(
                device, left, right) <= self.limit)
            return None if spans is None else self._partition(spans)

        def stops(k: int, start: int) -> int:
            ends = np.arange(start + 1, len(self.units) + 1)
            needs = of_devices.needs(k, (np.full_like(ends, start), ends), None)
            return as_bits(needs[:, 0, 0] <= self.limit) << (start + 1)

        cells = partitioner.partition_among(costs, functools.cache(stops),
                                            rule=self.params.partition)
        return None if cells is None else self._partition(cells)

    def _among(self, weights: Sequence[float]) -> Partition | None:
        """The best whose cells each keep to a part of their device, if it fits.

        Args:
          weights: [K] how much each cell gets of its device, relative to the others there.
        """
        cells_of_places = self.placement.cells_of_place.values()
        bytes_of_cell = [
            self.limit * min(weights[k] / sum(weights[other] for other in cells)
                             for cells in cells_of_places if k in cells)
            for k in range(self.params.num_cells)]

        @functools.cache
        def stops(k: int, start: int) -> int:
            return self.needs.stops(k, start, bytes_of_cell[k])

        costs = costs_of_cells(self.units, self.fullest.times, self.params)
        spans = partitioner.partition_among(costs, stops, rule=self.params.partition)
        if spans is None:
            return None
        partition = self._partition(spans)
        return partition if self.trials.fits(partition, self.limit) else None

    def fastest_of_all(self) -> Partition | None:
        """The fastest of all partitions that fit."""
        partitions = map(self._partition, _all_spans(len(self.units), self.params.num_cells))
        fitting = [partition for partition in partitions
                   if self._least_peaks(partition)[0] <= self.limit
                   and self.trials.fits(partition, self.limit)]
        return min(fitting, key=self.trials.step_s, default=None)

    def descended(self) -> Partition | None:
        """Moves cuts, one at a time and ever less far, as long as the fullest devices hold less."""
        spans = self.fullest.partition.spans
        cuts = [0, *(self.units.starts.index(span.stop) for span in spans)]
        peaks = self._descending_peaks(self.fullest.partition)
        step = max(1, len(self.units) // (2 * len(spans)))
        while step:
            is_better = False
            for i, move in itertools.product(range(1, len(cuts) - 1), (-step, step)):
                moved_cuts = [*cuts[:i], cuts[i] + move, *cuts[i + 1:]]
                if not moved_cuts[i - 1] < moved_cuts[i] < moved_cuts[i + 1]:
                    continue

                partition = self._partition(_spans_between(moved_cuts))
                if self._least_peaks(partition) >= peaks:
                    continue   # It holds no less; to find out how much takes long.
                moved_peaks = self._descending_peaks(partition)
                if moved_peaks[0] <= self.limit:
                    return partition
                if moved_peaks < peaks:
                    peaks, cuts, is_better = moved_peaks, moved_cuts, True
            if not is_better:
                step //= 2
        return None

    def why_none_fits(self) -> str:
        """Returns the sentence of the error: what needs how much, and what to do."""
        elements, num_cells = self.fullest.partition.elements, self.params.num_cells
        peak = max(self.trials.peak_bytes(self.fullest.partition).values())
        needs = Needs(self.fullest.memory, self.params.modes, self.units.starts, self.live, peak)
        unit_bytes, unit = needs.largest_unit()
        if unit_bytes > self.limit:
            return (f'{elements[self.units.starts[unit]].layer.path} alone needs '
                    f'{unit_bytes:,.0f} bytes, which is more than device_bytes={self.limit:,.0f}; '
                    'a layer cannot be cut: split it in two, use smaller micro-batches or larger '
                    'devices.')

        least = needs.least()
        if self.is_exact or least > self.limit:
            obstacle = f'the best needs {least:,.0f} bytes on a device{self._frugal_mode(peak)}'
        else:   # There is a bound, and no partition was found that comes near it.
            obstacle = f'the fastest needs {peak:,.0f} bytes on a device'
        num_places = len(self.placement.cells_of_place)
        if num_places < self.params.num_devices:
            obstacle = f'{self.params.num_devices} cells share {counted(num_places, "device")}'
        recomputation = '' if set(self.params.modes) <= {'layer', 'fit'} else 'recomputation, '
        return (f'no partition of {counted(len(elements), "layer")} into '
                f'{counted(num_cells, "cell")} was found that fits device_bytes={self.limit:,.0f}: '
                f'{obstacle}; use more cells, {recomputation}smaller micro-batches or larger '
                'devices.')

    def _frugal_mode(self, most: float) -> str:
        """The clause that names the mode of recomputation with which less is enough, if any is."""
        def least(modes: Sequence[str]) -> float:
            return Needs(self.fullest.memory, modes, self.units.starts, self.live, most).least()

        num_cells = self.params.num_cells
        best, mode = min((least([mode] * num_cells), mode) for mode in ('cell', 'layer'))
        if not self.is_exact or best >= least(self.params.modes):
            return ''
        return f' ({best:,.0f} with --set pipeline.recompute={mode})'

    def _partition(self, spans_of_units: Sequence[range]) -> Partition:
        elements = self.fullest.partition.elements
        return Partition(elements, self.units.layers(spans_of_units))

    @functools.cached_property
    def _known_order(self) -> Schedule | None:
        """A schedule with the F and B of every partition in their order, if all have the same."""
        homes = layout_of(self.placement.places[0])
        if any(layout_of(places) != homes for places in self.placement.places):
            return None
        has_one_cell_each = len(set(homes)) == self.params.num_cells
        is_known = has_one_cell_each or self.params.schedule in ('text', *SEVERAL_CELLS_A_DEVICE)
        return self.schedule if is_known and self.params.schedule != 'auto' else None

    def _least_peaks(self, partition: Partition) -> list[float]:
        """What the devices hold at least, the fullest first; 0 if nothing is known."""
        if self._known_order is None:
            return [0.0]
        least_of_lists = least_peaks(self._known_order, [
            self._least_footprint(partition, k) for k in range(partition.num_cells)])
        bytes_at: dict[Place, float] = {}
        for places in self.placement.places:
            for slots, least in zip(self._known_order.devices, least_of_lists, strict=True):
                place = places[slots[0].cell]
                bytes_at[place] = bytes_at.get(place, 0.0) + least
        return sorted(bytes_at.values(), reverse=True)

    def _least_footprint(self, partition: Partition, k: int) -> Footprint:
        """What a cell holds at least; of one that may choose, only what is fixed is known."""
        mode, memory = self.params.modes[k], self.fullest.memory
        footprint = memory.of_span(partition.spans[k], 'none' if mode == 'fit' else mode)
        if mode == 'fit' or k not in partition.backward_cells:
            return footprint._replace(held=0, working=0)
        return footprint

    def _descending_peaks(self, partition: Partition) -> list[float]:
        return sorted(self.trials.peak_bytes(partition).values(), reverse=True)


def _all_spans(num_units: int, num_cells: int) -> Iterator[list[range]]:
    for cuts in itertools.combinations(range(1, num_units), num_cells - 1):
        yield _spans_between((0, *cuts, num_units))


def _spans_between(cuts: Sequence[int]) -> list[range]:
    return [range(start, stop) for start, stop in itertools.pairwise(cuts)]
