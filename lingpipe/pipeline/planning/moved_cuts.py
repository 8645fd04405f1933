"""Moved cuts: the cuts of a plan, moved as long as that makes its simulated step shorter.

The partitioner makes the slowest cell as fast as possible. With many micro-batches and a cell a
device, that makes the step as short as it can be. Otherwise it does not:

    few micro-batches    what the first micro-batch waits for counts too, in every cell
    cells in a V         a device takes as long as its two cells together, or as its only one
    recomputation        the last cell repeats nothing, so that a long one saves work
    updates and links    depend on where the cuts are, whatever the slots take

No sum over cells says how long a step takes, so only the simulator can tell. If there are few cuts,
all are tried. Else a cell hands layers to another one, and the cuts between them shift. A move that
makes the step shorter is kept, and moves become ever smaller. That ends in a local optimum, or when
the effort is spent (effort.py). As that takes long, only the best candidates of a search are moved.
"""
from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from lingpipe.pipeline.planning.candidate import Candidate, distinct
from lingpipe.pipeline.planning.candidates import Candidates
from lingpipe.pipeline.planning.effort import moved_effort
from lingpipe.pipeline.planning.plan_search import Found
from lingpipe.pipeline.planning.units import units_of

# The most effort, in microseconds, for all candidates of a search together.
MOST_EFFORT = 10e6

# Cuts stay where they are unless a step then takes at most so many times as long. Of what was
# predicted, two fifths were measured, so that less could not be told from nothing.
WORTHWHILE = 0.98

# A candidate is faster if its step takes less than so many times as long. A smaller difference is
# that of the order in which numbers are added, and another in Python 3.12, whose `sum` rounds less.
_FASTER = 1 - 1e-9

_Lengths: TypeAlias = tuple[int, ...]
"""[K] how many units each cell has."""


def with_moved_cuts(candidates: Candidates, found: Found,
                    most_effort: float = MOST_EFFORT) -> Found:
    """Returns what a search has found, the cuts of each plan moved if that makes it faster.

    The fastest comes first, each plan once. Cuts that the subject's Params set by hand stay, and so
    do those that should have the least variance.

    Args:
      candidates: of the subject.
      found: by a search.
      most_effort: in microseconds; see effort.py. The same effort gives the same plans anywhere.
    """
    params = candidates.subject.params
    if params.layers_per_cell or params.partition != 'bottleneck':
        return found
    moved = []
    for i, candidate in enumerate(found.candidates):
        search = _Search(candidates, candidate)
        moved.append(search.best(most_effort / (len(found.candidates) - i)))
        most_effort -= search.effort
    moved.sort(key=lambda candidate: candidate.step_s)
    return dataclasses.replace(found, candidates=list(distinct(moved)))


class _Search:
    """Moves the cuts of one candidate."""

    def __init__(self, candidates: Candidates, candidate: Candidate):
        self.effort = 0.0   # so far
        self._candidates, self._candidate = candidates, candidate
        plan = candidate.plan
        self._units = units_of(plan.elements)
        self._effort_of_each = moved_effort(
            candidate.choice, plan.params.device_bytes is not None, len(self._units),
            len(plan.elements))

    def best(self, most_effort: float) -> Candidate:
        """The fastest candidate that is found, or the candidate itself if none is worthwhile."""
        num_units, num_cells = len(self._units), self._candidate.choice.num_cells
        num_partitions = math.comb(num_units - 1, num_cells - 1)
        if num_partitions * self._effort_of_each <= most_effort:
            fastest = self._fastest_of_all()
        else:
            fastest = self._descended(most_effort)
        is_worthwhile = fastest.step_s <= WORTHWHILE * self._candidate.step_s
        return fastest if is_worthwhile else self._candidate

    def _fastest_of_all(self) -> Candidate:
        num_units, num_cells = len(self._units), self._candidate.choice.num_cells
        best = self._candidate
        for cuts in itertools.combinations(range(1, num_units), num_cells - 1):
            best = self._faster(best, _lengths((0, *cuts, num_units))) or best
        return best

    def _descended(self, most_effort: float) -> Candidate:
        """The candidate after all moves, ever smaller ones, that make it faster."""
        starts, spans = self._units.starts, self._candidate.plan.partition.spans
        best, lengths = self._candidate, _lengths(
            [*(starts.index(span.start) for span in spans), len(self._units)])
        tried = {lengths}
        num_moved = max(1, len(self._units) // (4 * len(lengths)))
        while num_moved:
            for moved in _moves(lengths, num_moved):
                if moved in tried:
                    continue
                if self.effort + self._effort_of_each > most_effort:
                    return best
                tried.add(moved)
                other = self._faster(best, moved)
                if other is not None:
                    best, lengths = other, moved
                    break
            else:
                num_moved //= 2
        return best

    def _faster(self, best: Candidate, lengths: _Lengths) -> Candidate | None:
        """The candidate with cells of so many units, if it fits and is faster than the best."""
        self.effort += self._effort_of_each
        other = self._candidates.with_cuts(self._candidate, self._layers(lengths))
        if other is None or other.step_s >= _FASTER * best.step_s:
            return None
        return other if self._fits(other) else None

    def _fits(self, candidate: Candidate) -> bool:
        limit = self._candidates.subject.limit
        return limit is None or candidate.peak_bytes <= limit

    def _layers(self, lengths: _Lengths) -> tuple[int, ...]:
        """[K] how many layers cells of so many units have."""
        return _lengths([self._units.starts[unit]
                         for unit in itertools.accumulate(lengths, initial=0)])


def _lengths(bounds: Sequence[int]) -> _Lengths:
    """[K] how long cells are, from the first bound to the last, [K + 1]."""
    return tuple(stop - start for start, stop in itertools.pairwise(bounds))


def _moves(lengths: Sequence[int], num_units: int) -> Iterator[_Lengths]:
    """Yields the lengths after a cell has handed units to another, neighbours first."""
    pairs = itertools.permutations(range(len(lengths)), 2)
    for giver, taker in sorted(pairs, key=lambda pair: abs(pair[0] - pair[1])):
        if lengths[giver] > num_units:
            yield tuple(length + num_units * ((k == taker) - (k == giver))
                        for k, length in enumerate(lengths))
