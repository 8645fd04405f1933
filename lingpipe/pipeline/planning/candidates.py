"""Candidates: the plans that a network could run with on given devices, the fastest first.

There are hundreds of choices, and a plan of each in turn would take minutes. So they wait in a
queue, and each is worked out only as far as it takes to know that others are better:

    bound      the work divided among the devices; no plan of the choice is faster
    cut        the same for the partition that is best without links; with it, devices also wait
               for their first micro-batch
    timed      its plan, if memory does not matter, through the simulator; if that does not fit,
               also what holds for any partition that may (limited_bound.py)
    fitting    its plan on devices whose memory has a limit; the same, if that fits

Whatever is first in the queue goes on to its next stage, and a candidate that comes first when it
fits is better than all that are left. Wiring, prices and traces are those of a micro-batch, and
shared among all choices that have micro-batches of that size.

R replicas, K cells, M micro-batches, L layers.
"""
from __future__ import annotations

import dataclasses
import functools
import heapq
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from lingpipe.layers.sequential import Sequential
from lingpipe.pipeline.planning.dataflow import Element
from lingpipe.pipeline.planning.hardware import Hardware
from lingpipe.pipeline.planning.kept_tensors import CellGraph
from lingpipe.pipeline.planning.layer_times import LayerTimes, layer_times
from lingpipe.pipeline.planning.layout import Layout, layout_of, num_devices_for
from lingpipe.pipeline.planning.limited_bound import LimitedBound
from lingpipe.pipeline.planning.links import sent_share
from lingpipe.pipeline.planning.memory import Memory
from lingpipe.pipeline.planning.partition import Partition, choose_partition
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.pipeline.planning.plan import (
    Plan,
    PricedNetwork,
    cell_graphs,
    memory_of,
    plan_priced,
    wire_parts,
)
from lingpipe.pipeline.planning.schedules import UNSPLIT
from lingpipe.pipeline.planning.search_space import Choice
from lingpipe.pipeline.planning.step_forecast import StepForecast, forecast_step
from lingpipe.pipeline.planning.update_traffic import (
    UpdateTraffic,
    total_traffic,
    update_traffic,
)

# [L] seconds of each layer's forward and backward for one micro-batch.
SecondsOf = Callable[[Sequence[Element]], Sequence[tuple[float, float]]]

_BELOW = 1 - 1e-9   # A bound is no more than what sums in another order give.

# Cuts are chosen for the slowest cell. Where a limit moves them, the step may even become faster,
# which a margin of a tenth allows for. It is a guess: with it the random networks pass that were
# seen to fail without. What is proven for any partition (limited_bound.py) knows of bubbles only
# that devices wait for the first micro-batch, and alone it had many choices worked out in vain.
_MOVED = 0.9


@dataclasses.dataclass(frozen=True)
class Subject:
    """What is planned.

    Attributes:
      network: the layers.
      batch_spec: name -> nested tf.TensorSpec of a whole mini-batch.
      params: the experiment's; what a Choice names is replaced.
      devices: tf.device strings; a plan takes the first of them.
      hardware: what they can do. Its device_bytes limit a plan unless `params` have a limit.
      seconds_of: how long the layers take; None: as long as the costs of `params` say, in any unit.
      is_frozen, slot_bytes: as of `make_plan`.
    """
    network: Sequential
    batch_spec: Mapping[str, Any]
    params: PipelineParams
    devices: Sequence[str]
    hardware: Hardware
    seconds_of: SecondsOf | None
    is_frozen: Callable[[str], bool] = lambda path: False
    slot_bytes: Callable[[tf.DType], int] = lambda dtype: 0

    @property
    def limit(self) -> float | None:
        """The most bytes that a device may hold."""
        own = self.params.device_bytes
        return self.hardware.device_bytes if own is None else own

    def devices_for(self, params: PipelineParams) -> Sequence[str]:
        """Those that a run with these Params takes: one a cell, or one a device if they are few."""
        num_cells = params.num_replicas * params.num_cells
        has_one_each = len(self.devices) >= num_cells
        return self.devices[:num_cells if has_one_each else params.num_devices]


