"""Plan search: the fastest candidates among many choices, in a time that is bounded.

There are hundreds of choices, or with many devices ten thousands, and a plan of each in turn would
take minutes or days. So they wait in a queue, and each is worked out only as far as it takes to
know that others are better:

    bound      the work divided among the devices; no plan of the choice is faster
    family     the same for any schedule, for cells that fit alone (family_bound.py)
    free       if memory does not matter: the same for the cuts that are best without links, where
               devices also wait for their first micro-batch
    within     if it does: the same for any partition that may fit (limited_bound.py), or for the
               few that a plan of 'fit' can have
    limited    the same again, closer where devices have their cells in a V
    fitting    its plan, through the simulator

Whatever is first in the queue goes on to its next stage, and a candidate that comes first when it
fits is better than all that are left. Where choices are too many, that takes too long. So after
some effort (effort.py) the most promising choices are worked out, and what is left is told: how
many choices, and a lower bound on the seconds of their steps.
"""
from __future__ import annotations

import dataclasses
import heapq
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from lingpipe.pipeline.planning.candidate import Candidate, distinct
from lingpipe.pipeline.planning.candidates import Candidates, cost_of_trying
from lingpipe.pipeline.planning.effort import bound_effort, plan_effort
from lingpipe.pipeline.planning.pipeline_params import Modes
from lingpipe.pipeline.planning.search_space import Choice

# Many choices give the same plan, as most schedules do with M = 1.
_COMPARED_PER_PLAN = 4

# The most effort, in microseconds, that each of three parts of a search may take: to prove which
# plans are the fastest; to work out what is promising; to find any that fits.
MOST_EFFORT = 35e6

# If a choice does not fit, others of its schedule and mode count as this many times as slow.
_UNLIKELY = 1.3

_Kind: TypeAlias = tuple[str, Modes]   # schedule and modes of recomputation of a choice


@dataclasses.dataclass(frozen=True)
class Found:
    """What a search has found.

    Attributes:
      candidates: the fastest, each plan once.
      num_left: how many choices may have a faster plan than the last of these, or any if they are
        fewer than was asked for; only bounds of them are known.
      left_s: a lower bound on the seconds of their steps.
    """
    candidates: Sequence[Candidate]
    num_left: int = 0
    left_s: float = math.inf


class _Entry(NamedTuple):
    """A choice in the queue; sorted by time, and as far as that is equal, by place."""
    step_s: float
    place: int
    stage: str
    candidate: Candidate | None


def fastest(candidates: Candidates, choices: Iterable[Choice]) -> Iterator[Candidate]:
    """Yields all candidates that fit, the fastest first; of equals those of earlier choices."""
    return _Queue(candidates, choices).proven(math.inf)


def best(candidates: Candidates, choices: Iterable[Choice], num_wanted: int,
         most_effort: float = MOST_EFFORT) -> Found:
    """Finds the fastest plans that fit.

    Args:
      candidates: of the subject.
      choices: those to choose from.
      num_wanted: how many plans to find.
      most_effort: of each part of the search, in microseconds; see effort.py.
    """
    queue = _Queue(candidates, choices)
    proven = list(itertools.islice(distinct(itertools.islice(
        queue.proven(most_effort), _COMPARED_PER_PLAN * num_wanted)), num_wanted))
    if not queue.is_interrupted:
        return Found(proven)

    queue.bound_families()
    queue.work_out_promising(num_wanted - len(proven), most_effort)
    if not proven and not queue.worked_out:
        queue.work_out_frugal(most_effort)
    wanted = list(itertools.islice(distinct([*proven, *queue.worked_out]), num_wanted))
    slowest_s = wanted[-1].step_s if len(wanted) == num_wanted else math.inf
    left = [step_s for step_s in queue.bounds_left if step_s < slowest_s]
    return Found(wanted, len(left), min(left, default=math.inf))


