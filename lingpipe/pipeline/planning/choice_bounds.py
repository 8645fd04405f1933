"""Bounds of choices: lower bounds on the seconds of a step, for all plans of a choice.

R replicas, K cells, M micro-batches.
"""
from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Hashable, Iterable

import numpy as np

from lingpipe import cluster
from lingpipe.pipeline.planning.backward_share import weight_share
from lingpipe.pipeline.planning.choice_costs import ChoiceCosts
from lingpipe.pipeline.planning.device_bytes import DeviceBytes
from lingpipe.pipeline.planning.family_bound import FamilyBound
from lingpipe.pipeline.planning.layout import Layout, layout_of, num_devices_for
from lingpipe.pipeline.planning.limited_bound import LimitedBound
from lingpipe.pipeline.planning.links import sent_share
from lingpipe.pipeline.planning.memory import Memory
from lingpipe.pipeline.planning.partition import Partition, choose_partition
from lingpipe.pipeline.planning.pipeline_params import Mode, Modes, PipelineParams
from lingpipe.pipeline.planning.playing import step_with_delays
from lingpipe.pipeline.planning.schedule import Schedule, Slot
from lingpipe.pipeline.planning.schedules import UNSPLIT, make_schedule, with_backward_cells
from lingpipe.pipeline.planning.search_space import Choice
from lingpipe.pipeline.planning.span_bounds import SpanSeconds, need_alone, tables_of
from lingpipe.pipeline.planning.units import units_of
from lingpipe.pipeline.planning.update_traffic import UpdateTraffic, total_traffic
from lingpipe.pipeline.planning.waits import waits

_REMEMBERED = 8   # bounds of choices: those of 'fit' ask for others of the same K and M
_MOST_SPANS_IN_V = 5e5   # K U^2, with U units of layers
_BELOW = 1 - 1e-9   # A bound is no more than what sums in another order give.


