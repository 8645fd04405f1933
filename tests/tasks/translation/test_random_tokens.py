"""RandomTokens: ids in their range, labels that are the next targets, and a rule that as many follow as are said to."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tasks.translation.random_tokens import RandomTokens

V, T = 64, 16


def batch(**fields: Any) -> dict[str, np.ndarray]:
    tokens = RandomTokens.Params(**{'batch_size': 200, 'vocab_size': V, 'target_length': T, **fields}).instantiate()
    return {name: value.numpy() for name, value in next(iter(tokens.batches(0))).items()}


def test_labels_are_the_next_targets_and_no_id_is_padding() -> None:
    made = batch(source_length=5)
    assert made['source'].shape == (200, 5) and made['target'].shape == made['label'].shape == (200, T)
    np.testing.assert_array_equal(made['target'][:, 1:], made['label'][:, :-1])
    assert min(made[name].min() for name in ('source', 'target', 'label')) == 1
    assert max(made[name].max() for name in ('source', 'target', 'label')) == V - 1


@pytest.mark.parametrize('rate', [0., 0.8, 1.])
def test_so_many_ids_follow_from_the_one_before(rate: float) -> None:
    made = batch(rule_rate=rate)
    follows = made['label'] == 1 + 5 * made['target'] % (V - 1)
    assert follows.mean() == pytest.approx(rate + (1 - rate) / (V - 1), abs=0.02)
    np.testing.assert_array_equal(made['label'], batch(rule_rate=rate)['label'])


def test_a_rate_that_is_no_probability_is_refused() -> None:
    with pytest.raises(ValueError, match='rule_rate=1.5 is no probability; use 0 to 1'):
        batch(rule_rate=1.5)
