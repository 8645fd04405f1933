"""Transformer layers with the normalisation first: x + f(LayerNorm(x)), as all very deep ones have it (arXiv 2002.04745).

Shapes: b micro-batch, T time, S time of the memory, D model, F hidden units.

    encoder   x += attention(norm(x)); x += ffn(norm(x))
    decoder   x += causal attention(norm(x)); x += attention(norm(x), memory); x += ffn(norm(x))

A stack of them ends with a LayerNorm. In a network the memory and the masks are values by name, read by every layer:

    TransformerDecoderLayer.Params(..., reads={'memory': 'encoded', 'memory_mask': 'source_mask'})
"""
from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from lingpipe.cost import Cost
from lingpipe.hyperparams import REQUIRED, field
from lingpipe.layer import Layer
from lingpipe.layers.attention import MultiHeadAttention
from lingpipe.layers.dense import activation_cost, activation_fn, project, projection_flops
from lingpipe.layers.dropout import check_rate, drop, drop_bytes, drop_flops
from lingpipe.layers.layer_norm import LayerNorm
from lingpipe.layers.shapes import check_last_dim, dims, num_rows
from lingpipe.nested import NestedMap
from lingpipe.tracing import as_spec, num_bytes, num_elements, static_shape


class FeedForward(Layer):
    """activation(x @ w1 + b1) @ w2 + b2, with dropout between; x [..., D] -> [..., D]."""

    class Params(Layer.Params):
        input_dim: int = field(REQUIRED, 'D, the channels of the input and of the output.')
        hidden_dim: int = field(REQUIRED, 'F, the hidden units.')
        activation: str = field('relu', 'Name in keras.activations.')
        dropout_rate: float = field(0., 'Probability that a hidden unit becomes zero in training.')
        init_scale: float = field(1., 'Factor on the variance of the first values of w1 and w2.')

        def check(self) -> None:
            activation_fn(self.activation)
            check_rate('dropout_rate', self.dropout_rate)

    def __init__(self, params: Any, path: str = ''):
        super().__init__(params, path)
        p = self.params
        glorot = keras.initializers.VarianceScaling(p.init_scale, 'fan_avg', 'uniform')
        self.add_weight('w1', [p.input_dim, p.hidden_dim], glorot)
        self.add_weight('b1', [p.hidden_dim], 'zeros')
        self.add_weight('w2', [p.hidden_dim, p.input_dim], glorot)
        self.add_weight('b2', [p.input_dim], 'zeros')

    def fprop(self, theta: NestedMap, ctx: Any, x: tf.Tensor) -> tf.Tensor:
        p = self.params
        check_last_dim(x, p.input_dim, self.path)
        y = activation_fn(p.activation)(project(x, theta.w1, theta.b1))  # [rows, F]
        if ctx.training:
            y = drop(y, p.dropout_rate, ctx.seed(self.path))
        return tf.reshape(project(y, theta.w2, theta.b2), dims(x))

    def cost(self, x: tf.TensorSpec) -> Cost:
        p = self.params
        check_last_dim(x, p.input_dim, self.path)
        hidden = tf.TensorSpec([num_rows(x, self.path), p.hidden_dim], x.dtype)
        flops, kept = activation_cost(p.activation, hidden)
        flops += 2. * (projection_flops(hidden.shape[0], p.input_dim, p.hidden_dim, False)) + num_elements(hidden) + num_elements(x)
        # What the second product reads is kept, unless it is what the activation keeps.
        has_copy = bool(p.dropout_rate) or p.activation not in ('relu', 'relu6', 'tanh', 'sigmoid')
        kept += drop_bytes(hidden, p.dropout_rate) + num_bytes(hidden) * has_copy
        return Cost(flops + drop_flops(hidden, p.dropout_rate), self.num_weights, kept, as_spec(x))


