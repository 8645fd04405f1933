"""Candidates: the plans that a network could run with on given devices, the fastest first.

There are hundreds of choices, and a plan of each in turn would take minutes. So they wait in a
queue, and each is worked out only as far as it takes to know that others are better:

    bound      the work divided among the devices; no plan of the choice is faster
    free       if memory does not matter: the same for the cuts that are best without links, where
               devices also wait for their first micro-batch
    within     if it does: the same for any partition that may fit (limited_bound.py), or for the
               few that a plan of 'fit' can have
    limited    the same again, closer where devices have their cells in a V
    fitting    its plan, through the simulator

Whatever is first in the queue goes on to its next stage, and a candidate that comes first when it
fits is better than all that are left. Wiring, prices and traces are those of a micro-batch, and
shared among all choices that have micro-batches of that size.
"""
from __future__ import annotations

import dataclasses
import functools
import heapq
import math
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from lingpipe.pipeline.planning.candidate import Candidate
from lingpipe.pipeline.planning.choice_bounds import ChoiceBounds
from lingpipe.pipeline.planning.choice_costs import ChoiceCosts
from lingpipe.pipeline.planning.kept_tensors import CellGraph
from lingpipe.pipeline.planning.layer_times import LayerTimes, layer_times
from lingpipe.pipeline.planning.memory import Memory
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.pipeline.planning.plan import Plan
from lingpipe.pipeline.planning.planner import fastest_plan
from lingpipe.pipeline.planning.priced_network import PricedNetwork, cell_graphs, memory_of
from lingpipe.pipeline.planning.search_space import Choice
from lingpipe.pipeline.planning.step_forecast import forecast_step
from lingpipe.pipeline.planning.subject import Subject

