"""The bytes reported between two cells add up to the bytes reported for a step."""
from __future__ import annotations

import itertools

import pytest
import tensorflow as tf

from lingpipe.pipeline.execution.traffic import backward_traffic, forward_traffic
from lingpipe.pipeline.planning.cell import bytes_between
from lingpipe.training import registry


@pytest.mark.parametrize('wire_dtype', [None, tf.bfloat16])
def test_bytes_between_cells_add_up(wire_dtype):
    """AmoebaNet's blocks read the two before them, so values skip cells.

    Each value is sent once to every reader, and its gradient is sent back.
    """
    params = registry.get('image.digits.AmoebaNet')
    params.pipeline.num_cells = 4
    plan = params.instantiate().make_plan()
    m = plan.params.num_micro_batches
    assert any(reader > maker + 1 for maker, reader in plan.edges)
    pairs = itertools.permutations(range(4), 2)
    values = forward_traffic(plan.cells, m, plan.cells[0].device, wire_dtype).values
    gradients = backward_traffic(plan.cells, m, wire_dtype).gradients
    assert (sum(bytes_between(plan.cells, a, b, wire_dtype) for a, b in pairs) * m
            == values + gradients)
    assert values >= gradients > 0


def test_bytes_between_are_those_of_what_is_read():
    params = registry.get('translation.table1.Transformer24')
    params.train_input.batch_size = params.pipeline.num_micro_batches = 1
    plan = params.instantiate().make_plan()
    activation = 1024 * 2048 * 4  # [b, T, D] float32
    assert ([bytes_between(plan.cells, *pair) for pair in ((0, 1), (1, 0), (2, 3), (0, 2), (5, 2))]
            == [activation] * 3 + [0, 0])
