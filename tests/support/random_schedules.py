"""Random schedules: any order of slots that a schedule may have, with W and R wherever they fit."""
from __future__ import annotations

import itertools
import random

from lingpipe.pipeline.planning.dependencies import dependency_graph
from lingpipe.pipeline.planning.layout import Layout
from lingpipe.pipeline.planning.schedule import Schedule, Slot
from lingpipe.pipeline.planning.validation import validate


def random_schedule(layout: Layout, num_micro_batches: int, seed: int = 0) -> Schedule:
    """Returns a schedule in which about half of the backwards are split, and half have an R."""
    rng = random.Random(seed)
    num_cells, micro_batches = len(layout), range(num_micro_batches)
    slots = [Slot('B', k, m) for k in range(num_cells) for m in micro_batches]
    slots += [Slot('W', k, m) for _, k, m in slots if rng.random() < 0.5]
    for k in range(num_cells - 1):
        slots += [Slot('F', k, m) for m in micro_batches]
        slots += [Slot('R', k, m) for m in micro_batches if rng.random() < 0.5]

    unordered = _listed(slots, layout, num_micro_batches)
    needs = {slot: set(others) for slot, others in dependency_graph(unordered).items()}
    for ascends in (unordered.runs_forward, unordered.adds_gradients):
        for k in range(num_cells):
            in_order = [Slot(kind, k, m) for m in micro_batches for kind in 'FBW'
                        if Slot(kind, k, m) in needs and ascends(Slot(kind, k, m))]
            for before, after in itertools.pairwise(in_order):
                needs[after].add(before)

    order: list[Slot] = []
    while needs:
        slot = rng.choice(sorted(slot for slot, others in needs.items() if not others))
        del needs[slot]
        for others in needs.values():
            others.discard(slot)
        order.append(slot)
    schedule = _listed(order, layout, num_micro_batches)
    validate(schedule)
    return schedule


def text_of(schedule: Schedule) -> str:
    """Returns the rows of a schedule as PipelineParams.schedule_text has them."""
    return '; '.join(' '.join(f'{slot.kind}{slot.cell}.{slot.micro_batch}' for slot in slots)
                     for slots in schedule.devices)


def _listed(slots: list[Slot], layout: Layout, num_micro_batches: int) -> Schedule:
    devices = tuple(tuple(slot for slot in slots if layout[slot.cell] == device)
                    for device in range(max(layout) + 1))
    return Schedule('random', len(layout), num_micro_batches, devices,
                    frozenset(range(len(layout))))
