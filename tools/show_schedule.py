"""Prints a schedule as a grid, with its bubble and memory.

    python -m lingpipe.tools.show_schedule --schedule=1f1b --num_cells=4 --num_micro_batches=8
    python -m lingpipe.tools.show_schedule --schedule=zb_v --num_cells=8 --num_micro_batches=8

A row is a device. The grid is a schedule as text: pipeline.schedule_path takes a file that holds
it, and --text does the same here.
"""
from __future__ import annotations

import argparse
import json

from lingpipe.pipeline.planning.cell_times import cell_times
from lingpipe.pipeline.planning.dependencies import chain
from lingpipe.pipeline.planning.drawing import grid
from lingpipe.pipeline.planning.layout import layout_for, num_devices_for
from lingpipe.pipeline.planning.list_scheduling import Workload
from lingpipe.pipeline.planning.ordering import most_held, order_automatically, order_by_name
from lingpipe.pipeline.planning.schedule import Schedule
from lingpipe.pipeline.planning.schedule_text import parse_schedule
from lingpipe.pipeline.planning.schedules import TRAINING, make_schedule
from lingpipe.pipeline.planning.simulator import bound, simulate
from lingpipe.pipeline.planning.validation import validate
from lingpipe.tools import parser
from lingpipe.tools.command_line import MAX_CELLS, command

MAX_FORWARDS = 100_000   # in a grid, which is a line for each cell
MAX_TIME = 1e9           # of a slot, in any unit


@command
def main(argv: list[str] | None = None) -> None:
    """Parses the flags and prints."""
    args = parse(argv)
    schedule = _schedule(args)
    validate(schedule)
    k, m, num_devices = schedule.num_cells, schedule.num_micro_batches, len(schedule.devices)
    simulation = simulate(schedule, [args.forward] * k, [args.backward] * k,
                          weight_s=[args.weight] * k, split_s=args.split,
                          transfer_s=args.transfer, recompute=args.recompute)
    if args.png:
        simulation.timeline.save_png(args.png, f'{schedule.name}, K={k}, M={m}')

    if args.json:
        print(json.dumps({'schedule': schedule.name, 'num_cells': k, 'num_micro_batches': m,
                          'num_devices': num_devices,
                          'step': simulation.step_s, 'bubble_share': simulation.bubble_share,
                          'bound': bound(num_devices, m),
                          'peak_live_micro_batches': list(simulation.peak_live),
                          'devices': [[str(slot) for slot in slots]
                                      for slots in schedule.devices]}))
        return
    bubble = simulation.bubble_share
    print(grid(schedule))
    print(f'step {simulation.step_s:g}   bubble {bubble:.1%}   '
          f'speed-up {(1 - bubble) * num_devices:.2f} of {num_devices} '
          f'(K M / (M + K - 1) = {bound(num_devices, m):.2f})   '
          f'most micro-batches held, by cell: {", ".join(map(str, simulation.peak_live))}'
          + (f'   by a device: {most_held(schedule)}' if num_devices < k else ''))


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Returns the flags."""
    p = parser('show_schedule', __doc__)
    p.add_argument('--schedule', default='1f1b', help=f'{", ".join(TRAINING)}, auto or forward')
    p.add_argument('--text', default='', help='a file that holds a schedule as text, which is '
                                              'validated and shown; it says K and M')
    p.add_number('--num_cells', 4, 'K', least=1, most=MAX_CELLS)
    p.add_number('--num_micro_batches', 8, 'M', least=1, most=MAX_FORWARDS)
    p.add_number('--cells_per_device', 0, '0: what the schedule wants', least=0, most=MAX_CELLS)
    p.add_number('--forward', 1.0, 'time of a forward', least=0, most=MAX_TIME)
    p.add_number('--backward', 2.0, 'time of a backward without recomputation', least=0,
                 most=MAX_TIME)
    p.add_number('--weight', -1.0, 'the part of it that finds the gradients of weights; -1: half '
                                   'of it', least=-1, most=MAX_TIME)
    p.add_number('--split', 0.0, 'time that it costs to split a backward', least=0, most=MAX_TIME)
    p.add_argument('--recompute', action='store_true',
                   help='every cell but the last runs its forward again')
    p.add_number('--transfer', 0.0, 'time of a transfer between cells', least=0, most=MAX_TIME)
    p.add_output('--png', '', 'save a picture to this path')
    p.add_argument('--json', action='store_true', help='print one JSON object')
    args = p.parse_args(argv)

    num_forwards = args.num_cells * args.num_micro_batches
    if num_forwards > MAX_FORWARDS:
        p.error(f'--num_cells={args.num_cells} and --num_micro_batches={args.num_micro_batches} '
                f'make {num_forwards} forwards; use at most {MAX_FORWARDS}')
    if not args.forward and not args.backward:
        p.error('--forward=0 and --backward=0 leave nothing to draw; use more than 0 for one of '
                'them')
    if args.weight > args.backward:
        p.error(f'--weight={args.weight:g} is more than --backward={args.backward:g}, of which it '
                'is a part; use less')
    if args.weight < 0:
        args.weight = args.backward / 2
    return args


def _schedule(args: argparse.Namespace) -> Schedule:
    """The schedule of equal cells that the flags ask for."""
    if args.text:
        try:
            with open(args.text, encoding='utf-8') as file:
                text = file.read()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, 'strerror', None) or 'it is not UTF-8'
            raise ValueError(f'--text={args.text} cannot be read: {reason}; name a file that holds '
                             'a schedule as text') from error
        return parse_schedule(text)

    k, m = args.num_cells, args.num_micro_batches
    if args.schedule not in (*TRAINING, 'auto'):
        return make_schedule(args.schedule, k, m)
    num_devices = num_devices_for(args.schedule, k, args.cells_per_device)
    times = cell_times([args.forward] * k, [args.backward] * k, [args.weight] * k,
                       args.recompute, args.split)
    work = Workload(layout_for(args.schedule, k, num_devices), m, frozenset(range(k)), chain(k),
                    times, lambda sender, receiver: args.transfer)
    if args.schedule == 'auto':
        return order_automatically(work)
    return order_by_name(args.schedule, work)


if __name__ == '__main__':
    main()
