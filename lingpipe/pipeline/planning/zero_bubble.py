"""Zero bubble with one cell a device: zb_h1 and zb_h2 (arXiv 2401.10241).

Both run F and B in turn as 1f1b does, and W where a device would wait or may hold no more. The
papers' bubbles are those of an update that waits for nobody. Here all devices wait for all before
weights change, so that the last device, which starts K - 1 forwards late, adds these to any step.
"""
from __future__ import annotations

from collections.abc import Callable

from lingpipe.pipeline.planning.cell_times import cell_times
from lingpipe.pipeline.planning.dependencies import chain
from lingpipe.pipeline.planning.list_scheduling import Policy, Workload, list_schedule
from lingpipe.pipeline.planning.schedule import Schedule
from lingpipe.pipeline.planning.turns import in_turns


# zb_h1, K = 3, M = 4:    F0 F1 F2 .. .. B0 W0 F3 B1 W1 B2 W2 B3 W3
#                         .. F0 F1 .. B0 F2 B1 W0 F3 B2 W1 B3 W2 W3
#                         .. .. B0 -- B1 -- B2 -- W0 B3 -- W1 W2 W3
def zb_h1(num_cells: int, num_micro_batches: int) -> Schedule:
    """The memory of 1f1b, a third of its bubble (ZB-H1, section 2.2).

    Every cell holds up to K micro-batches, as many as 1f1b's first. The bubble is
    (K - 1)(F + B - W), if M >= K and B + W is the whole backward.
    """
    return _with_weights('zb_h1', num_cells, num_micro_batches, lambda k: num_cells - k,
                         most=num_cells)


# zb_h2, K = 3, M = 6:    F0 F1 F2 F3 F4 B0 W0 F5 B1 B2 W1 W2 B3 B4 W3 W4 B5 W5 .. ..
#                         .. F0 F1 F2 B0 F3 B1 F4 B2 W0 F5 B3 B4 W1 W2 B5 W3 W4 W5 ..
#                         .. .. B0 -- B1 -- B2 -- B3 -- B4 -- W0 B5 -- W1 W2 W3 W4 W5
def zb_h2(num_cells: int, num_micro_batches: int) -> Schedule:
    """Twice the memory of 1f1b, and for F = B = W no device waits once it has begun (ZB-H2).

    Cells hold up to 2 K - 1 micro-batches. From the first slot of a device to its last the bubble
    is (K - 1)(F + B - 2 W), if M >= 2 K - 1.
    """
    return _with_weights('zb_h2', num_cells, num_micro_batches, lambda k: 2 * (num_cells - k) - 1,
                         most=2 * num_cells - 1)


def _with_weights(name: str, num_cells: int, num_micro_batches: int, ahead: Callable[[int], int],
                  most: int) -> Schedule:
    """F and B in turn after `ahead(k)` forwards, and W in the gaps of unit times.

    A cell holds at most `most` micro-batches.
    """
    order = in_turns(name, num_cells, num_micro_batches, ahead).devices
    work = Workload(tuple(range(num_cells)), num_micro_batches, frozenset(range(num_cells)),
                    chain(num_cells), cell_times([1.0] * num_cells, [2.0] * num_cells))
    policy = Policy([1] * num_cells, [1] * num_cells, [most] * num_cells, order=order)
    schedule = list_schedule(name, work, policy)
    assert schedule is not None, f'{name} holds no more than {most} micro-batches'
    return schedule
