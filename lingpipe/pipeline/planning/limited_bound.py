"""Limited bound: how long the slots take at least, whatever the partition, under a memory limit.

A limit moves cuts away from where they are best without one, and the step may even become faster
by that, since cuts are chosen for the slowest cell and not for the step. So what holds under a
limit must hold for every partition whose devices could fit. It is found by dynamic programming over
spans of units of layers, without making a plan.

Time. A cell starts when the first micro-batch arrives there, runs its load M times, and then others
wait for its last gradient (waits.py); with few micro-batches nearly all of a step is such waits.
The least of the slowest cell is a bound. Where a device has several cells, each partition is also
judged by its slowest device if they are few. If they are many, the mean of all devices, which is no
more, is a bound, and its least sum is found.

Bytes. What is live when a forward starts follows from the order of F and B alone, which neither
memory nor times change in a schedule by name, unless devices share their cells (shared_devices.py)
or the schedule is 'auto': there a cell holds one micro-batch at least once. Fewer W only lengthen
what is live. With one cell a device, every cell must fit by itself; else every device must, or if
partitions are many, all devices together.
"""
from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np

from lingpipe.pipeline.planning.dataflow import Element
from lingpipe.pipeline.planning.device_bytes import DeviceBytes
from lingpipe.pipeline.planning.fitting_partition import MAX_TRIED
from lingpipe.pipeline.planning.layout import Layout
from lingpipe.pipeline.planning.memory import Memory
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.pipeline.planning.schedule import Schedule
from lingpipe.pipeline.planning.schedules import SEVERAL_CELLS_A_DEVICE, make_schedule
from lingpipe.pipeline.planning.span_bounds import (
    SpanBytes,
    SpanSeconds,
    need_alone,
    tables_of,
)
from lingpipe.pipeline.planning.units import units_of
from lingpipe.pipeline.planning.zigzag_partition import Spans, is_v, slowest_device


