"""What the tasks of cells really take over from their forward passes.

The cells are traced, and no variable is made.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from lingpipe.layers.context import Emissions
from lingpipe.pipeline.execution.cell_trace import CellTrace, trace_cell
from lingpipe.pipeline.execution.forward_trace import TracingOptions, trace_forward
from lingpipe.pipeline.planning.cell import Cell, Leaf, leaves_of
from lingpipe.pipeline.planning.fitting_modes import Recomputation


class NoAccumulators:
    """Accepts what tasks add up and keeps nothing; the ops that compute it remain."""

    def add_emissions(self, emitted: Emissions) -> list[tf.Operation]:
        values = [value
                  for kind in dataclasses.fields(Emissions)
                  for value in getattr(emitted, kind.name).values()]
        return [tensor.op
                for value in values for tensor in (value if isinstance(value, tuple) else (value,))]

    def add_gradient(self, path: str, gradient: Any, micro_batch: Any) -> list[tf.Operation]:
        return [tf.convert_to_tensor(gradient).op]


def held_and_handed_bytes(cells: Sequence[Cell], recomputation: Recomputation,
                          is_split: bool = True) -> tuple[list[int], list[int]]:
    """Returns what backwards take over for one micro-batch, [K] and [K] bytes; 0 without backward.

    The first are those of B if it is whole, the second those of W if it is split, which are 0 where
    `is_split` says that no backward is. The last cell's forward is not a part of its backward.
    """
    traces = _traces(cells, recomputation, ('B_split', 'W') if is_split else ())
    held = [trace.tasks['B'].held_bytes if 'B' in trace.tasks else 0 for trace in traces]
    tasks = [trace.tasks.get('W') for trace in traces]
    return held, [
        task.held_bytes + sum(value.leaf_bytes[i] for value, i in task.gradients_in) if task else 0
        for task in tasks]


def _traces(cells: Sequence[Cell], recomputation: Recomputation,
            split_kinds: Sequence[str]) -> list[CellTrace]:
    """[K] the traces; where there is a backward, it is whole and, if asked for, split too."""
    available: set[Leaf] = set()
    traces = []
    for cell in reversed(cells):
        weights = {w.path: w
                   for e in cell.elements for w in e.layer.weights() if w.shared_with is None}

        def read(path: str) -> tf.Tensor | None:
            return (tf.zeros(weights[path].shape, weights[path].dtype)   # noqa: B023
                    if path in weights else None)   # noqa: B023

        gradients_in = [leaf
                        for leaf in leaves_of([*cell.inputs, *cell.outputs]) if leaf in available]
        forward = trace_forward(cell, read, TracingOptions(True, 0, recomputation))
        kinds = ['F', 'B', *split_kinds] if cell.has_backward else ['F']
        traces.append(trace_cell(forward, NoAccumulators(), gradients_in, kinds))
        available.update(traces[-1].gradients_out)
    return traces[::-1]
