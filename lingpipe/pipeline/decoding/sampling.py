"""Sampling: what comes before the search of the next id: prompts, penalties and chance.

The search (search.py) continues each hypothesis by the best of its candidates. Generation of text
changes the candidates first:

    penalty     the logits of ids that were written before are lowered (Keskar et al., 2019, CTRL,
                arXiv:1909.05858, section 4.1)
    chance      one candidate is drawn from the distribution at a temperature, among the top_k best
                and the fewest that together have the probability top_p (Holtzman et al., 2019,
                arXiv:1904.09751), and is the only one that is left
    prompt      where the prompt says the id, that id is the only candidate, at no cost

The random numbers come with the sentence group, one for each sentence and position. So what is
drawn depends neither on the groups nor on K, and the graph holds no random op.

Shapes: n sentences, k hypotheses of each, m candidates of each hypothesis, t ids so far, P ids of
the longest prompt.
"""
from __future__ import annotations

import tensorflow as tf

from lingpipe.hyperparams import field
from lingpipe.layers.nested import NestedMap
from lingpipe.pipeline.decoding.search_params import SearchParams

_NEVER = -float('inf')
_LEAST_TEMPERATURE = 1e-4


class SamplingParams(SearchParams):
    """How to write text: search, or chance."""
    temperature: float = field(
        0., 'Divides the logits before an id is drawn; 0: nothing is drawn, the search takes the '
            'best.', least=0)
    top_k: int = field(0, 'Only so many of the best ids are drawn from; 0: all.', least=0)
    top_p: float = field(1., 'Only the best ids are drawn from, as few as together have this '
                             'probability.', above=0, most=1)
    repetition_penalty: float = field(
        1., 'Divides positive logits, and multiplies negative ones, of ids that are in the text '
            'already; 1: none, usual is 1.2.', least=1)
    seed: int = field(0, 'Seeds what is drawn.')
    prefill: int = field(128, 'Ids of a prompt that a cell reads in one pass; 0: one by one, as '
                              'those that are written.', least=0)

    def check(self) -> None:
        """Raises ValueError for fields that contradict each other."""
        super().check()
        if self.temperature and self.beam_size > 1:
            raise ValueError(f'temperature={self.temperature} draws ids, and '
                             f'beam_size={self.beam_size} searches for the best; set '
                             'beam_size=1, or temperature=0.')
        if 0 < self.temperature < _LEAST_TEMPERATURE:
            raise ValueError(f'temperature={self.temperature} is so low that logits divided by it '
                             'may be infinite; use 0, which takes the best, or '
                             f'{_LEAST_TEMPERATURE} or more.')
        if not self.temperature and (self.top_k or self.top_p < 1):
            raise ValueError(f'top_k={self.top_k} and top_p={self.top_p} say what ids are drawn '
                             'from, but with temperature=0 nothing is drawn; set temperature=1.')

    def num_candidates(self, num_ends: int) -> int:
        """m; all ids where the best may not be the best later, or where all can be drawn."""
        if self.repetition_penalty > 1 or self.temperature and not self.top_k:
            return 1 << 30
        return self.top_k if self.temperature else super().num_candidates(num_ends)


def narrowed(candidates: NestedMap, state: NestedMap, given: NestedMap,
             params: SamplingParams) -> NestedMap:
    """The candidates that the search is to choose from.

    Args:
      candidates: log_sum [n, k], and values and ids [n, k, m], the best first.
      state: of the search.
      given: prompts [n, P] and chances [n, max_length] of the sentence group, and starts [n], how
        many of the first ids are padding.
      params: what is done.
    """
    lengths = tf.fill(tf.shape(given.starts), state.position) - given.starts
    if params.repetition_penalty > 1:
        candidates = _penalised(candidates, state.ids, given.starts, params.repetition_penalty)
    if params.temperature:
        candidates = _drawn(candidates, _at(lengths, given.chances), params)
    return _prompted(candidates, lengths, given.prompts)


def _at(places: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """What each of the rows [n, t] has at its place [n]; behind its end, the last."""
    places = tf.minimum(places, tf.shape(rows)[1] - 1)
    return tf.gather(rows, places[:, tf.newaxis], batch_dims=1)[:, 0]


def _penalised(candidates: NestedMap, ids: tf.Tensor, starts: tf.Tensor,
               penalty: float) -> NestedMap:
    """Lowers the logits of ids [n, k, t] from starts [n] on; the candidates are all ids."""
    values = candidates['values']
    n, k, num_ids = tf.shape(values)[0], values.shape[1], values.shape[2]
    rows = tf.repeat(tf.range(n * k), tf.shape(ids)[2])
    places = tf.stack([rows, tf.reshape(ids, [-1])], 1)
    is_written = tf.range(tf.shape(ids)[2]) >= starts[:, tf.newaxis, tf.newaxis]
    is_written = tf.broadcast_to(is_written, tf.shape(ids))
    counts = tf.scatter_nd(places, tf.reshape(tf.cast(is_written, tf.int32), [-1]),
                           [n * k, num_ids])
    is_old = tf.gather(tf.reshape(counts, [n, k, num_ids]), candidates['ids'], batch_dims=2) > 0

    lowered = tf.where(values > 0, values / penalty, values * penalty)
    values, order = tf.math.top_k(tf.where(is_old, lowered, values), num_ids)
    return NestedMap(values=values, log_sum=tf.reduce_logsumexp(values, -1),
                     ids=tf.gather(candidates['ids'], order, batch_dims=2))


def _drawn(candidates: NestedMap, chances: tf.Tensor, params: SamplingParams) -> NestedMap:
    """Leaves the one candidate that chance [n] decides for; there is one hypothesis."""
    values = candidates['values'][:, 0]  # [n, m]
    if params.top_k:
        values = values[:, :params.top_k]
    probabilities = tf.nn.softmax(values / params.temperature)
    up_to_here = tf.cumsum(probabilities, 1)
    is_in = up_to_here - probabilities < params.top_p  # The first always is.
    sums = tf.cumsum(tf.where(is_in, probabilities, 0.), 1)

    # The first whose sum exceeds the chance's part of the total.
    place = tf.reduce_sum(tf.cast(sums <= chances[:, tf.newaxis] * sums[:, -1:], tf.int32), 1)
    place = tf.minimum(place, tf.reduce_sum(tf.cast(is_in, tf.int32), 1) - 1)[:, tf.newaxis]
    return NestedMap(log_sum=candidates['log_sum'],
                     values=tf.gather(values, place, batch_dims=1)[:, tf.newaxis],
                     ids=tf.gather(candidates['ids'][:, 0], place, batch_dims=1)[:, tf.newaxis])


def _prompted(candidates: NestedMap, lengths: tf.Tensor, prompts: tf.Tensor) -> NestedMap:
    """Leaves the id of the prompt at place lengths [n] where there is one, with probability 1."""
    prompts = tf.pad(prompts, [[0, 0], [0, 1]], constant_values=-1)
    ids = _at(lengths, prompts)[:, tf.newaxis, tf.newaxis]
    is_said, values = ids >= 0, candidates['values']  # [n, 1, 1], [n, k, m]
    is_first = tf.range(values.shape[2]) == 0
    of_prompt = tf.where(is_first, 0., _NEVER)
    return NestedMap(log_sum=tf.where(is_said[:, :, 0], 0., candidates['log_sum']),
                     values=tf.where(is_said, of_prompt, values),
                     ids=tf.where(is_said, ids, candidates['ids']))
