"""Measured hardware: the memory of the devices at hand, and how fast bytes get there."""
from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent import futures

import tensorflow as tf
from tensorflow.python.client import device_lib

from lingpipe import cluster
from lingpipe.pipeline.execution.measured_costs import cpu_devices
from lingpipe.pipeline.planning.hardware import USED_SHARE, Hardware

PROBE_BYTES = 64 * 2**20   # more than caches hold
NUM_PROBES = 5
NUM_IN_A_ROW = 4
NETWORK_BYTES_PER_S = 1.25e9   # of 10 gigabit Ethernet: nobody has measured the network


def measured_hardware(devices: Sequence[str]) -> Hardware:
    """What the devices of this process can do; takes a second.

    Their arithmetic is not measured: layers are timed instead. The logical CPU devices of a process
    share its memory, so that nothing is sent between them; and all of them are measured at once,
    since each is slower while others read and write.

    Args:
      devices: tf.device strings.
    """
    kind = cluster.place(devices[0])[2]
    is_cpu = kind == 'CPU'
    own = devices[0]
    link_bytes_per_s = math.inf
    if len(devices) > 1 and not is_cpu:
        link_bytes_per_s = _link_bytes_per_s(own, devices[1])
    return Hardware(
        name=f'this machine ({kind})',
        device_bytes=USED_SHARE * (_ram_bytes() / len(devices) if is_cpu else _gpu_bytes(own)),
        memory_bytes_per_s=memory_bytes_per_s(cpu_devices(len(devices)) if is_cpu else [own]),
        link_bytes_per_s=link_bytes_per_s,
        network_bytes_per_s=NETWORK_BYTES_PER_S)


def free_bytes(device: str) -> float:
    """About what may be taken of a device to time layers on it."""
    if cluster.place(device)[2] == 'CPU':
        return 0.5 * os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_AVPHYS_PAGES')
    return 0.5 * _gpu_bytes(device)


def memory_bytes_per_s(devices: Sequence[str]) -> float:
    """How fast each of the devices reads and writes while the others do."""
    def seconds(device: str) -> float:
        with tf.device(device):
            numbers, one = tf.zeros([PROBE_BYTES // 4]), tf.ones([])
            return _seconds_each(lambda: numbers + one)

    with futures.ThreadPoolExecutor(len(devices)) as threads:
        return 2 * PROBE_BYTES / statistics.median(threads.map(seconds, devices))


def _link_bytes_per_s(sender: str, receiver: str) -> float:
    with tf.device(sender):
        numbers = tf.zeros([PROBE_BYTES // 4]) + 1.0

    def send() -> tf.Tensor:
        with tf.device(receiver):
            return tf.identity(numbers)

    return PROBE_BYTES / _seconds_each(send)


def _seconds_each(run: Callable[[], tf.Tensor]) -> float:
    """The median seconds of a run that follows others, without the wait for a result.

    On a GPU, which adds up 64 MiB in 40 us, that wait would be most of the time.
    """
    def total_s(num_runs: int) -> float:
        start = time.perf_counter()
        for _ in range(num_runs):
            result = run()
        result[:1].numpy()
        return time.perf_counter() - start

    total_s(1 + NUM_IN_A_ROW)   # a warm-up
    times = [(total_s(1 + NUM_IN_A_ROW) - total_s(1)) / NUM_IN_A_ROW for _ in range(NUM_PROBES)]
    return max(1e-9, statistics.median(times))


def _ram_bytes() -> int:
    return os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')


def _gpu_bytes(device: str) -> float:
    """The memory that TensorFlow may use of a device."""
    place = cluster.place(device)[2:]
    for attributes in device_lib.list_local_devices():
        if cluster.place(attributes.name)[2:] == place:
            return float(attributes.memory_limit)
    return math.inf
