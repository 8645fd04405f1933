"""Squared norms: of all cells together, and without overflow where gradients are clipped."""
from __future__ import annotations

import numpy as np
import pytest

from lingpipe.learning import learning_rates, optimizers
from tests.lingpipe.pipeline.execution import test_program
from tests.lingpipe.pipeline.execution.test_update import D, batch_of, program_of


def test_clipping_uses_the_norm_over_all_cells():
    plain = {'optimizer': optimizers.SGD.Params(),
             'learning_rate': learning_rates.Constant.Params(rate=1.0)}
    free, clipped = (
        test_program.program_of(num_cells=2, learn=test_program.learner(clip_norm=clip, **plain))
        for clip in (None, 0.01))
    start = test_program.weights_of(free)
    norm = float(free.train_step(test_program.batches(1)[0], 0)['gradient_norm'])
    clipped.train_step(test_program.batches(1)[0], 0)
    trained_paths = [p for p in free.weights if 'moving' not in p]
    steps = np.concatenate(
        [(free.weights[p].numpy() - start[f'weights/{p}']).ravel() for p in trained_paths])
    small = np.concatenate(
        [(clipped.weights[p].numpy() - start[f'weights/{p}']).ravel() for p in trained_paths])
    assert np.linalg.norm(steps) == pytest.approx(norm, rel=1e-5)
    assert np.linalg.norm(small) == pytest.approx(0.01, rel=1e-4)


def test_clipping_saves_a_step_whose_squared_gradients_overflow():
    batch = batch_of(np.full([4, D], 3e25))
    program = program_of(batch, 2, layer_params={'start': 'zeros'}, clip_norm=2.0)
    results = program.train_step(batch, 0)
    assert (results['is_finite']
            and float(results['gradient_norm']) == pytest.approx(3e25 * np.sqrt(2 * D), rel=1e-6))
    for path in ('model/first/w', 'model/last/w'):
        np.testing.assert_allclose(program.weights[path],
                                   np.full([1, D], -0.5 * 2 / np.sqrt(2 * D)), rtol=1e-6)


def test_without_clipping_such_a_step_is_skipped():
    batch = batch_of(np.full([4, D], 3e25))
    program = program_of(batch, layer_params={'start': 'zeros'})
    assert not program.train_step(batch, 0)['is_finite']
    np.testing.assert_array_equal(program.weights['model/first/w'], np.zeros([1, D]))
