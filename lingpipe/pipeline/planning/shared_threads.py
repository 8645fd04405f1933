"""Shared threads: the logical CPU devices of a process, whose ops all run on the same threads.

A device that waits leaves its thread to the others. A backward that is whole makes good use of it:
the gradients of weights need not be made one after the other, as those of inputs must. So much of a
bubble is filled already, and to fill it with W, or with an R, would only cost traffic. What remains
of it is found by playing a step on paper in which the slots that run divide the threads among them.

A schedule that is chosen so has the same results, to the last bit, as any other.
"""
from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence

from lingpipe.pipeline.planning.cell_times import CellTimes
from lingpipe.pipeline.planning.dependencies import Edges, dependency_graph
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.pipeline.planning.placement import Place, Placement
from lingpipe.pipeline.planning.schedule import Schedule, Slot

# Measured on a Xeon with AVX-512, for each core: 100 GFLOP/s in the matrix products of a
# Transformer, 10 GB/s from and to memory.
BYTES_PER_S = 10e9
BYTES_PER_FLOP = 0.1

MOST_SLOTS = 10_000   # A step with more of them takes seconds to play.


def num_shared_threads(params: PipelineParams, placement: Placement) -> int | None:
    """Returns how many threads the devices of a replica share; None if each has its own.

    There is one for each device, or for each core of this machine if these are fewer.
    """
    places = set(placement.places[0])
    if len(places) == 1 or params.shares_threads is False:
        return None
    if params.shares_threads is None and not _share_ops(params, places):
        return None
    is_local = all(job == 'localhost' for job, *_ in places)
    return min(len(places), len(os.sched_getaffinity(0))) if is_local else len(places)


def _share_ops(params: PipelineParams, places: set[Place]) -> bool:
    """Whether these are CPU devices of one process, and compute more than one op at a time."""
    processes = {(job, task) for job, task, *_ in places}
    kinds = {kind for _, _, kind, _ in places}
    return kinds == {'CPU'} and len(processes) == 1 and not params.jit_compile


@dataclasses.dataclass
class _Part:
    """A part of a slot that is yet to run.

    Attributes:
      left: what a single thread would take for the rest of it.
      most_threads: how many threads it can use at once.
    """
    left: float
    most_threads: float


def shared_step_s(schedule: Schedule, times: CellTimes, edges: Edges, num_threads: int) -> float:
    """Returns the seconds of a step whose devices share threads.

    A slot that runs has a thread or, with fewer threads than slots, its share of one. Threads that
    are left go to the slots that can use them. Transfers within a process take no time.

    Args:
      schedule: a valid one.
      times: of its slots, each on one thread.
      edges: pairs (maker, reader).
      num_threads: at least 1.
    """
    needs = dependency_graph(schedule, edges)
    waiting = [list(reversed(slots)) for slots in schedule.devices]
    running: dict[int, list[_Part]] = {}   # device -> the parts of its slot, the last one first
    ended: set[Slot] = set()
    now = 0.0
    while any(waiting):
        for device, slots in enumerate(waiting):
            if device not in running and slots and ended.issuperset(needs[slots[-1]]):
                running[device] = _parts(schedule, slots[-1], times, num_threads)

        speeds = _speeds([parts[-1].most_threads for parts in running.values()], num_threads)
        elapsed_s = min(parts[-1].left / speed
                        for parts, speed in zip(running.values(), speeds, strict=True))
        now += elapsed_s
        for (device, parts), speed in zip(list(running.items()), speeds, strict=True):
            parts[-1].left -= elapsed_s * speed
            if parts[-1].left <= 1e-9 * now:
                parts.pop()
            if not parts:
                del running[device]
                ended.add(waiting[device].pop())
    return now


def _parts(schedule: Schedule, slot: Slot, times: CellTimes, num_threads: int) -> list[_Part]:
    """The parts of a slot, the last one first.

    A forward, and the gradients of inputs, are made layer by layer on one thread. The gradients of
    weights may be made at any time after those of the outputs.
    """
    kind = schedule.task_kind(slot)
    whole_s = times.of_task(slot.cell, kind)
    if slot.kind == 'W':
        return [_Part(whole_s, num_threads)]
    if kind not in ('B', 'B_after_R'):
        return [_Part(whole_s, 1)]

    backward_s = times.backward[slot.cell]
    inputs_s = max(backward_s - times.weight[slot.cell], backward_s / num_threads)
    forward = _Part(whole_s - backward_s, 1)
    return [_Part(backward_s, backward_s / inputs_s if inputs_s else 1), forward]


def _speeds(most_threads: Sequence[float], num_threads: int) -> list[float]:
    """How many threads each of the running slots has, given how many it can use."""
    free = num_threads - float(len(most_threads))
    if free <= 0:
        return [num_threads / len(most_threads)] * len(most_threads)
    speeds = []
    for most in most_threads:
        extra = min(free, most - 1)
        speeds.append(1 + extra)
        free -= extra
    return speeds