_REMEMBERED = 128   # plans


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
        self._costs = ChoiceCosts(subject)
        self._bounds = ChoiceBounds(self._costs)
        self._memory_of: dict[tuple[int, int], Memory] = {}
        self._graphs_of: dict[tuple[int, LayerTimes], Callable[[range], CellGraph]] = {}
        self._unlimited: dict[Choice, Candidate] = {}   # of recompute='none'
        # Plans of 'cell' and 'layer' are asked for again by those of 'fit'.
        self._plan = functools.lru_cache(maxsize=_REMEMBERED)(self._make_plan)

    def fastest(self, choices: Iterable[Choice]) -> Iterator[Candidate]:
        """Yields the candidates that fit, the fastest first; of equals those of earlier choices."""
        listed = list(choices)
        queue = [_Entry(self._bounds.of_choice(choice), place, 'bound', None)
                 for place, choice in enumerate(listed)
                 if self._costs.is_possible(choice)
                 and not self._costs.is_too_big(choice, self.subject.limit)]
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
            bound_s, is_free = self._bound_s(choice)
            return None if math.isinf(bound_s) else entry._replace(
                step_s=max(entry.step_s, bound_s), stage='free' if is_free else 'within')
        if entry.stage == 'within':
            assert limit is not None
            bound_s = self._bounds.in_v(choice, limit, self._memory(choice))
            return None if math.isinf(bound_s) else entry._replace(
                step_s=max(entry.step_s, bound_s), stage='limited')

        candidate = self.of(choice, None if entry.stage == 'free' else limit)
        if limit is not None and candidate is not None and candidate.peak_bytes > limit:
            candidate = self.of(choice, limit)
        return None if candidate is None else entry._replace(
            step_s=candidate.step_s, stage='fitting', candidate=candidate)

    def _bound_s(self, choice: Choice) -> tuple[float, bool]:
        """Seconds that no plan of a choice is faster than, and whether memory does not matter.

        They are infinite if no plan fits.
        """
        limit = self.subject.limit
        try:
            if limit is None or self._bounds.keeps_cuts(choice, limit, self._memory(choice)):
                bound_s = self._bounds.when_cut(choice)
                return math.inf if bound_s is None else bound_s, True
            return self._bounds.within(choice, limit, self._memory(choice)), False
        except ValueError:   # The experiment forbids it.
            return math.inf, False

    def of(self, choice: Choice, limit: float | None) -> Candidate | None:
        """The candidate of a choice whose devices hold no more than `limit` bytes, if there is one.

        Args:
          choice: any.
          limit: bytes; None: memory does not matter.
        """
        if limit is None and choice.recompute == 'fit':
            return self._unlimited_fit(choice)
        plan = self._plan(choice, limit)
        if plan is None:
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
        plan = dataclasses.replace(candidate.plan, params=self._costs.params_of(choice, None))
        step = dataclasses.replace(candidate.step, plan=plan)
        return dataclasses.replace(candidate, choice=choice, plan=plan, step=step)

    def _make_plan(self, choice: Choice, limit: float | None) -> Plan | None:
        """The plan of a choice whose devices hold no more than `limit` bytes, if there is one."""
        try:
            params = self._costs.params_of(choice, limit)
        except ValueError:   # The experiment forbids it.
            return None
        if limit is not None:
            memory = self._memory(choice)
            if (math.isinf(self._bounds.within(choice, limit, memory))
                    or math.isinf(self._bounds.in_v(choice, limit, memory))):
                return None
        in_mode = None
        if choice.recompute == 'fit':
            def in_mode(mode: str) -> Plan | None:
                return self._plan(choice._replace(recompute=mode), limit)
        return self._plan_of_params(choice, params, in_mode)

    def _plan_of_params(self, choice: Choice, params: PipelineParams,
                        in_mode: Callable[[str], Plan | None] | None = None) -> Plan | None:
        """The plan of Params that a choice leads to; see `fastest_plan`."""
        elements, memory = self._costs.elements(choice), self._memory(choice)
        times = layer_times(elements, params)
        if (choice.num_parts, times) not in self._graphs_of:
            self._graphs_of[choice.num_parts, times] = cell_graphs(elements, times, memory)
        priced = PricedNetwork(params, elements, times, memory,
                               self._graphs_of[choice.num_parts, times])
        return fastest_plan(priced, self.subject.devices_for(params), in_mode)

    def _memory(self, choice: Choice) -> Memory:
        """What cells hold in the micro-batches of a choice.

        Raises:
          ValueError: the experiment forbids it.
        """
        key = choice.num_parts, choice.num_replicas
        if key not in self._memory_of:
            self._memory_of[key] = memory_of(
                self._costs.elements(choice), self._costs.params_of(choice, None),
                self.subject.slot_bytes, self.subject.update_bytes)
        return self._memory_of[key]

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
            plan = self._plan_of_params(candidate.choice, params.validate())
        except ValueError:   # Seconds of another number of layers.
            return False
        return (plan is not None and plan.schedule.devices == candidate.plan.schedule.devices
                and plan.forecast.footprints == candidate.plan.forecast.footprints)

    def least_limit(self, choices: Iterable[Choice]) -> tuple[float, Choice] | None:
        """The fewest bytes of a device with which a choice fits, and the first such choice.

        Each choice is tried only below the best so far. So the first ones are those that mostly
        need little and are tried quickly: 1f1b with all layers computed again, many cells and
        micro-batches; and 'fit' and 'auto' are the last.
        """
        def cost_of_trying(choice: Choice) -> tuple[int | bool, ...]:
            return (choice.recompute == 'fit', choice.schedule == 'auto', choice.num_replicas,
                    choice.schedule != '1f1b', choice.recompute != 'layer',
                    -choice.num_cells, -choice.num_micro_batches)

        least: tuple[float, Choice] | None = None
        for choice in sorted(choices, key=cost_of_trying):
            limit = least[0] - 1 if least else None
            if not self._costs.is_possible(choice) or self._costs.is_too_big(choice, limit):
                continue
            candidate = self.of(choice, limit)
            if candidate is not None:
                least = self._least_peak(choice, candidate.peak_bytes), choice
        return least

    def _least_peak(self, choice: Choice, peak_bytes: float) -> float:
        """The fewest bytes, up to those that are enough, that devices of a choice can have.

        It is found by steps of a hundredth, and then by bisection to the byte.
        """
        enough = peak_bytes
        too_few = enough - max(1.0, enough // 100)
        while (candidate := self.of(choice, too_few)) is not None:
            enough = candidate.peak_bytes
            too_few = enough - max(1.0, enough // 100)
        while enough - too_few > 1:
            middle = (enough + too_few) // 2
            candidate = self.of(choice, middle)
            if candidate is None:
                too_few = middle
            else:
                enough = candidate.peak_bytes
        return enough

    def _timed(self, choice: Choice, plan: Plan) -> Candidate:
        self._costs.seconds(choice)
        return Candidate(
            choice, plan, forecast_step(plan, self.subject.hardware),
            work_s=self._costs.work_s(choice.num_parts),
            one_device_s=self._costs.one_device_s(self._costs.state(choice)))
