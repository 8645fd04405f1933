"""Export: the newest checkpoint, written for programs that know nothing of lingpipe."""
from __future__ import annotations

from lingpipe.api.run import Run
from lingpipe.commands.run_options import RunOptions
from lingpipe.training import newest_checkpoint
from lingpipe.training.experiment import Experiment


def export(params: Experiment.Params, options: RunOptions) -> str:
    """Writes the network to --export_path in --format; returns a line that says what was written.

    This process is replaced by another if a worker is lost.
    """
    if not options.export_path:
        raise ValueError('--export_path is missing; name the file or the directory to write.')
    with Run(params, options, is_writer=False, is_trainer=True) as run:
        path = run.export(options.export_path, options.export_format,
                          dtype=options.export_dtype)
        step = newest_checkpoint.step_of(run.logdir, options.checkpoint)
        return f'step {step} as {options.export_format}: {path}'
