"""Device setup: the devices of an experiment, and TensorFlow set up for them."""
from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable

import tensorflow as tf
from absl import logging

from lingpipe import cluster
from lingpipe.cluster import addresses, devices
from lingpipe.cluster.client import Connection, LostWorkerError, is_on_worker
from lingpipe.cluster.workers import SilentWorkerError
from lingpipe.commands import elastic
from lingpipe.commands.run_options import RunOptions
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.process.process_name import this_process
from lingpipe.training.experiment import Experiment
from lingpipe.wording.counts import counted


@dataclasses.dataclass(frozen=True)
class Placement:
    """Where the cells of a run go.

    Attributes:
      devices: one tf.device string a cell, or a device: see PipelineParams.devices; () if the
        Params name them, or leave them to the machine.
      connection: to the workers that have these devices; None if all are of this process.
      pipeline: what runs on them if workers are missing; None: as the Params say.
      missing: 'host:port' of the workers without which the run goes on.
    """
    devices: tuple[str, ...]
    connection: Connection | None
    pipeline: PipelineParams | None = None
    missing: tuple[str, ...] = ()


def configure(params: Experiment.Params) -> None:
    """Sets TensorFlow's devices and threads for an experiment in this process."""
    pipeline = params.pipeline
    num_gpus = len(tf.config.list_physical_devices('GPU'))
    cluster.configure(num_cpus(pipeline.devices, pipeline.num_devices, num_gpus),
                      params.intra_op_threads)


def num_cpus(names: tuple[str, ...], num_devices: int, num_gpus: int) -> int:
    """Returns how many logical CPU devices there must be.

    They are those that are named. Without names, there is one for each cell of each replica if the
    GPUs are too few.
    """
    if names:
        numbers = [int(number) for name in names
                   for number in re.findall(r'(?i)\bCPU:(\d+)', name)]
        return max(numbers, default=-1) + 1
    return num_devices if num_gpus < num_devices else 0


def place_late(params: Experiment.Params, error: cluster.StartedTooEarlyError) -> Placement:
    """Finds devices in a process whose TensorFlow has started, as making a Keras model makes it do.

    Cells share what there is: without GPUs, and unless somebody made more, the one CPU.

    Args:
      params: the experiment's.
      error: what `place` has raised.

    Raises:
      StartedTooEarlyError: the Params name their devices.
    """
    pipeline = params.pipeline
    if pipeline.devices:
        raise error
    num_devices = pipeline.num_devices
    gpus, cpus = ([device.name for device in tf.config.list_logical_devices(kind)]
                  for kind in ('GPU', 'CPU'))
    usable = gpus if len(gpus) >= num_devices else cpus[:num_devices]
    names = tuple(usable[i * len(usable) // num_devices] for i in range(num_devices))
    num_threads = tf.config.threading.get_intra_op_parallelism_threads()
    differences = []
    if len(set(names)) < num_devices:
        number = len(set(names))
        differences.append(f'{num_devices} cells share {counted(number, "device")}')
    if num_threads != params.intra_op_threads:
        threads = counted(num_threads, 'thread') if num_threads else 'all threads'
        differences.append(f'an op may use {threads} in place of {params.intra_op_threads}')
    logging.warning(
        'TensorFlow had started before this run, by a Keras model or a run with other devices, so '
        'that %s. '
        'The run works, but may be slower, and the last bits of its results may differ from those '
        'of other runs. To have neither, start this process again (in a notebook: the kernel), and '
        'call lingpipe.cluster.configure(%d, %d) before anything else.',
        ' and '.join(differences), error.num_cpu_devices, error.intra_op_threads)
    return Placement(names, None)


def place(params: Experiment.Params, options: RunOptions, is_again: bool = False,
          make_experiment: Callable[[], Experiment] | None = None) -> Placement:
    """Finds what --devices names, sets TensorFlow up for it, and connects to workers.

    Without --devices, the Params name the devices, or leave them to the machine.

    Args:
      params: the experiment's.
      options: the trainer's.
      is_again: whether this process has had the workers before and lost one. It does not take them
        from whoever has them now.
      make_experiment: makes the experiment, whose network is planned again if workers are missing.
        None: all workers must answer.

    Raises:
      ValueError: --devices names no devices, or the wrong ones.
      OSError: a worker does not answer in time, or another process has taken it.
      LostWorkerError: one was there and is gone.
    """
    if not options.devices:
        configure(params)
        return Placement((), None)
    wait_s = params.train.worker_timeout_s
    name = name_for_workers(options)
    rest = (elastic.rest_of(options.devices, params, make_experiment, name, is_again)
            if make_experiment else None)
    pipeline = rest.pipeline if rest else params.pipeline
    connection = None
    try:
        available = devices.find(
            rest.devices if rest else options.devices, pipeline.num_replicas * pipeline.num_cells,
            wait_s, num_devices=pipeline.num_devices, num_replicas=pipeline.num_replicas)
        cluster.configure(available.num_cpus, params.intra_op_threads)
        if available.workers:
            connection = Connection(
                available.workers, listening_address(options.address), wait_s, name, is_again)
    except SilentWorkerError as error:
        if rest is None:
            raise
        # All workers had just answered, so this start needs it. The next one goes on without it.
        raise LostWorkerError(error.finding) from error
    if any('TPU' in name for name in available.names):
        _start_tpus(available.workers)
    missing = rest.missing if rest else ()
    return Placement(available.names, connection, pipeline if missing else None, missing)


def can_place_again(params: Experiment.Params, placement: Placement) -> bool:
    """Whether this process can go on with the same devices after their workers were lost.

    It cannot if the run may go on with others, if a cell is in this process, or if the devices
    remember the workers as they were, as those of collectives and TPUs do.
    """
    pipeline = params.pipeline
    has_collectives = pipeline.num_replicas > 1 and (
        pipeline.replica_reduction != 'add' or pipeline.cross_replica_batch_norm)
    are_on_workers = all(is_on_worker(name) and 'TPU' not in name for name in placement.devices)
    return are_on_workers and not has_collectives and params.train.elastic_after_s is None


def name_for_workers(options: RunOptions) -> str:
    """The name of this process, by which a worker knows whom it serves."""
    return f'{this_process()}, --logdir={os.path.abspath(options.logdir)}'


def _start_tpus(workers: tuple[str, ...]) -> None:
    """Starts the TPUs of this process, or of its workers, which are then the hosts of one slice.

    Args:
      workers: 'host:port' of each, connected, in the order of the slice's hosts.
    """
    name = f'grpc://{workers[0]}' if workers else 'local'
    tf.tpu.experimental.initialize_tpu_system(
        tf.distribute.cluster_resolver.TPUClusterResolver(name))


def listening_address(text: str) -> str:
    """The 'host:port' that --address gives, or '' if it gives none."""
    return addresses.own_address(text) if addresses.SOURCES.fullmatch(text) else text
