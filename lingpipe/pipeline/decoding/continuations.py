"""Continuations: hypotheses with one more id, of which the search takes the best.

Shapes: n sentences, k hypotheses of each, m candidates of each hypothesis, c continuations.
"""
from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from lingpipe.layers.nested import NestedMap


class Continuations(NamedTuple):
    """The c best of each sentence, [n, c] each: log p, the hypothesis, and the id that it adds."""
    scores: tf.Tensor
    parents: tf.Tensor
    ids: tf.Tensor


def best_continuations(scores: tf.Tensor, candidates: NestedMap,
                       num_continuations: int) -> Continuations:
    """The best of the k m continuations of each sentence.

    Args:
      scores: [n, k], log p of the hypotheses.
      candidates: log_sum [n, k], and values and ids [n, k, m], the best first.
      num_continuations: c, if there are so many.
    """
    k, m = candidates['values'].shape[1:]
    n = tf.shape(candidates['values'])[0]

    scores = scores[:, :, tf.newaxis] + (
        candidates['values'] - candidates['log_sum'][:, :, tf.newaxis])  # [n, k, m]
    scores, place = tf.math.top_k(tf.reshape(scores, [n, k * m]), min(num_continuations, k * m))
    ids = tf.gather(tf.reshape(candidates['ids'], [n, k * m]), place, batch_dims=1)
    return Continuations(scores, place // m, ids)
