"""Overlap: whether two devices really work at the same time.

Two devices do the same work, first one after the other and then side by side. Side by side takes
half the time if they overlap, and as long if they do not. Small work leaves room on a processor
that two logical devices share; large work fills it, and then cannot overlap there.
"""
from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import tensorflow as tf

from lingpipe.pipeline.planning.breakdown import StepTimes
from lingpipe.tools.device_checks import subjects
from lingpipe.tools.device_checks.machine import Machine
from lingpipe.tools.device_checks.rows import Row

Work: TypeAlias = Callable[[], list[tf.Tensor]]

NUM_RUNS = 5
WORK_S = 0.05


def rows(machine: Machine) -> Iterator[Row]:
    """Measures two devices with small and large work, and a pipeline of two cells."""
    devices = machine.devices_of(2)
    for size in (128, 4096) if machine.is_gpu else (64, 512):
        yield _work_row(machine, devices, size)
    yield _pipeline_row(machine)


def _work_row(machine: Machine, devices: Sequence[str], size: int) -> Row:
    """Compares work on two devices with the same work on one after the other."""
    num_products = 16
    one_s = _median_s(_work(devices[:1], size, num_products))
    num_products = max(16, min(1000, int(num_products * WORK_S / one_s)))
    alone_s = [_median_s(_work([device], size, num_products)) for device in devices]
    both_s = _median_s(_work(devices, size, num_products))
    speed_up = sum(alone_s) / both_s
    return machine.row(
        'info', f'matrix products of {size} x {size}: {alone_s[0] * 1e3:.1f} and '
                f'{alone_s[1] * 1e3:.1f} ms alone, {both_s * 1e3:.1f} ms side by side, '
                f'{speed_up:.2f} times as fast (2 at best)',
        size=size, num_products=num_products, alone_s=alone_s, both_s=both_s, speed_up=speed_up)


def _work(devices: Sequence[str], size: int, num_products: int) -> Work:
    """Returns a function that multiplies matrices on every device, and returns a few numbers."""
    @tf.function
    def work() -> list[tf.Tensor]:
        results = []
        for device in devices:
            with tf.device(device):
                factor = tf.random.stateless_normal([size, size], [1, 2]) / size ** 0.5
                value = _products(factor, num_products)
                results.append(value[:1, :1])
        return results
    return work   # type: ignore[no-any-return]


def _products(factor: tf.Tensor, number: int) -> tf.Tensor:
    value = factor
    for _ in range(number):
        value = tf.matmul(value, factor)
    return value


def _median_s(function: Work) -> float:
    times_s = []
    for _ in range(1 + NUM_RUNS):
        start_s = time.perf_counter()
        for result in function():
            result.numpy()
        times_s.append(time.perf_counter() - start_s)
    return statistics.median(times_s[1:])


def _pipeline_row(machine: Machine) -> Row:
    """Times a Transformer in one cell and in two, and looks how long both work at once."""
    if machine.is_gpu:
        subject = subjects.transformer(4, 1024, 256, 32)
    else:
        subject = subjects.transformer(2, 128, 64, 16)
    one, two = (subject.program(machine, k, num_cells=k, num_micro_batches=8, recompute='none')
                for k in (1, 2))
    subject.step_s(one, 2)
    subject.step_s(two, 2)
    pairs = [(subject.step_s(one, 1, i)[0], subject.step_s(two, 1, i)[0]) for i in range(2, 7)]
    one_s, two_s = (statistics.median(times) for times in zip(*pairs, strict=True))
    two.timed_step(subject.batch, 7)
    shares = [shared_time(two.timed_step(subject.batch, step)[1]) for step in range(8, 11)]
    share = statistics.median(shares)
    simulation = two.plan.simulate_times()
    ideal = sum(two.plan.forecast.step_costs) * 8 / simulation.step_s
    return machine.row(
        'info', f'{subject.name}, M=8: {one_s * 1e3:.1f} ms in one cell, {two_s * 1e3:.1f} in two, '
                f'{one_s / two_s:.2f} times as fast ({ideal:.2f} by the plan); both cells work in '
                f'{share:.0%} of the step',
        subject=subject.name, one_s=one_s, two_s=two_s, shared_share=share, planned_speed_up=ideal)


def shared_time(times: StepTimes) -> float:
    """Returns in which share of the time of the slots two or more devices are in a slot."""
    moments = sorted((moment, change) for start, end in times.timeline.spans.values()
                     for moment, change in ((start, 1), (end, -1)))
    num_busy, shared_s = 0, 0.0
    for (moment, change), (following, _) in zip(moments, moments[1:], strict=False):
        num_busy += change
        if num_busy > 1:
            shared_s += following - moment
    return shared_s / (moments[-1][0] - moments[0][0])
