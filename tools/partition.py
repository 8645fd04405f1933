"""Partition: an experiment's layers and cells as rows of numbers.

It serves the tools that print and draw a partition. Nothing is trained.
"""
from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from lingpipe.pipeline.planning.memory import Footprint

if TYPE_CHECKING:
    from lingpipe.pipeline.planning.plan import Plan
    from lingpipe.tools.command_line import Parser
    from lingpipe.training.experiment import Experiment


def add_flags(parser: Parser) -> None:
    """Adds the flags that say which partition, and --json."""
    parser.add_argument('--model', required=True, help='name of an experiment')
    parser.add_number('--num_cells', 0, "K; 0: the experiment's", least=0)
    parser.add_argument('--set', action='append', default=[], help='path=value, as for the trainer')
    parser.add_argument('--measure', action='store_true',
                        help='time each layer on the CPU and cut by seconds')
    parser.add_argument('--json', action='store_true', help='print one JSON object')


def planned(args: argparse.Namespace) -> tuple[Experiment.Params, Plan]:
    """Returns the experiment's Params, changed by the flags, and its plan.

    With --measure, the costs of the plan are seconds.

    Raises:
      ValueError: there is no such experiment, Param or partition.
    """
    from lingpipe.training import registry

    params = registry.get(args.model).override_all(args.set)
    if args.num_cells:
        params.pipeline.num_cells = args.num_cells
    plan = params.instantiate().make_plan()
    if args.measure:
        from lingpipe.pipeline.execution.measured_costs import cpu_devices, layer_seconds
        from lingpipe.pipeline.execution.measured_hardware import memory_bytes_per_s
        devices = cpu_devices(params.pipeline.num_devices)
        measured = layer_seconds(plan.elements, devices)
        params.pipeline.layer_seconds = tuple(forward + backward for forward, backward in measured)
        params.pipeline.layer_backward_seconds = tuple(backward for _, backward in measured)
        params.pipeline.memory_bytes_per_s = memory_bytes_per_s(devices)
        plan = params.instantiate().make_plan()
    return params, plan


def rows(plan: Plan) -> dict[str, Any]:
    """Returns what --json prints: rows of layers and cells, the balance and the predicted bubble.

    The numbers of a layer are those of one micro-batch, and in part what it adds to its cell: what
    it shares with layers before it counts there.

        gflops       of a forward
        state_mb     weights, gradients and slots that it adds
        residual_mb  what it adds to the values that are kept for the backward, where nothing is
                     recomputed
        ms           forward and backward, if the costs of the plan are seconds
        backward_ms  backward, likewise
    """
    params = plan.params
    layers = []
    for cell in plan.cells:
        before = Footprint()
        footprints = plan.forecast.memory.growing(cell.elements[0].index)
        for e, footprint in zip(cell.elements, footprints, strict=False):
            row = {'cell': cell.index,
                   'layer': e.layer.path,
                   'kind': type(e.layer).__name__,
                   'gflops': e.cost.flops / 1e9,
                   'num_weights': e.cost.num_weights,
                   'state_mb': (footprint.fixed - before.fixed) / 1e6,
                   'residual_mb': (footprint.residual - before.residual) / 1e6,
                   'reads': sorted({value.name for value in e.reads.values()})}
            if params.layer_seconds:
                row['ms'] = params.layer_seconds[e.index] * 1e3
            if params.layer_backward_seconds:
                row['backward_ms'] = params.layer_backward_seconds[e.index] * 1e3
            layers.append(row)
            before = footprint
    return {'layers': layers, 'cells': plan.rows(), 'balance': plan.forecast.balance,
            'bubble_share': plan.simulate().bubble_share}
