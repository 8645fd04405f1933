"""Device setup: the devices of an experiment, and TensorFlow set up for them."""
from __future__ import annotations

import os
import re
from typing import Any

import tensorflow as tf

from lingpipe import cluster
from lingpipe.cluster import addresses, devices
from lingpipe.cluster.client import Connection
from lingpipe.process.process_name import this_process


def configure(params: Any) -> None:
    """Sets TensorFlow's devices and threads for an experiment in this process."""
    pipeline = params.pipeline
    num_gpus = len(tf.config.list_physical_devices('GPU'))
    cluster.configure(num_cpus(pipeline.devices, pipeline.num_devices, num_gpus), params.intra_op_threads)


def num_cpus(names: tuple[str, ...], num_devices: int, num_gpus: int) -> int:
    """How many logical CPU devices there must be: those that are named, or else one a cell of each replica if the GPUs are too few."""
    if names:
        return max((int(number) for name in names for number in re.findall(r'(?i)\bCPU:(\d+)', name)), default=-1) + 1
    return num_devices if num_gpus < num_devices else 0


def assign(params: Any, found: devices.Devices) -> None:
    """Gives the experiment's pipeline its devices."""
    params.pipeline.set(devices=found.names, cells_per_gpu=max(found.names.count(name) for name in found.names))


def place(params: Any, values: Any, is_again: bool = False) -> Connection | None:
    """Finds what --devices names, sets TensorFlow up for it, and connects to workers.

    Args:
      params: the experiment's; gets the devices.
      values: the trainer's flags.
      is_again: whether this process has had the workers before and lost one. It does not take them from whoever has them now.

    Returns:
      None if all devices are of this process.

    Raises:
      OSError: a worker does not answer in time, or another process has taken it.
      LostWorkerError: one was there and is gone.
    """
    found = devices.find(values.devices, params.pipeline.num_devices, params.train.worker_timeout_s)
    assign(params, found)
    cluster.configure(found.num_cpus, params.intra_op_threads)
    if not found.workers:
        if any('TPU' in name for name in found.names):
            tf.tpu.experimental.initialize_tpu_system(tf.distribute.cluster_resolver.TPUClusterResolver('local'))
        return None
    address = addresses.own_address(values.address) if addresses.SOURCES.fullmatch(values.address) else values.address
    name = f'{this_process()}, --logdir={os.path.abspath(values.logdir)}'
    return Connection(found.workers, address, params.train.worker_timeout_s, name, is_again)
