"""A Transformer layer whose feed-forward part is several layers, between which it can be cut.

    attention    x                     -> x             the layer without its feed-forward part
    ffn_norm     x                     -> normalised
    ffn_0        normalised            -> ffn           hidden units 0 .. F/n - 1, and b2
    ffn_1 ...    normalised, ffn       -> ffn           the next F/n
    ffn_sum      x, ffn                -> x

The result is that of the plain layer, up to rounding, with other random numbers in dropout.
"""
from __future__ import annotations

import tensorflow as tf

from lingpipe.hyperparams import field
from lingpipe.layers.attention import MultiHeadAttention
from lingpipe.layers.base import Layer
from lingpipe.layers.context import Context
from lingpipe.layers.cost import Cost
from lingpipe.layers.dropout import drop, drop_flops
from lingpipe.layers.feed_forward import FeedForward
from lingpipe.layers.layer_norm import LayerNorm
from lingpipe.layers.nested import NestedMap
from lingpipe.layers.sequential import Sequential
from lingpipe.layers.shards import split
from lingpipe.layers.static_shapes import as_spec, num_elements, static_shape
from lingpipe.layers.transformer import TransformerDecoderLayer, TransformerEncoderLayer


class Residual(Layer):
    """x + dropout(branch), both [b, ..., D]."""

    is_traced_once = True
    is_positionwise = True

    class Params(Layer.Params):
        """Dropout."""
        dropout_rate: float = field(0., 'Dropout rate of the branch, in training.',
                                    least=0, below=1)

    params: Params

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor, branch: tf.Tensor) -> tf.Tensor:
        """x, branch [b, ..., D] -> [b, ..., D]. Raises ValueError if their shapes differ."""
        self._check(x, branch)
        if ctx.training:
            branch = drop(branch, self.params.dropout_rate, ctx.seed(self.path))
        return x + branch

    def cost(self, x: tf.TensorSpec, branch: tf.TensorSpec) -> Cost:
        """1 operation an element, and those of dropout."""
        static_shape(x, self.path, 'x')
        self._check(x, branch)
        return Cost(num_elements(x) + drop_flops(x, self.params.dropout_rate), 0, as_spec(x))

    def _check(self, x: tf.Tensor | tf.TensorSpec, branch: tf.Tensor | tf.TensorSpec) -> None:
        """Raises ValueError unless both have one shape."""
        if not x.shape.is_compatible_with(branch.shape):
            raise ValueError(f'{self.path}: branch is {branch.shape}, but x is {x.shape}, so they '
                             'cannot be added; make them alike.')


def split_feed_forward(layer: TransformerEncoderLayer.Params | TransformerDecoderLayer.Params,
                       num_shards: int) -> Layer.Params:
    """Returns the layers of the table above, as one Sequential; if there is one shard, `layer`.

    Args:
      layer: Params of a layer that reads and writes x.
      num_shards: how many layers the feed-forward part becomes.
    """
    if num_shards == 1:
        return layer
    attention = layer.copy().set(
        name='attention', hidden_dim=0,
        adapters=layer.adapters and layer.adapters.of(MultiHeadAttention.projections))
    norm = LayerNorm.Params(name='ffn_norm', dim=layer.model_dim, epsilon=layer.norm_epsilon,
                            writes='normalised')
    ffn = FeedForward.Params(
        name='ffn', input_dim=layer.model_dim, hidden_dim=layer.hidden_dim,
        activation=layer.activation, dropout_rate=layer.hidden_dropout_rate,
        init_scale=layer.ffn_init_scale,
        adapters=layer.adapters and layer.adapters.of(FeedForward.projections),
        reads={'x': 'normalised'}, writes='ffn')
    residual = Residual.Params(name='ffn_sum', dropout_rate=layer.dropout_rate,
                               reads={'branch': 'ffn'})
    return Sequential.Params(name=layer.name,
                             layers=(attention, norm, *split(ffn, num_shards), residual))
