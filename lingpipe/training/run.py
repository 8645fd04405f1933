"""Run: what the parts of a run share: the experiment, the program, and where files and lines go."""
from __future__ import annotations

import dataclasses

from lingpipe.checkpoint import Checkpointer
from lingpipe.pipeline.execution.program import Program
from lingpipe.training.experiment import Experiment
from lingpipe.training.hooks.hook_calls import HookCalls
from lingpipe.training.reporting.run_report import RunReport
from lingpipe.training.site import Site


@dataclasses.dataclass(frozen=True)
class Run:
    """One run in one logdir.

    Attributes:
      experiment: what is trained.
      logdir: where all files go.
      site: where it trains.
      program: the network on its devices.
      checkpointer: writes and reads the checkpoints.
      report: shows what happens.
      hooks: are called at what happens.
    """
    experiment: Experiment
    logdir: str
    site: Site
    program: Program
    checkpointer: Checkpointer
    report: RunReport
    hooks: HookCalls
