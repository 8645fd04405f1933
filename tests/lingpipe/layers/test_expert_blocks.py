"""Products of blocks of experts, forward and backward, against a loop over rows."""
from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.layers.expert_blocks import ExpertBlocks, block_shape

N, D, U, E = 90, 3, 4, 4
RNG = np.random.default_rng(0)
EXPERTS = RNG.choice(E, N, p=[0.6, 0., 0.1, 0.3]).astype(np.int32)   # Nothing is for expert 1.
ROWS, MATRICES, DY = (RNG.normal(size=shape).astype(np.float32)
                      for shape in ([N, D], [E, D, U], [N, U]))


@pytest.mark.parametrize('num_rows', [N, None])
def test_each_row_is_multiplied_with_the_matrix_of_its_expert(num_rows: int | None) -> None:
    """Also where the number of rows is not known before they come."""
    signature = [tf.TensorSpec([num_rows], tf.int32), tf.TensorSpec([num_rows, D]),
                 tf.TensorSpec([E, D, U]), tf.TensorSpec([num_rows, U])]

    @tf.function(input_signature=signature, autograph=False)
    def computed(experts: tf.Tensor, rows: tf.Tensor, matrices: tf.Tensor,
                 dy: tf.Tensor) -> list[tf.Tensor]:
        blocks = ExpertBlocks.of(experts, E)
        with tf.GradientTape() as tape:
            tape.watch([rows, matrices])
            y = blocks.emptied(blocks.product(blocks.filled(rows), matrices))
        return [y, *tape.gradient(y, [rows, matrices], dy)]

    d_matrices = np.zeros_like(MATRICES)
    for expert, row, d_row in zip(EXPERTS, ROWS, DY, strict=True):
        d_matrices[expert] += np.outer(row, d_row)
    own = MATRICES[EXPERTS]   # [N, D, U]
    expected = [np.einsum('nd,ndu->nu', ROWS, own), np.einsum('nu,ndu->nd', DY, own), d_matrices]
    for found, value in zip(computed(EXPERTS, ROWS, MATRICES, DY), expected, strict=True):
        np.testing.assert_allclose(found, value, atol=1e-5)


def test_there_are_blocks_enough_for_any_choice_and_few_more() -> None:
    for num_rows, num_experts in (1, 4), (90, 4), (4096, 8), (32768, 128), (100, 128):
        num, size = block_shape(num_rows, num_experts)
        used = min(num_experts, num_rows)
        one_too_many = -(-(num_rows - (used - 1)) // size) + used - 1   # the others have one row
        assert one_too_many <= num
    assert block_shape(4096, 8) == (39, 128)   # 22 % more rows than there are
