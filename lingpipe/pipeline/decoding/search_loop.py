"""SearchLoop: writes the sequences of one sentence group, in a loop over the positions."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from lingpipe.cluster import HOME
from lingpipe.layers import nested
from lingpipe.layers.nested import NestedMap
from lingpipe.pipeline.decoding import search
from lingpipe.pipeline.decoding.decoding_cell import DecodingCell, values_of
from lingpipe.pipeline.decoding.sampling import SamplingParams, narrowed
from lingpipe.pipeline.decoding.search_params import SearchParams
from lingpipe.pipeline.decoding.target_dependence import TargetDependence
from lingpipe.pipeline.execution.placed import call_on, placed
from lingpipe.pipeline.planning.dataflow import Value


class _Prepared(NamedTuple):
    """What the steps of a cell read at every position, on its device.

    Otherwise it would be sent there for each position.

    Attributes:
      elsewhere: the tied weights that other cells own.
      kept: what its layers keep of the values that do not depend on the target.
      past: what its layers remember before the first position.
      values: the values that do not depend on the target.
    """
    elsewhere: list[tf.Tensor]
    kept: dict[str, Any]
    past: dict[str, Any]
    values: list[Any]


class SearchLoop:
    """The steps of all cells and of the search, for a sentence group of any size.

    In the loop, a value is {'past': cell -> its past, 'search': the state of the search}.
    """

    def __init__(self, cells: Sequence[DecodingCell], network: TargetDependence, start_id: int,
                 end_id: int, params: SearchParams):
        self._cells = {f'{k:05d}': cell for k, cell in enumerate(cells)}
        self._last = cells[-1].device
        self._target, self._candidates = network.target, network.candidates
        self._start_id, self._params = start_id, params
        self._end_id = end_id
        self._advance = placed(self._search)

    def run(self, fixed: dict[Value, Any], given: NestedMap) -> tuple[tf.Tensor, tf.Tensor]:
        """Decodes a sentence group.

        Args:
          fixed: the values of the batch that the network reads besides the target.
          given: limits [n], prompts [n, P] and chances [n, t], as in SentenceGroup.

        Returns:
          ids [n, t] and scores [n], on the host.
        """
        prepared = self._prepare(fixed, given.limits)
        if not isinstance(self._params, SamplingParams):   # which alone has prompts and chances
            given = NestedMap(limits=given.limits)
        with tf.device(self._last):
            given = nested.map_leaves(tf.identity, given)
            state = search.initial_state(given.limits, self._start_id, self._params)
        start = {'past': {key: one.past for key, one in prepared.items()}, 'search': state}

        def body(*flat: tf.Tensor) -> list[tf.Tensor]:
            now = nested.pack_like(start, list(flat))
            return nested.leaves(self._step(now['search'], now['past'], prepared, given))

        names = [name for name, _ in nested.flatten(start)]
        is_going = names.index('search/is_going')
        with tf.device(self._last):  # where the search knows whether any sentence goes on
            flat = tf.while_loop(lambda *flat: flat[is_going], body, nested.leaves(start),
                                 nested.leaves(_shapes(start)), parallel_iterations=1)

        end = nested.pack_like(start, list(flat))['search']
        with tf.device(HOME):
            return tf.identity(end.best_ids), tf.identity(end.best_score)

    def _prepare(self, fixed: dict[Value, Any], limits: tf.Tensor) -> dict[str, _Prepared]:
        """Computes what does not depend on the target, cell by cell."""
        values, prepared = dict(fixed), {}
        for key, cell in self._cells.items():
            with tf.device(cell.device):
                elsewhere = [tf.identity(weight) for weight in cell.weights_elsewhere()]
                fixed_out, kept = call_on(cell.device, cell.prepare,
                                          [values_of(values, cell.fixed_in), elsewhere])
                values.update(zip(cell.fixed_out, fixed_out, strict=True))

                past = cell.initial_past(tf.shape(limits)[0])
                fixed_step_in = [nested.map_leaves(tf.identity, value)
                                 for value in values_of(values, cell.fixed_step_in)]
            prepared[key] = _Prepared(elsewhere, kept, past, fixed_step_in)
        return prepared

    def _step(self, state: NestedMap, past: dict[str, Any], prepared: dict[str, _Prepared],
              given: NestedMap) -> dict[str, Any]:
        """Runs one position through all cells, and then the search."""
        moving: dict[Value, Any] = {self._target: state.next}
        next_past = {}
        for key, cell in self._cells.items():
            elsewhere, kept, _, fixed = prepared[key]
            moving_out, next_past[key] = call_on(cell.device, cell.step, [
                state.position, state.parents, values_of(moving, cell.moving_in), fixed, kept,
                past[key], elsewhere])
            moving.update(zip(cell.moving_out, moving_out, strict=True))

        next_state = call_on(self._last, self._advance, [state, moving[self._candidates], given])
        return {'past': next_past, 'search': next_state}

    def _search(self, state: NestedMap, candidates: NestedMap, given: NestedMap) -> NestedMap:
        """Returns the state of the search after one more id."""
        if isinstance(self._params, SamplingParams):
            candidates = narrowed(candidates, state, given, self._params)
        return search.advance(state, candidates, given.limits, self._end_id, self._params)


def _shapes(start: dict[str, Any]) -> dict[str, Any]:
    """The shapes that hold at every position, of the values of the loop before the first one."""
    state = start['search']
    return {'past': nested.map_leaves(_growing, start['past']),
            'search': nested.map_leaves(
                lambda tensor: tf.TensorShape([
                    None if i != 1 or tensor is state.best_ids else n
                    for i, n in enumerate(tensor.shape)]), state)}


def _growing(past: tf.Tensor) -> tf.TensorShape:
    """Returns the shape of a past, [n, k, ..., t, channels], with unknown n and t."""
    rank = past.shape.rank
    return tf.TensorShape([None if i in (0, rank - 2) and i != 1 else n
                           for i, n in enumerate(past.shape)])
