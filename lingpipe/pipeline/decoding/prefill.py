"""Prefill: the first ids of prompts are read many at once, instead of one by one.

    c ids that all prompts of a group have, C ids of a pass

A pass takes C positions through the cells, as a mini-batch of training does, and every layer adds
to its past what `C` steps would have added. No logits are computed. The passes of a group follow
each other through the cells: while cell 1 reads the first C ids, cell 0 reads the next.

    cell 0    0..C   C..2C  2C..c
    cell 1           0..C   C..2C  2C..c

What is left of longer prompts is read id by id (sampling.py), so that all sentences of a group
stand at one position. The ids that follow are those that reading one by one gives, but for ties:
products of C rows and of one row round differently.
"""
from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from lingpipe.layers import nested
from lingpipe.layers.nested import Nested, NestedMap
from lingpipe.layers.shapes import dims
from lingpipe.pipeline.decoding.decoding_cell import DecodingCell, values_of
from lingpipe.pipeline.execution.placed import call_on
from lingpipe.pipeline.planning.dataflow import Value


def common_length(prompts: tf.Tensor, limits: tf.Tensor, end_id: int) -> tf.Tensor:
    """The number of first ids that all prompts [n, P] have and that leave room for one more.

    Sentences that are not decoded, whose limit [n] is 0, do not count.
    """
    width = tf.shape(prompts)[1]
    is_id = tf.cast((prompts >= 0) & (prompts != end_id), tf.int32)
    lengths = tf.minimum(tf.reduce_sum(tf.math.cumprod(is_id, 1), 1), limits - 1)
    return tf.minimum(tf.reduce_min(tf.where(limits > 0, lengths, width)), width)


def read(cells: Mapping[str, DecodingCell], target: Value, ids: tf.Tensor, pass_size: int,
         prepared: Mapping[str, Nested]) -> dict[str, Nested]:
    """Reads ids [n, c]; returns what the layers of each cell remember of them.

    Args:
      cells: by key.
      target: the value of the ids.
      ids: those to read.
      pass_size: C.
      prepared: of each cell; see SearchLoop.
    """
    # All hypotheses are the same so far, so one of each sentence is enough.
    start = {key: nested.map_leaves(lambda past: past[:, :1], one.past)
             for key, one in prepared.items()}
    num_ids = tf.shape(ids)[1]

    def body(first: tf.Tensor, *flat: tf.Tensor) -> list[tf.Tensor]:
        """One pass."""
        pasts = nested.pack_like(start, list(flat))
        moving: dict[Value, Nested] = {target: tf.maximum(ids[:, first:first + pass_size], 0)}
        for key, cell in cells.items():
            if cell.prefilled:
                elsewhere, kept, _, fixed = prepared[key]
                moving_out, pasts[key] = call_on(cell.device, cell.prefill, [
                    first, values_of(moving, cell.prefill_in), fixed, kept, pasts[key], elsewhere])
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
    """Returns the state after the first ids [n, t] of all sentences, which are certain.

    It is as the search returns it after t ids that are the only candidates.

    Args:
      state: of the search (search.py), before the first id.
      ids: none of them is end_id, and t is below every limit that is not 0.
      end_id: the id that finishes a hypothesis.
    """
    n, k = tf.shape(state.next)[0], state.next.shape[1]
    t = tf.shape(ids)[1]
    ids = tf.repeat(ids[:, tf.newaxis], k, 1)  # [n, k, t]
    read = tf.concat([state.next[:, :, tf.newaxis], ids], 2)
    return NestedMap({**state, 'position': t, 'next': read[:, :, -1], 'ids': ids,
                      'best_ids': tf.fill([n, t], end_id)})


def grown_shape(past: tf.Tensor) -> tf.TensorShape:
    """Returns the shape of a past, [n, k, ..., t, channels], with unknown n and t."""
    rank = past.shape.rank
    return tf.TensorShape([None if i in (0, rank - 2) and i != 1 else n
                           for i, n in enumerate(past.shape)])
