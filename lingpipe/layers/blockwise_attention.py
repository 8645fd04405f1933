"""Causal attention in blocks, with memory linear in the length, forward and backward.

The obvious way computes all scores [T, T] and keeps their softmax for the backward pass. Here a
loop takes one block of queries and one block of keys at a time. An online softmax (Milakov and
Gimelshein, 2018, arXiv:1805.02867) carries the largest score and the sum of exponentials of each
query from block to block, so that no score is kept (Rabe and Staats, 2021, arXiv:2112.05682). The
backward pass computes the scores of a block again from the logarithm of that sum (Dao et al., 2022,
FlashAttention, arXiv:2205.14135). Blocks that no query can see are left out:

                 keys 0  1  2  3
    queries 0         1                     the order of the turns, forward; a query sees itself
            1         3  2                  in its first turn, so its largest score is never -inf
            2         6  5  4
            3        10  9  8  7

With a window, a query sees only the positions that are less than `window` before it, and itself.
Blocks that lie wholly before the windows of all queries of a block are left out, too, so that the
work grows with the length, not with its square. With a window of B positions:

                 keys 0  1  2  3
    queries 0         1
            1         3  2
            2            5  4
            3               7  6

The loop is one op, a tf.while_loop with a bound, so that the graph is as large for 100,000
positions as for 1,000, and blocks follow each other. Unrolled blocks would run at once on several
threads, and all their scores would exist together.

Shapes: b micro-batch, T time, G groups (heads of keys and values), r query heads of a group, h
channels of a head, n blocks, B positions of a block.
"""
from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from lingpipe.layers.nested import Nested
from lingpipe.process.graph_lifetime import custom_gradient


