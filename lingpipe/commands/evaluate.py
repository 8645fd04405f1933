"""Evaluate: the newest checkpoint on every eval input, or each new one, printed.

api/evaluating.py and api/watching.py do it.
"""
from __future__ import annotations

import functools
import sys

from lingpipe.api.run import Run
from lingpipe.commands.run_options import RunOptions
from lingpipe.process import closed_pipe
from lingpipe.training.evaluation import Metrics
from lingpipe.training.experiment import Experiment


def evaluate(params: Experiment.Params, options: RunOptions) -> dict[str, Metrics]:
    """Evaluates, prints, and returns the metrics by eval input.

    This process is replaced by another if a worker is lost.
    """
    with Run(params, options, is_writer=False, is_trainer=True) as run:
        return run.evaluate(say=closed_pipe.show)


def watch(params: Experiment.Params, options: RunOptions) -> str:
    """Evaluates each new checkpoint, and prints; returns the name of the signal that ended it.

    It goes on if nobody reads what it prints, or if the standard output cannot be written.
    This process is replaced by another if a worker is lost.
    """
    with Run(params, options, is_writer=False, is_trainer=True) as run:
        return run.watch(say=functools.partial(closed_pipe.say, out=sys.stdout))
