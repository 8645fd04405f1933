"""Partition: an experiment's layers and cells as rows of numbers, for the tools that print and draw them; nothing is trained."""
from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lingpipe.pipeline.plan import Plan
    from tools.command_line import Parser


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
    from lingpipe import registry

    params = registry.get(args.model).override_all(args.set)
    if args.num_cells:
        params.pipeline.num_cells = args.num_cells
    plan = params.instantiate().make_plan()
    if args.measure:
        from lingpipe.pipeline.profile import layer_seconds
        params.pipeline.layer_seconds = tuple(layer_seconds(plan.elements, 'CPU:0'))
        plan = params.instantiate().make_plan()
    return params, plan


def rows(plan: Plan) -> dict[str, Any]:
    """What --json prints: a row for every layer and every cell, the balance and the predicted bubble.

    A layer's `gflops` and `activation_mb` are of one forward micro-batch, its `weight_mb` those of weights, gradients and slots; `ms`,
    forward and backward of one micro-batch, is there if the costs are seconds.
    """
    seconds = plan.params.layer_seconds
    layers = [{'cell': cell.index, 'layer': e.layer.path, 'kind': type(e.layer).__name__, 'gflops': e.cost.flops / 1e9,
               'num_weights': e.cost.num_weights, 'weight_mb': plan.bytes_a_weight * e.cost.num_weights / 1e6,
               'activation_mb': e.cost.activation_bytes / 1e6, 'reads': sorted({v.name for v in e.reads.values()}),
               **({'ms': seconds[e.index] * 1e3} if seconds else {})}
              for cell in plan.cells for e in cell.elements]
    return {'layers': layers, 'cells': plan.rows(), 'balance': plan.balance, 'bubble_share': plan.simulate().bubble_share}
