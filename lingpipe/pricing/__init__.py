"""Pricing: what a layer's fprop costs. Where no formula says it, its graph on abstract shapes does.

    price(layer, tf.TensorSpec([8, 64, 256]))  ->  Cost(flops, num_weights, outputs)

There is no variable and no data in such a graph. The files:

    ops.py            what ops run, view and keep
    formulas.py       the FLOPs of one op
    flops.py          the FLOPs of a graph
    graph.py          the graph of one fprop
    layer_cost.py     the cost of a layer
    backward_flops.py how much of the backward frozen weights leave
    gradient_rows.py  which gradients are rows of a weight
    handed_over.py    what the two parts of a split backward hand over
    recipe.py         how the forward pass makes what the backward pass reads
    temporaries.py    what a pass needs while it runs
    residuals.py      what is kept for the backward pass
"""
from lingpipe.pricing.backward_flops import BackwardFlops, backward_flops
from lingpipe.pricing.flops import count_flops
from lingpipe.pricing.gradient_rows import gradient_rows
from lingpipe.pricing.graph import Trace, trace
from lingpipe.pricing.layer_cost import price, traced_cost
from lingpipe.pricing.ops import (
    REMARKS,
    ancestors,
    impure,
    impure_types,
    narrow_casts,
    stateful_types,
)
from lingpipe.pricing.recipe import Made, Recipe, RecipeOp, Source
from lingpipe.pricing.residuals import (
    Residuals,
    bytes_of_roots,
    residual_tensors,
    residuals_of_layer,
)

__all__ = [
    'REMARKS', 'BackwardFlops', 'Made', 'Recipe', 'RecipeOp', 'Residuals', 'Source', 'Trace',
    'ancestors', 'backward_flops', 'bytes_of_roots', 'count_flops', 'gradient_rows', 'impure',
    'impure_types', 'narrow_casts', 'price', 'residual_tensors', 'residuals_of_layer',
    'stateful_types', 'trace', 'traced_cost',
]
