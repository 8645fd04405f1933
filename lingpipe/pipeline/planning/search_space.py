"""Search space: the ways to run a network among which a planner chooses.

A planner changes nothing that alters what is learned. The size of a mini-batch stays. Where a layer
keeps statistics of the examples that it sees, as BatchNorm does, a micro-batch has the examples
that it had. Elsewhere the numbers of micro-batches and replicas change only the order of sums, and
which random numbers a dropout draws.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple, get_args

from lingpipe.hyperparams import fields_of
from lingpipe.layers.base import Layer
from lingpipe.layers.sequential import Sequential
from lingpipe.pipeline.planning.layout import num_devices_for
from lingpipe.pipeline.planning.pipeline_params import Modes, PipelineParams


class Choice(NamedTuple):
    """What a planner decides: fields of PipelineParams, by their names."""
    num_cells: int
    num_replicas: int
    num_micro_batches: int
    schedule: str
    recompute: Modes

    @classmethod
    def of(cls, params: PipelineParams) -> Choice:
        """What Params say."""
        return cls(params.num_cells, params.num_replicas, params.num_micro_batches,
                   params.schedule, params.recompute)

    @property
    def num_parts(self) -> int:
        """R M: how many micro-batches a mini-batch has in all."""
        return self.num_replicas * self.num_micro_batches

    def is_one_step_from(self, other: Choice) -> bool:
        """Whether it differs in one value, a number by one, or by being twice or half of it."""
        differing = [(mine, theirs) for mine, theirs in zip(self, other, strict=True)
                     if mine != theirs]
        if len(differing) != 1:
            return False
        mine, theirs = differing[0]
        if not (isinstance(mine, int) and isinstance(theirs, int)):
            return True
        is_neighbour = abs(mine - theirs) == 1 and self.num_micro_batches == other.num_micro_batches
        return is_neighbour or max(mine, theirs) == 2 * min(mine, theirs)


FREE = tuple(Choice.__annotations__)   # the fields that a planner may set


@dataclasses.dataclass(frozen=True)
class SearchSpace:
    """The choices that there are.

    Attributes:
      params: those of the experiment; a field that is held keeps its value.
      batch_size: examples of a mini-batch.
      num_devices: of all replicas together.
      num_units: runs of layers that a partition does not cut, so K is no more.
      held: names of fields, of FREE, that stay.
      keeps_micro_batches: whether a micro-batch must have the examples that it has in `params`.
    """
    params: PipelineParams
    batch_size: int
    num_devices: int
    num_units: int
    held: frozenset[str] = frozenset()
    keeps_micro_batches: bool = False

    def choices(self) -> Iterator[Choice]:
        """All of them, simple ones first."""
        for num_cells in self._numbers('num_cells', range(1, self.num_units + 1)):
            for num_replicas in self._numbers('num_replicas', _divisors(self.batch_size)):
                for num_micro_batches in self._micro_batches(num_replicas):
                    yield from self._ways(num_cells, num_replicas, num_micro_batches)

    def _ways(self, num_cells: int, num_replicas: int, num_micro_batches: int) -> Iterator[Choice]:
        """The choices of these sizes."""
        schedules, modes = self._words('schedule'), self._words('recompute')
        if num_cells == 1:
            schedules = schedules[:1]   # One device has but one order.
            # The last cell recomputes nothing but single layers.
            modes = [mode for mode in modes if mode != 'cell' or 'none' not in modes]
        for schedule in schedules:
            if not self._has_room(num_cells, num_replicas, schedule):
                continue
            for recompute in modes:
                yield Choice(num_cells, num_replicas, num_micro_batches, schedule, recompute)

    def _has_room(self, num_cells: int, num_replicas: int, schedule: str) -> bool:
        """Whether the devices are enough.

        Where a schedule wants several cells on a device, and there is yet a device for each cell,
        --devices would give it one for each.
        """
        per_replica = num_devices_for(schedule, num_cells, self.params.cells_per_device)
        is_enough = num_replicas * per_replica <= self.num_devices
        return is_enough and (
            per_replica == num_cells or num_replicas * num_cells > self.num_devices)

    def _micro_batches(self, num_replicas: int) -> Collection[int]:
        """The numbers M that there may be with R replicas."""
        p = self.params
        part, rest = divmod(self.batch_size, num_replicas)
        if rest:
            return []
        numbers = [m for m in self._numbers('num_micro_batches', _divisors(part)) if part % m == 0]
        if p.sum_groups > 1:   # These are the replicas that there would be.
            return [m for m in numbers if num_replicas == 1 and m % p.sum_groups == 0]
        if not self.keeps_micro_batches:
            return numbers
        if p.cross_replica_batch_norm:
            is_same = num_replicas == p.num_replicas
            return [m for m in numbers if is_same and m == p.num_micro_batches]
        num_parts = p.num_replicas * p.num_micro_batches
        return [m for m in numbers if num_replicas * m == num_parts]

    def _numbers(self, name: str, numbers: Collection[int]) -> Collection[int]:
        return [getattr(self.params, name)] if name in self.held else numbers

    def _words(self, name: str) -> list[Any]:
        """The value that is held, or all words that the field takes, that of `params` first."""
        own = getattr(self.params, name)
        if name in self.held or own == 'text':
            return [own]
        words = words_of(name)
        return [word for word in words if word == own] + [word for word in words if word != own]


def words_of(name: str) -> list[str]:
    """The words that a field of PipelineParams takes; a schedule as a text is none."""
    words = _literals(fields_of(PipelineParams)[name].type)
    return [word for word in dict.fromkeys(words) if word != 'text']


def _literals(annotation: Any) -> Iterator[str]:
    """The words of all Literals in a type."""
    for argument in get_args(annotation):
        if isinstance(argument, str):
            yield argument
        else:
            yield from _literals(argument)


def keeps_statistics(network: Sequential) -> bool:
    """Whether what is learned depends on which examples are in a micro-batch.

    That is so if a layer needs the whole mini-batch, or has weights that follow the examples that
    it sees, as BatchNorm's moving averages do.
    """
    return any(layer.needs_whole_batch or _has_state(layer) for layer in network.layers())


def _has_state(layer: Layer) -> bool:
    is_updated = type(layer).updated_state is not Layer.updated_state
    return is_updated and any(not weight.is_trainable for weight in layer.own_weights.values())


def _divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]
