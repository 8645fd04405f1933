"""Beam search over next ids, with length normalisation (Wu et al., 2016, arXiv:1609.08144, section 7); with one hypothesis it is greedy.

Shapes: n sentences, k hypotheses of each (the beam), m candidates of each hypothesis, t ids so far.

Every step continues the k unfinished hypotheses of a sentence by one id. Of the 2k best continuations those that say `end` are finished,
the k best of the others go on. A finished hypothesis has the score

    log p(ids) / ((5 + length) / 6)^alpha       length: ids, end included

and only the best one is kept. Since log p only falls, an unfinished hypothesis will never reach more than its log p now over the penalty of
the largest length; a sentence is over as soon as none can win so. If its limit comes before any end, the best unfinished one is taken.
"""
from __future__ import annotations

from typing import Any

import tensorflow as tf

from lingpipe.hyperparams import Params, field
from lingpipe.layers.nested import NestedMap

_NEVER = -float('inf')  # the score of what is not there


class SearchParams(Params):
    """How the best sequence of ids is looked for."""
    beam_size: int = field(4, 'k, the hypotheses that are followed; 1: greedy, the best id every time.',
                           least=1)
    alpha: float = field(0.6, 'Strength of the length normalisation: 0 is none, which favours short results; usual are 0.6 to 1.',
                         least=0)
    max_length: int = field(256, 'Ids of a result, its end included, at most.', least=1)

    @property
    def num_candidates(self) -> int:
        """m: as many, so that k of 2k continuations that do not end are among them."""
        return 1 if self.beam_size == 1 else 2 * self.beam_size


def length_penalty(length: Any, alpha: float) -> tf.Tensor:
    """((5 + length) / 6)^alpha (Wu et al., 2016, eq. 14)."""
    return ((5. + tf.cast(length, tf.float32)) / 6.) ** alpha


def initial_state(limits: tf.Tensor, start_id: int, params: SearchParams) -> NestedMap:
    """Nothing said yet.

    Args:
      limits: [n] int32, ids of each sentence's result at most, end included; 0: it is over.
      start_id: what is read first.
      params: of the search.

    Returns:
      next [n, k] ids that are read now; parents [n, k], which hypotheses these go on with; is_going [], whether any sentence is not over;
      position [], ids so far; scores [n, k] log p of unfinished hypotheses and their ids [n, k, t]; best_score [n] of the best finished
      hypothesis and its best_ids [n, t].
    """
    n, k = tf.shape(limits)[0], params.beam_size
    is_first = tf.range(k) == 0   # at first all hypotheses are the same one
    return NestedMap(
        position=tf.constant(0), next=tf.fill([n, k], start_id), parents=tf.zeros([n, k], tf.int32), is_going=tf.reduce_any(limits > 0),
        scores=tf.where(is_first & (limits > 0)[:, tf.newaxis], 0., _NEVER), ids=tf.zeros([n, k, 0], tf.int32),
        best_score=tf.fill([n], _NEVER), best_ids=tf.zeros([n, 0], tf.int32))


def advance(state: NestedMap, candidates: NestedMap, limits: tf.Tensor, end_id: int, params: SearchParams) -> NestedMap:
    """The state after one more id.

    Args:
      state: as initial_state gives it.
      candidates: log_sum [n, k], values and ids [n, k, m], the best first, of what was read.
      limits: as there.
      end_id: the id that finishes a hypothesis.
      params: of the search.
    """
    k, m = params.beam_size, candidates['values'].shape[2]
    n, length = tf.shape(limits)[0], state.position + 1
    scores = state.scores[:, :, tf.newaxis] + (candidates['values'] - candidates['log_sum'][:, :, tf.newaxis])  # [n, k, m]
    scores, place = tf.math.top_k(tf.reshape(scores, [n, k * m]), min(params.num_candidates, k * m))  # [n, c]
    parents, said = place // m, tf.gather(tf.reshape(candidates['ids'], [n, k * m]), place, batch_dims=1)
    is_end = said == end_id

    finished = tf.where(is_end, scores, _NEVER) / length_penalty(length, params.alpha)
    which = tf.argmax(finished, 1, tf.int32)[:, tf.newaxis]
    score = tf.gather(finished, which, batch_dims=1)[:, 0]  # [n]
    ended = tf.gather(state.ids, tf.gather(parents, which, batch_dims=1), batch_dims=1)[:, 0]  # [n, t]
    is_better = score > state.best_score
    best_score = tf.where(is_better, score, state.best_score)
    best_ids = _with(tf.where(is_better[:, tf.newaxis], ended, state.best_ids), tf.fill([n], end_id))

    scores, place = tf.math.top_k(tf.where(is_end, _NEVER, scores), k) if m > 1 else (tf.where(is_end, _NEVER, scores), tf.zeros_like(said))
    parents, said = tf.gather(parents, place, batch_dims=1), tf.gather(said, place, batch_dims=1)
    ids = _with(tf.gather(state.ids, parents, batch_dims=1), said)  # [n, k, t + 1]

    is_over = (length >= limits) | (best_score >= scores[:, 0] / length_penalty(limits, params.alpha))
    is_cut = is_over & (best_score == _NEVER) & (scores[:, 0] > _NEVER)
    return NestedMap(
        position=length, next=said, parents=parents, is_going=tf.reduce_any(~is_over), ids=ids,
        scores=tf.where(is_over[:, tf.newaxis], _NEVER, scores),
        best_score=tf.where(is_cut, scores[:, 0] / length_penalty(length, params.alpha), best_score),
        best_ids=tf.where(is_cut[:, tf.newaxis], ids[:, 0], best_ids))


def _with(ids: tf.Tensor, last: tf.Tensor) -> tf.Tensor:
    return tf.concat([ids, last[..., tf.newaxis]], -1)
