"""LoopOptions: how one process trains, besides what the experiment's Params say."""
from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import IO

from lingpipe.checkpoint.facts import Metadata
from lingpipe.process.stop_signals import StopSignals


@dataclasses.dataclass(frozen=True)
class LoopOptions:
    """How one process trains.

    Attributes:
      has_evaluation: whether the eval inputs are used.
      has_timeline: whether a step is timed soon after the start, if timeline_step names no other.
      has_overview: whether the plan is shown first.
      allow_change: paths of Params that may differ from those with which the run began.
      out: where lines and tables are shown; None: sys.stdout.
      held: the metadata of the newest checkpoint, if the network holds its variables already, so
        that they need not be read; otherwise None.
      stop: signals that the caller watches already; None: the loop watches for them itself.
      when_restored: is called once the newest checkpoint, if there is one, has been restored.
      check_logdir: is called before each checkpoint; raises ValueError if the logdir now belongs to
        another run.
      may_begin: whether the network has its initial weights, with which a run can begin. If not, a
        checkpoint must be there.
    """
    has_evaluation: bool = True
    has_timeline: bool = False
    has_overview: bool = True
    allow_change: tuple[str, ...] = ()
    out: IO[str] | None = None
    held: Metadata | None = None
    stop: StopSignals | None = None
    when_restored: Callable[[], None] = lambda: None
    check_logdir: Callable[[], None] = lambda: None
    may_begin: bool = True
