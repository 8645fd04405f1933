"""SwiGLU: the feed-forward part with a gate (Shazeer, 2020, arXiv:2002.05202).

Its relative GEGLU, which Gemma has, is the same with another activation of the gate.

Shapes: D model, F hidden units.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import tensorflow as tf

from lingpipe.hyperparams import REQUIRED, field
from lingpipe.layers.context import Context
from lingpipe.layers.cost import Cost
from lingpipe.layers.low_rank import Adaptable
from lingpipe.layers.nested import NestedMap
from lingpipe.layers.projection import projection_flops
from lingpipe.layers.shapes import check_last_dim, dims, num_rows
from lingpipe.layers.shards import Shardable, glorot_uniform
from lingpipe.layers.static_shapes import as_spec, num_elements
from lingpipe.process.graph_lifetime import custom_gradient

# GELU's approximation is x (1 + tanh(u)) / 2, with u = scale x (1 + cube x^2).
_GELU_SCALE = math.sqrt(2 / math.pi)
_GELU_CUBE = 0.044715


class SwiGLU(Shardable, Adaptable):
    """(silu(x @ w_gate) * (x @ w_up)) @ w_down; x [..., D] -> [..., D].

    With gate='gelu_tanh', GELU is in place of silu.

    A shard has some of the hidden units. It adds what they give to `partial` [..., D].
    """

    is_traced_once = True
    is_positionwise = True
    projections = ('w_gate', 'w_up', 'w_down')

    class Params(Shardable.Params, Adaptable.Params):
        """Sizes and initialisation."""
        input_dim: int = field(REQUIRED, 'D, the channels of the input and of the output.', least=1)
        hidden_dim: int = field(REQUIRED, 'F, the hidden units; two thirds of what a plain '
                                          'feed-forward part has give it as many weights.', least=1)
        gate: Literal['silu', 'gelu_tanh'] = field(
            'silu', "Activation of the gate: x sigmoid(x), or GELU by tanh's approximation.")
        init_scale: float = field(1., 'Factor on the variance of the first values of the weights.',
                                  least=0)

    params: Params

    def __init__(self, params: Params, path: str = ''):
        super().__init__(params, path)
        p = self.params
        self.hidden_dim = len(self.part(p.hidden_dim, 'hidden_dim'))
        glorot = glorot_uniform(p.input_dim, p.hidden_dim, p.init_scale)
        self.add_weight('w_gate', [p.input_dim, self.hidden_dim], glorot)
        self.add_weight('w_up', [p.input_dim, self.hidden_dim], glorot)
        self.add_weight('w_down', [self.hidden_dim, p.input_dim], glorot)

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor,
              partial: tf.Tensor | None = None) -> tf.Tensor:
        """[..., D] -> [..., D] in the dtype of x.

        Raises:
          ValueError: the last dimension of x is not D, or a shard lacks `partial`.
        """
        check_last_dim(x, self.params.input_dim, self.path)
        self.check_partial(partial)
        product = gated if self.params.gate == 'silu' else gated_by_gelu
        hidden = product(self.project(theta, ctx, x, 'w_gate'),
                         self.project(theta, ctx, x, 'w_up'))  # [rows, F]
        y = tf.reshape(self.project(theta, ctx, hidden, 'w_down'), dims(x))
        return y if partial is None else partial + y

    def cost(self, x: tf.TensorSpec, partial: tf.TensorSpec | None = None) -> Cost:
        """Three products of 2 D F a row, the adapters and the gate."""
        p = self.params
        check_last_dim(x, p.input_dim, self.path)
        self.check_partial(partial)
        rows = num_rows(x, self.path)
        flops = 3. * projection_flops(rows, p.input_dim, self.hidden_dim, has_bias=False)
        of_gate = gate_flops if p.gate == 'silu' else gelu_gate_flops
        flops += of_gate(rows * self.hidden_dim) + (partial is not None) * num_elements(x)
        flops += self.adapter_flops(rows, x.dtype)
        return Cost(flops, self.num_weights, as_spec(x))


@custom_gradient
def gated(gate: tf.Tensor, up: tf.Tensor) -> tuple[
        tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]]:
    """silu(gate) * up. Only the two arguments are kept for backward."""
    def gradient(dy: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        sigmoid = tf.sigmoid(gate)
        silu = gate * sigmoid
        return dy * up * (sigmoid + silu * (1 - sigmoid)), dy * silu

    return gate * tf.sigmoid(gate) * up, gradient


def gate_flops(num_values: int) -> float:
    """FLOPs of `gated`: a sigmoid and two products."""
    return 3. * num_values


@custom_gradient
def gated_by_gelu(gate: tf.Tensor, up: tf.Tensor) -> tuple[
        tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]]:
    """gelu(gate) * up, by the approximation with tanh (Hendrycks and Gimpel, arXiv:1606.08415).

    Only the two arguments are kept for backward.
    """
    def gradient(dy: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        square = gate * gate
        share = _gelu_share(gate, square)
        # The share is sigmoid(2 u), so that its slope is share (1 - share) times that of 2 u.
        slope = 2 * _GELU_SCALE * (1 + 3 * _GELU_CUBE * square)
        dgate = share + gate * share * (1 - share) * slope
        return dy * up * dgate, dy * (gate * share)

    return gate * _gelu_share(gate, gate * gate) * up, gradient


def _gelu_share(x: tf.Tensor, square: tf.Tensor) -> tf.Tensor:
    """The share of x that GELU lets through: (1 + tanh(u)) / 2, which is sigmoid(2 u)."""
    return tf.sigmoid(2 * _GELU_SCALE * x * (1 + _GELU_CUBE * square))


def gelu_gate_flops(num_values: int) -> float:
    """FLOPs of `gated_by_gelu`: a square, a polynomial of four, a sigmoid and two products."""
    return 8. * num_values
