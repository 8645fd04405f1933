"""Train: a run, with evaluations unless the mode is train."""
from __future__ import annotations

from lingpipe.api.run import Run
from lingpipe.commands.run_options import RunOptions
from lingpipe.training.experiment import Experiment
from lingpipe.training.outcome import Outcome


def train(params: Experiment.Params, options: RunOptions) -> Outcome:
    """Trains in --logdir. This process is replaced by another if a worker is lost."""
    with Run(params, options, is_trainer=True) as run:
        return run.train(evaluate=options.mode == 'train_and_eval', timeline=options.has_timeline)
