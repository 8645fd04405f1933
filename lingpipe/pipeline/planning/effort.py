"""Effort: about how long it takes to look at a choice, and how promising that is.

A search that ends after some effort takes the most promising choices first. Effort is counted in
microseconds of one core (machine C, 2026-11-23), but follows from the choice alone: so a search
ends at the same choice on every machine, and finds the same plans.

K cells, L layers, U units of layers, D devices of a replica, M micro-batches.
"""
from __future__ import annotations

from lingpipe.pipeline.planning.schedules import SEVERAL_CELLS_A_DEVICE
from lingpipe.pipeline.planning.search_space import Choice

# About how long a device waits, as a share of what D - 1 micro-batches take there.
_WAITS = {'gpipe': 1.0, '1f1b': 1.0, 'v_min': 0.67, 'interleaved': 0.5, 'v_half': 0.5,
          'zb_h1': 0.34, 'auto': 0.34}
_WAITS_ELSEWHERE = 0.1

_BOUND_A_SLOT = 20.0
_PLAN_A_SLOT = 20.0
_LIMITED_A_SLOT = 150.0   # Other cuts and orders are tried.
_OF_FIT = 2.0             # Cells choose what they keep, after plans in which they do not.
_OF_AUTO = 5.0            # All schedules are tried, K times as long for each.
_OF_LIMITED_AUTO = 1.0    # A limit has all schedules tried already; only the K times are left.
_MOVED_A_LAYER = 10.0     # Times and weights are added up again.
_CUTS_A_SPAN = 1.0        # for cuts of devices that have two cells each, K U^2 times


def bound_effort(choice: Choice) -> float:
    """Microseconds, about, to bound the step of a choice closely."""
    return _BOUND_A_SLOT * _num_slots(choice)


def plan_effort(choice: Choice, is_limited: bool, num_units: int) -> float:
    """Microseconds, about, to make the plan of a choice.

    Args:
      choice: any.
      is_limited: whether its devices may hold too much without a limit.
      num_units: U.
    """
    factor = 1.0
    if choice.schedule == 'auto':
        factor = choice.num_cells * (_OF_LIMITED_AUTO if is_limited else _OF_AUTO)
    if not is_limited:
        return factor * _PLAN_A_SLOT * _num_slots(choice)
    factor *= _OF_FIT if choice.recompute == 'fit' else 1.0
    effort = _LIMITED_A_SLOT * _num_slots(choice)
    if choice.schedule in SEVERAL_CELLS_A_DEVICE:
        effort += _CUTS_A_SPAN * choice.num_cells * num_units ** 2
    return factor * effort


def moved_effort(choice: Choice, is_limited: bool, num_units: int, num_layers: int) -> float:
    """Microseconds, about, to make the plan of a choice with other cuts, and to simulate it.

    Args:
      choice, is_limited, num_units: as of `plan_effort`.
      num_layers: L.
    """
    return plan_effort(choice, is_limited, num_units) + _MOVED_A_LAYER * num_layers


def likely_s(choice: Choice, busy_s: float, num_devices: int) -> float:
    """Seconds that a step is likely to take, if devices need not hold less than the schedule wants.

    Args:
      choice: any.
      busy_s: what each device is busy at least.
      num_devices: D.
    """
    share = _WAITS.get(choice.schedule, _WAITS_ELSEWHERE)
    return busy_s * (1 + share * (num_devices - 1) / choice.num_micro_batches)


def _num_slots(choice: Choice) -> int:
    """The forwards and backwards of a replica."""
    return 2 * choice.num_cells * choice.num_micro_batches
