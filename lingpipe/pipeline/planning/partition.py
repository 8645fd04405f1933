"""Partition: which layers are in which cell."""
from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence

from lingpipe.pipeline.planning import partitioner
from lingpipe.pipeline.planning.dataflow import Element
from lingpipe.pipeline.planning.layer_times import LayerTimes
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.pipeline.planning.schedule import Schedule
from lingpipe.pipeline.planning.schedules import make_schedule
from lingpipe.pipeline.planning.units import Units, units_of
from lingpipe.wording.counts import counted
from lingpipe.wording.values import shortened


@dataclasses.dataclass(frozen=True, eq=False)
class Partition:
    """The layers of a network in K cells of consecutive ones.

    `dataclasses.replace(partition, elements=...)` is the same partition for mini-batches of another
    shape.

    Attributes:
      elements: [L] all layers.
      spans: [K] the layers of each cell.
    """
    elements: tuple[Element, ...]
    spans: tuple[range, ...]

    @property
    def num_cells(self) -> int:
        """K."""
        return len(self.spans)

    @property
    def layers_per_cell(self) -> tuple[int, ...]:
        """[K] how many layers each cell has."""
        return tuple(len(span) for span in self.spans)

    def elements_of(self, k: int) -> tuple[Element, ...]:
        """The layers of cell k."""
        span = self.spans[k]
        return self.elements[span.start:span.stop]

    def has_backward(self, k: int) -> bool:
        """Whether any layer of cell k is asked for a gradient."""
        return any(element.has_backward for element in self.elements_of(k))

    @functools.cached_property
    def backward_cells(self) -> frozenset[int]:
        """The cells that have a backward; the last always has."""
        return frozenset(k for k in range(self.num_cells)
                         if self.has_backward(k) or k == self.num_cells - 1)

    def passes_gradient_on(self, k: int) -> bool:
        """Whether a cell before cell k is asked for a gradient of what k reads."""
        first = self.spans[k].start
        return any(value.maker < first and any(value.carries_gradient)
                   for element in self.elements_of(k) for value in element.reads.values())

    @functools.cached_property
    def edges(self) -> frozenset[tuple[int, int]]:
        """The pairs (maker, reader) of different cells, one for each value that is sent."""
        cell_of = {layer: k for k, span in enumerate(self.spans) for layer in span}
        pairs = {(cell_of[value.maker], cell_of[reader]) for element in self.elements
                 for value in element.writes.values() for reader in value.readers}
        return frozenset((maker, reader) for maker, reader in pairs if maker != reader)


def schedule_for(partition: Partition, kind: str, num_micro_batches: int) -> Schedule:
    """The schedule of a partition if each of its cells has a device of its own.

    Args:
      partition: its cells before the first trained layer have no backward.
      kind: of training, 'gpipe' or '1f1b', or 'forward'.
      num_micro_batches: M.
    """
    return make_schedule(kind, partition.num_cells, num_micro_batches, partition.backward_cells)


def choose_partition(elements: tuple[Element, ...], times: LayerTimes,
                     params: PipelineParams) -> Partition:
    """The partition by hand that the Params have, or the best one if memory does not matter.

    Raises:
      ValueError: there are more cells than the network can be cut into, or the partition by hand
        does not add up or cuts layers that stay together.
    """
    units = units_of(elements)
    if params.layers_per_cell:
        by_hand = _spans_by_hand(params.layers_per_cell, len(elements))
        _check_units(params.layers_per_cell, by_hand, units)
        return Partition(elements, by_hand)

    if len(units) < len(elements) and params.num_cells > len(units):
        raise ValueError(
            f'num_cells={params.num_cells} is more than the {counted(len(units), "part")} that the '
            'network can be cut into, since layers of a Sequential with is_unit stay together; use '
            'fewer cells, or set is_unit=False.')
    costs = costs_of_cells(units, times, params)
    first, last = costs[0], costs[-1]
    if any(of_cell != first for of_cell in costs[:-1]):
        spans = partitioner.partition_among(costs, rule=params.partition)
    elif first != last:
        spans = partitioner.partition_fused(first, last, params.num_cells)
    else:
        spans = partitioner.partition(first, params.num_cells, rule=params.partition)
    assert spans is not None, 'every partition is allowed'
    return Partition(elements, units.layers(spans))


def with_longer_last_cell(partition: Partition, times: LayerTimes, params: PipelineParams
                          ) -> Iterator[Partition]:
    """Yields the partitions whose last cell has more and more layers, which it need not repeat.

    In each of them the cells before the last are as equal as can be.
    """
    units = units_of(partition.elements)
    costs = costs_of_cells(units, times, params)
    stop_now = units.starts.index(partition.spans[-1].start)
    for stop in range(stop_now - 1, params.num_cells - 2, -1):
        before = partitioner.partition_among([of_cell[:stop] for of_cell in costs[:-1]],
                                             rule=params.partition)
        assert before is not None, 'every partition is allowed'
        yield Partition(partition.elements,
                        units.layers((*before, range(stop, len(units)))))


def costs_of_cells(units: Units, times: LayerTimes, params: PipelineParams) -> list[list[float]]:
    """[K, units] what each unit of layers takes in each cell.

    The rule 'variance' counts the recomputation of the last cell too, as if it had one: that is
    GPipe's rule, for which all cells are alike.
    """
    last = params.num_cells - 1 if params.partition == 'bottleneck' else params.num_cells
    of_mode = {(mode, is_last): units.sums(times.in_cell(mode, is_last))
               for mode in dict.fromkeys(params.modes) for is_last in (False, True)}
    return [of_mode[mode, k == last] for k, mode in enumerate(params.modes)]


def _spans_by_hand(counts: Sequence[int], num_layers: int) -> tuple[range, ...]:
    if sum(counts) != num_layers or min(counts) < 1:
        raise ValueError(
            f'layers_per_cell={list(counts)} adds up to {sum(counts)}, but the network has '
            f'{counted(num_layers, "layer")}; every cell needs at least one, and together they '
            'must hold all.')
    starts = [sum(counts[:k]) for k in range(len(counts))]
    return tuple(range(start, start + count) for start, count in zip(starts, counts, strict=True))


def _check_units(counts: Sequence[int], spans: Sequence[range], units: Units) -> None:
    """Raises ValueError if a cell begins within layers that stay together."""
    for span in spans:
        if span.start not in units.starts:
            allowed = shortened(', '.join(map(str, units.starts[1:-1])))
            cut_there = f'cut after one of {allowed} layers, or ' if allowed else ''
            raise ValueError(
                f'layers_per_cell={list(counts)} cuts after {counted(span.start, "layer")}, within '
                f'a Sequential with is_unit, whose layers stay together; {cut_there}set '
                'is_unit=False.')