class _Queue:
    """The choices, by what is known of their steps; see the head of this file."""

    def __init__(self, candidates: Candidates, choices: Iterable[Choice]):
        self.is_interrupted = False   # as long as all that was asked for is proven
        self._candidates = candidates
        self._choices = list(choices)
        self._effort = 0.0   # so far
        self._entries = [_Entry(candidates.bound_s(choice), place, 'bound', None)
                         for place, choice in enumerate(self._choices)
                         if candidates.is_possible(choice)]
        heapq.heapify(self._entries)

    @property
    def worked_out(self) -> list[Candidate]:
        """The candidates that were made and not yet yielded, the fastest first."""
        return [entry.candidate for entry in sorted(self._entries, key=_time_and_place)
                if entry.candidate is not None]

    @property
    def bounds_left(self) -> list[float]:
        """The bounds of all choices that were not worked out."""
        return [entry.step_s for entry in self._entries if entry.candidate is None]

    def proven(self, most_effort: float) -> Iterator[Candidate]:
        """Yields the candidates that fit, the fastest first, until the effort is spent."""
        while self._entries:
            entry = heapq.heappop(self._entries)
            if entry.candidate is not None:
                yield entry.candidate
                continue
            if self._effort > most_effort:
                self.is_interrupted = True
                heapq.heappush(self._entries, entry)
                return
            following = self._next(entry)
            if following is not None:
                heapq.heappush(self._entries, following)

    def bound_families(self) -> None:
        """Takes all choices of which next to nothing is known to their second bound."""
        following = [self._next(entry) if entry.stage == 'bound' else entry
                     for entry in self._entries]
        self._entries = [entry for entry in following if entry is not None]

    def work_out_promising(self, num_wanted: int, most_effort: float) -> None:
        """Works out the choices whose steps are likely to be short.

        First it takes one of each schedule and mode of recomputation, those of little effort first.
        How much longer their steps are than was likely counts for others of the same kind. It ends
        when no choice that is left can be among the fastest.
        """
        self._effort = 0.0
        waiting = _Promising(self._candidates, self._choices, [
            entry for entry in self._entries if entry.candidate is None])
        self._entries = [entry for entry in self._entries if entry.candidate is not None]
        most_s = self._slowest_wanted_s(num_wanted)
        while self._effort < most_effort and (entry := waiting.pop(most_s)):
            following: _Entry | None = entry
            while following and following.candidate is None and following.step_s < most_s:
                following = self._next(following)
            waiting.learn(entry, following)
            if following is not None:
                self._entries.append(following)
                most_s = self._slowest_wanted_s(num_wanted)
        self._entries += waiting.entries

    def _slowest_wanted_s(self, num_wanted: int) -> float:
        """Seconds of the last plan that is wanted; infinity if there are not as many."""
        wanted = list(itertools.islice(distinct(self.worked_out), num_wanted))
        return wanted[-1].step_s if len(wanted) == num_wanted else math.inf

    def work_out_frugal(self, most_effort: float) -> None:
        """Works out the choices that need least until one fits."""
        self._effort = 0.0
        for entry in sorted(self._entries, key=lambda entry: cost_of_trying(
                self._choices[entry.place])):
            choice = self._choices[entry.place]
            if self._effort > most_effort:
                return
            self._effort += plan_effort(choice, True, self._candidates.num_units)
            candidate = self._candidates.fitting(choice, limit_matters=True)
            self._entries.remove(entry)
            if candidate is not None:
                self._entries.append(_Entry(candidate.step_s, entry.place, 'fitting', candidate))
                return

    def _next(self, entry: _Entry) -> _Entry | None:
        """The next stage of a choice; None if none of its plans fits."""
        choice = self._choices[entry.place]
        if entry.stage == 'bound':
            return self._bounded(entry, self._candidates.family_bound_s(choice), 'family')
        if entry.stage == 'family':
            self._effort += bound_effort(choice)
            bound_s, is_free = self._candidates.close_bound_s(choice)
            return self._bounded(entry, bound_s, 'free' if is_free else 'within')
        if entry.stage == 'within':
            self._effort += bound_effort(choice)
            return self._bounded(entry, self._candidates.closest_bound_s(choice), 'limited')

        is_limited = entry.stage == 'limited'
        self._effort += plan_effort(choice, is_limited, self._candidates.num_units)
        candidate = self._candidates.fitting(choice, is_limited)
        return None if candidate is None else entry._replace(
            step_s=candidate.step_s, stage='fitting', candidate=candidate)

    @staticmethod
    def _bounded(entry: _Entry, bound_s: float, stage: str) -> _Entry | None:
        """The entry at a stage whose bound is known; None if nothing fits."""
        return None if math.isinf(bound_s) else entry._replace(
            step_s=max(entry.step_s, bound_s), stage=stage)


class _Promising:
    """Choices that wait to be worked out, the most promising first."""

    def __init__(self, candidates: Candidates, choices: Sequence[Choice],
                 entries: Sequence[_Entry]):
        self.entries = list(entries)
        self._choices, self._num_units = choices, candidates.num_units
        self._likely_s = {entry.place: max(entry.step_s, candidates.likely_s(choices[entry.place]))
                          for entry in entries}
        self._factor_of: dict[_Kind, float] = {}   # of the kinds that were tried

    def pop(self, most_s: float) -> _Entry | None:
        """The entry to work out next; those that are not faster than `most_s` are dropped."""
        self.entries = [entry for entry in self.entries if entry.step_s < most_s]
        best_of_kind: dict[_Kind, _Entry] = {}
        for entry in sorted(self.entries, key=lambda entry: (
                self._likely_s[entry.place], entry.place)):
            best_of_kind.setdefault(self._kind(entry), entry)

        def promise(entry: _Entry) -> tuple[bool, float]:
            factor = self._factor_of.get(self._kind(entry))
            if factor is not None:
                return True, factor * self._likely_s[entry.place]
            return False, plan_effort(self._choices[entry.place], True, self._num_units)

        if not best_of_kind:
            return None
        most_promising = min(best_of_kind.values(), key=promise)
        self.entries.remove(most_promising)
        return most_promising

    def learn(self, entry: _Entry, following: _Entry | None) -> None:
        """Takes note of what came of an entry; None if it did not fit."""
        factor = self._factor_of.get(self._kind(entry), 1.0)
        if following is None:
            self._factor_of[self._kind(entry)] = factor * _UNLIKELY
        else:
            self._factor_of[self._kind(entry)] = following.step_s / self._likely_s[entry.place]

    def _kind(self, entry: _Entry) -> _Kind:
        choice = self._choices[entry.place]
        return choice.schedule, choice.recompute


def _time_and_place(entry: _Entry) -> tuple[float, int]:
    return entry.step_s, entry.place
