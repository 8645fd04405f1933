"""Stamps: whether the times of a timeline are those of the device.

An operation of a GPU counts as done once it is queued, so that a plain timestamp would tell when
the host was done. Three numbers show which of the two a stamp is: the time of a known operation, by
stamps and without them; what all slots of one cell take, beside the step; and how much longer the
stamps make a step.
"""
from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from lingpipe import layers
from lingpipe.layers.sequential import Sequential
from lingpipe.tools.device_checks import subjects
from lingpipe.tools.device_checks.machine import Machine
from lingpipe.tools.device_checks.rows import Row
from lingpipe.tools.device_checks.subjects import Subject

NUM_STEPS = 5
NUM_PRODUCTS = 4
NUM_ROUNDS = 5   # of the products, waited for once
TOO_SHORT = 0.5   # of the device's time: the stamp is of the queue


def rows(machine: Machine) -> Iterator[Row]:
    """Compares stamps with the clock."""
    yield _known_operation(machine)
    yield _whole_step(machine)


def _known_operation(machine: Machine) -> Row:
    """Compares the stamped forward of large matrix products with the same products alone.

    The input has one channel, so that no time is spent on bringing it to the device.
    """
    batch, dim = (8192, 4096) if machine.is_gpu else (1024, 512)
    products = tuple(layers.Dense.Params(name=f'dense_{i}', input_dim=dim, units=dim,
                                         use_bias=False) for i in range(NUM_PRODUCTS))
    subject = Subject(
        'large matrix products',
        Sequential.Params(name='model', layers=(
            layers.Dense.Params(name='first', input_dim=1, units=dim, use_bias=False), *products,
            layers.Dense.Params(name='narrow', input_dim=dim, units=1, use_bias=False),
            layers.MeanSquaredErrorLoss.Params(name='loss'))),
        {'x': tf.constant(np.ones([2 * batch, 1], np.float32)),
         'target': tf.constant(np.zeros([2 * batch, 1], np.float32))})
    program = subject.program(machine.devices_of(2), num_cells=2, num_micro_batches=2,
                              recompute='cell', layers_per_cell=(1 + NUM_PRODUCTS, 2))
    for step in range(2):
        program.timed_step(subject.batch, step)
    of_slots_s = []
    for step in range(NUM_STEPS):
        spans = program.timed_step(subject.batch, 2 + step)[1].timeline.spans
        of_slots_s += [end - start for slot, (start, end) in spans.items()
                       if slot.kind == 'F' and slot.cell == 0]

    stamped_s = statistics.median(of_slots_s)
    alone_s = _products_s(machine.devices[0], batch, dim)
    ratio = stamped_s / alone_s
    return machine.row(
        'ok' if ratio > TOO_SHORT else 'BROKEN',
        f'{NUM_PRODUCTS} matrix products of {batch} x {dim} x {dim}: {alone_s * 1e3:.2f} ms alone, '
        f'{stamped_s * 1e3:.2f} ms by the stamps of a slot, {ratio:.2f} times',
        alone_s=alone_s, stamped_s=stamped_s, ratio=ratio)


def _products_s(device: str, batch: int, dim: int) -> float:
    """Returns the seconds of one round of the products."""
    with tf.device(device):
        x, w = tf.ones([batch, dim]), tf.ones([dim, dim]) / dim

        def run() -> None:
            value = x
            for _ in range(NUM_ROUNDS * NUM_PRODUCTS):
                value = tf.matmul(value, w)
            value[:1, :1].numpy()

        times_s = []
        for _ in range(3):
            start_s = time.perf_counter()
            run()
            times_s.append((time.perf_counter() - start_s) / NUM_ROUNDS)
    return min(times_s)


def _whole_step(machine: Machine) -> Row:
    """Compares the slots and the update of one cell with the step, with and without stamps."""
    if machine.is_gpu:
        subject = subjects.transformer(4, 1024, 256, 32)
    else:
        subject = subjects.transformer(2, 128, 64, 16)
    program = subject.program(machine.devices_of(1), num_cells=1, num_micro_batches=8,
                              recompute='none')
    subject.step_s(program, 2)
    program.timed_step(subject.batch, 2)
    plain_s, timed_s, busy_s, end_s = [], [], [], []
    for step in range(NUM_STEPS):
        plain_s += subject.step_s(program, 1, 3 + step)
        times = program.timed_step(subject.batch, 3 + step)[1]
        timed_s.append(times.call_s or 0.0)
        end_s.append(times.end_s)
        spans = [*times.timeline.spans.values(),
                 *(update.span for updates in times.updates.values() for update in updates)]
        busy_s.append(sum(end - start for start, end in spans))
    plain, timed, busy, end = map(statistics.median, (plain_s, timed_s, busy_s, end_s))
    return machine.row(
        'ok' if busy > TOO_SHORT * plain else 'BROKEN',
        f'{subject.name}, one cell, M=8: a step takes {plain * 1e3:.1f} ms, with stamps '
        f'{timed * 1e3:.1f}; the stamped work adds up to {busy * 1e3:.1f} ms and ends at '
        f'{end * 1e3:.1f}',
        subject=subject.name, plain_s=plain, timed_s=timed, busy_s=busy, end_s=end)
