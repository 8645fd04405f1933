"""Transfers: how long values take from one device to another, by their size."""
from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator

import tensorflow as tf

from lingpipe.tools.device_checks.machine import Machine
from lingpipe.tools.device_checks.rows import Row

NUM_HOPS = 100
NUM_RUNS = 5
LARGE_BYTES = 64 * 2**20
REFERENCE_BYTES_PER_S = 1e12   # faster than any link: the value was passed without a copy


def rows(machine: Machine) -> Iterator[Row]:
    """Measures the way to the next device, and from the host's memory and back."""
    first = machine.devices[0]
    if machine.is_gpu:
        yield _row(machine, '/device:CPU:0', first)
    for other in machine.devices[1:2]:
        yield _row(machine, first, other)


def _row(machine: Machine, one: str, other: str) -> Row:
    """Sends a value back and forth; half of the hops go each way."""
    latency_s = hop_s(one, other, 4)
    large_s = hop_s(one, other, LARGE_BYTES)
    bytes_per_s = LARGE_BYTES / max(1e-9, large_s - latency_s)
    bandwidth = f'{bytes_per_s / 1e9:.1f} GB/s'
    if bytes_per_s > REFERENCE_BYTES_PER_S:
        bandwidth = 'large values are not copied: both devices use one memory'
    return machine.row(
        'info', f'{one} to {other} and back: {latency_s * 1e6:.0f} us a value of 4 bytes, '
                f'{large_s * 1e3:.2f} ms of 64 MiB; {bandwidth}',
        devices=[one, other], latency_s=latency_s, large_s=large_s, bytes_per_s=bytes_per_s)


def hop_s(one: str, other: str, num_bytes: int) -> float:
    """Returns the seconds that a value takes from device to device."""
    with tf.device(one):
        value = tf.Variable(tf.zeros([num_bytes // 4]))

    @tf.function(autograph=False)
    def send(num_hops: int) -> tf.Tensor:
        with tf.device(one):
            sent = value.read_value()
        for hop in range(num_hops):
            with tf.device(one if hop % 2 else other):
                sent = tf.identity(sent)
        with tf.device(one):
            return sent[:1]

    few_s, many_s = (_least_s(functools.partial(send, num_hops)) for num_hops in (2, 2 + NUM_HOPS))
    return max(0.0, many_s - few_s) / NUM_HOPS


def _least_s(run: Callable[[], tf.Tensor]) -> float:
    times_s = []
    for _ in range(1 + NUM_RUNS):
        start_s = time.perf_counter()
        run().numpy()
        times_s.append(time.perf_counter() - start_s)
    return min(times_s)
