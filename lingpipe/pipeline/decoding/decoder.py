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

The results are those of running the network again on every prefix, up to rounding, but that a
mixture of experts leaves nothing out. They do not depend on K or on the groups. Ids that are given
are read many at once (prefill.py).
"""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from lingpipe.pipeline.decoding.decoding_cell import DecodingCell
from lingpipe.pipeline.decoding.decoding_graphs import DecodingGraphs
from lingpipe.pipeline.decoding.search_loop import SearchLoop
from lingpipe.pipeline.decoding.search_params import SearchParams
from lingpipe.pipeline.decoding.sentence_group import SentenceGroup, tensors_of
from lingpipe.pipeline.decoding.stream import Stream
from lingpipe.pipeline.decoding.target_dependence import TargetDependence
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.planning.dataflow import BATCH


class Decoder:
    """Greedy or beam search on a Program.

    Attributes:
      inputs: names of the values that every SentenceGroup must have.
      cells: what each cell does, of those that have anything to do.
    """

    def __init__(self, program: Program, params: SearchParams, start_id: int | None,
                 *ends: int, target: str = 'target'):
        """Splits the network into what runs once and what runs per position; traces nothing yet.

        Decoding uses the moving averages of the weights where the learner keeps them.

        Args:
          program: of a network that reads the ids so far as `target`; label[t] = target[t + 1].
          params: of the search.
          start_id: target[0]; None: the first id of each prompt, which every sentence must have
            and which is neither in the results nor counted by the limits.
          ends: one or more ids, each of which is a last label.
          target: the name of that value.

        Raises:
          ValueError: no ends are given, the network reads no target, or no layer that depends on it
            gives candidates for the next ids.
        """
        if not ends:
            raise ValueError('no end is given, but a decoder has one or more; give the ids that '
                             'end a sequence, or a negative number if none shall.')
        self._params = params.copy().validate()
        network = TargetDependence(program.plan.elements, target)
        cells = [DecodingCell(cell, network, program.placed, self._params, len(ends))
                 for cell in program.plan.cells]
        self.cells = [cell for cell in cells if cell.before or cell.stepped]
        loop = SearchLoop(self.cells, network, start_id, ends, self._params)
        fixed = dict.fromkeys(value for cell in self.cells for value in cell.fixed_in)
        self._graphs = DecodingGraphs(loop, [value for value in fixed if value.maker == BATCH])
        self.inputs = [value.name for value in self._graphs.values]

    def serves(self, max_length: int) -> bool:
        """Whether sentences may be decoded that are at most so long, without other graphs.

        The limits of sentences end the loop, so graphs of a larger max_length serve a smaller one.
        If they were never built, a layer may have refused the larger one.
        """
        own = self._params.max_length
        return max_length == own or max_length < own and self._graphs.are_built()

    def decode(self, groups: Sequence[SentenceGroup]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Finds the best sequence of every sentence.

        A graph is built whenever a new number of groups is given.

        Args:
          groups: one or more; K groups keep K devices busy.

        Returns:
          For each group, ids [n, t] int32 without the start, padded with ends[0], and the scores
          [n] (search.py), which are -inf for a limit of 0.

        Raises:
          ValueError: the values of a group are not those of `inputs`, or a limit is above
            max_length.
        """
        flat = self._tensors(groups)
        try:
            results = self._graphs.whole(len(groups))(*flat)
        except tf.errors.CancelledError:
            # This is often the only error when a device fails. Running the groups eagerly,
            # call by call, raises the error of the call that fails; replay.py does so for training.
            self._graphs.decode(*flat)
            raise
        return [(results[f'{g} ids'].numpy(), results[f'{g} scores'].numpy())
                for g in range(len(groups))]

    def stream(self, groups: Sequence[SentenceGroup]) -> Stream:
        """Begins to decode, and stops before the first id. The arguments are those of `decode`."""
        return Stream(self._graphs, self._tensors(groups), len(groups))

    def _tensors(self, groups: Sequence[SentenceGroup]) -> list[tf.Tensor]:
        return [tensor for group in groups for tensor in
                tensors_of(group, self._graphs.values, self._params.max_length)]
