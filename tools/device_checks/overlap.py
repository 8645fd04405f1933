"""Overlap: whether two devices really work at the same time.

Two devices do the same work, first one after the other and then side by side. Side by side takes
half the time if they overlap, and as long if they do not. Large products fill a processor that two
logical devices share, and cannot overlap there. Small ones last no longer than the host takes to
start them. Running sums of few rows are long and leave room: they keep a part of a GPU busy.
"""
from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf

from lingpipe.pipeline.planning.breakdown import StepTimes
from lingpipe.tools.device_checks import subjects
from lingpipe.tools.device_checks.machine import Machine
from lingpipe.tools.device_checks.rows import Row

NUM_RUNS = 5
WORK_S = 0.05
NUM_FIRST, NUM_MOST = 16, 1000   # operations in a row: in the first try, and at most


@dataclasses.dataclass(frozen=True)
class Work:
    """An operation that a device repeats.

    Attributes:
      name: for people.
      shape: of its value.
      run: makes the next value of the value, which has the same shape.
    """
    name: str
    shape: tuple[int, int]
    run: Callable[[tf.Tensor], tf.Tensor]

    def on(self, devices: Sequence[str], number: int) -> Callable[[], list[tf.Tensor]]:
        """Returns a function that repeats the operation on every device."""
        @tf.function(autograph=False)
        def run_all() -> list[tf.Tensor]:
            """Returns a number of each device's result."""
            results = []
            for device in devices:
                with tf.device(device):
                    value = tf.random.stateless_normal(self.shape, [1, 2])
                    for _ in range(number):
                        value = self.run(value)
                    results.append(value[:1, :1])
            return results
        return run_all   # type: ignore[no-any-return]


def rows(machine: Machine) -> Iterator[Row]:
    """Measures two devices with three kinds of work, and a pipeline of two cells."""
    small, large, rows_length = (128, 4096, 1 << 22) if machine.is_gpu else (64, 512, 1 << 18)
    for work in (_products(small), _products(large),
                 Work(f'running sums of 4 rows of {rows_length}', (4, rows_length),
                      lambda value: tf.cumsum(value, 1) * 1e-3)):
        yield _work_row(machine, work)
    yield _pipeline_row(machine)


def _products(size: int) -> Work:
    return Work(f'matrix products of {size} x {size}', (size, size),
                lambda value: tf.matmul(value, value) / size)


def _work_row(machine: Machine, work: Work) -> Row:
    """Compares work on two devices with the same work on one after the other."""
    devices = machine.devices_of(2)
    first_s = _median_s(work.on(devices[:1], NUM_FIRST))
    number = max(NUM_FIRST, min(NUM_MOST, int(NUM_FIRST * WORK_S / first_s)))
    alone_s = [_median_s(work.on([device], number)) for device in devices]
    both_s = _median_s(work.on(devices, number))
    speed_up = sum(alone_s) / both_s
    return machine.row(
        'info', f'{work.name}: {alone_s[0] * 1e3:.1f} and {alone_s[1] * 1e3:.1f} ms alone, '
                f'{both_s * 1e3:.1f} ms side by side, {speed_up:.2f} times as fast (2 at best)',
        work=work.name, number=number, alone_s=alone_s, both_s=both_s, speed_up=speed_up)


def _median_s(function: Callable[[], list[tf.Tensor]]) -> float:
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
    one, two = (subject.program(machine.devices_of(k), num_cells=k, num_micro_batches=8,
                                recompute='none') for k in (1, 2))
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
    """Returns the share of the time of all slots in which two or more devices run one."""
    moments = sorted((moment, change) for start, end in times.timeline.spans.values()
                     for moment, change in ((start, 1), (end, -1)))
    num_busy, shared_s = 0, 0.0
    for (moment, change), (following, _) in zip(moments, moments[1:], strict=False):
        num_busy += change
        if num_busy > 1:
            shared_s += following - moment
    return shared_s / (moments[-1][0] - moments[0][0])
