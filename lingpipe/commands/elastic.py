"""Elastic: goes on without workers that do not answer (train.elastic_after_s)."""
from __future__ import annotations

import dataclasses
from collections.abc import Callable

from absl import logging

from lingpipe import cluster
from lingpipe.cluster import devices, workers
from lingpipe.hyperparams import diff
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.training import fewer_devices
from lingpipe.training.experiment import Experiment


@dataclasses.dataclass(frozen=True)
class Rest:
    """What a run can use: everything, or what is left without the workers that are missing.

    Attributes:
      devices: those that can be used, as --devices names them.
      pipeline: what runs on them.
      missing: 'host:port' of the workers that are missing.
    """
    devices: str
    pipeline: PipelineParams
    missing: tuple[str, ...]


def rest_of(text: str, params: Experiment.Params, make_experiment: Callable[[], Experiment],
            name: str, is_again: bool) -> Rest | None:
    """Waits train.elastic_after_s for all workers; returns what there is without those missing.

    Args:
      text: what --devices says.
      params: the experiment's.
      make_experiment: makes the experiment, or returns it.
      name: what workers call this process.
      is_again: whether this process has had the workers before. It leaves a worker that serves
        another process by now to that one.

    Returns:
      None if all workers must answer: the Params say so, or a warning says why the run cannot go on
      without those that do not.

    Raises:
      ValueError: the text is wrong.
    """
    addresses = devices.workers_in(text)
    elastic_after_s = params.train.elastic_after_s
    if elastic_after_s is None or not addresses:
        return None
    missing = {address: f'does not answer within {elastic_after_s:g} s ({why})'
               for address, why in workers.missing(addresses, elastic_after_s).items()}
    if is_again:
        missing |= _taken(set(addresses) - set(missing), name)
    if not missing:
        return Rest(text, params.pipeline, ())

    why = '; '.join(f'worker {task}, {address}, {missing[address]}'
                    for task, address in enumerate(addresses) if address in missing)
    try:
        devices_left = devices.without(text, missing)
        if not devices_left:
            raise ValueError('no device is left')
        usable = devices.find_all(devices_left, params.train.worker_timeout_s)
        cluster.configure(usable.num_cpus, params.intra_op_threads)
        pipeline = fewer_devices.pipeline_on(make_experiment(), usable.names)
    except ValueError as error:
        logging.warning('%s; the run cannot go on without: %s', why, error)
        return None
    logging.warning('%s; the run goes on without, on %s%s', why, devices_left,
                    _changes_text(params.pipeline, pipeline))
    return Rest(devices_left, pipeline, tuple(missing))


def _taken(addresses: set[str], name: str) -> dict[str, str]:
    """The address of each worker that serves another process than `name` -> a few words on that."""
    takers = {address: workers.served_by(address) for address in addresses}
    return {address: f'was taken by {taker}' for address, taker in takers.items()
            if taker not in ('', name)}


def _changes_text(before: PipelineParams, now: PipelineParams) -> str:
    """What a line ends with that says which Params of the pipeline are different."""
    changes = [f'{path}={new} in place of {old}' for path, old, new in diff(before, now)
               if path not in ('devices', 'cells_per_gpu')]
    return f', with {", ".join(changes)}' if changes else ''
