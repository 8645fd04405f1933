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

    def num_continuations(self, num_ends: int) -> int:
        """How many continuations of a sentence count: at least k of them do not end."""
        return 1 if self.beam_size == 1 else (1 + num_ends) * self.beam_size

    def num_candidates(self, num_ends: int) -> int:
        """m, so many that the best continuations are among those of each hypothesis."""
        return self.num_continuations(num_ends)


def length_penalty(length: Any, alpha: float) -> tf.Tensor:
    """((5 + length) / 6)^alpha (Wu et al., 2016, eq. 14)."""
    return ((5. + tf.cast(length, tf.float32)) / 6.) ** alpha