class _TransformerLayer(Layer):
    """What encoder and decoder layers share."""

    class Params(Layer.Params):
        model_dim: int = field(REQUIRED, 'D, the channels of the input and of the output.')
        num_heads: int = field(REQUIRED, 'Attention heads.')
        head_dim: int = field(0, 'Channels of a head; 0: model_dim / num_heads.')
        hidden_dim: int = field(REQUIRED, 'F, the hidden units of the feed-forward part.')
        activation: str = field('relu', 'Name in keras.activations.')
        dropout_rate: float = field(0., 'Of what every part adds to x, in training.')
        attention_dropout_rate: float = field(0., 'Of the weights of the attention.')
        hidden_dropout_rate: float = field(0., 'Of the hidden units.')
        ffn_init_scale: float = field(1., 'Factor on the variance of the first values of the feed-forward weights.')
        norm_epsilon: float = field(1e-5, 'Added to the variance by LayerNorm.')

        def check(self) -> None:
            check_rate('dropout_rate', self.dropout_rate)

    def _add_attention(self, name: str, **values: Any) -> None:
        p = self.params
        self.add_child(LayerNorm.Params(dim=p.model_dim, epsilon=p.norm_epsilon), f'{name}_norm')
        self.add_child(MultiHeadAttention.Params(input_dim=p.model_dim, num_heads=p.num_heads, head_dim=p.head_dim,
                                                 dropout_rate=p.attention_dropout_rate, **values), name)

    def _add_ffn(self) -> None:
        p = self.params
        self.add_child(LayerNorm.Params(dim=p.model_dim, epsilon=p.norm_epsilon), 'ffn_norm')
        self.add_child(FeedForward.Params(input_dim=p.model_dim, hidden_dim=p.hidden_dim, activation=p.activation,
                                          dropout_rate=p.hidden_dropout_rate, init_scale=p.ffn_init_scale), 'ffn')

    def _plus(self, name: str, theta: NestedMap, ctx: Any, x: tf.Tensor, **others: Any) -> tf.Tensor:
        """x + dropout(part `name` of the normalised x)."""
        h = self.children[f'{name}_norm'].fprop(theta[f'{name}_norm'], ctx, x)
        y = self.children[name].fprop(theta[name], ctx, h, **others)
        if ctx.training:
            y = drop(y, self.params.dropout_rate, ctx.seed(self.path, name))
        return x + y

    def _plus_cost(self, name: str, x: tf.TensorSpec, **others: Any) -> Cost:
        parts = self.children[f'{name}_norm'].cost(x) + self.children[name].cost(x, **others)
        rate = self.params.dropout_rate
        has_own_copy = others.get('mask') is not None and 'memory' not in others  # self-attention keeps the masked h instead of h
        kept = num_bytes(x) * (not has_own_copy) + drop_bytes(x, rate)
        return parts + Cost(num_elements(x) + drop_flops(x, rate), 0, kept, as_spec(x))


class TransformerEncoderLayer(_TransformerLayer):
    """Self-attention and a feed-forward part; x [b, T, D], mask [b, T] with 0 for padding -> [b, T, D]."""

    def __init__(self, params: Any, path: str = ''):
        super().__init__(params, path)
        self._add_attention('attention')
        self._add_ffn()

    def fprop(self, theta: NestedMap, ctx: Any, x: tf.Tensor, mask: tf.Tensor | None = None) -> tf.Tensor:
        x = self._plus('attention', theta, ctx, x, mask=mask)
        return self._plus('ffn', theta, ctx, x)

    def cost(self, x: tf.TensorSpec, mask: tf.TensorSpec | None = None) -> Cost:
        static_shape(x, self.path, 'x')
        return self._plus_cost('attention', x, mask=mask) + self._plus_cost('ffn', x)


class TransformerDecoderLayer(_TransformerLayer):
    """Causal self-attention, attention to a memory where one is read, and a feed-forward part.

    x [b, T, D], mask [b, T], memory [b, S, D_memory], memory_mask [b, S], the masks with 0 for padding -> [b, T, D]. A language
    model has no memory: memory_dim=0.
    """

    class Params(_TransformerLayer.Params):
        memory_dim: int = field(0, 'Channels of the memory; 0: there is none.')

    def __init__(self, params: Any, path: str = ''):
        super().__init__(params, path)
        self._add_attention('attention', is_causal=True)
        if self.params.memory_dim:
            self._add_attention('cross', memory_dim=self.params.memory_dim)
        self._add_ffn()

    def fprop(self, theta: NestedMap, ctx: Any, x: tf.Tensor, memory: tf.Tensor | None = None, mask: tf.Tensor | None = None,
              memory_mask: tf.Tensor | None = None) -> tf.Tensor:
        self._check_memory(memory)
        x = self._plus('attention', theta, ctx, x, mask=mask)
        if memory is not None:
            x = self._plus('cross', theta, ctx, x, memory=memory, mask=memory_mask)
        return self._plus('ffn', theta, ctx, x)

    def cost(self, x: tf.TensorSpec, memory: tf.TensorSpec | None = None, mask: tf.TensorSpec | None = None,
             memory_mask: tf.TensorSpec | None = None) -> Cost:
        self._check_memory(memory)
        static_shape(x, self.path, 'x')
        cost = self._plus_cost('attention', x, mask=mask)
        if memory is not None:
            cost += self._plus_cost('cross', x, memory=memory, mask=memory_mask)
        return cost + self._plus_cost('ffn', x)

    def _check_memory(self, memory: Any) -> None:
        if (memory is not None) != bool(self.params.memory_dim):
            raise ValueError(f'{self.path}: memory_dim={self.params.memory_dim}, but {"no" if memory is None else "a"} memory is '
                             "read; set memory_dim and reads={'memory': name of a value}, or neither.")
