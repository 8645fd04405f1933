"""Measured peaks: the forecast of memory beside what TensorFlow's allocator really gives out."""
from __future__ import annotations

import gc
import os

import numpy as np
import pytest
import tensorflow as tf

from lingpipe import cluster, layers
from lingpipe.layers.sequential import Sequential
from lingpipe.tasks.text.language_model import LanguageModel
from lingpipe.tools import stacks
from lingpipe.tools.device_checks.allocator import bytes_in_use, most_bytes
from lingpipe.tools.device_checks.running import SEEN_ALLOCATOR
from lingpipe.tools.device_checks.subjects import Subject
from tests.support.forks import Fork

pytestmark = pytest.mark.slow
CPU = '/device:CPU:0'
PLANS = [(1, 'none', '1f1b'), (2, 'none', '1f1b'), (2, 'cell', '1f1b'), (2, 'layer', '1f1b'),
         (3, 'none', 'zb_h1')]


def gated(num_layers: int, dim: int, rows: int) -> Subject:
    """Feed-forward parts whose backward makes two tensors of what the forward has made."""
    parts = [layers.SwiGLU.Params(name=f'part_{i}', input_dim=dim, hidden_dim=4 * dim)
             for i in range(num_layers)]
    rng = np.random.default_rng(0)
    batch = {name: tf.constant(rng.standard_normal((rows, dim)), tf.float32)
             for name in ('x', 'target')}
    network = Sequential.Params(
        name='model', layers=(*parts, layers.MeanSquaredErrorLoss.Params(name='loss')))
    return Subject('gated', network, batch)


def images() -> Subject:
    """An AmoebaNet-D (3, 32)."""
    with tf.device(CPU):
        batch = {name: tf.constant(value) for name, value in stacks.image_batch(16, 64).items()}
    return Subject('AmoebaNet', stacks.amoebanet(3, 32), batch)


def language() -> Subject:
    """A language model of four layers, with all scores of attention in one block."""
    network = LanguageModel.Params(
        name='model', vocab_size=2000, num_layers=4, model_dim=128, hidden_dim=384, num_heads=4,
        num_groups=2, has_bytes=False)
    ids = np.random.default_rng(0).integers(3, 2000, [16, 257]).astype(np.int32)
    batch = {'target': tf.constant(ids[:, :-1]), 'label': tf.constant(ids[:, 1:]),
             'weight': tf.ones([16, 256])}
    return Subject('language', network, batch)


# A Transformer is measured by tests/tools/test_check_devices.py.
SUBJECTS = {'gated': lambda: gated(6, 64, 8192), 'weights': lambda: gated(4, 128, 64),
            'language': language, 'AmoebaNet': images}
# An AmoebaNet takes 6 to 12 s to trace for each plan.
FEWER_PLANS = {'weights': PLANS[:1], 'AmoebaNet': PLANS[2::2]}


def check_peaks(name: str, most: float) -> None:
    """Trains a network by several plans on one device, in a process of its own.

    No peak is `most` times what is forecast.
    """
    cluster.configure(1, 1, 1)
    subject = SUBJECTS[name]()
    for k, mode, schedule in FEWER_PLANS.get(name, PLANS):
        gc.collect()
        before = bytes_in_use(CPU)
        program = subject.program([CPU] * k, num_cells=k, num_micro_batches=4, schedule=schedule,
                                  recompute=mode)
        subject.step_s(program, 2)
        peak = most_bytes(lambda: subject.step_s(program, 1, 2), CPU) - before   # noqa: B023
        (forecast,), (temporary,) = (by_place.values() for by_place in (
            program.plan.peak_bytes(), program.plan.temporary_bytes()))
        ratio = peak / (forecast + temporary)
        assert 0.8 < ratio < most, (name, k, mode, schedule, peak, forecast, temporary)


@pytest.mark.parametrize(('name', 'most'), [
    ('gated', 1.05), ('weights', 1.05), ('language', 1.07), ('AmoebaNet', 1.25)])
def test_peaks_are_as_forecast(name: str, most: float):
    """The gated parts took 1.08 times as much, and the language model 1.15 times.

    Backward ops ran before any gradient had come. Where weights are most of the memory, the peak
    seemed to be 1.18 times as high: memory from before the measurement was never taken off.
    """
    process = Fork(check_peaks, name, most, env={**os.environ, **SEEN_ALLOCATOR})
    _, err = process.communicate(timeout=400)
    assert process.returncode == 0, err[-2000:]
