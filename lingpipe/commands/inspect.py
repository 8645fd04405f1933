"""Inspect: the plan of an experiment, without a variable, so that it is quick for any network."""
from __future__ import annotations

from typing import Any

from lingpipe.commands import device_setup
from lingpipe.training.reporting.plan_table import overview


def inspect(params: Any, values: Any) -> int:
    """Prints the plan. Only workers that --devices names are looked for."""
    if values.devices:
        from lingpipe.cluster import devices
        found = devices.find(values.devices, params.pipeline.num_devices, params.train.worker_timeout_s, must_exist=False)
        device_setup.assign(params, found)
    experiment = params.instantiate()
    print(overview(experiment.make_plan(), experiment.params.train_input.batch_size), end='')
    return 0
