"""Partition: an experiment's layers and cells as rows of numbers, for the tools that print and draw them; nothing is trained."""
from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from lingpipe.pipeline.planning.memory import Footprint

if TYPE_CHECKING:
    from lingpipe.pipeline.planning.plan import Plan
    from lingpipe.tools.command_line import Parser


def add_flags(parser: Parser) -> None:
    """The flags that say which partition, and --json."""
    parser.add_argument('--model', required=True, help='name of an experiment')
    parser.add_number('--num_cells', 0, "K; 0: the experiment's", least=0)
    parser.add_argument('--set', action='append', default=[], help='path=value, as for the trainer')
    parser.add_argument('--measure', action='store_true', help='time each layer on the first CPU device and cut by seconds')
    parser.add_argument('--json', action='store_true', help='print one JSON object')


def planned(args: argparse.Namespace) -> tuple[Any, Plan]:
    """The experiment's Params with the flags in them, and its plan; with --measure its costs are seconds.

    Raises:
      ValueError: there is no such experiment, Param or partition.
    """
    from lingpipe.training import registry

    params = registry.get(args.model).override_all(args.set)
    if args.num_cells:
        params.pipeline.num_cells = args.num_cells
    plan = params.instantiate().make_plan()
    if args.measure:
        from lingpipe.pipeline.execution.measured_costs import layer_seconds
        measured = layer_seconds(plan.elements, 'CPU:0')
        params.pipeline.layer_seconds = tuple(forward + backward for forward, backward in measured)
        params.pipeline.layer_backward_seconds = tuple(backward for _, backward in measured)
        plan = params.instantiate().make_plan()
    return params, plan


def rows(plan: Plan) -> dict[str, Any]:
    """What --json prints: a row for every layer and every cell, the balance and the predicted bubble.

    A layer's `gflops` are of one forward micro-batch. `state_mb`, of weights, gradients and slots, and `residual_mb`, what a micro-batch
    leaves for the backward where nothing is recomputed, are what the layer adds to its cell: what it shares with layers before it counts
    there. `ms`, forward and backward of one micro-batch, and `backward_ms`, are there if the costs are seconds.
    """
    p = plan.params
    layers = []
    for cell in plan.cells:
        before = Footprint()
        for e, footprint in zip(cell.elements, plan.memory.growing(cell.elements[0].index), strict=False):
            row = {'cell': cell.index, 'layer': e.layer.path, 'kind': type(e.layer).__name__, 'gflops': e.cost.flops / 1e9,
                   'num_weights': e.cost.num_weights, 'state_mb': (footprint.fixed - before.fixed) / 1e6,
                   'residual_mb': (footprint.residual - before.residual) / 1e6, 'reads': sorted({v.name for v in e.reads.values()})}
            if p.layer_seconds:
                row['ms'] = p.layer_seconds[e.index] * 1e3
            if p.layer_backward_seconds:
                row['backward_ms'] = p.layer_backward_seconds[e.index] * 1e3
            layers.append(row)
            before = footprint
    return {'layers': layers, 'cells': plan.rows(), 'balance': plan.balance, 'bubble_share': plan.simulate().bubble_share}
