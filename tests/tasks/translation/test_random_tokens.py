"""RandomTokens makes ids in their range, and labels that are the next targets."""
from __future__ import annotations

from typing import Any

import numpy as np

from lingpipe.tasks.translation.random_tokens import RandomTokens

V, T = 64, 16


def batch(**fields: Any) -> dict[str, np.ndarray]:
    tokens = RandomTokens.Params(**{'batch_size': 200, 'vocab_size': V, 'target_length': T,
                                    **fields}).instantiate()
    return {name: value.numpy() for name, value in next(iter(tokens.batches(0))).items()}


def test_labels_are_the_next_targets_and_no_id_is_padding() -> None:
    made = batch(source_length=5)
    assert (made['source'].shape == (200, 5)
            and made['target'].shape == made['label'].shape == (200, T))
    np.testing.assert_array_equal(made['target'][:, 1:], made['label'][:, :-1])
    assert min(made[name].min() for name in ('source', 'target', 'label')) == 1
    assert max(made[name].max() for name in ('source', 'target', 'label')) == V - 1


def test_an_example_is_always_the_same() -> None:
    np.testing.assert_array_equal(batch()['label'], batch()['label'])
    assert not np.array_equal(batch()['label'], batch(seed=1)['label'])