@dataclasses.dataclass(frozen=True, eq=False)
class Candidate:
    """A plan, and what its step takes, in seconds.

    Attributes:
      choice: what was chosen.
      plan: its costs are seconds.
      step: the forecast of a step.
      work_s: what a device would take for these micro-batches, if it had all memory.
      one_device_s: a whole step of such a device, with micro-batches of the best size.
    """
    choice: Choice
    plan: Plan
    step: StepForecast
    work_s: float
    one_device_s: float

    @property
    def step_s(self) -> float:
        """Seconds of one update."""
        return self.step.step_s

    @property
    def speed_up(self) -> float:
        """How much faster it is than one device with memory enough, which repeats nothing."""
        return self.one_device_s / self.step_s

    @property
    def bubble_share(self) -> float:
        """How much of the time of its devices they wait, 0 to 1."""
        return self.step.bubble_share

    @property
    def num_devices(self) -> int:
        """How many devices all replicas have together."""
        return self.choice.num_replicas * len(self.plan.schedule.devices)

    @functools.cached_property
    def peak_bytes(self) -> float:
        """The most that any device holds."""
        return max(self.plan.peak_bytes().values())

    @functools.cached_property
    def losses(self) -> dict[str, float]:
        """What keeps the step from being the work divided by the devices -> seconds, most first."""
        loads: dict[int, float] = {}
        for slot, (start, end) in self.step.simulation.spans.items():
            device = self.plan.schedule.device_of[slot]
            loads[device] = loads.get(device, 0.0) + end - start
        mean_s, most_s = sum(loads.values()) / len(loads), max(loads.values())
        share_s = self.work_s / self.num_devices
        losses = {
            'recomputation': mean_s - share_s,
            'imbalance': most_s - mean_s,
            'links': self.step.links_s,
            'bubble': self.step.slots_s - self.step.links_s - most_s,
            'overhead': self.step.overhead_s,
            'replicas': self.step.replicas_s,
            'update': self.step.update_s,
        }
        return dict(sorted(losses.items(), key=lambda item: -item[1]))

    @property
    def limited_by(self) -> str:
        """The largest loss; 'work' if none takes a fiftieth of the step."""
        name, seconds = next(iter(self.losses.items()))
        return name if seconds > 0.02 * self.step_s else 'work'


def distinct(candidates: Iterable[Candidate]) -> Iterator[Candidate]:
    """Yields every plan once, as the candidate of the first choice that gives it."""
    seen: set[Hashable] = set()
    for candidate in candidates:
        choice, plan = candidate.choice, candidate.plan
        what = (choice.num_parts, plan.placement.devices, plan.partition.spans,
                plan.schedule.devices, tuple(plan.forecast.footprints))
        if what not in seen:
            seen.add(what)
            yield candidate


class _Entry(NamedTuple):
    """A choice in the queue; sorted by time, and as far as that is equal, by place."""
    step_s: float
    place: int
    stage: str
    candidate: Candidate | None


