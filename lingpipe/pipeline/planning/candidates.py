"""Candidates: the plans that a network could run with on given devices.

Wiring, prices and traces are those of a micro-batch, and shared among all choices that have
micro-batches of that size. plan_search.py finds the fastest.
"""
from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

from lingpipe.pipeline.planning.candidate import Candidate
from lingpipe.pipeline.planning.choice_bounds import ChoiceBounds
from lingpipe.pipeline.planning.choice_costs import ChoiceCosts
from lingpipe.pipeline.planning.effort import bound_effort, likely_s, plan_effort
from lingpipe.pipeline.planning.kept_tensors import CellGraph
from lingpipe.pipeline.planning.layer_times import LayerTimes
from lingpipe.pipeline.planning.memory import Memory
from lingpipe.pipeline.planning.pipeline_params import Mode, PipelineParams
from lingpipe.pipeline.planning.plan import Plan
from lingpipe.pipeline.planning.planner import fastest_plan
from lingpipe.pipeline.planning.priced_network import PricedNetwork, cell_graphs, memory_of
from lingpipe.pipeline.planning.search_space import Choice
from lingpipe.pipeline.planning.step_forecast import forecast_step
from lingpipe.pipeline.planning.subject import Subject

_REMEMBERED = 128   # plans
_NUM_HALVINGS = 8   # About so many plans are tried to find the least peak of a choice.


class LeastLimit(NamedTuple):
    """The smallest limit that was found, a choice that fits it, and how many were not tried."""
    limit: float
    choice: Choice
    num_left: int = 0


def cost_of_trying(choice: Choice) -> tuple[int | bool, ...]:
    """Sorts choices: the first mostly need little memory and are tried quickly.

    That is 1f1b with all layers computed again, many cells and micro-batches. 'fit' and 'auto' are
    the last.
    """
    return (choice.recompute == 'fit', choice.schedule == 'auto', choice.num_replicas,
            choice.schedule != '1f1b', choice.recompute != 'layer',
            -choice.num_cells, -choice.num_micro_batches)


class Candidates:
    """Finds the candidates of a subject."""

    def __init__(self, subject: Subject):
        self.subject = subject
        self.num_units = len(list(subject.network.units()))
        self._costs = ChoiceCosts(subject)
        self._bounds = ChoiceBounds(self._costs)
        self._memory_of: dict[tuple[int, int], Memory] = {}
        self._graphs_of: dict[tuple[int, LayerTimes], Callable[[range], CellGraph]] = {}
        self._unlimited: dict[Choice, Candidate] = {}   # of recompute='none'
        # Plans of 'cell' and 'layer' are asked for again by those of 'fit'.
        self._plan = functools.lru_cache(maxsize=_REMEMBERED)(self._make_plan)

    def is_possible(self, choice: Choice) -> bool:
        """Whether a mini-batch can be split so, and devices have room for all that is trained."""
        return self._costs.is_possible(choice) and not self._costs.is_too_big(
            choice, self.subject.limit)

    def bound_s(self, choice: Choice) -> float:
        """A lower bound on the seconds of a step, for all plans of a choice, found at once."""
        return self._bounds.of_choice(choice)

    def likely_s(self, choice: Choice) -> float:
        """Seconds that the step of a choice is likely to take, if memory does not matter."""
        return likely_s(choice, self.bound_s(choice), self._bounds.num_devices(choice))

    def family_bound_s(self, choice: Choice) -> float:
        """As `bound_s`, whatever the schedule, for cells that fit alone; infinity if none does."""
        try:
            return self._bounds.of_family(choice, self.subject.limit, self._memory(choice))
        except ValueError:   # The experiment forbids it.
            return math.inf

    def close_bound_s(self, choice: Choice) -> tuple[float, bool]:
        """A lower bound on the seconds of a step, and whether memory does not matter.

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

    def closest_bound_s(self, choice: Choice) -> float:
        """As `close_bound_s`, if memory matters and devices have their cells in a V; else 0."""
        assert self.subject.limit is not None
        return self._bounds.in_v(choice, self.subject.limit, self._memory(choice))

    def fitting(self, choice: Choice, limit_matters: bool) -> Candidate | None:
        """The candidate of a choice whose devices keep the subject's limit, if there is one.

        Args:
          choice: any.
          limit_matters: whether the plan without a limit may break it.
        """
        limit = self.subject.limit
        candidate = self.of(choice, limit if limit_matters else None)
        if limit is not None and candidate is not None and candidate.peak_bytes > limit:
            candidate = self.of(choice, limit)
        return candidate

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

    def with_cuts(self, candidate: Candidate, layers_per_cell: tuple[int, ...],
                  ) -> Candidate | None:
        """A candidate with other cuts; None if its devices would hold more than its Params allow.

        Args:
          candidate: of this subject, with the cuts of the partitioner.
          layers_per_cell: as of PipelineParams.
        """
        params = candidate.plan.params.copy().set(layers_per_cell=layers_per_cell)
        plan = self._plan_of_params(candidate.choice, params.validate())
        if plan is None:
            return None
        return dataclasses.replace(
            candidate, plan=plan, step=forecast_step(plan, self.subject.hardware),
            unmoved_s=candidate.step_s)

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
        if limit is not None and self._is_excluded(choice, limit):
            return None
        in_mode = None
        if choice.recompute == 'fit':
            def in_mode(mode: Mode) -> Plan | None:
                return self._plan(choice._replace(recompute=mode), limit)
        return self._plan_of_params(choice, params, in_mode)

    def _is_excluded(self, choice: Choice, limit: float) -> bool:
        """Whether bounds tell that no plan of a choice keeps a limit."""
        try:
            memory = self._memory(choice)
            return (math.isinf(self._bounds.within(choice, limit, memory))
                    or math.isinf(self._bounds.in_v(choice, limit, memory)))
        except ValueError:   # The experiment forbids it.
            return True

    def _plan_of_params(self, choice: Choice, params: PipelineParams,
                        in_mode: Callable[[Mode], Plan | None] | None = None) -> Plan | None:
        """The plan of Params that a choice leads to; see `fastest_plan`."""
        elements, memory = self._costs.elements(choice), self._memory(choice)
        times = self._costs.times(choice, params)
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

    def least_limit(self, choices: Iterable[Choice],
                    most_effort: float = math.inf) -> LeastLimit | None:
        """The fewest bytes of a device with which a choice fits, and the first such choice.

        Each choice is tried only below the best so far.

        Args:
          choices: any.
          most_effort: microseconds, about, after which no other choice is tried; see effort.py.
        """
        least: LeastLimit | None = None
        effort, ordered = 0.0, sorted(choices, key=cost_of_trying)
        for place, choice in enumerate(ordered):
            limit = least.limit - 1 if least else None
            if not self._costs.is_possible(choice) or self._costs.is_too_big(choice, limit):
                continue
            if effort > most_effort:
                return least and least._replace(num_left=len(ordered) - place)
            effort += bound_effort(choice)
            if limit is not None and self._is_excluded(choice, limit):
                continue
            effort += plan_effort(choice, limit is not None, self.num_units)
            candidate = self.of(choice, limit)
            if candidate is not None:
                effort += _NUM_HALVINGS * plan_effort(choice, True, self.num_units)
                least = LeastLimit(self._least_peak(choice, candidate.peak_bytes), choice)
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