def causal_attention(q: tf.Tensor, k: tf.Tensor, v: tf.Tensor, documents: tf.Tensor | None,
                     block_size: int, window: int = 0) -> tf.Tensor:
    """softmax(q k^T) v, where a position sees itself and earlier positions of its document.

    Args:
      q: [b, T, G, r, h], scaled as the scores shall be. T must be known.
      k, v: [b, T, G, h].
      documents: [b, T] int32, the document that each position belongs to; None: all are one.
      block_size: B.
      window: how many positions a position sees at most, itself among them; 0: all of these.

    Returns:
      [b, T, G r h] in the dtype of q.
    """
    @custom_gradient
    def attended(q: tf.Tensor, k: tf.Tensor, v: tf.Tensor) -> tuple[
            tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor, tf.Tensor]]]:
        """Returns the attention [b, T, G r h], and what computes its gradients."""
        blocks = _Blocks.of(q, documents, block_size, window)
        q_blocks, k_blocks, v_blocks = blocks.queries(q), blocks.keys(k), blocks.keys(v)
        out_blocks, log_sums = _forward(blocks, q_blocks, k_blocks, v_blocks)
        out = blocks.joined_queries(tf.cast(out_blocks, q.dtype))  # [b, T, G, r, h]
        flat = tf.reshape(out, [*blocks.shape[:2], math.prod(blocks.shape[2:])])

        def gradient(d_flat: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            """Returns the gradients of q, k and v, from that of the attention."""
            d_out = tf.reshape(d_flat, blocks.shape)
            delta = tf.reduce_sum(tf.cast(d_out, tf.float32) * tf.cast(out, tf.float32), -1,
                                  keepdims=True)  # [b, T, G, r, 1]
            dq, dk, dv = _backward(blocks, q_blocks, k_blocks, v_blocks, log_sums,
                                   blocks.queries(d_out), blocks.queries(delta)[..., 0])
            return (tf.cast(blocks.joined_queries(dq), q.dtype),
                    tf.cast(blocks.joined_keys(dk), k.dtype),
                    tf.cast(blocks.joined_keys(dv), v.dtype))

        return flat, gradient

    return attended(q, k, v)


def attention_flops(b: int, t: int, num_heads: int, head_dim: int, block_size: int,
                    window: int = 0) -> float:
    """FLOPs of `causal_attention` forward."""
    block = min(t, block_size)
    num_blocks = -(-t // block)
    rows = b * num_heads * block
    # A score: the product with k, select, max, subtract, exp, sum, the product with v. A row: what
    # the online softmax carries. A channel of a row: scale what was before, add.
    per_turn = rows * (block * (4. * head_dim + 5) + 6 + 2 * head_dim)
    reach = _reach(num_blocks, block, window)
    num_turns = sum(min(i, reach) + 1 for i in range(num_blocks))
    return num_turns * per_turn + num_blocks * rows * (head_dim + 2.)


def _reach(num_blocks: int, block: int, window: int) -> int:
    """How many blocks before its own the queries of a block see at most."""
    # The first query of a block sees window - 1 positions before the block.
    return min(num_blocks - 1, (window - 1 + block - 1) // block) if window else num_blocks - 1


@dataclasses.dataclass(frozen=True)
class _Blocks:
    """How T positions are cut into n blocks of B, the last one filled up."""
    shape: tuple[int, ...]   # [b, T, G, r, h], where b is -1 if it is not known
    size: int
    num: int
    documents: tf.Tensor | None   # [n, b, B]
    window: int   # 0: a query sees all earlier positions
    reach: int   # of how many blocks before its own a block of queries sees something, at most

    @classmethod
    def of(cls, q: tf.Tensor, documents: tf.Tensor | None, block_size: int,
           window: int) -> _Blocks:
        """The blocks of queries [b, T, G, r, h] and documents [b, T]."""
        t = int(q.shape[1])
        size = min(t, block_size)
        num = -(-t // size)
        if documents is not None:
            padded = tf.pad(documents, [[0, 0], [0, num * size - t]])
            documents = tf.transpose(tf.reshape(padded, [-1, num, size]), [1, 0, 2])
        return cls((-1 if q.shape[0] is None else q.shape[0], *q.shape[1:]), size, num, documents,
                   window if window < t else 0, _reach(num, size, window))

    def queries(self, x: tf.Tensor) -> tf.Tensor:
        """[b, T, G, r, c] -> [n, b, G, r B, c]."""
        b, _, groups, heads, _ = self.shape
        c = x.shape[-1]
        x = tf.reshape(self._padded(x), [b, self.num, self.size, groups, heads, c])
        return tf.reshape(tf.transpose(x, [1, 0, 3, 4, 2, 5]),
                          [self.num, b, groups, heads * self.size, c])

    def keys(self, x: tf.Tensor) -> tf.Tensor:
        """[b, T, G, h] -> [n, b, G, B, h]."""
        b, _, groups, _, h = self.shape
        x = tf.reshape(self._padded(x), [b, self.num, self.size, groups, h])
        return tf.transpose(x, [1, 0, 3, 2, 4])

    def joined_queries(self, x: tf.Tensor) -> tf.Tensor:
        """[n, b, G, r B, h] -> [b, T, G, r, h]."""
        b, t, groups, heads, h = self.shape
        x = tf.reshape(x, [self.num, b, groups, heads, self.size, h])
        x = tf.transpose(x, [1, 0, 4, 2, 3, 5])
        return tf.reshape(x, [b, self.num * self.size, groups, heads, h])[:, :t]

    def joined_keys(self, x: tf.Tensor) -> tf.Tensor:
        """[n, b, G, B, h] -> [b, T, G, h]."""
        b, t, groups, _, h = self.shape
        x = tf.transpose(x, [1, 0, 3, 2, 4])
        return tf.reshape(x, [b, self.num * self.size, groups, h])[:, :t]

    def masked(self, scores: tf.Tensor, i: tf.Tensor, j: tf.Tensor) -> tf.Tensor:
        """The scores [b, G, r B, B] of queries i and keys j, -inf where a key is not seen."""
        b, _, groups, heads, _ = self.shape
        places = tf.range(self.size)
        query_places = (i * self.size + places)[:, tf.newaxis]
        key_places = j * self.size + places
        is_seen = query_places >= key_places  # [B, B]
        if self.window:
            is_seen &= query_places - key_places < self.window
        if self.documents is not None:
            ours, theirs = self.documents[i], self.documents[j]  # [b, B]
            is_same = ours[:, :, tf.newaxis] == theirs[:, tf.newaxis, :]
            is_seen = (is_seen & is_same)[:, tf.newaxis, tf.newaxis]  # [b, 1, 1, B, B]
        by_head = tf.reshape(scores, [b, groups, heads, self.size, self.size])
        return tf.reshape(tf.where(is_seen, by_head, -math.inf),
                          [b, groups, heads * self.size, self.size])

    def _padded(self, x: tf.Tensor) -> tf.Tensor:
        missing = self.num * self.size - self.shape[1]
        return tf.pad(x, [[0, 0], [0, missing]] + [[0, 0]] * (x.shape.rank - 2)) if missing else x


def _forward(blocks: _Blocks, q: tf.Tensor, k: tf.Tensor, v: tf.Tensor) -> tuple[
        tf.Tensor, tf.Tensor]:
    """The result [n, b, G, r B, h] and the logarithm of the sum of each query [n, b, G, r B]."""
    of_rows = tf.zeros_like(q[0, ..., 0], tf.float32)
    carried = tf.zeros_like(q[0], tf.float32), of_rows, of_rows
    arrays = tuple(_array(blocks.num, value) for value in carried)

    def turn(i: tf.Tensor, j: tf.Tensor, carried: Nested, arrays: Nested) -> tuple[Nested, Nested]:
        """Adds what the keys of block j give to the queries of block i."""
        out, largest, sum_ = carried
        scores = tf.cast(tf.matmul(q[i], k[j], transpose_b=True), tf.float32)  # [b, G, r B, B]
        scores = blocks.masked(scores, i, j)
        # A query begins with its own block. exp(-inf) is 0 and wipes out the block before.
        before = tf.where(i == j, -math.inf, largest)
        largest = tf.maximum(before, tf.reduce_max(scores, -1))
        weights = tf.exp(scores - largest[..., tf.newaxis])
        scale = tf.exp(before - largest)
        sum_ = sum_ * scale + tf.reduce_sum(weights, -1)
        new = tf.cast(tf.matmul(tf.cast(weights, v.dtype), v[j]), tf.float32)
        carried = (out * scale[..., tf.newaxis] + new, largest, sum_)
        return carried, tuple(array.write(i, value)
                              for array, value in zip(arrays, carried, strict=True))

    order = [(i, j) for i in range(blocks.num)
             for j in range(i, max(i - blocks.reach, 0) - 1, -1)]
    _, arrays = _loop(order, turn, carried, arrays)
    out, largest, sum_ = (array.stack() for array in arrays)
    return out / sum_[..., tf.newaxis], largest + tf.math.log(sum_)


def _backward(blocks: _Blocks, q: tf.Tensor, k: tf.Tensor, v: tf.Tensor, log_sums: tf.Tensor,
              d_out: tf.Tensor, delta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The gradients of q, k and v in blocks, float32.

    delta [n, b, G, r B] is the sum of d_out * out over the channels, which is that of the gradient
    of a softmax times the softmax.
    """
    carried = tf.zeros_like(k[0], tf.float32), tf.zeros_like(v[0], tf.float32)
    arrays = (_array(blocks.num, q[0]).unstack(tf.zeros_like(q, tf.float32)),
              *(_array(blocks.num, value) for value in carried))

    def turn(i: tf.Tensor, j: tf.Tensor, carried: Nested, arrays: Nested) -> tuple[Nested, Nested]:
        """Computes the scores of blocks i and j again, and adds what they give to gradients."""
        scores = tf.cast(tf.matmul(q[i], k[j], transpose_b=True), tf.float32)
        weights = tf.exp(blocks.masked(scores, i, j) - log_sums[i][..., tf.newaxis])
        d_weights = tf.cast(tf.matmul(d_out[i], v[j], transpose_b=True), tf.float32)
        d_scores = tf.cast(weights * (d_weights - delta[i][..., tf.newaxis]), q.dtype)

        # The keys of a block begin with the queries of their own block.
        dk, dv = (tf.where(i == j, 0., value) for value in carried)
        dk += tf.cast(tf.matmul(d_scores, q[i], transpose_a=True), tf.float32)
        dv += tf.cast(tf.matmul(tf.cast(weights, v.dtype), d_out[i], transpose_a=True), tf.float32)
        dq_array, dk_array, dv_array = arrays
        dq = dq_array.read(i) + tf.cast(tf.matmul(d_scores, k[j]), tf.float32)
        return (dk, dv), (dq_array.write(i, dq), dk_array.write(j, dk), dv_array.write(j, dv))

    order = [(i, j) for j in range(blocks.num)
             for i in range(j, min(j + blocks.reach + 1, blocks.num))]
    _, arrays = _loop(order, turn, carried, arrays)
    dq, dk, dv = (array.stack() for array in arrays)
    return dq, dk, dv


def _array(size: int, like: tf.Tensor) -> tf.TensorArray:
    """An array of `size` float32 tensors of the shape of `like`."""
    return tf.TensorArray(tf.float32, size, clear_after_read=False, element_shape=like.shape)


def _loop(order: list[tuple[int, int]], turn: Callable[..., tuple[Nested, Nested]], carried: Nested,
          arrays: Nested) -> tuple[Nested, Nested]:
    """Calls `turn` with the blocks (i, j) of `order`, one after the other."""
    if len(order) == 1:
        return turn(*map(tf.constant, order[0]), carried, arrays)
    places = tf.constant(np.array(order, np.int32))

    def body(number: tf.Tensor, carried: Nested,
             arrays: Nested) -> tuple[tf.Tensor, Nested, Nested]:
        return number + 1, *turn(places[number, 0], places[number, 1], carried, arrays)

    _, carried, arrays = tf.while_loop(
        lambda number, carried, arrays: number < len(order), body,
        (tf.constant(0), carried, arrays), parallel_iterations=1,
        maximum_iterations=len(order))
    return carried, arrays