class Candidates:
    """Finds the candidates of a subject."""

    def __init__(self, subject: Subject):
        self.subject = subject
        self._state_of_layers: list[UpdateTraffic] = []
        self._elements_of: dict[int, tuple[Element, ...]] = {}
        self._seconds_of: dict[int, Sequence[tuple[float, float]]] = {}
        self._partition_of: dict[tuple[int, int, Any], Partition] = {}
        self._memory_of: dict[tuple[int, int], Memory] = {}
        self._graphs_of: dict[tuple[int, LayerTimes], Callable[[range], CellGraph]] = {}
        self._unlimited: dict[Choice, Candidate] = {}   # of recompute='none'

    def fastest(self, choices: Iterable[Choice]) -> Iterator[Candidate]:
        """Yields the candidates that fit, the fastest first; of equals those of earlier choices."""
        listed = list(choices)
        queue = [_Entry(self._bound(choice), place, 'bound', None)
                 for place, choice in enumerate(listed)
                 if self._is_possible(choice)
                 and not self._is_too_big(choice, self.subject.limit)]
        heapq.heapify(queue)
        while queue:
            entry = heapq.heappop(queue)
            if entry.stage == 'fitting':
                assert entry.candidate is not None
                yield entry.candidate
                continue
            following = self._next(entry, listed[entry.place])
            if following is not None:
                heapq.heappush(queue, following)

    def _next(self, entry: _Entry, choice: Choice) -> _Entry | None:
        """The next stage of a choice; None if none of its plans fits."""
        limit = self.subject.limit
        if entry.stage == 'bound':
            bound_s = self._bound_when_cut(choice)
            if bound_s is None:
                return None
            moved = 1.0 if limit is None else _MOVED
            return entry._replace(step_s=max(entry.step_s, moved * bound_s), stage='cut')
        if entry.stage == 'cut':
            candidate = self.of(choice, None)
            if candidate is None:
                return None
            if limit is None or candidate.peak_bytes <= limit:
                return entry._replace(
                    step_s=candidate.step_s, stage='fitting', candidate=candidate)
            bound_s = self._bound_within(limit, candidate)
            return None if math.isinf(bound_s) else entry._replace(
                step_s=max(entry.step_s, _MOVED * candidate.step_s, bound_s), stage='timed')

        candidate = self.of(choice, limit)
        return None if candidate is None else entry._replace(
            step_s=candidate.step_s, stage='fitting', candidate=candidate)

    def of(self, choice: Choice, limit: float | None) -> Candidate | None:
        """The candidate of a choice whose devices hold no more than `limit` bytes, if there is one.

        Args:
          choice: any.
          limit: bytes; None: memory does not matter.
        """
        if limit is None and choice.recompute == 'fit':
            return self._unlimited_fit(choice)
        try:
            plan = self._plan(choice, self.params_of(choice, limit))
        except ValueError:   # The experiment forbids it, or it does not fit.
            return None
        candidate = self._timed(choice, plan)
        if limit is None and choice.recompute == 'none':
            self._unlimited[choice] = candidate
        return candidate

    def _unlimited_fit(self, choice: Choice) -> Candidate | None:
        """The candidate of recompute='fit' if memory does not matter: that of 'none'."""
        twin = choice._replace(recompute='none')
        candidate = self._unlimited.get(twin) or self.of(twin, None)
        if candidate is None:
            return None
        plan = dataclasses.replace(candidate.plan, params=self.params_of(choice, None))
        step = dataclasses.replace(candidate.step, plan=plan)
        return dataclasses.replace(candidate, choice=choice, plan=plan, step=step)

    def _plan(self, choice: Choice, params: PipelineParams) -> Plan:
        """The plan of a choice with these Params; raises ValueError if it does not fit."""
        elements, key = self._elements(choice), (choice.num_parts, choice.num_replicas)
        if key not in self._memory_of:
            self._memory_of[key] = memory_of(elements, params, self.subject.slot_bytes)
        memory, times = self._memory_of[key], layer_times(elements, params)
        if (choice.num_parts, times) not in self._graphs_of:
            self._graphs_of[choice.num_parts, times] = cell_graphs(elements, times, memory)
        priced = PricedNetwork(params, elements, times, memory,
                               self._graphs_of[choice.num_parts, times])
        return plan_priced(priced, self.subject.devices_for(params))

    def params_of(self, choice: Choice, limit: float | None) -> PipelineParams:
        """The Params of a choice, with the seconds of its layers.

        Raises:
          ValueError: its values exclude each other.
        """
        params = self.subject.params.copy()
        if self.subject.seconds_of is not None:
            seconds = self._seconds(choice)
            params.set(
                layer_seconds=tuple(forward + backward for forward, backward in seconds),
                layer_backward_seconds=tuple(backward for _, backward in seconds),
                memory_bytes_per_s=self.subject.hardware.known_memory_bytes_per_s)
        params.set(**choice._asdict(), device_bytes=limit)
        if choice.num_cells != len(params.layers_per_cell):
            params.layers_per_cell = ()
        if params.devices:
            params.devices = tuple(self.subject.devices_for(params))
        return params.validate()

    def params_to_run(self, candidate: Candidate) -> PipelineParams:
        """The experiment's Params with those values that give exactly the candidate's plan.

        The partition is said by hand. The seconds of layers and the limit are left out if they
        decide nothing else.
        """
        complete = candidate.plan.params.copy().set(
            layers_per_cell=candidate.plan.partition.layers_per_cell)
        own = self.subject.params
        without_seconds = {'layer_seconds': own.layer_seconds,
                           'layer_backward_seconds': own.layer_backward_seconds,
                           'memory_bytes_per_s': own.memory_bytes_per_s}
        without_limit = {'device_bytes': own.device_bytes}
        for left_out in (without_seconds | without_limit, without_limit, without_seconds):
            params = complete.copy().set(**left_out)
            if self._gives(params, candidate):
                return params
        return complete

    def _gives(self, params: PipelineParams, candidate: Candidate) -> bool:
        """Whether Params make the same plan, apart from its seconds."""
        try:
            plan = self._plan(candidate.choice, params.validate())
        except ValueError:   # Seconds of another number of layers, or they do not fit so.
            return False
        return (plan.schedule.devices == candidate.plan.schedule.devices
                and plan.forecast.footprints == candidate.plan.forecast.footprints)

    def least_limit(self, choices: Iterable[Choice]) -> tuple[float, Choice] | None:
        """The fewest bytes of a device with which a choice fits, and the first such choice."""
        least: tuple[float, Choice] | None = None
        listed = list(choices)
        for choice in listed:
            # 'fit' needs no less than 'layer', to which it falls back.
            if choice.recompute == 'fit' and choice._replace(recompute='layer') in listed:
                continue
            limit = least[0] - 1 if least else None
            if not self._is_possible(choice) or self._is_too_big(choice, limit):
                continue
            candidate = self.of(choice, limit)
            while candidate is not None:
                least = candidate.peak_bytes, choice
                candidate = self.of(choice, _lower(least[0]))
        return least

    def _is_possible(self, choice: Choice) -> bool:
        """Whether a mini-batch can be split so and the layers can be given the parts."""
        try:
            self._elements(choice)
        except ValueError:
            return False
        return True

    def _is_too_big(self, choice: Choice, limit: float | None) -> bool:
        """Whether what the layers train is more than the devices of a replica hold together."""
        state_bytes = sum(state.state_bytes for state in self._state(choice))
        return limit is not None and state_bytes > limit * choice.num_cells

    def _elements(self, choice: Choice) -> tuple[Element, ...]:
        """The network, wired for the micro-batches of a choice."""
        num_parts = choice.num_parts
        if num_parts not in self._elements_of:
            subject = self.subject
            params = subject.params.copy().set(
                num_replicas=1, num_micro_batches=num_parts)
            self._elements_of[num_parts] = wire_parts(
                subject.network, subject.batch_spec, params, subject.is_frozen)
        return self._elements_of[num_parts]

    def _seconds(self, choice: Choice) -> Sequence[tuple[float, float]]:
        """[L] forward and backward of each layer, to six digits, so that flags can say them."""
        num_parts = choice.num_parts
        if num_parts not in self._seconds_of:
            elements, seconds_of = self._elements(choice), self.subject.seconds_of
            if seconds_of is None:
                times = layer_times(elements, self.subject.params)
                self._seconds_of[num_parts] = list(zip(times.forward, times.backward, strict=True))
            else:
                self._seconds_of[num_parts] = [
                    (_rounded(forward), _rounded(backward))
                    for forward, backward in seconds_of(elements)]
        return self._seconds_of[num_parts]

    def _work_s(self, num_parts: int) -> float:
        """Seconds of all forwards and backwards on one device, in so many micro-batches."""
        return num_parts * sum(map(sum, self._seconds_of[num_parts]))

    def _bound(self, choice: Choice) -> float:
        """Seconds that no plan of the choice is faster than.

        With recomputation, all cells but the last repeat their forwards. No device takes longer
        than the slowest, and the last cell's forward is no longer than it either.
        """
        num_devices = num_devices_for(choice.schedule, choice.num_cells,
                                      self.subject.params.cells_per_device)
        seconds = self._seconds(choice)
        work_s = _BELOW * self._work_s(choice.num_parts) / choice.num_replicas
        busy_s = work_s / num_devices
        if choice.recompute in ('cell', 'layer') and choice.num_cells > 1:
            repeated_s = choice.num_micro_batches * sum(forward for (forward, _), element in zip(
                seconds, self._elements(choice), strict=True) if element.has_backward)
            busy_s = max(busy_s, (work_s + _BELOW * repeated_s) / (num_devices + 1))

        return busy_s + self._bound_besides_slots(choice, num_devices)

    def _bound_besides_slots(self, choice: Choice, num_devices: int) -> float:
        """Seconds that a step takes besides its slots, at least."""
        hardware, state = self.subject.hardware, self._state(choice)
        gradient_bytes = sum(layer.gradient_bytes for layer in state) / num_devices
        update_s = total_traffic(state).update_s(hardware) / num_devices
        fastest = max(hardware.link_bytes_per_s, hardware.network_bytes_per_s)
        return (choice.num_micro_batches * hardware.slot_s
                + _BELOW * update_s
                + _BELOW * sent_share(choice.num_replicas) * gradient_bytes / fastest)

    def _bound_within(self, limit: float, unlimited: Candidate) -> float:
        """As `_bound`, for plans that may fit; infinity if there is none.

        Args:
          limit: bytes of a device.
          unlimited: the candidate if memory does not matter.
        """
        choice, plan = unlimited.choice, unlimited.plan
        bound = LimitedBound(plan.elements, self._seconds(choice), plan.params,
                             layout_of(plan.placement.places[0]))
        slots_s = bound.slots_s_within(limit, plan.forecast.memory)
        return _BELOW * slots_s + self._bound_besides_slots(choice, max(bound.layout) + 1)

    def _bound_when_cut(self, choice: Choice) -> float | None:
        """As `_bound`, for the partition that is best without links; None if there is none."""
        try:
            params = self.params_of(choice, None)
            partition = self._partition(choice, params)
        except ValueError:   # The experiment forbids it.
            return None
        hardware = self.subject.hardware
        of_device = [self._state_of_cells(choice, partition, cells)
                     for cells in self._cells_of_devices(choice, params)]
        fastest = max(hardware.link_bytes_per_s, hardware.network_bytes_per_s)
        return _BELOW * (
            self._bound_of_slots(choice, params, partition)
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
        has_one_each = (len(self.subject.devices_for(params))
                        >= choice.num_replicas * choice.num_cells)
        return tuple(range(choice.num_cells)) if has_one_each else params.layout

    def _state_of_cells(self, choice: Choice, partition: Partition,
                        cells: Iterable[int]) -> UpdateTraffic:
        """What some cells train together."""
        state = self._state(choice)
        return total_traffic(state[i] for k in cells for i in partition.spans[k])

    def _bound_of_slots(self, choice: Choice, params: PipelineParams,
                        partition: Partition) -> float:
        """How long the slots take at least.

        A device starts when the first micro-batch has come to its first cell. If backwards are not
        split, the last gradient of that cell goes on to the cells before it.
        """
        seconds, last = self._seconds(choice), choice.num_cells - 1
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
        return slowest_s

    def _partition(self, choice: Choice, params: PipelineParams) -> Partition:
        """The partition of a choice if memory does not matter."""
        key = choice.num_parts, choice.num_cells, choice.recompute
        if key not in self._partition_of:
            elements = self._elements(choice)
            self._partition_of[key] = choose_partition(
                elements, layer_times(elements, params), params)
        return self._partition_of[key]

    def _timed(self, choice: Choice, plan: Plan) -> Candidate:
        self._seconds(choice)
        return Candidate(
            choice, plan, forecast_step(plan, self.subject.hardware),
            work_s=self._work_s(choice.num_parts),
            one_device_s=self._one_device_s(self._state(choice)))

    def _one_device_s(self, state: Sequence[UpdateTraffic]) -> float:
        """Seconds of a step on one device that has all memory, with micro-batches of the best size.

        Its update is that of all layers.
        """
        hardware = self.subject.hardware
        slots_s = min(self._work_s(num_parts) + num_parts * hardware.slot_s
                      for num_parts in self._seconds_of)
        return slots_s + total_traffic(state).update_s(hardware)

    def _state(self, choice: Choice) -> list[UpdateTraffic]:
        """[L] what each layer trains; it is the same for all choices."""
        if not self._state_of_layers:
            slot_bytes = self.subject.slot_bytes
            self._state_of_layers = [update_traffic(element, slot_bytes)
                                     for element in self._elements(choice)]
        return self._state_of_layers


def _rounded(seconds: float) -> float:
    return float(f'{seconds:.6g}')


def _lower(limit: float) -> float:
    """Less than a limit, by a hundredth."""
    return limit - max(1.0, limit // 100)
