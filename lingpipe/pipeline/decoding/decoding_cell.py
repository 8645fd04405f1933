"""DecodingCell: what a cell does when decoding: it prepares a sentence group, then steps."""
from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from lingpipe.layers import nested
from lingpipe.layers.context import Context, DecodingContext
from lingpipe.layers.nested import Nested, NestedMap
from lingpipe.pipeline.decoding.narrow_weights import narrow_weights
from lingpipe.pipeline.decoding.search_params import SearchParams
from lingpipe.pipeline.decoding.target_dependence import TargetDependence
from lingpipe.pipeline.execution.placed import placed
from lingpipe.pipeline.execution.variables import Variables
from lingpipe.pipeline.planning.cell import Cell
from lingpipe.pipeline.planning.dataflow import Element, Value


class GivenWeights(NamedTuple):
    """What a cell is given of its weights, by the path of their use; it reads all others itself.

    All sentence groups of a call share them.

    Attributes:
      elsewhere: the tied weights that other cells own.
      of_step: for `step`: these, and those that it would cast at every position.
    """
    elsewhere: dict[str, tf.Tensor]
    of_step: dict[str, tf.Tensor]


class Prepared(NamedTuple):
    """What the steps of a cell read at every position, on its device.

    Otherwise it would be sent there for each position.

    Attributes:
      weights: what it is given of the weights.
      kept: what its layers keep of the values that do not depend on the target.
      past: what its layers remember before the first position.
      values: the values that do not depend on the target.
      starts: [n], the positions where the sentences begin.
    """
    weights: GivenWeights
    kept: dict[str, Nested]
    past: dict[str, Nested]
    values: list[Nested]
    starts: tf.Tensor


