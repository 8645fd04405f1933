"""SwiGLU: the formula, whole and in shards."""
from __future__ import annotations

import numpy as np
import tensorflow as tf

from lingpipe.layers import SwiGLU, split
from lingpipe.layers.context import Context
from lingpipe.layers.nested import NestedMap


def test_shards_add_up_to_the_paper_s_formula() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=[2, 3, 4]).astype(np.float32)
    w_gate, w_up, w_down = (rng.normal(size=shape).astype(np.float32)
                            for shape in ([4, 5], [4, 5], [5, 4]))
    gate = x @ w_gate
    expected = (gate / (1 + np.exp(-gate)) * (x @ w_up)) @ w_down

    params = SwiGLU.Params(name='ffn', input_dim=4, hidden_dim=5, writes='y')
    partial = {}
    for shard, units in zip(split(params, 2), (slice(0, 2), slice(2, 5)), strict=True):
        theta = NestedMap(w_gate=w_gate[:, units], w_up=w_up[:, units], w_down=w_down[units])
        y = shard.instantiate().fprop(theta, Context(), tf.constant(x), **partial)
        partial = {'partial': y}
    np.testing.assert_allclose(y, expected, atol=1e-5)
