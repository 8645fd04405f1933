"""Span bounds: what a cell takes and needs at least, for every span of units at once.

limited_bound.py combines them for one choice, and family_bound.py for any number of cells.

L layers, U units of them, M micro-batches.
"""
from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from lingpipe.pipeline.planning.dataflow import Element
from lingpipe.pipeline.planning.layer_times import layer_times
from lingpipe.pipeline.planning.memory import FIELDS, Memory
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.pipeline.planning.schedules import UNSPLIT
from lingpipe.pipeline.planning.waits import Waits, waits


@dataclasses.dataclass(frozen=True, eq=False)
class SpanSeconds:
    """Seconds of cells, by their first unit and their end.

    Attributes:
      elements: the network, wired for one micro-batch.
      seconds: [L] forward and backward of each layer.
      params: M, the schedule, which decides whether backwards may be split, and what layers take.
      starts: the layer where each unit begins, and the number of layers.
    """
    elements: Sequence[Element]
    seconds: Sequence[tuple[float, float]]
    params: PipelineParams
    starts: Sequence[int]

    def alone_s(self, mode: str, is_last: bool) -> np.ndarray:
        """[U + 1, U + 1] what a step takes at least by what a cell does.

        Args:
          mode: how it recomputes.
          is_last: whether it is the last cell.
        """
        key = mode, is_last
        if key not in self._alone:
            self._alone[key] = self._make_alone(*key)
        return self._alone[key]

    def _make_alone(self, mode: str, is_last: bool) -> np.ndarray:
        load = self._load(mode, is_last)
        before, after = self._waits.before[:, None], self._waits.after[:, None]
        if self._is_unsplit:
            return np.asarray(before + self.params.num_micro_batches * load + after)
        # The last W may run after all that waits for the last B.
        seconds = before + self.params.num_micro_batches * load
        return np.asarray(np.maximum(
            seconds, after + seconds - self.params.num_micro_batches * self._weight_s))

    def device_s(self, mode: str, is_last: bool, is_first: bool) -> np.ndarray:
        """[U + 1, U + 1] what a cell adds to its device's time.

        It is the load of all micro-batches. The first cell of a device has its waits too.

        Args:
          mode, is_last: as of `alone_s`.
          is_first: whether it is the first cell of its device.
        """
        seconds = self.params.num_micro_batches * self._load(mode, is_last)
        if is_first:
            waits = self._waits.of_later_units()   # A later cell may be the first or last to run.
            seconds = seconds + (waits.before + self._is_unsplit * waits.after)[:, None]
        return np.asarray(seconds)

    def _load(self, mode: str, is_last: bool) -> np.ndarray:
        """[U + 1, U + 1] seconds of a cell for one micro-batch."""
        key = mode, is_last
        if key not in self._loads:
            self._loads[key] = self._make_load(*key)
        return self._loads[key]

    def _make_load(self, mode: str, is_last: bool) -> np.ndarray:
        load = _spans(self._load_sums(mode, is_last), self.starts)
        if mode == 'layer' and not is_last:   # The last layer runs again with the cell only.
            load -= np.array([0.0, *self._repeated_s])[np.asarray(self.starts)][None, :]
        return load

    def _load_sums(self, mode: str, is_last: bool) -> np.ndarray:
        """[L + 1] the seconds of the layers before each one for one micro-batch."""
        times = (mode == 'layer') + (mode in ('cell', 'layer') and not is_last)
        return np.cumsum([0.0, *(forward + backward + times * repeated for
                                 (forward, backward), repeated in
                                 zip(self.seconds, self._repeated_s, strict=True))])

    @functools.cached_property
    def _alone(self) -> dict[tuple[str, bool], np.ndarray]:
        """(mode, whether it is the last) -> what was asked for."""
        return {}

    @functools.cached_property
    def _loads(self) -> dict[tuple[str, bool], np.ndarray]:
        """(mode, whether it is the last) -> the loads of such a cell."""
        return {}

    @functools.cached_property
    def _repeated_s(self) -> list[float]:
        """[L] what it takes to run a layer once more for its backward."""
        return [forward * element.has_backward for (forward, _), element in
                zip(self.seconds, self.elements, strict=True)]

    @property
    def _is_unsplit(self) -> bool:
        return self.params.schedule in UNSPLIT

    @functools.cached_property
    def _layer_weight_s(self) -> tuple[float, ...]:
        return layer_times(self.elements, self.params).weight

    @functools.cached_property
    def _waits(self) -> Waits:
        forward_s, backward_s = zip(*self.seconds, strict=True)
        of_b = [backward - weight * (not self._is_unsplit) for backward, weight in
                zip(backward_s, self._layer_weight_s, strict=True)]
        return waits(self.elements, forward_s, of_b, self.starts)

    @functools.cached_property
    def _weight_s(self) -> np.ndarray:
        """[U + 1, U + 1] the seconds of W for one micro-batch, where there is one."""
        of_units = np.cumsum([0.0, *self._layer_weight_s])[np.asarray(self.starts)]
        return np.asarray(of_units[None, :] - of_units[:, None])


class SpanBytes:
    """[U + 1, U + 1] the bytes of every span of units, by its first and its end.

    Bytes that are held for each micro-batch are 0 in spans without backward, of which none is live.
    """

    def __init__(self, memory: Memory, mode: str, starts: Sequence[int]):
        table = memory.table(mode, starts)
        columns = dict(zip(FIELDS, table[:-1], strict=True))
        self.fixed, self.held = columns['fixed'], columns['held'] * table[-1]
        self.working, self.received = columns['working'], columns['received']


def tables_of(modes: Iterable[str], memory: Memory, starts: Sequence[int]) -> dict[str, SpanBytes]:
    """The bytes of spans in each mode that cells of some modes may take.

    Args:
      modes: those of cells.
      memory: what cells hold.
      starts: as of SpanSeconds.
    """
    every = dict.fromkeys(one for mode in modes for one in _modes_of(mode))
    return {mode: SpanBytes(memory, mode, starts) for mode in every}


def need_alone(mode: str, tables: Mapping[str, SpanBytes], live: int) -> np.ndarray:
    """[U + 1, U + 1] bytes of a device that has a cell alone, at least.

    Args:
      mode: of the cell.
      tables: see `tables_of`.
      live: how many of its micro-batches are live at once.
    """
    needs = []
    for one in _modes_of(mode):
        table = tables[one]
        bytes_of_slots = np.maximum(live * table.held, table.held + table.working)
        if mode == 'fit' and one == 'none':
            # Whatever is kept of that, the rest is there while a backward runs.
            bytes_of_slots = table.held
        needs.append(table.fixed + np.maximum(bytes_of_slots, table.received))
    return np.asarray(np.minimum.reduce(needs))


def _modes_of(mode: str) -> tuple[str, ...]:
    """The modes of which a cell may take the one that needs least."""
    return ('none', 'cell', 'layer') if mode == 'fit' else (mode,)


def _spans(sums: np.ndarray, starts: Sequence[int]) -> np.ndarray:
    """[U + 1, U + 1] sums over spans of units, from sums over the layers before each."""
    of_units = sums[np.asarray(starts)]
    spans = of_units[None, :] - of_units[:, None]
    spans[np.tril_indices(len(of_units))] = np.inf   # No cell is empty.
    return np.asarray(spans)
