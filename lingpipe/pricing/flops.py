"""FLOPs of a graph."""
from __future__ import annotations

from typing import Any

from lingpipe.pricing.formulas import flops_of_one
from lingpipe.pricing.ops import LOOPS, bodies, max_turns


def count_flops(graph: Any) -> float:
    """Floating point operations of one run of a graph, the functions it calls included; a multiply-add counts 2.

    Of the branches of a conditional the dearest counts; a loop counts as often as it can run.

    Raises:
      ValueError: a shape is not known, or a loop has no bound.
    """
    return float(sum(_flops(op) for op in graph.get_operations()))


def _flops(op: Any) -> float:
    inner = bodies(op)
    if op.type in LOOPS:
        return max_turns(op) * sum(count_flops(body) for body in inner)
    if inner:
        return max(count_flops(body) for body in inner)
    return flops_of_one(op)
