"""bench_text: lingpipe and plain Keras train the same language model to the same weights."""
from __future__ import annotations

import numpy as np

from lingpipe.tools import bench_text


def test_keras_and_lingpipe_learn_the_same() -> None:
    args = bench_text.parse(['--layers=1', '--dim=16', '--vocab_size=11', '--length=6',
                             '--batch=4', '--steps=3', '--num_micro_batches=2'])
    ours, our_weights = bench_text.lingpipe_steps(args)
    theirs, their_weights = bench_text.keras_steps(args)
    for number, batch in enumerate(bench_text.batches(args)):
        np.testing.assert_allclose(ours(batch, number), theirs(batch, number), rtol=1e-5)
    for path, value in our_weights().items():
        np.testing.assert_allclose(their_weights()[path], value, atol=1e-5, err_msg=path)
