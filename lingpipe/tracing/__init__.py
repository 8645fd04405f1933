"""Tracing: what a layer's fprop costs, found out by building its graph on abstract shapes; no variable, no data.

    traced_cost(layer, tf.TensorSpec([8, 64, 256]))  ->  Cost(flops, num_weights, outputs)

    shapes.py  dimensions that must be known     flops.py        FLOPs of a graph, by formulas.py
    graph.py   the graph of one fprop            residuals.py    what is kept for backward
    ops.py     what ops run, view and keep       cost.py         traced_cost
"""
from lingpipe.tracing.cost import traced_cost
from lingpipe.tracing.flops import count_flops
from lingpipe.tracing.graph import Trace, trace
from lingpipe.tracing.ops import stateful_types
from lingpipe.tracing.residuals import Residuals, ancestors, bytes_of_roots, residual_tensors, residuals_of_layer
from lingpipe.tracing.shapes import as_spec, num_elements, static_shape

__all__ = ['Residuals', 'Trace', 'ancestors', 'as_spec', 'bytes_of_roots', 'count_flops', 'num_elements', 'residual_tensors',
           'residuals_of_layer', 'stateful_types', 'static_shape', 'trace', 'traced_cost']
