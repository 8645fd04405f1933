"""Beam search over next ids, with length normalisation; with one hypothesis it is greedy.

The normalisation is that of Wu et al., 2016, arXiv:1609.08144, section 7.

Shapes: n sentences, k hypotheses of each (the beam), m candidates of each hypothesis, t ids so far.

Every step continues the k unfinished hypotheses of a sentence by one id. Among the (1 + e) k best
continuations, where e ids end a sentence, those that end are finished, and the k best of the others
continue; if k is 1, only the best continuation counts. A finished hypothesis has the score

    log p(ids) / ((5 + length) / 6)^alpha       length: number of ids, including the end

and only the best one is kept. Since log p can only fall, the score of an unfinished hypothesis will
never exceed its present log p divided by the penalty of the largest length. A sentence is over as
soon as no unfinished hypothesis can win in this sense. If a sentence reaches its limit before any
hypothesis is finished, the best unfinished one is returned.
"""
from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from lingpipe.layers.nested import NestedMap
from lingpipe.pipeline.decoding.continuations import Continuations, best_continuations
from lingpipe.pipeline.decoding.search_params import SearchParams, length_penalty

_NEVER = -float('inf')  # the score of a hypothesis that does not exist


def initial_state(limits: tf.Tensor, start: tf.Tensor | int, params: SearchParams) -> NestedMap:
    """Returns the state before the first id.

    Args:
      limits: [n] int32, the largest number of ids of each result, including the end; 0: the
        sentence is over from the start.
      start: the id that is read first, of all sentences or of each, [n] int32.
      params: of the search.

    Returns:
      next [n, k], the ids to read now; parents [n, k], the hypotheses that these ids continue;
      is_going [], whether any sentence is not over; position [], the number of ids so far; scores
      [n, k], log p of the unfinished hypotheses, and their ids [n, k, t]; best_score [n], the score
      of the best finished hypothesis, and its best_ids [n, t].
    """
    n, k = tf.shape(limits)[0], params.beam_size
    is_first = tf.range(k) == 0  # at first all hypotheses are the same, so only one counts
    return NestedMap(
        position=tf.constant(0), next=tf.broadcast_to(tf.reshape(start, [-1, 1]), [n, k]),
        parents=tf.zeros([n, k], tf.int32), is_going=tf.reduce_any(limits > 0),
        scores=tf.where(is_first & (limits > 0)[:, tf.newaxis], 0., _NEVER),
        ids=tf.zeros([n, k, 0], tf.int32),
        best_score=tf.fill([n], _NEVER), best_ids=tf.zeros([n, 0], tf.int32))


def advance(state: NestedMap, candidates: NestedMap, limits: tf.Tensor, ends: Sequence[int],
            params: SearchParams, starts: tf.Tensor | int = 0,
            num_given: tf.Tensor | int = 0) -> NestedMap:
    """Returns the state after one more id.

    Args:
      state: as initial_state returns it.
      candidates: for the ids that were read: log_sum [n, k], and values and ids [n, k, m], the best
        first.
      limits: as in initial_state.
      ends: the ids that finish a hypothesis.
      params: of the search.
      starts: [n], how many of the first ids of each sentence are padding, which does not count.
      num_given: [n], how many of the next are given, as a prompt is: none of these ends it.
    """
    lengths = tf.fill(tf.shape(limits), state.position + 1) - starts
    best = best_continuations(state.scores, candidates, params.num_continuations(len(ends)))
    is_end = tf.reduce_any(best.ids[..., tf.newaxis] == tf.constant(ends), -1)
    is_end &= (lengths > num_given)[:, tf.newaxis]
    penalties = length_penalty(lengths, params.alpha)
    best_score, best_ids = _best_finished(state, best, is_end, ends[0], penalties)

    # The k best unfinished hypotheses.
    scores, place = tf.where(is_end, _NEVER, best.scores), tf.zeros_like(best.ids)
    if best.ids.shape[1] > 1:
        scores, place = tf.math.top_k(scores, params.beam_size)  # [n, k]
    parents = tf.gather(best.parents, place, batch_dims=1)
    said = tf.gather(best.ids, place, batch_dims=1)
    ids = _with(tf.gather(state.ids, parents, batch_dims=1), said)  # [n, k, t + 1]

    # A sentence that reaches its limit without a finished hypothesis takes the best unfinished one.
    is_over = (lengths >= limits) | (
        best_score >= scores[:, 0] / length_penalty(limits, params.alpha))
    is_cut = is_over & (best_score == _NEVER) & (scores[:, 0] > _NEVER)

    return NestedMap(
        position=state.position + 1, next=said, parents=parents, ids=ids,
        is_going=tf.reduce_any(~is_over), scores=tf.where(is_over[:, tf.newaxis], _NEVER, scores),
        best_score=tf.where(is_cut, scores[:, 0] / penalties, best_score),
        best_ids=tf.where(is_cut[:, tf.newaxis], ids[:, 0], best_ids))


def _best_finished(state: NestedMap, new: Continuations, is_end: tf.Tensor, padding: int,
                   penalties: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The score [n] and the ids [n, t + 1] of the best finished hypothesis so far, padded."""
    finished = tf.where(is_end, new.scores, _NEVER) / penalties[:, tf.newaxis]
    which = tf.argmax(finished, 1, tf.int32)[:, tf.newaxis]
    score = tf.gather(finished, which, batch_dims=1)[:, 0]  # [n]
    ids = tf.gather(
        state.ids, tf.gather(new.parents, which, batch_dims=1), batch_dims=1)[:, 0]  # [n, t]
    end = tf.gather(new.ids, which, batch_dims=1)[:, 0]  # [n]

    is_better = score > state.best_score
    best_ids = tf.where(is_better[:, tf.newaxis], ids, state.best_ids)
    return (tf.where(is_better, score, state.best_score),
            _with(best_ids, tf.where(is_better, end, padding)))


def _with(ids: tf.Tensor, last: tf.Tensor) -> tf.Tensor:
    return tf.concat([ids, last[..., tf.newaxis]], -1)
