"""Inspect: the plan of an experiment, without a variable, so that it is quick for any network."""
from __future__ import annotations

from lingpipe.cluster import devices
from lingpipe.commands.run_options import RunOptions
from lingpipe.training.experiment import Experiment
from lingpipe.training.reporting.plan_table import overview
from lingpipe.training.reporting.step_time import step_time


def inspect(params: Experiment.Params, options: RunOptions) -> str:
    """Returns the table of the plan, and the predicted and measured time of a step, if known.

    Only workers that --devices names are looked for.
    """
    names: tuple[str, ...] = ()
    if options.devices:
        pipeline = params.pipeline
        names = devices.find(options.devices, pipeline.num_replicas * pipeline.num_cells,
                             params.train.worker_timeout_s, must_exist=False,
                             num_devices=pipeline.num_devices).names
    experiment: Experiment = params.instantiate()
    plan = experiment.make_plan(names)
    table = overview(plan, experiment.params.train_input.batch_size)
    times = step_time(plan, options.logdir)
    return f'{table}\n{times}\n' if times else table
