"""Stream: sentence groups that are decoded some positions at a time, to see what is written."""
from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from lingpipe.layers.nested import NestedMap
from lingpipe.pipeline.decoding.decoding_graphs import DecodingGraphs
from lingpipe.pipeline.decoding.search_loop import GroupState


class Written(NamedTuple):
    """What is written of a sentence group.

    Attributes:
      is_going: whether any of its sentences goes on.
      ids: [t] int32 of each sentence, those of its best unfinished hypothesis; behind the end, and
        behind the limit, they mean nothing.
      best_ids: [t] int32 of each, those of the best finished one, once its sentence is over, and
        an end behind them.
    """
    is_going: bool
    ids: Sequence[np.ndarray]
    best_ids: Sequence[np.ndarray]


class Stream:
    """Sentence groups that are being decoded. Their state stays on the devices between calls."""

    def __init__(self, graphs: DecodingGraphs, tensors: Sequence[tf.Tensor], num_groups: int):
        """Reads what is given of the sentences.

        Args:
          graphs: what decodes.
          tensors: those of the groups (sentence_group.py), group after group.
          num_groups: how many groups these are.
        """
        self._states = graphs.start(num_groups)(*tensors)
        self._go_on = graphs.go_on(num_groups)

    def advance(self, num_positions: int, limits: Sequence[np.ndarray]) -> list[Written]:
        """Writes up to so many ids more of each sentence; returns what is written so far.

        Args:
          num_positions: 1 or more.
          limits: of each group, as SentenceGroup has them. A sentence that is to end has a limit
            that is reached already.
        """
        now = [state._replace(given=NestedMap({**state.given, 'limits': tf.constant(
            group_limits, tf.int32)})) for state, group_limits in
            zip(self._states, limits, strict=True)]
        ends = self._go_on(tf.constant(num_positions), *tf.nest.flatten(now))
        self._states = [state._replace(past=past, search=search)
                        for state, (past, search) in zip(now, ends, strict=True)]
        return [Written(bool(state.search.is_going),
                        _without_padding(state, state.search.ids[:, 0]),
                        _without_padding(state, state.search.best_ids)) for state in self._states]


def _without_padding(state: GroupState, ids: tf.Tensor) -> list[np.ndarray]:
    """The ids [n, t] of a group, without those that are before the start of each sentence."""
    return [row[start:] for row, start in zip(
        ids.numpy(), state.given.starts.numpy(), strict=True)]
