"""Transformer layers with the normalisation first, x + f(LayerNorm(x)) (arXiv:2002.04745).

All very deep Transformers have it there.

Shapes: b micro-batch, T time, S time of the memory, D model, F hidden units.

    encoder   x += attention(norm(x))
              x += ffn(norm(x))
    decoder   x += causal attention(norm(x))
              x += attention(norm(x), memory)
              x += ffn(norm(x))

A stack of them ends with a LayerNorm. In a network, the memory and the masks are values with names,
read by every layer:

    TransformerDecoderLayer.Params(
        ..., reads={'memory': 'encoded', 'memory_mask': 'source_mask'})
"""
from __future__ import annotations

from typing import Any

import tensorflow as tf

from lingpipe.hyperparams import REQUIRED, field
from lingpipe.layers.attention import MultiHeadAttention
from lingpipe.layers.base import Layer
from lingpipe.layers.context import Context, DecodingContext
from lingpipe.layers.cost import Cost
from lingpipe.layers.dropout import drop, drop_flops
from lingpipe.layers.feed_forward import FeedForward
from lingpipe.layers.layer_norm import LayerNorm
from lingpipe.layers.low_rank import Adapters
from lingpipe.layers.nested import Nested, NestedMap
from lingpipe.layers.static_shapes import as_spec, num_elements, static_shape
from lingpipe.pricing import price


class _TransformerLayer(Layer):
    """What encoder and decoder layers share."""

    mask_rule = 'keeps'
    projections = (*MultiHeadAttention.projections, *FeedForward.projections)   # of all parts

    class Params(Layer.Params):
        """Sizes of the parts, their dropout and initialisation."""
        model_dim: int = field(REQUIRED, 'D, the channels of the input and of the output.', least=1)
        num_heads: int = field(REQUIRED, 'Attention heads.', least=1)
        head_dim: int = field(0, 'Channels of a head; 0: model_dim / num_heads.', least=0)
        hidden_dim: int = field(REQUIRED, 'F, the hidden units of the feed-forward part; 0: there '
                                          'is none (see feed_forward_shards.py).', least=0)
        activation: str = field('relu', "Name in keras.activations, or 'gelu_tanh'.")
        dropout_rate: float = field(0., 'Dropout rate of what every part adds to x, in training.',
                                    least=0, below=1)
        attention_dropout_rate: float = field(0., 'Dropout rate of the attention weights.',
                                              least=0, below=1)
        hidden_dropout_rate: float = field(0., 'Dropout rate of the hidden units.',
                                           least=0, below=1)
        ffn_init_scale: float = field(1., 'Factor on the variance of the first values of the '
                                          'feed-forward weights.', least=0)
        norm_epsilon: float = field(1e-5, 'Added to the variance by LayerNorm.', least=0)
        adapters: Adapters | None = field(
            None, 'Low-rank adapters of projections, each of which trains in place of the own '
                  'weights of its part; none: these train.')

        def check(self) -> None:
            """Raises ValueError for adapters of projections that no part has."""
            super().check()
            if self.adapters is not None:
                has_ffn = self.hidden_dim > 0
                self.adapters.check_targets(
                    _TransformerLayer.projections if has_ffn else MultiHeadAttention.projections,
                    f'Transformer layers with{"" if has_ffn else "out"} a feed-forward part')

    params: Params

    def _add_attention(self, name: str, **fields: Any) -> None:
        """Adds an attention with its normalisation; `fields` are further ones of its Params."""
        p = self.params
        self.add_child(LayerNorm.Params(dim=p.model_dim, epsilon=p.norm_epsilon), f'{name}_norm')
        attention = MultiHeadAttention.Params(
            input_dim=p.model_dim, num_heads=p.num_heads, head_dim=p.head_dim,
            dropout_rate=p.attention_dropout_rate, **fields,
            adapters=p.adapters and p.adapters.of(MultiHeadAttention.projections))
        self.add_child(attention, name)

    def _add_ffn(self) -> None:
        """Adds the feed-forward part with its normalisation, if there is one."""
        p = self.params
        if not p.hidden_dim:
            return
        self.add_child(LayerNorm.Params(dim=p.model_dim, epsilon=p.norm_epsilon), 'ffn_norm')
        ffn = FeedForward.Params(
            input_dim=p.model_dim, hidden_dim=p.hidden_dim, activation=p.activation,
            dropout_rate=p.hidden_dropout_rate, init_scale=p.ffn_init_scale,
            adapters=p.adapters and p.adapters.of(FeedForward.projections))
        self.add_child(ffn, 'ffn')

    def _plus(self, name: str, theta: NestedMap, ctx: Context, x: tf.Tensor,
              **others: Nested) -> tf.Tensor:
        """x + dropout(the part `name` of the normalised x), or x if there is no such part."""
        if name not in self.children:
            return x
        h = self.children[f'{name}_norm'].fprop(theta[f'{name}_norm'], ctx, x)
        y = self.children[name].fprop(theta[name], ctx, h, **others)
        if ctx.training:
            y = drop(y, self.params.dropout_rate, ctx.seed(self.path, name))
        return x + y

    def _plus_cost(self, name: str, x: tf.TensorSpec, **others: Nested) -> Cost:
        """The cost of `_plus`."""
        if name not in self.children:
            return Cost(0., 0, as_spec(x))
        norm = price(self.children[f'{name}_norm'], x)
        part = price(self.children[name], x, **others)
        flops_of_sum = num_elements(x) + drop_flops(x, self.params.dropout_rate)
        return norm + part + Cost(flops_of_sum, 0, as_spec(x))


