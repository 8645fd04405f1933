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


def held_bytes(cells: Sequence[Cell], recomputation: Recomputation | None = None) -> list[int]:
    """Returns [K] the bytes that each cell's backward task takes over for one micro-batch.

    Nothing is recomputed by default. A cell without a backward has 0.
    """
    return [trace.tasks['B'].held_bytes if 'B' in trace.tasks else 0
            for trace in _traces(cells, ['F', 'B'], recomputation)]


def bytes_read_by_w(cells: Sequence[Cell],
                    recomputation: Recomputation | None = None) -> list[int]:
    """Returns [K] the bytes that W takes of a micro-batch if all backwards are split.

    The last cell's forward is not a part of its backward. A cell without a backward has 0.
    """
    tasks = [trace.tasks.get('W') for trace in _traces(cells, ['F', 'B_split', 'W'], recomputation)]
    return [task.held_bytes + sum(value.leaf_bytes[i] for value, i in task.gradients_in)
            if task else 0 for task in tasks]


def _traces(cells: Sequence[Cell], kinds: Sequence[str],
            recomputation: Recomputation | None) -> list[CellTrace]:
    """[K] the traces, with tasks of these kinds where there is a backward."""
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
        traces.append(trace_cell(forward, NoAccumulators(), gradients_in,
                                 kinds if cell.has_backward else ['F']))
        available.update(traces[-1].gradients_out)
    return traces[::-1]