class ChoiceBounds:
    """Lower bounds on the seconds of a step for the plans of each choice, from its costs."""

    def __init__(self, costs: ChoiceCosts):
        self._costs = costs
        self._subject = costs.subject
        self._partition_of: dict[tuple[int, int, Modes], Partition] = {}
        self._within: dict[tuple[Choice, float], float] = {}
        self._in_v: dict[tuple[Choice, float], float] = {}
        self._path_of: dict[tuple[int, bool], float] = {}
        self._families: dict[Hashable, FamilyBound] = {}
        self._limited_bound = functools.lru_cache(maxsize=_REMEMBERED)(self._make_limited_bound)

    def of_choice(self, choice: Choice) -> float:
        """A lower bound on the seconds of a step, for all plans of the choice, found at once.

        With recomputation, all cells but the last repeat their forwards. No device takes longer
        than the slowest, and the last cell's forward is no longer than it either. A micro-batch
        goes through the whole network and back.
        """
        num_devices = num_devices_for(choice.schedule, choice.num_cells,
                                      self._subject.params.cells_per_device)
        seconds = self._costs.seconds(choice)
        work_s = _BELOW * self._costs.work_s(choice.num_parts) / choice.num_replicas
        busy_s = work_s / num_devices
        if choice.recompute in ('cell', 'layer') and choice.num_cells > 1:
            repeated_s = choice.num_micro_batches * sum(forward for (forward, _), element in zip(
                seconds, self._costs.elements(choice), strict=True) if element.has_backward)
            busy_s = max(busy_s, (work_s + _BELOW * repeated_s) / (num_devices + 1))

        slots_s = max(busy_s, _BELOW * self._path_s(choice))
        return slots_s + self._besides_slots(choice, num_devices)

    def _path_s(self, choice: Choice) -> float:
        """Seconds that a micro-batch takes through the network and back, at least."""
        key = choice.num_parts, choice.schedule in UNSPLIT
        if key not in self._path_of:
            elements, seconds = self._costs.elements(choice), self._costs.seconds(choice)
            of_b = [backward * (1 - weight_share(element) * (not key[1]))
                    for element, (_, backward) in zip(elements, seconds, strict=True)]
            self._path_of[key] = waits(elements, [forward for forward, _ in seconds], of_b,
                                       units_of(elements).starts).path_s
        return self._path_of[key]

    def _besides_slots(self, choice: Choice, num_devices: int) -> float:
        """Seconds that a step takes besides its slots, at least."""
        hardware, state = self._subject.hardware, self._costs.total_state(choice)
        gradient_bytes = state.gradient_bytes / num_devices
        update_s = state.update_s(hardware) / num_devices
        fastest = max(hardware.link_bytes_per_s, hardware.network_bytes_per_s)
        return (choice.num_micro_batches * hardware.slot_s
                + _BELOW * update_s
                + _BELOW * sent_share(choice.num_replicas) * gradient_bytes / fastest)

    def of_family(self, choice: Choice, limit: float | None, memory: Memory) -> float:
        """As `of_choice`, for any schedule, with cells that fit alone; infinity if none does.

        Args:
          choice: any.
          limit: bytes of a device; None: memory does not matter.
          memory: what cells hold in the micro-batches of the choice.

        Raises:
          ValueError: the experiment forbids the choice.
        """
        mode = choice.recompute
        if not isinstance(mode, str) or choice.schedule == 'text':
            return 0.0
        key = (choice.num_parts, choice.num_replicas, choice.schedule in UNSPLIT, mode, limit)
        if key not in self._families:
            self._families[key] = self._make_family(choice, mode, limit, memory)
        num_devices = self.num_devices(choice)
        slots_s = self._families[key].slots_s(choice.num_cells, num_devices)
        return _BELOW * slots_s + self._besides_slots(choice, num_devices)

    def _make_family(self, choice: Choice, mode: Mode, limit: float | None, memory: Memory
                     ) -> FamilyBound:
        elements = self._costs.elements(choice)
        starts = units_of(elements).starts
        spans = SpanSeconds(elements, self._costs.seconds(choice),
                            self._costs.params_of(choice, None), starts)
        fits = np.ones((len(starts), len(starts)), bool)
        if limit is not None:
            fits = need_alone(mode, tables_of([mode], memory, starts), live=1) <= limit
        return FamilyBound(spans, mode, fits)

    def within(self, choice: Choice, limit: float, memory: Memory) -> float:
        """As `of_choice`, for plans that may fit; infinity if there is none.

        Args:
          choice: any.
          limit: bytes of a device.
          memory: what cells hold in the micro-batches of the choice.

        Raises:
          ValueError: the experiment forbids the choice.
        """
        key = choice, limit
        if key not in self._within:
            bound = self._limited_bound(choice)
            self._within[key] = max(
                self._step_s(choice, bound, bound.slots_s_within(limit, memory)),
                self._of_known_cuts(choice, limit, memory))
        return self._within[key]

    def _of_known_cuts(self, choice: Choice, limit: float, memory: Memory) -> float:
        """As `within`, for cells of 'fit' whose cuts are known; 0 if they are not.

        The planner takes the cuts that are best without a limit, or those of a plan in which all
        cells recompute as a whole, or by layers, if one of the three fits.
        """
        if choice.recompute != 'fit' or self._may_share_threads:
            return 0.0
        partitions = [self._partition(choice, self._costs.params_of(choice, None))]
        for mode in ('cell', 'layer'):
            uniform = choice._replace(recompute=mode)
            try:
                if self.keeps_cuts(uniform, limit, memory):
                    partitions.append(self._partition(
                        uniform, self._costs.params_of(uniform, None)))
                elif not math.isinf(self.within(uniform, limit, memory)):
                    return 0.0
            except ValueError:   # The experiment forbids it.
                continue
        if len(partitions) == 1:
            return 0.0
        return min(self._when_cut_so(choice, partition) for partition in partitions)

    def keeps_cuts(self, choice: Choice, limit: float, memory: Memory) -> bool:
        """Whether it is known that the cuts that are best without a limit keep it.

        Args:
          choice, limit, memory: as of `within`.

        Raises:
          ValueError: the experiment forbids the choice.
        """
        params = self._costs.params_of(choice, None)
        bound = self._limited_bound(choice)
        schedule = bound.schedule
        if choice.schedule == 'auto' and bound.has_one_cell_each:   # It takes what fits.
            schedule = make_schedule('1f1b', choice.num_cells, choice.num_micro_batches)
        if schedule is None or max(map(bound.layout.count, bound.layout)) > 2:
            return False
        partition = self._partition(choice, params)
        modes = ['none' if mode == 'fit' else mode for mode in params.modes]
        gives_gradients = [memory.of_span(span, mode).gives_gradients for span, mode in
                           zip(partition.spans, modes, strict=True)]
        if (len(partition.backward_cells) < choice.num_cells
                or gives_gradients != [k > 0 for k in range(choice.num_cells)]):
            return False
        of_devices = DeviceBytes(memory, modes, bound.starts, schedule, 'exact')
        return max(of_devices.peaks(partition.spans)) <= limit

    def in_v(self, choice: Choice, limit: float, memory: Memory) -> float:
        """As `within`, but closer where devices have their cells in a V; elsewhere 0.

        It is also 0 where units are so many that to find it takes as long as a plan.

        What cells of 'fit' hold is not known before they choose, but they fall back to 'cell' and
        'layer'. Where no partition has room for either, 'fit' counts as impossible too.
        """
        key = choice, limit
        if key not in self._in_v:
            self._in_v[key] = self._find_in_v(choice, limit, memory)
        return self._in_v[key]

    def _find_in_v(self, choice: Choice, limit: float, memory: Memory) -> float:
        bound = self._limited_bound(choice)
        if not bound.is_in_v or choice.num_cells * len(bound.starts) ** 2 > _MOST_SPANS_IN_V:
            return 0.0
        if choice.recompute == 'fit':
            uniform = [choice._replace(recompute=mode) for mode in ('cell', 'layer')]
            if all(math.isinf(self.in_v(one, limit, memory)) for one in uniform):
                return math.inf
        return self._step_s(choice, bound, bound.slots_s_in_v(limit, memory))

    def _step_s(self, choice: Choice, bound: LimitedBound, slots_s: float) -> float:
        return _BELOW * slots_s + self._besides_slots(choice, max(bound.layout) + 1)

    def _make_limited_bound(self, choice: Choice) -> LimitedBound:
        params = self._costs.params_of(choice, None)
        return LimitedBound(self._costs.elements(choice), self._costs.seconds(choice), params,
                            layout_of(self._layout(choice, params)))

    def when_cut(self, choice: Choice) -> float | None:
        """As `of_choice`, for the partition that is best without links; None if there is none."""
        try:
            params = self._costs.params_of(choice, None)
            partition = self._partition(choice, params)
        except ValueError:   # The experiment forbids it.
            return None
        return self._when_cut_so(choice, partition)

    def _when_cut_so(self, choice: Choice, partition: Partition) -> float:
        """As `of_choice`, for a partition that is given."""
        params, hardware = self._costs.params_of(choice, None), self._subject.hardware
        of_device = [self._state_of_cells(choice, partition, cells)
                     for cells in self._cells_of_devices(choice, params)]
        fastest = max(hardware.link_bytes_per_s, hardware.network_bytes_per_s)
        return _BELOW * (
            self._of_slots(choice, params, partition)
            + choice.num_micro_batches * hardware.slot_s
            + max(state.update_s(hardware) for state in of_device)
            + sent_share(choice.num_replicas)
            * max(state.gradient_bytes for state in of_device) / fastest)

    def _cells_of_devices(self, choice: Choice, params: PipelineParams) -> list[list[int]]:
        """The cells of each device of a replica, if `devices` names none twice."""
        homes = self._layout(choice, params)
        return [[k for k, other in enumerate(homes) if other == home]
                for home in sorted(set(homes))]

    def _layout(self, choice: Choice, params: PipelineParams) -> Layout:
        """[K] the device of each cell in a replica, if `devices` names none twice."""
        return tuple(range(choice.num_cells)) if self._has_one_each(choice) else params.layout

    def _has_one_each(self, choice: Choice) -> bool:
        """Whether there is a device for each cell."""
        return len(self._subject.devices) >= choice.num_replicas * choice.num_cells

    def num_devices(self, choice: Choice) -> int:
        """The devices of a replica, if `devices` names none twice."""
        return choice.num_cells if self._has_one_each(choice) else num_devices_for(
            choice.schedule, choice.num_cells, self._subject.params.cells_per_device)

    def _state_of_cells(self, choice: Choice, partition: Partition,
                        cells: Iterable[int]) -> UpdateTraffic:
        """What some cells train together."""
        state = self._costs.state(choice)
        return total_traffic(state[i] for k in cells for i in partition.spans[k])

    def _of_slots(self, choice: Choice, params: PipelineParams, partition: Partition) -> float:
        """How long the slots take at least.

        A device starts when the first micro-batch has come to its first cell. If backwards are not
        split, the last gradient of that cell goes on to the cells before it.
        """
        seconds, last = self._costs.seconds(choice), choice.num_cells - 1
        forward_s = [sum(seconds[i][0] for i in span) for span in partition.spans]
        backward_s = [sum(seconds[i][1] for i in span) for span in partition.spans]
        makers: list[list[int]] = [[] for _ in partition.spans]
        for maker, reader in partition.edges:
            makers[reader].append(maker)
        arrives_s, ends_s = [0.0] * (last + 1), [0.0] * (last + 1)
        for k in range(last + 1):
            arrives_s[k] = max((arrives_s[j] + forward_s[j] for j in makers[k]), default=0.0)
            ends_s[k] = max((ends_s[j] + backward_s[j] for j in makers[k]), default=0.0)

        repeats = choice.recompute in ('cell', 'layer')
        slowest_s = 0.0
        for cells in self._cells_of_devices(choice, params):
            load_s = sum(forward_s[k] + backward_s[k] + forward_s[k] * (
                repeats and k < last and backward_s[k] > 0) for k in cells)
            drain_s = min(ends_s[k] for k in cells) if choice.schedule in UNSPLIT else 0.0
            slowest_s = max(slowest_s, arrives_s[cells[0]] + drain_s
                            + choice.num_micro_batches * load_s)
        if self._may_share_threads:
            return slowest_s
        return max(slowest_s, self._of_order(choice, partition))

    def _of_order(self, choice: Choice, partition: Partition) -> float:
        """How long F and B take, without any W that may run later, if their order is known."""
        schedule = self._limited_bound(choice).schedule
        if schedule is None:
            return 0.0
        times = self._costs.times(choice, self._costs.params_of(choice, None))
        last, repeats = choice.num_cells - 1, choice.recompute in ('cell', 'layer')

        def duration_of(slot: Slot) -> float:
            """Seconds of an F or a B; those of the W that comes apart are not counted."""
            span, has_backward = partition.spans[slot.cell], partition.has_backward(slot.cell)
            forward_s = sum(times.forward[i] for i in span)
            if slot.kind == 'F':
                return forward_s
            backward_s = sum(times.backward[i] for i in span)
            if choice.schedule not in UNSPLIT:
                backward_s -= sum(times.weight[i] for i in span) if (
                    partition.passes_gradient_on(slot.cell)) else backward_s
            return backward_s + forward_s * (slot.cell == last or repeats and has_backward)

        return step_with_delays(
            _without_w(with_backward_cells(schedule, partition.backward_cells)),
            duration_of, partition.edges, lambda sender, receiver: 0.0)

    @functools.cached_property
    def _may_share_threads(self) -> bool:
        """Whether devices may fill each other's bubbles, so that other orders are taken."""
        shares = self._subject.params.shares_threads
        kinds = {cluster.place(name)[2] for name in self._subject.devices}
        return kinds == {'CPU'} if shares is None else shares

    def _partition(self, choice: Choice, params: PipelineParams) -> Partition:
        """The partition of a choice if memory does not matter."""
        key = choice.num_parts, choice.num_cells, choice.recompute
        if key not in self._partition_of:
            self._partition_of[key] = choose_partition(
                self._costs.elements(choice), self._costs.times(choice, params), params)
        return self._partition_of[key]


@functools.lru_cache(maxsize=128)
def _without_w(schedule: Schedule) -> Schedule:
    return dataclasses.replace(schedule, devices=tuple(
        tuple(slot for slot in slots if slot.kind != 'W') for slots in schedule.devices))
