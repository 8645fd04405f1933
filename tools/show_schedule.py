"""Prints a schedule as a grid, with its bubble and memory.

    python -m lingpipe.tools.show_schedule --schedule=1f1b --num_cells=4 --num_micro_batches=8
"""
from __future__ import annotations

import argparse
import json

from lingpipe.pipeline.planning.drawing import grid
from lingpipe.pipeline.planning.schedules import make_schedule
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
    k = args.num_cells
    m = args.num_micro_batches
    schedule = make_schedule(args.schedule, k, m)
    validate(schedule)
    simulation = simulate(schedule, [args.forward] * k, [args.backward] * k,
                          transfer_s=args.transfer, recompute=args.recompute)
    if args.png:
        simulation.timeline.save_png(args.png, f'{args.schedule}, K={k}, M={m}')

    if args.json:
        print(json.dumps({'schedule': args.schedule, 'num_cells': k, 'num_micro_batches': m,
                          'step': simulation.step_s, 'bubble_share': simulation.bubble_share,
                          'bound': bound(k, m),
                          'peak_live_micro_batches': list(simulation.peak_live),
                          'devices': [[str(slot) for slot in slots]
                                      for slots in schedule.devices]}))
        return
    bubble = simulation.bubble_share
    print(grid(schedule))
    print(f'step {simulation.step_s:g}   bubble {bubble:.1%}   '
          f'speed-up {(1 - bubble) * k:.2f} of {k} (K M / (M + K - 1) = {bound(k, m):.2f})   '
          f'most micro-batches held, by cell: {", ".join(map(str, simulation.peak_live))}')


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Returns the flags."""
    p = parser('show_schedule', __doc__)
    p.add_argument('--schedule', default='1f1b', help='gpipe, 1f1b or forward')
    p.add_number('--num_cells', 4, 'K', least=1, most=MAX_CELLS)
    p.add_number('--num_micro_batches', 8, 'M', least=1, most=MAX_FORWARDS)
    p.add_number('--forward', 1.0, 'time of a forward', least=0, most=MAX_TIME)
    p.add_number('--backward', 2.0, 'time of a backward without recomputation', least=0,
                 most=MAX_TIME)
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
    return args


if __name__ == '__main__':
    main()