class TransformerEncoderLayer(_TransformerLayer):
    """Self-attention and a feed-forward part; x [b, T, D] -> [b, T, D].

    mask is [b, T], 0 for padding.
    """

    is_traced_once = True

    def __init__(self, params: _TransformerLayer.Params, path: str = ''):
        super().__init__(params, path)
        self._add_attention('attention')
        self._add_ffn()

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor,
              mask: tf.Tensor | None = None) -> tf.Tensor:
        """x [b, T, D], mask [b, T] -> [b, T, D]."""
        x = self._plus('attention', theta, ctx, x, mask=mask)
        return self._plus('ffn', theta, ctx, x)

    def cost(self, x: tf.TensorSpec, mask: tf.TensorSpec | None = None) -> Cost:
        """The sum of its parts, each with its normalisation, dropout and addition."""
        static_shape(x, self.path, 'x')
        return self._plus_cost('attention', x, mask=mask) + self._plus_cost('ffn', x)


class TransformerDecoderLayer(_TransformerLayer):
    """Causal self-attention, attention to a memory if there is one, and a feed-forward part.

    x [b, T, D], mask [b, T], memory [b, S, D_memory], memory_mask [b, S] -> [b, T, D]. The masks
    are 0 for padding. A language model has no memory: memory_dim=0.
    """

    is_traced_once = True

    class Params(_TransformerLayer.Params):
        """What every Transformer layer has, and the memory."""
        memory_dim: int = field(0, 'Channels of the memory; 0: there is none.', least=0)

    params: Params

    def __init__(self, params: Params, path: str = ''):
        super().__init__(params, path)
        self._add_attention('attention', is_causal=True)
        if self.params.memory_dim:
            self._add_attention('cross', memory_dim=self.params.memory_dim)
        self._add_ffn()

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor, memory: tf.Tensor | None = None,
              mask: tf.Tensor | None = None, memory_mask: tf.Tensor | None = None) -> tf.Tensor:
        """x [b, T, D] -> [b, T, D]; the other arguments as the class says.

        Raises:
          ValueError: memory and memory_dim do not agree.
        """
        self._check_memory(memory)
        x = self._plus('attention', theta, ctx, x, mask=mask)
        if memory is not None:
            x = self._plus('cross', theta, ctx, x, memory=memory, mask=memory_mask)
        return self._plus('ffn', theta, ctx, x)

    def cost(self, x: tf.TensorSpec, memory: tf.TensorSpec | None = None,
             mask: tf.TensorSpec | None = None,
             memory_mask: tf.TensorSpec | None = None) -> Cost:
        """The sum of its parts, each with its normalisation, dropout and addition."""
        self._check_memory(memory)
        static_shape(x, self.path, 'x')
        cost = self._plus_cost('attention', x, mask=mask)
        if memory is not None:
            cost += self._plus_cost('cross', x, memory=memory, mask=memory_mask)
        return cost + self._plus_cost('ffn', x)

    # Decoding.

    def prepare(self, theta: NestedMap, ctx: Context, memory: tf.Tensor | None = None,
                memory_mask: tf.Tensor | None = None) -> NestedMap:
        """Keys and values of the memory, if there is one."""
        self._check_memory(memory)
        if memory is None:
            return NestedMap()
        return self.children['cross'].prepare(theta.cross, ctx, memory, memory_mask)

    def initial_past(self, num_sentences: int | tf.Tensor, ctx: DecodingContext,
                     **specs: tf.TensorSpec) -> NestedMap:
        """Returns the initial past of the self-attention."""
        return self.children['attention'].initial_past(num_sentences, ctx, x=specs['x'])

    def decode(self, theta: NestedMap, ctx: DecodingContext, kept: NestedMap, past: NestedMap,
               x: tf.Tensor) -> tuple[tf.Tensor, NestedMap]:
        """One position, [n, k, D] -> [n, k, D].

        A mask of x is not read: nothing that is decoded is padding.
        """
        y, past = self._decoded('attention', theta, ctx, NestedMap(), past, x)
        x = x + y
        if 'cross' in self.children:
            y, _ = self._decoded('cross', theta, ctx, kept, NestedMap(), x)
            x = x + y
        return self._plus('ffn', theta, ctx, x), past

    def _decoded(self, name: str, theta: NestedMap, ctx: DecodingContext, kept: NestedMap,
                 past: NestedMap, x: tf.Tensor) -> tuple[tf.Tensor, NestedMap]:
        """What an attention gives for one position of the normalised x, and the new past."""
        h = self.children[f'{name}_norm'].fprop(theta[f'{name}_norm'], ctx, x)
        return self.children[name].decode(theta[name], ctx, kept, past, h)

    def _check_memory(self, memory: tf.Tensor | tf.TensorSpec | None) -> None:
        """Raises ValueError unless a memory is read if, and only if, memory_dim says so."""
        if (memory is not None) != bool(self.params.memory_dim):
            raise ValueError(f'{self.path}: memory_dim={self.params.memory_dim}, but '
                             f'{"no" if memory is None else "a"} memory is read; set memory_dim '
                             "and reads={'memory': name of a value}, or neither.")
