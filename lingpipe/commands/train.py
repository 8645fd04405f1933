"""Train: training, with evaluations unless the mode is train."""
from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import Any

from lingpipe.checkpoint import side_files
from lingpipe.cluster.watchdog import Watchdog
from lingpipe.commands.recovery import Recovery
from lingpipe.process.stop_signals import StopSignals
from lingpipe.training import logdir, logdir_lock
from lingpipe.training.loop import TrainLoop


def train(params: Any, values: Any, argv: Sequence[str]) -> int:
    """Trains; starts this process again if a worker is lost."""
    log_path = os.path.join(values.logdir, 'train.log')
    with side_files.warnings_into(log_path), logdir_lock.hold(values.logdir) as held:
        logdir.claim(values.logdir, params)
        if not values.devices:   # nothing is waited for
            return Recovery(values, argv).run(params, lambda _: run(params, values, None, None))
        with StopSignals() as stop:
            recovery = Recovery(values, argv, stop, log_path, held)
            return recovery.run(params, lambda watchdog: run(params, values, watchdog, stop))


def run(params: Any, values: Any, watchdog: Watchdog | None, stop: StopSignals | None) -> int:
    """The training itself; the devices are set up already."""
    experiment = params.instantiate()
    loop = TrainLoop(experiment, values.logdir, has_evaluation=values.mode == 'train_and_eval',
                     has_timeline=values.timeline, watchdog=watchdog, stop=stop)
    outcome = loop.run()
    if outcome.signal:
        return 128 + signal.Signals[outcome.signal].value
    print(outcome.text(values.logdir), end='')
    return 0
