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
    return float(sum(flops_of(op) for op in graph.get_operations()))


def flops_of(op: tf.Operation) -> float:
    """Floating point operations of one run of an op and of the functions that it calls.

    Raises:
      ValueError: as of `count_flops`.
    """
    graphs = bodies(op)
    if op.type in LOOPS:
        return max_turns(op) * sum(count_flops(graph) for graph in graphs)
    if graphs:
        return max(count_flops(graph) for graph in graphs)
    return flops_of_one(op)
