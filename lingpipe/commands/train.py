"""Train: a run, with evaluations unless the mode is train."""
from __future__ import annotations

import os

from lingpipe.checkpoint import side_files
from lingpipe.commands.recovery import Recovery
from lingpipe.commands.run_options import RunOptions
from lingpipe.process.stop_signals import StopSignals
from lingpipe.training import logdir, logdir_lock
from lingpipe.training.experiment import Experiment
from lingpipe.training.loop import LoopOptions, TrainLoop
from lingpipe.training.outcome import Outcome
from lingpipe.training.site import Site


def train(params: Experiment.Params, options: RunOptions) -> Outcome:
    """Trains in --logdir. This process is replaced by another if a worker is lost."""
    log_path = os.path.join(options.logdir, 'train.log')
    with side_files.warnings_into(log_path), logdir_lock.hold(options.logdir) as lock:
        logdir.claim(options.logdir, params)
        if not options.devices:   # No worker is waited for, so the loop looks at signals itself.
            return Recovery(options).run(params, lambda site: _run(params, options, site))
        with StopSignals() as stop:
            recovery = Recovery(options, stop, log_path, lock)
            return recovery.run(params, lambda site: _run(params, options, site, stop))


def _run(params: Experiment.Params, options: RunOptions, site: Site,
         stop: StopSignals | None = None) -> Outcome:
    """Trains on devices that are set up already."""
    loop_options = LoopOptions(has_evaluation=options.mode == 'train_and_eval',
                               has_timeline=options.has_timeline, stop=stop)
    return TrainLoop(params.instantiate(), options.logdir, loop_options, site).run()
