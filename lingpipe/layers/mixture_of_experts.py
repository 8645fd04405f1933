"""MixtureOfExperts: many SwiGLU feed-forward parts, of which each token uses a few.

A router gives each token to the k experts that it likes best (Fedus et al., 2021, Switch
Transformer, arXiv:2101.03961, for k = 1; Lepikhin et al., 2020, GShard, arXiv:2006.16668). Each
sequence is routed by itself: of its T tokens, an expert takes the first

    C = ceil(k T / E * capacity_factor)

and what comes over this capacity adds nothing. So the result for a token depends on earlier tokens
of its sequence alone, as a language model needs, and neither on the other sequences nor on M. (The
papers fill up the experts over the whole batch, and all first choices before second ones, by which
later tokens push out earlier ones.) Nothing is random; of equal choices, that of the lower number
comes first.

Without a capacity, an expert takes all tokens that choose it, as in the models that transformers
computes, and a token depends on no other one. The tokens of the micro-batch are then sorted by
their experts (expert_blocks.py), and the time depends a little on the choices.

Without a second loss, a few experts would get everything. The auxiliary loss of a sequence,

    balance * E * sum over experts of (share of the choices) * (mean probability),

is smallest when all get as much (Switch Transformer, section 2.2). It counts once for each of the
sequence's tokens, in training only. An evaluation has two metrics instead: `left_out`, the share of
choices that exceed the capacity, if there is one, and `busiest`, the load of a sequence's busiest
expert as a multiple of the mean load.

Shapes: b micro-batch, T time, D model, F hidden units of an expert, E experts, C capacity.
"""
from __future__ import annotations

import math

import tensorflow as tf

from lingpipe.hyperparams import REQUIRED, field
from lingpipe.layers.base import Layer
from lingpipe.layers.context import Context, DecodingContext
from lingpipe.layers.cost import Cost
from lingpipe.layers.expert_blocks import ExpertBlocks, block_shape
from lingpipe.layers.nested import NestedMap
from lingpipe.layers.shapes import check_last_dim, dims
from lingpipe.layers.shards import glorot_uniform
from lingpipe.layers.static_shapes import as_spec, static_shape
from lingpipe.layers.swiglu import gate_flops, gated
from lingpipe.layers.weighting import check_weight, weight_by_row


