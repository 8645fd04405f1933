"""DecodingGraphs: the graphs that decode sentence groups, for each number of groups."""
from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from lingpipe.layers import nested
from lingpipe.layers.nested import Nested, NestedMap
from lingpipe.pipeline.decoding.search_loop import GroupState, SearchLoop, grown_shapes
from lingpipe.pipeline.decoding.sentence_group import specs_of
from lingpipe.pipeline.planning.dataflow import Value
from lingpipe.process.graph_lifetime import wrap_function


class DecodingGraphs:
    """The graphs of a search loop, each of which is built when it is first asked for.

    Attributes:
      values: the values of the batch that the network reads besides the target.
    """

    def __init__(self, loop: SearchLoop, values: Sequence[Value]):
        self.values = values
        self._loop = loop
        # wrap_function, unlike tf.function, does not chain stateful calls; see step_graph.py.
        self.whole = functools.cache(lambda num_groups: wrap_function(
            self.decode, specs_of(values) * num_groups))
        self.start = functools.cache(lambda num_groups: wrap_function(
            self._start, specs_of(values) * num_groups))
        self.go_on = functools.cache(self._go_on)

    def are_built(self) -> bool:
        """Whether there are any, so that no layer has refused the params."""
        return any(graphs.cache_info().currsize for graphs in (self.whole, self.start))

    def decode(self, *args: tf.Tensor) -> dict[str, tf.Tensor]:
        """Decodes all groups, in a graph or eagerly; the arguments come group after group."""
        results, weights = {}, self._loop.weights()
        for g, (fixed, given) in enumerate(self._groups(args)):
            results[f'{g} ids'], results[f'{g} scores'] = self._loop.run(fixed, given, weights)
        return results

    def _start(self, *args: tf.Tensor) -> list[GroupState]:
        weights = self._loop.weights()
        return [self._loop.start(fixed, given, weights) for fixed, given in self._groups(args)]

    def _go_on(self, num_groups: int) -> Any:
        """A function of a number of steps and all tensors of the groups' states.

        It returns the past and the state of the search of each group after so many steps.
        """
        start: list[GroupState] = self.start(num_groups).structured_outputs
        shapes = [[*(tensor.shape for tensor in tf.nest.flatten((state.prepared, state.given))),
                   *nested.leaves(grown_shapes(state))] for state in start]
        specs = [tf.TensorSpec(shape, tensor.dtype) for shape, tensor in zip(
            [shape for of_group in shapes for shape in of_group], tf.nest.flatten(start),
            strict=True)]

        def go_on(num_steps: tf.Tensor, *flat: tf.Tensor) -> list[tuple[Nested, NestedMap]]:
            states = tf.nest.pack_sequence_as(start, list(flat))
            ends = [self._loop.go_on(state, state.search.position + num_steps) for state in states]
            return [(end.past, end.search) for end in ends]

        return wrap_function(go_on, [tf.TensorSpec([], tf.int32), *specs])

    def _groups(self, args: Sequence[tf.Tensor]) -> list[tuple[dict[Value, Nested], NestedMap]]:
        """The values of the batch, and what else is given, of each group."""
        groups = []
        num_args = sum(len(value.specs) for value in self.values) + 3
        for first in range(0, len(args), num_args):
            *flat, limits, prompts, chances = args[first:first + num_args]
            leaves = iter(flat)
            fixed = {value: nested.pack_like(value.spec, [next(leaves) for _ in value.specs])
                     for value in self.values}
            groups.append((fixed, NestedMap(limits=limits, prompts=prompts, chances=chances)))
        return groups
