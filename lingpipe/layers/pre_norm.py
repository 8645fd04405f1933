"""PreNorm: x + body(norm(x)), one part of a layer of a language model.

A layer of a decoder is two of them, attention and feed-forward, so that a pipeline may cut between.
Some models normalise what the body gives: OLMo 2 (arXiv:2501.00656) x + norm(body(x)), and Gemma 3
(arXiv:2503.19786) x + norm_after(body(norm(x))).

Shapes: b micro-batch, T time, D model.
"""
from __future__ import annotations

from typing import Any, Literal

import tensorflow as tf

from lingpipe.hyperparams import REQUIRED, field
from lingpipe.layers.base import Layer
from lingpipe.layers.context import Context, DecodingContext
from lingpipe.layers.cost import Cost
from lingpipe.layers.layer_norm import LayerNorm
from lingpipe.layers.nested import Nested, NestedMap
from lingpipe.layers.rms_norm import RMSNorm
from lingpipe.layers.static_shapes import as_spec, num_elements
from lingpipe.pricing import price


class PreNorm(Layer):
    """x + body(norm(x)), where norm is RMSNorm or LayerNorm; x [b, T, D] -> [b, T, D].

    With norms='after', the normalisation follows the body; with 'both', a second one does.

    It reads what the body reads: `positions`, `documents` and `weight`, where the body has such
    arguments and the network such values.
    """

    is_traced_once = True
    optional_reads = ('positions', 'documents', 'weight')

    class Params(Layer.Params):
        """The body, and what normalises."""
        dim: int = field(REQUIRED, 'D, the channels of the input and of the output.', least=1)
        body: Layer.Params = field(REQUIRED, 'The layer between normalisation and sum, as '
                                             'GroupedQueryAttention, SwiGLU or MixtureOfExperts; '
                                             'it keeps the shape.')
        norm: Literal['rms', 'layer'] = field('rms', 'RMSNorm, or LayerNorm.')
        norms: Literal['before', 'after', 'both'] = field(
            'before', 'What is normalised: what the body reads, what it gives, or both.')
        epsilon: float = field(1e-5, 'Added to the mean of squares, or to the variance.', least=0)
        is_zero_centered: bool = field(False, 'See RMSNorm.')

        def check(self) -> None:
            """Raises ValueError for a LayerNorm that is zero-centered."""
            super().check()
            if self.is_zero_centered and self.norm == 'layer':
                raise ValueError("is_zero_centered=True with norm='layer', but only RMSNorm can be "
                                 "so; write norm='rms', or leave it out.")

    params: Params

    def __init__(self, params: Params, path: str = ''):
        super().__init__(params, path)
        p = self.params
        norm = (LayerNorm.Params(dim=p.dim, epsilon=p.epsilon) if p.norm == 'layer' else
                RMSNorm.Params(dim=p.dim, epsilon=p.epsilon, is_zero_centered=p.is_zero_centered))
        names = {'before': ['norm'], 'after': ['norm_after'], 'both': ['norm', 'norm_after']}
        self._norms: dict[str, Layer] = {
            name: self.add_child(norm.copy(), name) for name in names[p.norms]}
        self.body: Layer = self.add_child(p.body, 'body')
        self.is_positionwise = self.body.is_positionwise

    def reads_if_there(self) -> dict[str, str]:
        """What the body reads if there is a value of that name."""
        of_body = self.body.reads_if_there()
        return {argument: name for argument, name in super().reads_if_there().items()
                if argument in of_body}

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor,
              positions: tf.Tensor | None = None, documents: tf.Tensor | None = None,
              weight: tf.Tensor | None = None) -> tf.Tensor:
        """[b, T, D] -> [b, T, D]; the other arguments are those of the body."""
        h = self._normalised('norm', theta, ctx, x)
        y = self.body.fprop(theta.body, ctx, h, **_given(positions, documents, weight))
        return x + self._normalised('norm_after', theta, ctx, y)

    def cost(self, x: tf.TensorSpec, positions: tf.TensorSpec | None = None,
             documents: tf.TensorSpec | None = None,
             weight: tf.TensorSpec | None = None) -> Cost:
        """The cost of its parts, and a sum."""
        parts = price(self.body, x, **_given(positions, documents, weight))
        for norm in self._norms.values():
            parts += price(norm, x)
        return parts + Cost(num_elements(x), 0, as_spec(x))

    def _normalised(self, name: str, theta: NestedMap, ctx: Context, x: tf.Tensor) -> tf.Tensor:
        """What the normalisation of this name makes of x; x if there is none."""
        norm = self._norms.get(name)
        return x if norm is None else norm.fprop(theta[name], ctx, x)

    # Decoding.

    def initial_past(self, num_sentences: int | tf.Tensor, ctx: DecodingContext,
                     **specs: tf.TensorSpec) -> NestedMap:
        """Returns the initial past of the body."""
        return self.body.initial_past(num_sentences, ctx, **specs)

    def decode(self, theta: NestedMap, ctx: DecodingContext, kept: NestedMap, past: NestedMap,
               x: tf.Tensor) -> tuple[tf.Tensor, NestedMap]:
        """One position, [n, k, D] -> [n, k, D]."""
        h = self._normalised('norm', theta, ctx, x)
        y, past = self.body.decode(theta.body, ctx, kept, past, h)
        return x + self._normalised('norm_after', theta, ctx, y), past

    @property
    def has_prefill(self) -> bool:
        """Whether the body has a prefill."""
        return self.body.has_prefill

    @property
    def can_start_late(self) -> bool:
        """Whether the body can."""
        return self.body.can_start_late

    def prefill(self, theta: NestedMap, ctx: DecodingContext, kept: NestedMap, past: NestedMap,
                x: tf.Tensor) -> tuple[tf.Tensor, NestedMap]:
        """Positions of a prompt, [n, t, D] -> [n, t, D]."""
        h = self._normalised('norm', theta, ctx, x)
        y, past = self.body.prefill(theta.body, ctx, kept, past, h)
        return x + self._normalised('norm_after', theta, ctx, y), past


def _given(positions: Any, documents: Any, weight: Any) -> dict[str, Nested]:
    """The values that are there, by name."""
    values = {'positions': positions, 'documents': documents, 'weight': weight}
    return {name: value for name, value in values.items() if value is not None}
