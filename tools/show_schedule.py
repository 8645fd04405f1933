"""Prints a schedule as a grid, with its bubble and memory.

    python -m lingpipe.tools.show_schedule --schedule=1f1b --num_cells=4 --num_micro_batches=8
"""
from __future__ import annotations

import json

from lingpipe.pipeline.planning.drawing import grid
from lingpipe.pipeline.planning.schedules import make_schedule
from lingpipe.pipeline.planning.simulator import bound, simulate
from lingpipe.pipeline.planning.validation import validate
from lingpipe.tools import parser
from lingpipe.tools.command_line import MAX_CELLS, command

MAX_SLOTS = 100_000   # of the forwards in a grid, which is a line for each cell
MAX_TIME = 1e9        # of a task, in any unit


@command
def main(argv: list[str] | None = None) -> None:
    """Parses the flags and prints."""
    p = parser('show_schedule', __doc__)
    p.add_argument('--schedule', default='1f1b', help='gpipe, 1f1b or forward')
    p.add_number('--num_cells', 4, 'K', least=1, most=MAX_CELLS)
    p.add_number('--num_micro_batches', 8, 'M', least=1, most=MAX_SLOTS)
    p.add_number('--forward', 1.0, 'time of a forward', least=0, most=MAX_TIME)
    p.add_number('--backward', 2.0, 'time of a backward without recomputation', least=0, most=MAX_TIME)
    p.add_argument('--recompute', action='store_true', help='every cell but the last runs its forward again')
    p.add_number('--transfer', 0.0, 'time of a transfer between cells', least=0, most=MAX_TIME)
    p.add_output('--png', '', 'save a picture to this path')
    p.add_argument('--json', action='store_true', help='print one JSON object')
    args = p.parse_args(argv)
    k, m = args.num_cells, args.num_micro_batches
    if k * m > MAX_SLOTS:
        p.error(f'--num_cells={k} and --num_micro_batches={m} make {k * m} forwards; use at most {MAX_SLOTS}')
    if not args.forward and not args.backward:
        p.error('--forward=0 and --backward=0 leave nothing to draw; use more than 0 for one of them')
    schedule = make_schedule(args.schedule, k, m)
    validate(schedule)
    simulation = simulate(schedule, [args.forward] * k, [args.backward] * k, transfer_s=args.transfer, recompute=args.recompute)
    if args.png:
        simulation.timeline.save_png(args.png, f'{args.schedule}, K={k}, M={m}')
    if args.json:
        print(json.dumps({'schedule': args.schedule, 'num_cells': k, 'num_micro_batches': m, 'step': simulation.step_s,
                          'bubble_share': simulation.bubble_share, 'bound': bound(k, m),
                          'peak_live_micro_batches': list(simulation.peak_live),
                          'devices': [[str(slot) for slot in slots] for slots in schedule.devices]}))
        return
    print(grid(schedule))
    print(f'step {simulation.step_s:g}   bubble {simulation.bubble_share:.1%}   speed-up {(1 - simulation.bubble_share) * k:.2f} of {k} '
          f'(K M / (M + K - 1) = {bound(k, m):.2f})   most micro-batches held, by cell: {", ".join(map(str, simulation.peak_live))}')


if __name__ == '__main__':
    main()
