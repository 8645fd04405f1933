"""Decoder: writes sequences with a program's network, one position at a time.

The cells stay on their devices. The layers that depend on the target run once for every position.
The rest of the network (an encoder) runs only once, before the first position:

    prepare    cell by cell: the layers that do not depend on the target, and what the layers that
               do depend on it keep of these results (keys and values)
    step       ids -> cell 0 -> ... -> cell K-1 -> candidates for the next ids -> search.py
               -> the next ids, and the hypotheses that they continue

In a step, the k hypotheses of a sentence take the place that time has in training: [n, k, ...]. So
layers that work position by position need no code of their own, attention to the encoder is that of
training, and nothing of the encoder is repeated k times. What a layer remembers of earlier
positions, its past, stays on the cell's device. Between devices go ids, candidates, and the
activations of one position, but no weights, except tied ones, which are copied once per call.

Sentences come in groups. Each group is a loop of its own in one graph, runs without Python, and
ends independently: while cell 1 runs a step of group A, cell 0 runs one of group B.

    cell 0    A0 B0 .. A1 B1 .. A2 ...
    cell 1    .. A0 B0 .. A1 B1 .. A2 ...

The results are those of running the network again on every prefix, up to rounding. They do not
depend on K or on the groups.
"""
from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from lingpipe.cluster import HOME
from lingpipe.layers import nested
from lingpipe.layers.base import Layer
from lingpipe.layers.context import Context, DecodingContext
from lingpipe.layers.nested import NestedMap
from lingpipe.pipeline.decoding import search
from lingpipe.pipeline.decoding.search import SearchParams
from lingpipe.pipeline.execution.placed import call_on, placed
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.planning.cell import Cell
from lingpipe.pipeline.planning.dataflow import BATCH, Element, Value


class Group(NamedTuple):
    """Sentences that are decoded together.

    Attributes:
      values: name -> [n, ...], what the network reads of a mini-batch besides the target. The
        number of sentences n and the time may have any size.
      limits: [n] int32, the largest number of ids of each result, including the end, at most
        SearchParams.max_length; 0: the sentence is not decoded.
    """
    values: Mapping[str, Any]
    limits: Any


