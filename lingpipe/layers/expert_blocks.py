"""Expert blocks: rows sorted by their experts, in blocks of one shape, and products block by block.

The obvious way to leave no row out gives every expert room for all rows. Of E experts of which a
row uses k, that computes and keeps E / k times what is needed. Here the rows of an expert fill
blocks of S rows each, whose last one is filled up with zeros:

    S = 2, rows of the experts 0 0 0 2 2  ->  |0 0|0 .|2 2|. .|

N rows need (N + E (S - 1)) // S blocks or fewer, so that all shapes are known before it is known
which rows an expert gets, and XLA can compile them. A loop multiplies one block after the other
with the matrix of its expert, which is not copied, and ends behind the last block that is used.
(Products of all blocks at once would copy a matrix for each block; slices of all rows of an expert
have no shape that is known.) The gradients are such loops, too: that of the rows, and that of the
matrices, so that one can be computed without the other.

Shapes: N rows, D and U channels, E experts, B blocks, S rows of a block.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from lingpipe.layers.shapes import dims
from lingpipe.process.graph_lifetime import custom_gradient

_LEAST, _MOST = 16, 256   # S
_LEAST_IF_UNKNOWN = 8   # where N is not known, as in decoding, which has few rows


def block_shape(num_rows: int, num_experts: int) -> tuple[int, int]:
    """B and S for so many rows. There are about four full blocks or more for each expert."""
    size = min(max(-(-num_rows // (4 * num_experts)), _LEAST), _MOST)
    return min(num_rows, (num_rows + num_experts * (size - 1)) // size), size


@dataclasses.dataclass(frozen=True, eq=False)
class ExpertBlocks:
    """Where each of N rows is in blocks of rows of one expert each.

    Attributes:
      num, size: B and S, tensors if N is not known.
      num_used: the blocks that have rows come first; this is their number.
      experts: the expert of each block, int32 [B].
      places: the place of each row among those of all blocks, int32 [N].
    """
    num: int | tf.Tensor
    size: int | tf.Tensor
    num_used: tf.Tensor
    experts: tf.Tensor
    places: tf.Tensor

    @classmethod
    def of(cls, experts: tf.Tensor, num_experts: int) -> ExpertBlocks:
        """The blocks for rows of these experts, int32 [N], each below `num_experts`."""
        num_rows, = dims(experts)
        is_row_of = tf.one_hot(experts, num_experts, dtype=tf.int32)  # [N, E]
        place = tf.reduce_sum(tf.cumsum(is_row_of, 0, exclusive=True) * is_row_of, 1)
        size: int | tf.Tensor
        if isinstance(num_rows, int):
            num, size = block_shape(num_rows, num_experts)
        else:
            size = tf.clip_by_value(-(-num_rows // (4 * num_experts)), _LEAST_IF_UNKNOWN, _MOST)
        ends = tf.cumsum((tf.reduce_sum(is_row_of, 0) + size - 1) // size)  # of the experts' blocks
        if not isinstance(num_rows, int):
            num = ends[-1]
        starts = tf.concat([[0], ends[:-1]], 0)
        is_behind = tf.range(num)[:, tf.newaxis] >= ends[:-1]  # [B, E - 1]
        return cls(num, size, ends[-1], tf.reduce_sum(tf.cast(is_behind, tf.int32), 1),
                   tf.gather(starts, experts) * size + place)

    def filled(self, rows: tf.Tensor) -> tf.Tensor:
        """Puts rows [N, D] into their blocks, [B, S, D]; what is left over is 0."""
        dim = rows.shape[1]
        filled = tf.scatter_nd(self.places[:, tf.newaxis], rows, [self.num * self.size, dim])
        return tf.reshape(filled, [self.num, self.size, dim])

    def emptied(self, blocks: tf.Tensor) -> tf.Tensor:
        """Takes rows [N, D] out of their blocks, [B, S, D]."""
        return tf.gather(tf.reshape(blocks, [-1, blocks.shape[2]]), self.places)

    def product(self, blocks: tf.Tensor, matrices: tf.Tensor) -> tf.Tensor:
        """Each block times the matrix of its expert; what is left over becomes 0.

        Args:
          blocks: [B, S, D].
          matrices: [E, D, U], of the same dtype.

        Returns:
          [B, S, U] in this dtype.
        """
        @custom_gradient
        def multiplied(blocks: tf.Tensor, matrices: tf.Tensor) -> tuple[
                tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]]:
            """Returns the products, and what computes their gradients."""
            def gradient(dy: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                return (self._products(dy, matrices, is_transposed=True),
                        self._sums_of_products(blocks, dy, matrices.shape[0]))

            return self._products(blocks, matrices, is_transposed=False), gradient

        return multiplied(blocks, matrices)

    def _products(self, blocks: tf.Tensor, matrices: tf.Tensor, is_transposed: bool) -> tf.Tensor:
        """Each block [S, D] times the matrix [D, U] of its expert, or times that transposed."""
        units = matrices.shape[1 if is_transposed else 2]
        array = tf.TensorArray(blocks.dtype, self.num, element_shape=[blocks.shape[1], units])

        def turn(i: tf.Tensor, array: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
            return i + 1, array.write(i, tf.matmul(blocks[i], matrices[self.experts[i]],
                                                   transpose_b=is_transposed))

        _, array = tf.while_loop(lambda i, array: i < self.num_used, turn, (tf.constant(0), array),
                                 parallel_iterations=1, maximum_iterations=self.num)
        return array.stack()

    def _sums_of_products(self, blocks: tf.Tensor, dy: tf.Tensor, num_experts: int) -> tf.Tensor:
        """The sum over the blocks of each expert of block^T dy, [E, D, U]; added in float32."""
        shape = [blocks.shape[2], dy.shape[2]]
        array = tf.TensorArray(blocks.dtype, num_experts, element_shape=shape)

        def turn(i: tf.Tensor, sum_: tf.Tensor, array: tf.TensorArray
                 ) -> tuple[tf.Tensor, tf.Tensor, tf.TensorArray]:
            """Adds a block to those before it of the same expert, which stand side by side."""
            own = tf.cast(tf.matmul(blocks[i], dy[i], transpose_a=True), tf.float32)
            expert = self.experts[i]
            is_first = (i == 0) | (self.experts[tf.maximum(i - 1, 0)] != expert)
            sum_ = tf.cond(is_first, lambda: own, lambda: sum_ + own)
            return i + 1, sum_, array.write(expert, tf.cast(sum_, array.dtype))

        start = tf.constant(0), tf.zeros(shape), array
        _, _, array = tf.while_loop(lambda i, sum_, array: i < self.num_used, turn, start,
                                    parallel_iterations=1, maximum_iterations=self.num)
        return array.stack()   # 0 for an expert without a block
