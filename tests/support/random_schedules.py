"""Random schedules: any order of slots that a schedule may have, with W and R wherever they fit."""
from __future__ import annotations

import dataclasses
import random

from lingpipe.pipeline.planning.dependencies import Edges, dependency_graph
from lingpipe.pipeline.planning.schedule import Schedule, Slot
from lingpipe.pipeline.planning.validation import validate


def random_schedule(schedule: Schedule, edges: Edges | None = None, seed: int = 0,
                    share: float = 0.5) -> Schedule:
    """Returns a schedule with the same F and B on the same devices.

    Args:
      schedule: any.
      edges: pairs (maker, reader); the chain by default.
      seed: determines the result.
      share: of all backwards, about how many are split, and of all others than those of the last
        cell, for how many the forward is repeated early.
    """
    rng = random.Random(seed)
    lists = [list(slots) for slots in schedule.devices]
    for slots in lists:
        for slot in [slot for slot in slots if slot.kind == 'B']:
            if rng.random() < share:
                slots.append(Slot('W', slot.cell, slot.micro_batch))
            if not schedule.is_fused(slot) and rng.random() < share:
                slots.append(Slot('R', slot.cell, slot.micro_batch))
    extended = dataclasses.replace(schedule, name='random', devices=tuple(map(tuple, lists)))

    needs = {slot: set(slots) for slot, slots in dependency_graph(extended, edges).items()}
    for k in range(schedule.num_cells):   # two sequences of each cell ascend
        for ascends in (extended.runs_forward, extended.adds_gradients):
            in_order = sorted((slot for slot in needs if slot.cell == k and ascends(slot)),
                              key=lambda slot: slot.micro_batch)
            for before, after in zip(in_order, in_order[1:], strict=False):
                needs[after].add(before)

    order: list[Slot] = []
    while needs:
        slot = rng.choice(sorted(slot for slot, before in needs.items() if not before))
        del needs[slot]
        for before in needs.values():
            before.discard(slot)
        order.append(slot)
    devices = tuple(tuple(slot for slot in order if slot in set(slots))
                    for slots in extended.devices)
    found = dataclasses.replace(extended, devices=devices)
    validate(found, edges)
    return found
