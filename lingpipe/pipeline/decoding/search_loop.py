"""SearchLoop: writes the sequences of one sentence group, in a loop over the positions."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from lingpipe.cluster import HOME
from lingpipe.layers import nested
from lingpipe.layers.nested import Nested, NestedMap
from lingpipe.pipeline.decoding import prefill, search
from lingpipe.pipeline.decoding.decoding_cell import (
    DecodingCell,
    GivenWeights,
    Prepared,
    values_of,
)
from lingpipe.pipeline.decoding.sampling import SamplingParams, narrowed
from lingpipe.pipeline.decoding.search_params import SearchParams
from lingpipe.pipeline.decoding.target_dependence import TargetDependence
from lingpipe.pipeline.execution.placed import call_on, placed
from lingpipe.pipeline.planning.dataflow import Value


class GroupState(NamedTuple):
    """A sentence group between two steps.

    Attributes:
      prepared: of each cell, by its key, what does not change.
      given: limits, prompts and chances, and starts [n]: how many of the first ids of each
        sentence are padding.
      past: of each cell, what its layers remember.
      search: the state of the search.
    """
    prepared: dict[str, Prepared]
    given: NestedMap
    past: dict[str, Nested]
    search: NestedMap


class SearchLoop:
    """The steps of all cells and of the search, for a sentence group of any size."""

    def __init__(self, cells: Sequence[DecodingCell], network: TargetDependence,
                 start_id: int | None, ends: Sequence[int], params: SearchParams):
        self._cells = {f'{k:05d}': cell for k, cell in enumerate(cells)}
        self._last = cells[-1].device
        self._target, self._candidates = network.target, network.candidates
        self._can_start_late = network.can_start_late
        self._start_id, self._params = start_id, params
        self._ends = ends
        self._advance = placed(self._search)

    def weights(self) -> dict[str, GivenWeights]:
        """Reads what each cell, by its key, is given of its weights."""
        weights = {}
        for key, cell in self._cells.items():
            with tf.device(cell.device):
                weights[key] = cell.given_weights()
        return weights

    def run(self, fixed: dict[Value, Nested], given: NestedMap,
            weights: Mapping[str, GivenWeights]) -> tuple[tf.Tensor, tf.Tensor]:
        """Decodes a sentence group.

        Args:
          fixed: the values of the batch that the network reads besides the target.
          given: limits [n], prompts [n, P] and chances [n, t], as in SentenceGroup.
          weights: what `weights` has read for all groups.

        Returns:
          ids [n, t] and scores [n], on the host.
        """
        end = self.go_on(self.start(fixed, given, weights))
        with tf.device(HOME):
            ids = prefill.without_padding(end.search.best_ids, end.given.starts, self._ends[0])
            return ids[:, :tf.reduce_max(given.limits)], tf.identity(end.search.best_score)

    def start(self, fixed: dict[Value, Nested], given: NestedMap,
              weights: Mapping[str, GivenWeights]) -> GroupState:
        """Computes what comes before the first step. The arguments are those of `run`."""
        pass_size = self._params.prefill if isinstance(self._params, SamplingParams) else 0
        if not any(cell.prefilled for cell in self._cells.values()):
            pass_size = 0
        with tf.device(self._last):
            first, given = self._first(given)
            lengths = prefill.num_read(
                given.prompts, given.limits,
                self._can_start_late) if pass_size else tf.zeros_like(given.limits)
            starts = tf.reduce_max(lengths) - lengths
            # Only sampling has prompts and chances.
            names = given if isinstance(self._params, SamplingParams) else ['limits']
            given = NestedMap({name: tf.identity(given[name]) for name in names}, starts=starts)
            state = search.initial_state(given.limits, first, self._params)

        prepared = self._prepare(fixed, given.limits, starts, weights)
        past = {key: one.past for key, one in prepared.items()}
        if pass_size:
            with tf.device(self._last):
                ids = prefill.left_padded(given.prompts, lengths, first)
                past = prefill.read(self._cells, self._target, ids[:, :-1], pass_size, prepared)
                state = prefill.after_prompt(state, ids, self._ends[0])
        return GroupState(prepared, given, past, state)

    def go_on(self, now: GroupState, until: tf.Tensor | None = None) -> GroupState:
        """Makes steps up to the position `until`, or until no sentence of the group goes on."""
        start = {'past': now.past, 'search': now.search}

        def body(*flat: tf.Tensor) -> list[tf.Tensor]:
            then = nested.pack_like(start, list(flat))
            return nested.leaves(self._step(then['search'], then['past'], now.prepared, now.given))

        names = [name for name, _ in nested.flatten(start)]
        is_going, position = names.index('search/is_going'), names.index('search/position')

        def goes_on(*flat: tf.Tensor) -> tf.Tensor:
            return flat[is_going] if until is None else flat[is_going] & (flat[position] < until)

        with tf.device(self._last):  # where the search knows whether any sentence goes on
            flat = tf.while_loop(goes_on, body, nested.leaves(start),
                                 nested.leaves(grown_shapes(now)), parallel_iterations=1)
        end = nested.pack_like(start, list(flat))
        return now._replace(past=end['past'], search=end['search'])

    def _first(self, given: NestedMap) -> tuple[tf.Tensor, NestedMap]:
        """The ids that are read first, [] or [n], and what is given behind them."""
        if self._start_id is not None:
            return tf.constant(self._start_id), given
        return given.prompts[:, 0], NestedMap({**given, 'prompts': given.prompts[:, 1:]})

    def _prepare(self, fixed: dict[Value, Nested], limits: tf.Tensor, starts: tf.Tensor,
                 weights: Mapping[str, GivenWeights]) -> dict[str, Prepared]:
        """Computes what does not depend on the target, cell by cell."""
        values, prepared = dict(fixed), {}
        for key, cell in self._cells.items():
            with tf.device(cell.device):
                fixed_out, kept = call_on(cell.device, cell.prepare, [
                    values_of(values, cell.fixed_in), weights[key].elsewhere])
                values.update(zip(cell.fixed_out, fixed_out, strict=True))

                past = cell.initial_past(tf.shape(limits)[0])
                fixed_step_in = [nested.map_leaves(tf.identity, value)
                                 for value in values_of(values, cell.fixed_step_in)]
                prepared[key] = Prepared(
                    weights[key], kept, past, fixed_step_in, tf.identity(starts))
        return prepared

    def _step(self, state: NestedMap, past: dict[str, Nested], prepared: dict[str, Prepared],
              given: NestedMap) -> dict[str, Nested]:
        """Runs one position through all cells, and then the search."""
        moving: dict[Value, Nested] = {self._target: state.next}
        next_past = {}
        for key, cell in self._cells.items():
            of_cell = prepared[key]
            moving_out, next_past[key] = call_on(cell.device, cell.step, [
                state.position, of_cell.starts, state.parents, values_of(moving, cell.moving_in),
                of_cell.values, of_cell.kept, past[key], of_cell.weights.of_step])
            moving.update(zip(cell.moving_out, moving_out, strict=True))

        next_state = call_on(self._last, self._advance, [state, moving[self._candidates], given])
        return {'past': next_past, 'search': next_state}

    def _search(self, state: NestedMap, candidates: NestedMap, given: NestedMap) -> NestedMap:
        """Returns the state of the search after one more id."""
        num_given: tf.Tensor | int = 0
        if isinstance(self._params, SamplingParams):
            candidates = narrowed(candidates, state, given, self._params)
            num_given = prefill.num_given(given.prompts)
        return search.advance(state, candidates, given.limits, self._ends, self._params,
                              given.starts, num_given)


def grown_shapes(state: GroupState) -> dict[str, Nested]:
    """Shapes of `past` and `search` that hold at every position, made of those at one."""
    of_search = state.search
    return {'past': nested.map_leaves(prefill.grown_shape, state.past),
            'search': nested.map_leaves(
                lambda tensor: tf.TensorShape([
                    None if i != 1 or tensor is of_search.best_ids else n
                    for i, n in enumerate(tensor.shape)]), of_search)}
