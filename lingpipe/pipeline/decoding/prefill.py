"""Prefill: the ids of prompts are read many at once, instead of one by one.

    c ids of the longest prompt of a group, C ids of a pass

Shorter prompts have padding before them, which nothing sees, so that all end at one position:

    . . . a b
    a b c d e
    . . a b c

A layer that does not know of padding (DecodedFunction.can_start_late) makes the group read only as
many ids as the shortest prompt has; the rest of the others is read id by id (sampling.py).

A pass takes C positions through the cells, as a mini-batch of training does, and every layer adds
to its past what `C` steps would have added. No logits are computed. The passes of a group follow
each other through the cells: while cell 1 reads the first C ids, cell 0 reads the next.

    cell 0    0..C   C..2C  2C..c
    cell 1           0..C   C..2C  2C..c

The ids that follow are those that reading one by one gives, but for ties: products of C rows and of
one row round differently.
"""
from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from lingpipe.layers import nested
from lingpipe.layers.nested import Nested, NestedMap
from lingpipe.layers.shapes import dims
from lingpipe.pipeline.decoding.decoding_cell import DecodingCell, Prepared, values_of
from lingpipe.pipeline.execution.placed import call_on
from lingpipe.pipeline.planning.dataflow import Value


def num_read(prompts: tf.Tensor, limits: tf.Tensor, can_start_late: bool) -> tf.Tensor:
    """How many first ids of each of the prompts [n, P] are read at once, int32 [n].

    They leave room for one more. Sentences that are not decoded, whose limit [n] is 0, do not
    count.

    Args:
      prompts, limits: those of the sentence group.
      can_start_late: whether prompts may be of different lengths.
    """
    lengths = tf.minimum(num_given(prompts), limits - 1)
    if can_start_late:
        return tf.maximum(lengths, 0)
    shortest = tf.reduce_min(tf.where(limits > 0, lengths, tf.shape(prompts)[1]))
    return tf.fill(tf.shape(limits), shortest)


def num_given(prompts: tf.Tensor) -> tf.Tensor:
    """How many ids each of the prompts [n, P] has, int32 [n]."""
    return tf.reduce_sum(tf.cast(prompts >= 0, tf.int32), 1)


def left_padded(prompts: tf.Tensor, lengths: tf.Tensor, start: tf.Tensor | int) -> tf.Tensor:
    """The start, [] or [n], and the first ids of prompts, [n, 1 + c], with zeros before them."""
    starts = tf.broadcast_to(tf.reshape(start, [-1, 1]), [tf.shape(prompts)[0], 1])
    prompts = tf.concat([starts, prompts], 1)
    longest = tf.reduce_max(lengths)
    places = tf.range(1 + longest) - (longest - lengths)[:, tf.newaxis]
    ids = tf.gather(prompts, tf.maximum(places, 0), batch_dims=1)
    return tf.where(places >= 0, tf.maximum(ids, 0), 0)


def without_padding(ids: tf.Tensor, starts: tf.Tensor, end_id: int) -> tf.Tensor:
    """Ids [n, t] that begin at `starts` [n] as ids that begin at 0, with an end behind them."""
    t = tf.shape(ids)[1]
    places = tf.minimum(tf.range(t) + starts[:, tf.newaxis], t)
    return tf.gather(tf.pad(ids, [[0, 0], [0, 1]], constant_values=end_id), places, batch_dims=1)


def read(cells: Mapping[str, DecodingCell], target: Value, ids: tf.Tensor, pass_size: int,
         prepared: Mapping[str, Prepared]) -> dict[str, Nested]:
    """Reads ids [n, c]; returns what the layers of each cell remember of them.

    Args:
      cells: by key.
      target: the value of the ids.
      ids: those to read.
      pass_size: C.
      prepared: of each cell, by the same keys.
    """
    # All hypotheses are the same so far, so one of each sentence is enough.
    start = {key: nested.map_leaves(lambda past: past[:, :1], one.past)
             for key, one in prepared.items()}
    num_ids = tf.shape(ids)[1]

    def body(first: tf.Tensor, *flat: tf.Tensor) -> list[tf.Tensor]:
        """One pass."""
        pasts = nested.pack_like(start, list(flat))
        moving: dict[Value, Nested] = {target: ids[:, first:first + pass_size]}
        for key, cell in cells.items():
            if cell.prefilled:
                of_cell = prepared[key]
                moving_out, pasts[key] = call_on(cell.device, cell.prefill, [
                    first, of_cell.starts, values_of(moving, cell.prefill_in), of_cell.values,
                    of_cell.kept, pasts[key], of_cell.weights.elsewhere])
                moving.update(zip(cell.prefill_out, moving_out, strict=True))
        return [first + pass_size, *nested.leaves(pasts)]

    shapes = [tf.TensorShape([]), *nested.leaves(nested.map_leaves(grown_shape, start))]
    _, *flat = tf.while_loop(lambda first, *flat: first < num_ids, body,
                             [tf.constant(0), *nested.leaves(start)], shapes,
                             parallel_iterations=len(cells) + 1)
    return {key: nested.map_leaves(lambda past, of_all: tf.repeat(past, dims(of_all)[1], 1),
                                   past, prepared[key].past)
            for key, past in nested.pack_like(start, flat).items()}


def after_prompt(state: NestedMap, ids: tf.Tensor, end_id: int) -> NestedMap:
    """Returns the state after the first ids of all sentences, which are certain.

    It is as the search returns it after t ids that are the only candidates.

    Args:
      state: of the search (search.py), before the first id.
      ids: [n, 1 + t], the start and these ids, with padding before them. They are fewer than every
        limit that is not 0.
      end_id: an id that finishes a hypothesis.
    """
    n, t = tf.shape(ids)[0], tf.shape(ids)[1] - 1
    ids = tf.repeat(ids[:, tf.newaxis], state.next.shape[1], 1)  # [n, k, 1 + t]
    return NestedMap({**state, 'position': t, 'next': ids[:, :, -1], 'ids': ids[:, :, 1:],
                      'best_ids': tf.fill([n, t], end_id)})


def grown_shape(past: tf.Tensor) -> tf.TensorShape:
    """Returns the shape of a past, [n, k, ..., t, channels], with unknown n and t."""
    rank = past.shape.rank
    return tf.TensorShape([None if i in (0, rank - 2) and i != 1 else n
                           for i, n in enumerate(past.shape)])