class MixtureOfExperts(Layer):
    """The sum of k of E feed-forward parts, each times the router's probability of it.

    x [b, T, D] -> [b, T, D].
    """

    is_traced_once = True

    can_start_late = True

    class Params(Layer.Params):
        """Sizes, routing, and the auxiliary loss."""
        input_dim: int = field(REQUIRED, 'D, the channels of the input and of the output.', least=1)
        hidden_dim: int = field(REQUIRED, 'F, the hidden units of one expert.', least=1)
        num_experts: int = field(REQUIRED, 'E, the number of experts.', least=1)
        num_chosen: int = field(1, 'k, the experts of a token.', least=1)
        capacity_factor: float = field(1.25, 'An expert takes so many times the tokens that it '
                                             'would get if all got as many; 0: all that choose it.',
                                       least=0)
        normalises_gates: bool = field(True, 'Whether the k probabilities are divided by their '
                                             'sum, if k is more than 1.')
        balance: float = field(0.01, 'Factor on the auxiliary loss, which balances the experts.',
                               least=0)

        def check(self) -> None:
            """Raises ValueError if a token chooses more experts than there are."""
            if self.num_chosen > self.num_experts:
                raise ValueError(f'num_chosen={self.num_chosen}, but there are '
                                 f'num_experts={self.num_experts}; choose at most so many.')

    params: Params

    def __init__(self, params: Params, path: str = ''):
        super().__init__(params, path)
        p = self.params
        glorot = glorot_uniform(p.input_dim, p.hidden_dim)
        self.add_weight('router', [p.input_dim, p.num_experts], 'glorot_uniform')
        self.add_weight('w_gate', [p.num_experts, p.input_dim, p.hidden_dim], glorot)
        self.add_weight('w_up', [p.num_experts, p.input_dim, p.hidden_dim], glorot)
        self.add_weight('w_down', [p.num_experts, p.hidden_dim, p.input_dim], glorot)

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor,
              weight: tf.Tensor | None = None) -> tf.Tensor:
        """[b, T, D] -> [b, T, D] in the dtype of x.

        Args:
          theta, ctx: the weights and the context.
          x: [b, T, D], whose T must be known.
          weight: of examples [b] or tokens [b, T], as of the loss: how much a sequence counts in
            the auxiliary loss. All tokens are routed, also those of weight 0.
        """
        self._check(x, weight)
        probabilities = self._probabilities(theta, x)
        gates, choices = self._chosen(probabilities)
        if not ctx.training:
            self._emit_load(ctx, choices, weight)
        elif self.params.balance:
            self._emit_balance(ctx, probabilities, choices, weight)
        if not self.params.capacity_factor:
            return self._mixed_in_blocks(theta, x, gates, choices)
        return self._mixed(theta, x, gates, choices, self.capacity(x.shape[1]))

    def capacity(self, t: int) -> int:
        """C for sequences of T tokens, at most T, if there is a capacity."""
        p = self.params
        exact = p.num_chosen * t * p.capacity_factor / p.num_experts
        return min(t, math.ceil(round(exact, 6)))   # 90 * 1.1 / 3 is 33.00000000000001

    def cost(self, x: tf.TensorSpec, weight: tf.TensorSpec | None = None) -> Cost:
        """The router, the experts at full capacity, the weighted sum, and the auxiliary loss.

        Without a capacity, all blocks count that the tokens may need.
        """
        p = self.params
        self._check(x, weight)
        b, t, dim = static_shape(x, self.path, 'x')
        rows = b * t
        slots = (b * p.num_experts * self.capacity(t) if p.capacity_factor else
                 math.prod(block_shape(rows * p.num_chosen, p.num_experts)))
        # The product, the softmax, the search for the k largest; for k > 1, a sum and a quotient.
        flops = rows * p.num_experts * (2. * dim + 6)
        flops += 2. * rows * p.num_chosen * self._normalises
        flops += 6. * slots * dim * p.hidden_dim + gate_flops(slots * p.hidden_dim)
        # Select a gate; the product, the sum.
        flops += rows * p.num_chosen * ((p.capacity_factor > 0) + 2. * dim)
        if p.balance:
            # The mean probability; the share, the product and the sum; sums over the sequences.
            flops += rows * p.num_experts + 4 * b * p.num_experts + 2 * b + rows
        return Cost(flops, self.num_weights, as_spec(x))

    def decode(self, theta: NestedMap, ctx: DecodingContext, kept: NestedMap, past: NestedMap,
               x: tf.Tensor) -> tuple[tf.Tensor, NestedMap]:
        """One position, [n, k, D] -> [n, k, D]. There is room for every token in every expert."""
        n, k = dims(x)[:2]
        tokens = tf.reshape(x, [1, n * k, self.params.input_dim])
        gates, choices = self._chosen(self._probabilities(theta, tokens))
        return tf.reshape(self._mixed_in_blocks(theta, tokens, gates, choices), dims(x)), past

    def prefill(self, theta: NestedMap, ctx: DecodingContext, kept: NestedMap, past: NestedMap,
                x: tf.Tensor) -> tuple[tf.Tensor, NestedMap]:
        """Positions of a prompt, [n, t, D] -> [n, t, D], with room as in `decode`."""
        return self.decode(theta, ctx, kept, past, x)

    # Parts.

    @property
    def _normalises(self) -> bool:
        return self.params.normalises_gates and self.params.num_chosen > 1

    def _probabilities(self, theta: NestedMap, x: tf.Tensor) -> tf.Tensor:
        """What the router gives each expert, float32 [b, T, E]."""
        b, t, dim = dims(x)
        rows = tf.reshape(tf.cast(x, tf.float32), [-1, dim])
        return tf.reshape(tf.nn.softmax(tf.matmul(rows, theta.router)),
                          [b, t, self.params.num_experts])

    def _chosen(self, probabilities: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The factors float32 and the experts int32 of each token, both [b, T, k]."""
        gates, choices = tf.math.top_k(probabilities, self.params.num_chosen)
        if self._normalises:
            gates = gates / tf.reduce_sum(gates, -1, keepdims=True)
        return gates, choices

    def _mixed_in_blocks(self, theta: NestedMap, x: tf.Tensor, gates: tf.Tensor,
                         choices: tf.Tensor) -> tf.Tensor:
        """Does what `_mixed` does with room for every token in every expert."""
        p = self.params
        blocks = ExpertBlocks.of(tf.reshape(choices, [-1]), p.num_experts)
        copies = tf.repeat(tf.reshape(x, [-1, p.input_dim]), p.num_chosen, 0)  # [b T k, D]
        sent = blocks.filled(copies)
        hidden = gated(blocks.product(sent, tf.cast(theta.w_gate, x.dtype)),
                       blocks.product(sent, tf.cast(theta.w_up, x.dtype)))
        given = blocks.product(hidden, tf.cast(theta.w_down, x.dtype))
        return _weighted(blocks.emptied(given), gates, dims(x))

    def _mixed(self, theta: NestedMap, x: tf.Tensor, gates: tf.Tensor, choices: tf.Tensor,
               capacity: int) -> tf.Tensor:
        """Sends tokens to experts and adds up what they give; x [b, T, D] -> [b, T, D]."""
        p = self.params
        b, t, dim = dims(x)
        slots, is_taken = self._slots(choices, capacity)  # [b, T k]

        # Every sequence has one more row, to which tokens go that nobody takes.
        num_slots = p.num_experts * capacity
        rows = tf.reshape(slots + tf.range(b)[:, tf.newaxis] * (num_slots + 1), [-1, 1])
        copies = tf.repeat(tf.reshape(x, [-1, dim]), p.num_chosen, 0)  # [b T k, D]
        sent = tf.scatter_nd(rows, copies, [b * (num_slots + 1), dim])
        sent = tf.reshape(sent, [b, num_slots + 1, dim])[:, :num_slots]
        given = self._experts(theta, tf.reshape(sent, [b, p.num_experts, capacity, dim]))

        given = tf.pad(tf.reshape(given, [b, num_slots, dim]), [[0, 0], [0, 1], [0, 0]])
        fetched = tf.gather(tf.reshape(given, [-1, dim]), rows[:, 0])  # [b T k, D]
        gates = tf.where(is_taken, tf.reshape(gates, [b, t * p.num_chosen]), 0.)
        return _weighted(fetched, tf.reshape(gates, [b, t, p.num_chosen]), [b, t, dim])

    def _slots(self, choices: tf.Tensor, capacity: int) -> tuple[tf.Tensor, tf.Tensor]:
        """The place of each choice among all experts' places, and whether there is one, [b, T k].

        A choice for which there is none has the place E C.
        """
        num_experts = self.params.num_experts
        b, t, k = dims(choices)
        experts = tf.reshape(choices, [b, t * k])
        is_chosen = tf.one_hot(experts, num_experts, dtype=tf.int32)  # [b, T k, E]
        before = tf.cumsum(is_chosen, 1, exclusive=True)
        place = tf.reduce_sum(before * is_chosen, -1)
        is_taken = place < capacity
        return tf.where(is_taken, experts * capacity + place, num_experts * capacity), is_taken

    def _experts(self, theta: NestedMap, x: tf.Tensor) -> tf.Tensor:
        """SwiGLU with the weights of each expert; x [b, E, C, D] -> [b, E, C, D]."""
        b, num_experts, capacity, dim = dims(x)
        x = tf.reshape(tf.transpose(x, [1, 0, 2, 3]), [num_experts, -1, dim])  # [E, b C, D]
        hidden = gated(tf.matmul(x, tf.cast(theta.w_gate, x.dtype)),
                       tf.matmul(x, tf.cast(theta.w_up, x.dtype)))
        y = tf.matmul(hidden, tf.cast(theta.w_down, x.dtype))
        return tf.transpose(tf.reshape(y, [num_experts, b, capacity, dim]), [1, 0, 2, 3])

    def _emit_balance(self, ctx: Context, probabilities: tf.Tensor, choices: tf.Tensor,
                      weight: tf.Tensor | None) -> None:
        """Emits the auxiliary loss, each sequence by the weight of its tokens."""
        p, share = self.params, self._share(choices)
        losses = p.num_experts * tf.reduce_sum(share * tf.reduce_mean(probabilities, 1), -1)  # [b]
        if weight is None:
            of_sequence = tf.fill(tf.shape(losses), float(choices.shape[1]))
        else:
            by_row = weight_by_row(weight, choices[:, :, 0], self.path)
            of_sequence = tf.reduce_sum(by_row, 1)
        losses = tf.where(of_sequence != 0, losses, 0.) * of_sequence
        ctx.emit_loss(self.path, 'balance', p.balance * tf.reduce_sum(losses))

    def _emit_load(self, ctx: Context, choices: tf.Tensor, weight: tf.Tensor | None) -> None:
        """Emits how evenly an evaluation uses the experts, by the weight of tokens."""
        ones = tf.ones_like(choices[:, :, 0], tf.float32)
        by_token = ones if weight is None else weight_by_row(weight, ones, self.path)  # [b, T]
        of_sequence, total = tf.reduce_sum(by_token, 1), tf.reduce_sum(by_token)

        if self.params.capacity_factor:
            _, is_taken = self._slots(choices, self.capacity(choices.shape[1]))
            is_left_out = tf.cast(~tf.reshape(is_taken, dims(choices)), tf.float32)
            left_out = tf.reduce_sum(tf.reduce_mean(is_left_out, 2) * by_token)
            ctx.emit_metric(self.path, 'left_out', left_out, total)

        busiest = self.params.num_experts * tf.reduce_max(self._share(choices), 1)  # [b]
        ctx.emit_metric(self.path, 'busiest', tf.reduce_sum(busiest * of_sequence), total)

    def _share(self, choices: tf.Tensor) -> tf.Tensor:
        """The share of each sequence's choices that every expert has, float32 [b, E]."""
        p = self.params
        is_chosen = tf.one_hot(choices, p.num_experts, dtype=tf.int32)  # [b, T, k, E]
        counts = tf.cast(tf.reduce_sum(is_chosen, [1, 2]), tf.float32)
        return counts * (1. / (choices.shape[1] * p.num_chosen))

    def _check(self, x: tf.Tensor | tf.TensorSpec,
               weight: tf.Tensor | tf.TensorSpec | None) -> None:
        """Raises ValueError for inputs that do not agree with Params or with x."""
        check_last_dim(x, self.params.input_dim, self.path)
        if x.shape.rank != 3 or x.shape[1] is None:
            raise ValueError(f'{self.path}: x is {x.shape}, but must be [b, T, D] with T known; '
                             'give sequences of one length.')
        if weight is not None:
            check_weight(weight, x.shape[:2], self.path)


def _weighted(given: tf.Tensor, gates: tf.Tensor, shape: list[int | tf.Tensor]) -> tf.Tensor:
    """The sum over the experts of a token of what they give times their gates.

    Args:
      given: [b T k, D].
      gates: float32 [b, T, k].
      shape: [b, T, D].
    """
    weighted = given * tf.cast(tf.reshape(gates, [-1, 1]), given.dtype)
    b, t, dim = shape
    return tf.reduce_sum(tf.reshape(weighted, [b, t, gates.shape[2], dim]), 2)
