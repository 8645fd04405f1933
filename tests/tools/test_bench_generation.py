"""bench_generation: lingpipe and plain Keras, with and without a cache, write the same ids."""
from __future__ import annotations

import numpy as np
import pytest

from lingpipe.tools import bench_generation


def test_keras_and_lingpipe_write_the_same() -> None:
    args = bench_generation.parse(['--layers=1', '--dim=16', '--vocab_size=50', '--prompts=2',
                                   '--length=5', '--new=6'])
    prompts = np.array([[5, 6, 7, 8], [9, 30, 3, 4]], np.int32)
    ours = bench_generation.lingpipe_generate(args)(prompts, 6)
    np.testing.assert_array_equal(ours, bench_generation.keras_generate(args)(prompts, 6))
    args.no_cache = True
    np.testing.assert_array_equal(ours, bench_generation.keras_generate(args)(prompts, 6))


def test_a_time_that_is_too_short_is_refused() -> None:
    """A negative number of tokens a second was printed."""
    assert bench_generation.written_per_s(30, 1., 3.) == 15.
    with pytest.raises(ValueError, match='too short to measure; use more --new'):
        bench_generation.written_per_s(30, 0.003, 0.002)
