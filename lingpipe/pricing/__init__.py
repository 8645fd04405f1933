"""Pricing: what a layer's fprop costs, found out by building its graph on abstract shapes; no variable, no data.

    traced_cost(layer, tf.TensorSpec([8, 64, 256]))  ->  Cost(flops, num_weights, outputs)

    graph.py   the graph of one fprop            flops.py        FLOPs of a graph, by formulas.py
    ops.py     what ops run, view and keep       residuals.py    what is kept for backward
"""
from lingpipe.pricing.flops import count_flops
from lingpipe.pricing.graph import Trace, trace
from lingpipe.pricing.ops import stateful_types
from lingpipe.pricing.residuals import (
    Residuals,
    ancestors,
    bytes_of_roots,
    residual_tensors,
    residuals_of_layer,
)
from lingpipe.pricing.traced_cost import traced_cost

__all__ = ['Residuals', 'Trace', 'ancestors', 'bytes_of_roots', 'count_flops', 'residual_tensors',
           'residuals_of_layer', 'stateful_types', 'trace', 'traced_cost']
