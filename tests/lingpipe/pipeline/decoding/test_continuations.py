"""Continuations: the best are taken from all hypotheses of a sentence."""
from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.layers.nested import NestedMap
from lingpipe.pipeline.decoding.continuations import best_continuations


@pytest.mark.parametrize(('num', 'expected'), [(1, 1), (3, 3), (9, 6)])
def test_the_best_of_all_hypotheses_come_first(num: int, expected: int) -> None:
    """Two sentences have two hypotheses each, and each of these three candidates."""
    rng = np.random.default_rng(0)
    scores, values = rng.normal(size=[2, 2]), -np.sort(-rng.normal(size=[2, 2, 3]))
    log_sum, ids = rng.normal(size=[2, 2]), rng.integers(0, 9, [2, 2, 3])
    best = best_continuations(
        tf.constant(scores), NestedMap(values=tf.constant(values), log_sum=tf.constant(log_sum),
                                       ids=tf.constant(ids)), num)
    for i in range(2):
        every = sorted(((scores[i, k] + values[i, k, m] - log_sum[i, k], k, ids[i, k, m])
                        for k in range(2) for m in range(3)), reverse=True)[:expected]
        assert best.scores.shape == [2, expected]
        np.testing.assert_allclose(best.scores[i], [score for score, _, _ in every])
        assert [*zip(best.parents[i].numpy(), best.ids[i].numpy(), strict=True)] == [
            (parent, added) for _, parent, added in every]