class DecodingCell:
    """What a cell does when decoding, as functions that run on its device.

    Attributes:
      device: of the cell.
      before, stepped: its elements of these two kinds; see TargetDependence.
      fixed_in: values that do not depend on the target and that it reads from elsewhere.
      fixed_out: values that do not depend on the target and that its steps or other cells read.
      fixed_step_in: values that do not depend on the target and that its steps read, including
        those that it computes itself.
      moving_in: values that depend on the target and that it reads from other cells.
      moving_out: values that depend on the target and that other cells or the search read.
      prepare: (fixed_in, weights) -> fixed_out, what `step` keeps of them. The weights, here and
        below, are of GivenWeights.
      prefilled: its elements that prompts run through; see TargetDependence.
      prefill_in, prefill_out: as moving_in and moving_out, for prompts.
      prefill: (first position, starts, prefill_in, fixed_step_in, what `prepare` kept, the past of
        one hypothesis, weights) -> prefill_out, the past after these positions.
      step: (position, starts, parents, moving_in, fixed_step_in, what `prepare` kept, the past,
        weights) -> moving_out, the past after this position.
    """

    def __init__(self, cell: Cell, network: TargetDependence, variables: Variables,
                 params: SearchParams, num_ends: int):
        """
        Args:
          cell: the cell.
          network: what depends on the target.
          variables: have the weights.
          params: of the search.
          num_ends: how many ids end a sequence.
        """
        self.device, self._params, self._network = cell.device, params, network
        self._num_candidates = params.num_candidates(num_ends)
        self.before = [e for e in network.before if e in cell.elements]
        self.stepped = [e for e in network.stepped if e in cell.elements]

        # The values that the cell makes, those that it reads, and those that others read.
        mine = {*self.before, *self.stepped}
        written = {v for e in mine for v in e.writes.values()}
        others = [e for e in (*network.before, *network.stepped) if e not in mine]
        fixed = [v for e in (*self.before, *self.stepped) for v in network.fixed_reads(e)]
        moving = [v for e in self.stepped for v in network.moving_reads(e).values()]
        asked = {v for e in others for v in (
            *network.fixed_reads(e), *network.moving_reads(e).values())} | {network.candidates}

        self.fixed_in = [v for v in dict.fromkeys(fixed) if v not in written]
        self.moving_in = [v for v in dict.fromkeys(moving) if v not in written]
        read_by_steps = dict.fromkeys(
            v for e in self.stepped for v in network.decode_reads(e).values())
        self.fixed_out = [v for e in self.before for v in e.writes.values()
                          if v in asked or v in read_by_steps]
        self.fixed_step_in = [v for v in read_by_steps if v in self.fixed_in or v in self.fixed_out]
        self.moving_out = [v for e in self.stepped for v in e.writes.values() if v in asked]

        self.prefilled = [e for e in network.prefilled if e in mine]
        self.prefill_in, self.prefill_out = exchanged(
            self.prefilled, [e for e in network.prefilled if e not in mine],
            lambda element: network.moving_reads(element).values())

        averaged = variables.averaged()
        self._read = variables.reader(cell, averaged)
        self._read_shared = variables.shared_reader(averaged)
        self._owners = {w.path: w.shared_with or w.path for e in (*self.before, *self.stepped)
                        for w in e.layer.weights()}
        elsewhere = variables.elsewhere(cell, averaged)
        self._elsewhere = {path: owner for path, owner in self._owners.items()
                           if owner in elsewhere}

        self.prepare = placed(self._prepare)
        self.step = placed(self._step)
        self.prefill = placed(self._prefill)

    def given_weights(self) -> GivenWeights:
        """Copies weights of other devices to the current one, and casts those that `step` casts.

        It takes longer to read and cast a weight than to multiply it with the activations of one
        position.
        """
        elsewhere = self._weights_elsewhere()
        casts, of_step = {}, dict(elsewhere)
        for path, dtype in self._narrow.items():
            owner = self._owners[path]
            if (owner, dtype) not in casts:
                weight = elsewhere[path] if path in elsewhere else self._read(owner)
                casts[owner, dtype] = tf.cast(weight, dtype)
            of_step[path] = casts[owner, dtype]
        return GivenWeights(elsewhere, of_step)

    def _weights_elsewhere(self) -> dict[str, tf.Tensor]:
        copies = {owner: tf.identity(self._read_shared(owner))
                  for owner in dict.fromkeys(self._elsewhere.values())}
        return {path: copies[owner] for path, owner in self._elsewhere.items()}

    @functools.cached_property
    def _narrow(self) -> dict[str, tf.DType]:
        """Path of a use -> the narrower dtype, of weights that `step` only casts."""
        if not any(spec.dtype.is_floating and spec.dtype.size < 4 for element in self.stepped
                   for value in element.writes.values() for spec in value.specs):
            return {}

        n, width = int(self._network.target.specs[0].shape[0]), self._params.beam_size
        weights = {w.path: tf.TensorSpec(w.shape, w.dtype) for e in self.stepped
                   for w in e.layer.weights()}
        # What does not depend on the target has any shape, such as that of an image.
        inputs = [[value.spec for value in self.fixed_in],
                  [_of_position(value, width) for value in self.moving_in]]

        def step(weights: dict[str, tf.Tensor], fixed: list[Nested], moving: list[Nested]) -> None:
            """The first position of a micro-batch."""
            fixed_out, kept = self._prepare(fixed, self._weights_elsewhere())
            values = {**dict(zip(self.fixed_in, fixed, strict=True)),
                      **dict(zip(self.fixed_out, fixed_out, strict=True))}
            self._step(tf.constant(0), tf.zeros([n], tf.int32), tf.zeros([n, width], tf.int32),
                       moving, values_of(values, self.fixed_step_in), kept,
                       self.initial_past(tf.constant(n)), weights)

        return narrow_weights(step, weights, inputs)

    def initial_past(self, num_sentences: tf.Tensor) -> dict[str, NestedMap]:
        """Returns the past of every stepped element before the first position, by its index."""
        ctx = self._context(0)
        return {_key(e): e.layer.initial_past(
                    num_sentences, ctx,
                    **{argument: v.spec for argument, v in self._network.decode_reads(e).items()})
                for e in self.stepped}

    def _prepare(self, inputs: list[Nested],
                 weights: Mapping[str, tf.Tensor]) -> tuple[list[Nested], dict[str, Nested]]:
        """Runs what does not depend on the target, as `prepare` says."""
        values, ctx, prepared = dict(zip(self.fixed_in, inputs, strict=True)), Context(), {}
        for element in (*self.before, *self.stepped):
            layer, theta = element.layer, self._theta(element, weights)
            if element in self.before:
                written = layer.written(layer.fprop(
                    theta, ctx, **{a: values[v] for a, v in element.reads.items()}))
                values.update({element.writes[name]: new for name, new in written.items()})
            else:
                prepared[_key(element)] = layer.prepare(theta, ctx, **{
                    argument: values[v]
                    for argument, v in self._network.prepare_reads(element).items()})
        return values_of(values, self.fixed_out), prepared

    def _step(self, position: tf.Tensor, starts: tf.Tensor, parents: tf.Tensor,
              moving: list[Nested], fixed: list[Nested], prepared: dict[str, Nested],
              past: dict[str, Nested],
              weights: Mapping[str, tf.Tensor]) -> tuple[list[Nested], dict[str, Nested]]:
        """Runs the stepped elements for one position, as `step` says."""
        values = {**dict(zip(self.moving_in, moving, strict=True)),
                  **dict(zip(self.fixed_step_in, fixed, strict=True))}
        if self._params.beam_size > 1:
            past = nested.map_leaves(lambda tensor: tf.gather(tensor, parents, batch_dims=1), past)

        ctx, next_past = self._context(position, starts), dict(past)
        for element in self.stepped:
            key = _key(element)
            written, next_past[key] = self._decoded(
                element, element.layer.decode, ctx, values, prepared[key], past[key], weights)
            values.update(written)
        return values_of(values, self.moving_out), next_past

    def _prefill(self, first: tf.Tensor, starts: tf.Tensor, moving: list[Nested],
                 fixed: list[Nested], prepared: dict[str, Nested], past: dict[str, Nested],
                 weights: Mapping[str, tf.Tensor]) -> tuple[list[Nested], dict[str, Nested]]:
        """Runs the prefilled elements for positions of a prompt, as `prefill` says."""
        values = {**dict(zip(self.prefill_in, moving, strict=True)),
                  **dict(zip(self.fixed_step_in, fixed, strict=True))}
        ctx, next_past = self._context(first, starts), dict(past)
        for element in self.prefilled:
            key = _key(element)
            written, next_past[key] = self._decoded(
                element, element.layer.prefill, ctx, values, prepared[key], past[key], weights)
            values.update(written)
        return values_of(values, self.prefill_out), next_past

    def _decoded(self, element: Element, method: Callable[..., tuple[Nested, NestedMap]],
                 ctx: DecodingContext, values: Mapping[Value, Nested], kept: NestedMap,
                 past: NestedMap,
                 weights: Mapping[str, tf.Tensor]) -> tuple[dict[Value, Nested], NestedMap]:
        """Calls `decode` or `prefill` of an element; returns what it writes, and the new past."""
        inputs = {argument: values[v]
                  for argument, v in self._network.decode_reads(element).items()}
        result, next_past = method(self._theta(element, weights), ctx, kept, past, **inputs)
        written = element.layer.written(result)
        return {element.writes[name]: new for name, new in written.items()}, next_past

    def _theta(self, element: Element, weights: Mapping[str, tf.Tensor]) -> NestedMap:
        """Returns the weights of an element, of which some are given."""
        return element.layer.theta({
            w.path: weights[w.path] if w.path in weights else self._read(self._owners[w.path])
            for w in element.layer.weights()})

    def _context(self, position: tf.Tensor | int,
                 starts: tf.Tensor | None = None) -> DecodingContext:
        return DecodingContext(position, self._params.beam_size, self._num_candidates,
                               self._params.max_length, starts)


def _of_position(value: Value, width: int) -> Nested:
    """The specs of a value [b, T, ...] at one position, [b, width, ...]."""
    return nested.map_leaves(
        lambda spec: tf.TensorSpec([spec.shape[0], width, *spec.shape[2:]], spec.dtype), value.spec)


def values_of(values: Mapping[Value, Nested], wanted: Sequence[Value]) -> list[Nested]:
    """The tensors of some of the values, in the order in which they are wanted."""
    return [values[value] for value in wanted]


def exchanged(mine: Sequence[Element], others: Sequence[Element],
              reads: Callable[[Element], Iterable[Value]]) -> tuple[list[Value], list[Value]]:
    """The values that some elements read of others, and those that the others read of them.

    Args:
      mine, others: the elements.
      reads: the values that an element reads.
    """
    written = dict.fromkeys(value for e in mine for value in e.writes.values())
    read_here = dict.fromkeys(value for e in mine for value in reads(e))
    read_there = {value for e in others for value in reads(e)}
    return ([value for value in read_here if value not in written],
            [value for value in written if value in read_there])


def _key(element: Element) -> str:
    """The element's key in nested values, whose leaves are sorted by key."""
    return f'{element.index:05d}'
