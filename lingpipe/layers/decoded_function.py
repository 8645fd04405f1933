"""DecodedFunction: what a layer adds to its function so that it can be decoded.

Decoding computes one position at a time; see pipeline/decoding/decoder.py. There are n sentences
with k hypotheses each. The hypotheses stand where time stands in fprop. A layer whose positions do
not depend on each other only says so; any other layer overrides these methods.
"""
from __future__ import annotations

import tensorflow as tf

from lingpipe.layers.context import Context, DecodingContext
from lingpipe.layers.nested import Nested, NestedMap
from lingpipe.layers.wired_function import WiredFunction


class DecodedFunction(WiredFunction):
    """A function that can be computed position by position."""

    # Whether each position of fprop's result depends only on the same position of its inputs.
    is_positionwise = False

    # What the user of a layer that cannot be decoded should do.
    decoding_remedy = 'give it decode(), or is_positionwise = True if no position looks at another'

    # Whether decode returns the best next ids: NestedMap(log_sum, values, ids), as Logits does.
    gives_candidates = False

    def prepare(self, theta: NestedMap, ctx: Context, *args: Nested,
                **inputs: Nested) -> NestedMap:
        """Precomputes, once per sentence, what `decode` needs that does not depend on the target.

        This default reads nothing. An overriding method names the arguments of fprop that it reads;
        an argument that depends on the target is left out of the call.

        Returns:
          Tensors [n, ...].
        """
        return NestedMap()

    def initial_past(self, num_sentences: int | tf.Tensor, ctx: DecodingContext,
                     **specs: tf.TensorSpec) -> NestedMap:
        """What `decode` remembers of each hypothesis before the first position.

        Args:
          num_sentences: n.
          ctx: the context of the first position.
          specs: those of what decode reads. Only their dtypes can be relied on.

        Returns:
          Tensors [n, k, ..., t, channels], of which t may grow.
        """
        return NestedMap()

    def decode(self, theta: NestedMap, ctx: DecodingContext, kept: NestedMap, past: NestedMap,
               *args: Nested, **inputs: Nested) -> tuple[Nested, NestedMap]:
        """Computes fprop for one position. Returns its result and the new past.

        This default reads what fprop reads. An overriding method names the arguments of fprop that
        it reads.

        Args:
          theta: the weights.
          ctx: the context of the position.
          kept: what `prepare` returned.
          past: what earlier positions left behind, for each hypothesis.
          inputs: values [n, k, ...] of this position if they depend on the target; others as they
            are.
        """
        if not self.is_positionwise:
            raise ValueError(f'{self.path}: {type(self).__name__} does not say how it is decoded '
                             f'position by position; {self.decoding_remedy}.')
        return self.fprop(theta, ctx, *args, **inputs), past

    @property
    def has_prefill(self) -> bool:
        """Whether `prefill` can be called. It is overridden, or no position looks at another."""
        has_own_prefill = type(self).prefill is not DecodedFunction.prefill
        has_own_decode = type(self).decode is not DecodedFunction.decode
        return has_own_prefill or (self.is_positionwise and not has_own_decode)

    @property
    def can_start_late(self) -> bool:
        """Whether `decode` and `prefill` leave out what is before DecodingContext.starts.

        They do if no position looks at another, and none knows where it stands.
        """
        return self.is_positionwise and type(self).decode is DecodedFunction.decode

    def prefill(self, theta: NestedMap, ctx: DecodingContext, kept: NestedMap, past: NestedMap,
                *args: Nested, **inputs: Nested) -> tuple[Nested, NestedMap]:
        """Computes fprop for ids of a prompt, t positions at once. Returns the new past, too.

        There is one hypothesis of each sentence. A method that overrides this one reads what
        `decode` reads.

        Args:
          theta, kept, past: those of `decode`.
          ctx: the context, whose position is the first of the t.
          inputs: values [n, t, ...] of these positions if they depend on the target; others as they
            are.
        """
        return self.fprop(theta, ctx, *args, **inputs), past
