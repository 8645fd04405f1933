"""FeedForward: two products with an activation between, applied to every position.

Shapes: D model, F hidden units.
"""
from __future__ import annotations

import tensorflow as tf

from lingpipe.hyperparams import REQUIRED, field
from lingpipe.layers.context import Context
from lingpipe.layers.cost import Cost
from lingpipe.layers.dense import activation_flops, activation_fn
from lingpipe.layers.dropout import drop, drop_flops
from lingpipe.layers.low_rank import Adaptable
from lingpipe.layers.nested import NestedMap
from lingpipe.layers.projection import projection_flops
from lingpipe.layers.shapes import check_last_dim, dims, num_rows
from lingpipe.layers.shards import Shardable, glorot_uniform
from lingpipe.layers.static_shapes import as_spec, num_elements


class FeedForward(Shardable, Adaptable):
    """activation(x @ w1 + b1) @ w2 + b2, with dropout between; x [..., D] -> [..., D].

    A shard has some of the hidden units, the first one also b2. It adds what they give to `partial`
    [..., D].
    """

    is_traced_once = True
    is_positionwise = True
    projections = ('w1', 'w2')

    class Params(Shardable.Params, Adaptable.Params):
        """Sizes, activation, dropout and initialisation."""
        input_dim: int = field(REQUIRED, 'D, the channels of the input and of the output.', least=1)
        hidden_dim: int = field(REQUIRED, 'F, the hidden units.', least=1)
        activation: str = field('relu', "Name in keras.activations, or 'gelu_tanh'.")
        dropout_rate: float = field(0., 'Probability that a hidden unit becomes zero in training.',
                                    least=0, below=1)
        init_scale: float = field(1., 'Factor on the variance of the first values of w1 and w2.',
                                  least=0)

        def check(self) -> None:
            """Raises ValueError for an activation that Keras does not know."""
            super().check()
            activation_fn(self.activation)

    params: Params

    def __init__(self, params: Params, path: str = ''):
        super().__init__(params, path)
        p = self.params
        self.hidden_dim = len(self.part(p.hidden_dim, 'hidden_dim'))
        glorot = glorot_uniform(p.input_dim, p.hidden_dim, p.init_scale)
        self.add_weight('w1', [p.input_dim, self.hidden_dim], glorot)
        self.add_weight('b1', [self.hidden_dim], 'zeros')
        self.add_weight('w2', [self.hidden_dim, p.input_dim], glorot)
        if p.shard == 0:
            self.add_weight('b2', [p.input_dim], 'zeros')

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor,
              partial: tf.Tensor | None = None) -> tf.Tensor:
        """[..., D] -> [..., D] in the dtype of x.

        Raises:
          ValueError: the last dimension of x is not D, or a shard lacks `partial`.
        """
        p = self.params
        check_last_dim(x, p.input_dim, self.path)
        self.check_partial(partial)
        y = activation_fn(p.activation)(self.project(theta, ctx, x, 'w1', 'b1'))  # [rows, F]
        if ctx.training:
            y = drop(y, p.dropout_rate, ctx.seed(self.path))
        y = tf.reshape(self.project(theta, ctx, y, 'w2', 'b2'), dims(x))
        return y if partial is None else partial + y

    def cost(self, x: tf.TensorSpec, partial: tf.TensorSpec | None = None) -> Cost:
        """Two products of 2 D F a row, biases, adapters, activation and dropout."""
        p = self.params
        check_last_dim(x, p.input_dim, self.path)
        self.check_partial(partial)
        rows = num_rows(x, self.path)
        hidden = tf.TensorSpec([rows, self.hidden_dim], x.dtype)
        flops = 2. * projection_flops(rows, p.input_dim, self.hidden_dim, has_bias=False)
        flops = flops + num_elements(hidden) + num_elements(x)
        flops += self.adapter_flops(rows, x.dtype)
        flops += activation_flops(p.activation, hidden) + drop_flops(hidden, p.dropout_rate)
        return Cost(flops, self.num_weights, as_spec(x))