class Decoder:
    """Greedy or beam search on a Program.

    Attributes:
      inputs: names of the values that every Group must have.
    """

    def __init__(self, program: Program, params: SearchParams, start_id: int, end_id: int,
                 target: str = 'target'):
        """Splits the network into what runs once and what runs per position; traces nothing yet.

        Decoding uses the moving averages of the weights where the learner keeps them.

        Args:
          program: of a network that reads the ids so far as `target`; label[t] = target[t + 1].
          params: of the search.
          start_id: target[0].
          end_id: the last label.
          target: the name of that value.

        Raises:
          ValueError: the network reads no target, or no layer that depends on it gives candidates
            for the next ids.
        """
        self._params, self._ids = params.copy().validate(), (start_id, end_id)

        network = _Dependence(program.plan.elements, target)
        self._target = network.target
        self._parts = [_Part(cell, network, program, self._params)
                       for cell in program.plan.cells]
        self._parts = [part for part in self._parts if part.before or part.stepped]
        self._candidates = network.candidates
        self._last = self._parts[-1].device

        self._batch_values = [
            v for v in dict.fromkeys(v for part in self._parts for v in part.fixed_in)
            if v.maker == BATCH]
        self.inputs = [value.name for value in self._batch_values]
        self._functions: dict[int, Any] = {}

    def decode(self, groups: Sequence[Group]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Finds the best sequence of every sentence.

        A graph is built whenever a new number of groups is given.

        Args:
          groups: one or more; about 2 K groups keep K devices busy.

        Returns:
          For each group, ids [n, t] int32 without the start, padded with end_id, and the scores [n]
          (search.py), which are -inf for a limit of 0.

        Raises:
          ValueError: the values of a group are not those of `inputs`, or a limit is above
            max_length.
        """
        for group in groups:
            if set(group.values) != set(self.inputs):
                raise ValueError(
                    f'a group has {", ".join(sorted(group.values)) or "no values"}, but decoding '
                    f'reads {", ".join(sorted(self.inputs)) or "none"}.')
            largest = int(np.max(group.limits, initial=0))
            if largest > self._params.max_length:
                raise ValueError(f'a limit of {largest} ids is above '
                                 f'max_length={self._params.max_length}; raise max_length.')

        if len(groups) not in self._functions:
            self._functions[len(groups)] = self._build(len(groups))

        flat = []
        for group in groups:
            for value in self._batch_values:
                flat += [tf.convert_to_tensor(leaf, spec.dtype) for leaf, spec in
                         zip(nested.leaves(group.values[value.name]), value.specs, strict=True)]
            flat.append(tf.convert_to_tensor(group.limits, tf.int32))

        try:
            found = self._functions[len(groups)](*flat)
        except tf.errors.CancelledError:
            # This is often the only error when a device fails. Running the groups eagerly,
            # call by call, raises the error of the call that fails; replay.py does so for training.
            self._search_groups(*flat)
            raise
        return [(found[f'{g} ids'].numpy(), found[f'{g} scores'].numpy())
                for g in range(len(groups))]

    def _build(self, num_groups: int) -> Any:
        specs = [spec for value in self._batch_values for spec in map(_any_size, value.specs)] + [
            tf.TensorSpec([None], tf.int32)]
        # wrap_function, unlike tf.function, does not chain stateful calls; see step_graph.py.
        return tf.compat.v1.wrap_function(self._search_groups, specs * num_groups)

    def _search_groups(self, *args: tf.Tensor) -> dict[str, tf.Tensor]:
        """Decodes all groups, in a graph or eagerly; the arguments come group after group."""
        made, num_args = {}, sum(len(value.specs) for value in self._batch_values) + 1
        for g in range(len(args) // num_args):
            *flat, limits = args[g * num_args:(g + 1) * num_args]
            given, leaves = {}, iter(flat)
            for value in self._batch_values:
                given[value] = nested.pack_like(value.spec, [next(leaves) for _ in value.specs])

            made[f'{g} ids'], made[f'{g} scores'] = self._search(given, limits)
        return made

    def _search(self, fixed: dict[Value, Any], limits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Runs the loop of one group."""
        # What every position reads is copied to its reader's device before the loop. Otherwise it
        # would be sent there for each position.
        elsewhere, kept, past, read = [], [], [], []
        for part in self._parts:
            with tf.device(part.device):
                elsewhere.append([tf.identity(weight) for weight in part.weights_elsewhere()])
                made, mine = call_on(part.device, part.prepare,
                                     [_of(fixed, part.fixed_in), elsewhere[-1]])
                fixed.update(zip(part.fixed_out, made, strict=True))
                kept.append(mine)
                past.append(part.initial_past(tf.shape(limits)[0]))
                read.append([nested.map_leaves(tf.identity, value)
                             for value in _of(fixed, part.fixed_step_in)])

        with tf.device(self._last):
            limits = tf.identity(limits)
            state = search.initial_state(limits, self._ids[0], self._params)
            advance = placed(lambda now, candidates, limits: search.advance(
                now, candidates, limits, self._ids[1], self._params))

        def body(*flat: tf.Tensor) -> list[tf.Tensor]:
            """Runs one position through all cells, and then the search."""
            state_now, past_now = nested.pack_like(
                {'0': state, '1': dict(zip(keys, past, strict=True))}, list(flat)).values()

            moving: dict[Value, Any] = {self._target: state_now.next}
            next_past = {}
            for key, part, given, mine, shared in zip(keys, self._parts, read, kept, elsewhere,
                                                      strict=True):
                made, next_past[key] = call_on(part.device, part.step, [
                    state_now.position, state_now.parents, _of(moving, part.moving_in), given, mine,
                    past_now[key], shared])
                moving.update(zip(part.moving_out, made, strict=True))

            state_then = call_on(
                self._last, advance, [state_now, moving[self._candidates], limits])
            return nested.leaves({'0': state_then, '1': next_past})

        keys = [f'{k:05d}' for k in range(len(self._parts))]
        loop = {'0': state, '1': dict(zip(keys, past, strict=True))}
        shapes = {
            '0': nested.map_leaves(
                lambda t: tf.TensorShape([None if i != 1 or t is state.best_ids else n
                                          for i, n in enumerate(t.shape)]), state),
            '1': {key: nested.map_leaves(_growing, one) for key, one in loop['1'].items()}}
        is_going = [name for name, _ in nested.flatten(loop)].index('0/is_going')
        with tf.device(self._last):  # where the search knows whether any sentence goes on
            found = tf.while_loop(lambda *flat: flat[is_going], body, nested.leaves(loop),
                                  nested.leaves(shapes), parallel_iterations=1)

        end = nested.pack_like(loop, list(found))['0']
        with tf.device(HOME):
            return tf.identity(end.best_ids), tf.identity(end.best_score)


class _Dependence:
    """The elements of a network that depend on the target, and those that the candidates need.

    Attributes:
      target: the Value of the ids so far.
      candidates: the Value that the last layer that gives candidates writes.
      stepped: the elements that the candidates need and that depend on the target.
      before: the elements that the candidates need and that do not depend on the target.
    """

    def __init__(self, elements: Sequence[Element], target: str):
        read = {v for e in elements for v in e.reads.values()
                if v.maker == BATCH and v.name == target}
        if not read:
            raise ValueError(f'the network reads no {target!r}, so that there is nothing to '
                             f'decode; name the value of the ids so far.')
        self.target, = read

        moving, dependent = {self.target}, set()
        for element in elements:
            if moving & set(_reads(element, 'decode').values()):
                moving |= set(element.writes.values())
                dependent.add(element)
        self._moving, self._dependent = moving, dependent

        giving = [e for e in elements if e in dependent and e.layer.gives_candidates]
        if not giving:
            raise ValueError(f'no layer that depends on {target!r} gives candidates for the next '
                             f'ids; end the network with Logits or SoftmaxShards, before its loss.')
        self.candidates, = giving[-1].writes.values()

        needed, stack = set(), [giving[-1]]
        while stack:
            element = stack.pop()
            if element not in needed:
                needed.add(element)
                stack += [
                    elements[v.maker]
                    for v in (*self.moving_reads(element).values(), *self.fixed_reads(element))
                    if v.maker != BATCH]
        self.stepped = [e for e in elements if e in needed and e in dependent]
        self.before = [e for e in elements if e in needed and e not in dependent]

    def decode_reads(self, element: Element) -> Mapping[str, Value]:
        """Argument of Layer.decode -> value."""
        return _reads(element, 'decode')

    def moving_reads(self, element: Element) -> Mapping[str, Value]:
        """Argument of Layer.decode -> value, where the value depends on the target."""
        if element not in self._dependent:
            return {}
        return {argument: v for argument, v in self.decode_reads(element).items()
                if v in self._moving}

    def prepare_reads(self, element: Element) -> Mapping[str, Value]:
        """Argument of Layer.prepare -> value, where the value does not depend on the target."""
        return {argument: v for argument, v in _reads(element, 'prepare').items()
                if v not in self._moving}

    def fixed_reads(self, element: Element) -> list[Value]:
        """All values that an element reads and that do not depend on the target."""
        if element not in self._dependent:
            return list(element.reads.values())
        return [v for v in (*self.prepare_reads(element).values(),
                            *self.decode_reads(element).values()) if v not in self._moving]


class _Part:
    """What a cell does when decoding.

    Attributes:
      device: of the cell.
      before, stepped: its elements of these two kinds; see _Dependence.
      fixed_in: values that do not depend on the target and that it reads from elsewhere.
      fixed_out: values that do not depend on the target and that its steps or other cells read.
      fixed_step_in: values that do not depend on the target and that its steps read, including
        those that it computes itself.
      moving_in: values that depend on the target and that it reads from other cells.
      moving_out: values that depend on the target and that other cells or the search read.
    """

    def __init__(self, cell: Cell, network: _Dependence, program: Program,
                 params: SearchParams):
        self.device, self._params, self._network = cell.device, params, network
        self.before = [e for e in network.before if e in cell.elements]
        self.stepped = [e for e in network.stepped if e in cell.elements]

        # The values that the cell makes, those that it reads, and those that others read.
        mine = {*self.before, *self.stepped}
        made = {v for e in mine for v in e.writes.values()}
        others = [e for e in (*network.before, *network.stepped) if e not in mine]
        fixed = [v for e in (*self.before, *self.stepped) for v in network.fixed_reads(e)]
        moving = [v for e in self.stepped for v in network.moving_reads(e).values()]
        asked = {v for e in others for v in (
            *network.fixed_reads(e), *network.moving_reads(e).values())} | {network.candidates}

        self.fixed_in = [v for v in dict.fromkeys(fixed) if v not in made]
        self.moving_in = [v for v in dict.fromkeys(moving) if v not in made]
        read_by_steps = dict.fromkeys(
            v for e in self.stepped for v in network.decode_reads(e).values())
        self.fixed_out = [v for e in self.before for v in e.writes.values()
                          if v in asked or v in read_by_steps]
        self.fixed_step_in = [v for v in read_by_steps if v in self.fixed_in or v in self.fixed_out]
        self.moving_out = [v for e in self.stepped for v in e.writes.values() if v in asked]

        variables = program.placed.averaged()
        self._read, self._read_shared = (program.placed.reader(cell, variables),
                                         program.placed.shared_reader(variables))
        paths = dict.fromkeys(w.shared_with for e in (*self.before, *self.stepped)
                              for w in e.layer.weights() if w.shared_with)
        self._elsewhere = [path for path in paths if program.placed.cell_of[path] != cell.index]

        self.prepare = placed(self._prepare)
        self.step = placed(self._step)

    def weights_elsewhere(self) -> list[tf.Tensor]:
        """Reads the tied weights that other cells own."""
        return [self._read_shared(path) for path in self._elsewhere]

    def initial_past(self, num_sentences: tf.Tensor) -> dict[str, NestedMap]:
        """Returns the past of every stepped element before the first position, by its index."""
        ctx = self._context(0)
        return {f'{e.index:05d}': e.layer.initial_past(
                    num_sentences, ctx,
                    **{argument: v.spec for argument, v in self._network.decode_reads(e).items()})
                for e in self.stepped}

    def _prepare(self, inputs: list[Any],
                 elsewhere: list[tf.Tensor]) -> tuple[list[Any], dict[str, Any]]:
        values, ctx, kept = dict(zip(self.fixed_in, inputs, strict=True)), Context(), {}
        for element in (*self.before, *self.stepped):
            layer, theta = element.layer, self._theta(element, elsewhere)
            if element in self.before:
                made = layer.written(layer.fprop(
                    theta, ctx, **{a: values[v] for a, v in element.reads.items()}))
                values.update({element.writes[name]: new for name, new in made.items()})
            else:
                kept[f'{element.index:05d}'] = layer.prepare(theta, ctx, **{
                    argument: values[v]
                    for argument, v in self._network.prepare_reads(element).items()})
        return _of(values, self.fixed_out), kept

    def _step(self, position: tf.Tensor, parents: tf.Tensor, moving: list[Any], fixed: list[Any],
              kept: dict[str, Any], past: dict[str, Any],
              elsewhere: list[tf.Tensor]) -> tuple[list[Any], dict[str, Any]]:
        values = {**dict(zip(self.moving_in, moving, strict=True)),
                  **dict(zip(self.fixed_step_in, fixed, strict=True))}
        ctx, then = self._context(position), {}
        if self._params.beam_size > 1:
            past = nested.map_leaves(lambda tensor: tf.gather(tensor, parents, batch_dims=1), past)

        for element in self.stepped:
            key, layer = f'{element.index:05d}', element.layer
            result, then[key] = layer.decode(
                self._theta(element, elsewhere), ctx, kept[key], past[key], **{
                    argument: values[v]
                    for argument, v in self._network.decode_reads(element).items()})
            values.update({element.writes[name]: new
                           for name, new in layer.written(result).items()})
        return _of(values, self.moving_out), then

    def _theta(self, element: Element, elsewhere: list[tf.Tensor]) -> NestedMap:
        given = dict(zip(self._elsewhere, elsewhere, strict=True))
        paths = {w.path: w.shared_with or w.path for w in element.layer.weights()}
        return element.layer.theta({path: given[owner] if owner in given else self._read(owner)
                                    for path, owner in paths.items()})

    def _context(self, position: tf.Tensor | int) -> DecodingContext:
        return DecodingContext(position, self._params.beam_size, self._params.num_candidates,
                               self._params.max_length)


def _reads(element: Element, method: str) -> Mapping[str, Value]:
    """Argument -> value, for the values that the layer's `prepare` or `decode` reads.

    A layer that overrides the method reads the arguments that its signature names. Without an
    override, `prepare` reads nothing, and `decode` reads everything that fprop reads.
    """
    made = getattr(type(element.layer), method)
    if made is getattr(Layer, method):
        return element.reads if method == 'decode' else {}
    names = inspect.signature(made).parameters
    return {argument: value for argument, value in element.reads.items() if argument in names}


def _of(values: Mapping[Value, Any], wanted: Sequence[Value]) -> list[Any]:
    return [values[value] for value in wanted]


def _any_size(spec: tf.TensorSpec) -> tf.TensorSpec:
    """Returns the spec with unknown batch size and time."""
    return tf.TensorSpec([None if i < 2 else n for i, n in enumerate(spec.shape)], spec.dtype)


def _growing(past: tf.Tensor) -> tf.TensorShape:
    """Returns the shape of a past, [n, k, ..., t, channels], with unknown n and t."""
    rank = past.shape.rank
    return tf.TensorShape([None if i in (0, rank - 2) and i != 1 else n
                           for i, n in enumerate(past.shape)])
