"""The FLOPs of a graph."""
from __future__ import annotations

import tensorflow as tf

from lingpipe.pricing.formulas import flops_of_one
from lingpipe.pricing.ops import LOOPS, bodies, max_turns


def count_flops(graph: tf.Graph) -> float:
    """Floating point operations of one run of a graph, including the functions that it calls.

    A multiply-add counts 2. Of the branches of a conditional, the most expensive one counts. A loop
    counts as often as it can run.

    Raises:
      ValueError: a shape is not known, or a loop has no bound.
    """
    return float(sum(_flops(op) for op in graph.get_operations()))


def _flops(op: tf.Operation) -> float:
    graphs = bodies(op)
    if op.type in LOOPS:
        return max_turns(op) * sum(count_flops(graph) for graph in graphs)
    if graphs:
        return max(count_flops(graph) for graph in graphs)
    return flops_of_one(op)