@dataclasses.dataclass(frozen=True, eq=False)
class LimitedBound:
    """Bounds for the plans of a network with some Params.

    Attributes:
      elements: the network, wired for one micro-batch.
      seconds: [L] forward and backward of each layer.
      params: K, M, the schedule and the modes of recomputation.
      layout: [K] the device of each cell, counted from 0.
    """
    elements: tuple[Element, ...]
    seconds: Sequence[tuple[float, float]]
    params: PipelineParams
    layout: Layout

    def slots_s_within(self, limit: float, memory: Memory) -> float:
        """Seconds that the slots take at least, in any partition that may fit.

        Args:
          limit: bytes of a device.
          memory: what cells hold.

        Returns:
          Seconds; infinity if no partition fits.
        """
        tables = self._tables(memory)
        alone_s = [self._alone_s(k, tables, limit) for k in range(self._num_cells)]
        if self.has_one_cell_each:
            return _least(alone_s, np.maximum)

        if self.has_few_partitions:
            return self._least_s_of_each(limit, tables, alone_s)
        together = [self._need_together(k, tables) for k in range(self._num_cells)]
        if _least(together, np.add) > limit * self._num_devices:
            return math.inf
        cells_s = [self._cell_s(k) for k in range(self._num_cells)]
        return max(_least(alone_s, np.maximum), _least(cells_s, np.add) / self._num_devices)

    def slots_s_in_v(self, limit: float, memory: Memory) -> float:
        """As `slots_s_within`, but closer, for devices that have their cells in a V."""
        tables = self._tables(memory)
        together = [self._need_together(k, tables) for k in range(self._num_cells)]
        cells_of = [[k for k, home in enumerate(self.layout) if home == device]
                    for device in range(self._num_devices)]
        at_least = None
        if self.schedule is not None and 'fit' not in self.params.modes:
            at_least = DeviceBytes(memory, self.params.modes, self.starts, self.schedule, 'least')

        def fits(device: int, left: Spans, right: Spans | None) -> np.ndarray:
            if at_least is not None:
                return at_least.needs(device, left, right) <= limit
            needs = together[cells_of[device][0]][left][:, None, None]
            if right is not None:
                needs = needs + together[cells_of[device][1]][right]
            return np.asarray(needs <= limit)

        return slowest_device(self.layout, [self._cell_s(k) for k in range(self._num_cells)], fits)

    def _tables(self, memory: Memory) -> dict[str, SpanBytes]:
        """The bytes of spans in each mode that a cell may take."""
        return tables_of(self.params.modes, memory, self.starts)

    @property
    def is_in_v(self) -> bool:
        """Whether devices have their cells in a V, in too many partitions to judge each."""
        return is_v(self.layout) and not self.has_few_partitions

    @property
    def has_few_partitions(self) -> bool:
        """Whether each partition can be judged by itself."""
        return math.comb(len(self.starts) - 2, self._num_cells - 1) <= MAX_TRIED

    @property
    def _num_cells(self) -> int:
        return len(self.layout)

    @property
    def _num_devices(self) -> int:
        return len(set(self.layout))

    @property
    def has_one_cell_each(self) -> bool:
        """Whether no device has two cells."""
        return self._num_devices == self._num_cells

    @functools.cached_property
    def starts(self) -> Sequence[int]:
        """The layer where each unit begins, and the number of layers."""
        return units_of(self.elements).starts

    def _least_s_of_each(self, limit: float, tables: dict[str, SpanBytes],
                         alone_s: Sequence[np.ndarray]) -> float:
        """The bound if there are few partitions; infinity if none fits."""
        together = [self._need_together(k, tables) for k in range(self._num_cells)]
        seconds = np.where(self._of_devices(together).max(axis=0) <= limit, 0.0, np.inf)
        for k, of_cell in enumerate(alone_s):
            seconds = np.maximum(seconds, of_cell[self._cuts[:, k], self._cuts[:, k + 1]])
        of_devices = self._of_devices([self._cell_s(k) for k in range(self._num_cells)])
        return float(np.maximum(seconds, of_devices.max(axis=0)).min())

    def _of_devices(self, of_cells: Sequence[np.ndarray]) -> np.ndarray:
        """[devices, partitions] the sums over the cells of each device, in each partition.

        Args:
          of_cells: [K][U + 1, U + 1] what a cell adds, by its first unit and its end.
        """
        sums = np.zeros((self._num_devices, len(self._cuts)))
        for k, of_cell in enumerate(of_cells):
            sums[self.layout[k]] += of_cell[self._cuts[:, k], self._cuts[:, k + 1]]
        return sums

    @property
    def _cuts(self) -> np.ndarray:
        """[partitions, K + 1] the first unit of each cell, and the number of units."""
        return _all_cuts(len(self.starts) - 1, self._num_cells)

    def _alone_s(self, k: int, tables: dict[str, SpanBytes], limit: float) -> np.ndarray:
        """[U + 1, U + 1] what a step takes at least by what cell k does.

        It is infinite for spans that do not fit.
        """
        seconds = self._spans.alone_s(self.params.modes[k], k == self._num_cells - 1)
        return np.where(self._need_alone(k, tables) <= limit, seconds, np.inf)

    def _cell_s(self, k: int) -> np.ndarray:
        """[U + 1, U + 1] what cell k adds to its device's time, by its first unit and end."""
        is_first = self.layout.index(self.layout[k]) == k
        return self._spans.device_s(self.params.modes[k], k == self._num_cells - 1, is_first)

    @functools.cached_property
    def _spans(self) -> SpanSeconds:
        return SpanSeconds(self.elements, self.seconds, self.params, self.starts)

    def _need_alone(self, k: int, tables: dict[str, SpanBytes]) -> np.ndarray:
        """[U + 1, U + 1] bytes of a device that has cell k alone."""
        return need_alone(self.params.modes[k], tables, self._live[k])

    def _need_together(self, k: int, tables: dict[str, SpanBytes]) -> np.ndarray:
        """[U + 1, U + 1] bytes that cell k adds to its device, when most is live."""
        mode = self.params.modes[k]
        if mode == 'fit':
            return np.asarray(tables['none'].fixed)
        return np.asarray(tables[mode].fixed + self._live_together[k] * tables[mode].held)

    @functools.cached_property
    def _live(self) -> list[int]:
        """[K] micro-batches of a cell with a backward that are live at once, at least."""
        return [max(live, 1) for live in self._live_together]

    @functools.cached_property
    def _live_together(self) -> list[int]:
        """[K] those that are live at one time on each device."""
        schedule = self.schedule
        return [0] * self._num_cells if schedule is None else list(live_at_once(schedule))

    @property
    def schedule(self) -> Schedule | None:
        """The order of F and B, if it is known."""
        name = self.params.schedule
        if name == 'text':
            return self.params.given_schedule
        is_known = self.has_one_cell_each or name in SEVERAL_CELLS_A_DEVICE
        if name == 'auto' or not is_known:
            return None
        return _schedule_of(name, self.layout, self.params.num_micro_batches)


@functools.lru_cache(maxsize=64)
def _all_cuts(num_units: int, num_cells: int) -> np.ndarray:
    return np.array([(0, *cuts, num_units) for cuts in
                     itertools.combinations(range(1, num_units), num_cells - 1)])


@functools.lru_cache(maxsize=64)
def _schedule_of(name: str, layout: Layout, num_micro_batches: int) -> Schedule:
    return make_schedule(name, len(layout), num_micro_batches,
                         layout=layout if name in SEVERAL_CELLS_A_DEVICE else None)


def live_at_once(schedule: Schedule) -> tuple[int, ...]:
    """[K] the micro-batches between F and B when each device has the most of them.

    Only the last cell's B is live while it runs without an F before.
    """
    live_of_cell = [0] * schedule.num_cells
    for slots in schedule.devices:
        live = dict.fromkeys((slot.cell for slot in slots), 0)
        most = dict(live)
        for slot in slots:
            live[slot.cell] += schedule.runs_forward(slot) and (
                slot.cell in schedule.backward_cells)
            if sum(live.values()) > sum(most.values()):
                most = dict(live)
            live[slot.cell] -= slot.kind == 'B'
        for k, number in most.items():
            live_of_cell[k] = number
    return tuple(live_of_cell)


def _least(of_cells: Sequence[np.ndarray], combine: np.ufunc) -> float:
    """The least over all partitions of what its cells cost together.

    Args:
      of_cells: [K][U + 1, U + 1] what a cell costs, by its first unit and its end.
      combine: of what the cells cost, np.add or np.maximum.
    """
    best = np.full(len(of_cells[0]), np.inf)
    best[0] = 0.0
    for costs in of_cells:
        best = combine(best[:, None], costs).min(axis=0)
    return float(best[-1])
