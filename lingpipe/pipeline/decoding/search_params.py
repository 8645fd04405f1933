"""SearchParams: how many hypotheses a search follows, and how it compares their lengths."""
from __future__ import annotations

from typing import Any

import tensorflow as tf

from lingpipe.hyperparams import Params, field


class SearchParams(Params):
    """How to search for the best sequence of ids."""
    beam_size: int = field(
        4, 'k, the hypotheses that are followed; 1: greedy, the best id every time.', least=1)
    alpha: float = field(
        0.6, 'Strength of the length normalisation: 0 is none, which favours short results; usual '
        'are 0.6 to 1.', least=0)
    max_length: int = field(256, 'Ids of a result, its end included, at most.', least=1)

    @property
    def num_continuations(self) -> int:
        """How many continuations of a sentence count: of 2k, at least k do not end."""
        return 1 if self.beam_size == 1 else 2 * self.beam_size

    @property
    def num_candidates(self) -> int:
        """m, so many that the best continuations are among those of each hypothesis."""
        return self.num_continuations


def length_penalty(length: Any, alpha: float) -> tf.Tensor:
    """((5 + length) / 6)^alpha (Wu et al., 2016, eq. 14)."""
    return ((5. + tf.cast(length, tf.float32)) / 6.) ** alpha
