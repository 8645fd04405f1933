"""Waiting values: the bytes of what other cells have sent to a device and no cell has read yet.

A value arrives when the forward of its cell ends, and waits until a cell on the device reads it. A
gradient waits from the B that gives it until the B that takes it. In a chain of equal cells little
waits. Much does where a cell runs ahead of the others, as the first does with 'gpipe', or where a
skip connection passes over cells.

Peaks and limits leave these bytes out (memory.py): they depend on the times of slots, and not on
their order alone.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from lingpipe.pipeline.planning.cell import bytes_sent, cells_of_values
from lingpipe.pipeline.planning.schedule import Slot

if TYPE_CHECKING:
    import tensorflow as tf

    from lingpipe.pipeline.planning.cell import Cell
    from lingpipe.pipeline.planning.memory import Memory
    from lingpipe.pipeline.planning.placement import Place
    from lingpipe.pipeline.planning.playing import Span
    from lingpipe.pipeline.planning.schedule import Schedule


class _Wait(NamedTuple):
    """Bytes of each micro-batch that wait from the end of one slot to the start of another.

    Slots are named by their kind and cell.
    """
    num_bytes: int
    place: Place
    made_by: tuple[str, int]
    read_by: tuple[str, int]


def most_waiting(cells: Sequence[Cell], places: Sequence[Place], schedule: Schedule,
                 spans: Mapping[Slot, Span], memory: Memory, modes: Sequence[str],
                 wire_dtype: tf.DType | None = None) -> dict[Place, float]:
    """The most bytes that wait on each device of a replica at a time.

    Args:
      cells, places: [K] of the replica.
      schedule, spans: its slots, and when they run.
      memory: says which values wait in memory that a cell holds for its own backward.
      modes: [K] how each cell recomputes.
      wire_dtype: the dtype in which float32 values are sent to other devices; None: float32.
    """
    changes: dict[Place, list[tuple[float, int]]] = {place: [] for place in places}
    for wait in _waits(cells, places, schedule, memory, modes, wire_dtype):
        for m in range(schedule.num_micro_batches):
            _, start = spans[Slot(*wait.made_by, m)]
            end, _ = spans[Slot(*wait.read_by, m)]
            if start < end:
                changes[wait.place] += [(start, wait.num_bytes), (end, -wait.num_bytes)]
    return {place: float(_most(of_place)) for place, of_place in changes.items()}


def _waits(cells: Sequence[Cell], places: Sequence[Place], schedule: Schedule, memory: Memory,
           modes: Sequence[str], wire_dtype: tf.DType | None) -> Iterator[_Wait]:
    """Yields what may wait of values, and then of their gradients."""
    last = len(cells) - 1
    for value, (maker, *readers) in cells_of_values(cells).items():
        first_readers = {places[k]: k for k in reversed(readers)}
        for place, reader in first_readers.items():
            is_sent = place != places[maker]
            num_bytes = sum(
                bytes_sent(spec, wire_dtype if is_sent else None)
                for i, spec in enumerate(value.specs)
                if is_sent or modes[maker] in ('cell', 'layer')
                or not memory.keeps(value, i, cells[maker].elements))
            yield _Wait(num_bytes, place, ('F', maker), ('B' if reader == last else 'F', reader))

        for taker, giver in zip([maker, *readers], readers, strict=False):
            if taker in schedule.backward_cells:
                sent_dtype = wire_dtype if places[taker] != places[giver] else None
                num_bytes = sum(bytes_sent(spec, sent_dtype) for spec, carries
                                in zip(value.specs, value.carries_gradient, strict=True) if carries)
                yield _Wait(num_bytes, places[taker], ('B', giver), ('B', taker))


def _most(changes: list[tuple[float, int]]) -> int:
    """The most that changes, each with its time, add up to."""
    most = now = 0
    for _, change in sorted(changes):   # What is given back at the same time comes first.
        now += change
        most = max(most, now)
    return most
