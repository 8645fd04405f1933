"""Checks lingpipe's promises on the devices of this machine.

    python -m lingpipe.tools.check_devices
    python -m lingpipe.tools.check_devices --checks=bits,overlap --output=report.json

GPUs are checked if there are any, and else the CPU. One GPU is split into --devices logical GPUs,
so that cells have devices of their own. The checks:

    machine      what the devices are
    bits         equal weights for all numbers of cells, schedules and recomputation modes
    kernels      kernels that do not repeat their bits, and what to set
    overlap      whether devices work at the same time
    transfers    latency and bandwidth between devices
    stamps       whether timelines show the time of the device
    collectives  sums over replicas: plain additions, ring, NCCL
    memory       the forecast beside the allocator's peak
    workers      cells in processes of their own

bits and kernels run with TensorFlow's op determinism (+det) and without. The verdict of a row is ok
or BROKEN for a promise, differs where bits differ that nobody promises, info for a number, n/a for
what this machine cannot do, and FAILED for a check that came to no result. The exit code is 1 if a
row is BROKEN or FAILED.
"""
from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from lingpipe.process import closed_pipe
from lingpipe.tools import device_checks, parser
from lingpipe.tools.command_line import command
from lingpipe.tools.device_checks.rows import BAD, Row
from lingpipe.tools.device_checks.running import run


@command
def main(argv: list[str] | None = None) -> None:
    """Parses the flags, runs the checks and prints their rows."""
    args = parse(argv)
    start_s = time.monotonic()
    rows: list[Row] = []
    for row in run(args.checks, args.devices, args.device_mb, args.time_factor):
        rows.append(row)
        if not args.json:
            closed_pipe.say(row.line(), sys.stdout)
        if args.output:   # each time, so that nothing is lost if this process is killed
            with open(args.output, 'w', encoding='utf-8') as file:
                json.dump(report(rows, time.monotonic() - start_s), file, indent=1)

    if args.json:
        print(json.dumps(report(rows, time.monotonic() - start_s)))
    else:
        print(f'{summary(rows)}, {time.monotonic() - start_s:.0f} s')
    if any(row.verdict in BAD for row in rows):
        sys.exit(1)


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Returns the flags."""
    p = parser('check_devices', __doc__)
    p.add_argument('--checks', default=','.join(check.name for check in device_checks.CHECKS),
                   help='which, with commas between')
    p.add_number('--devices', 4, 'logical devices, if there are not as many GPUs',
                 least=4, most=64)
    p.add_number('--device_mb', 4096, 'memory of each logical GPU, in 2^20 bytes', least=256,
                 most=1 << 20)
    p.add_number('--time_factor', 1.0, 'multiplies the time that checks may take', least=0.1,
                 most=1000)
    p.add_argument('--json', action='store_true', help='print one JSON object')
    p.add_output('--output', '', 'a file for the JSON object, besides what is printed')
    args = p.parse_args(argv)
    try:
        args.checks = device_checks.find(args.checks)
    except ValueError as error:
        p.error(str(error))
    return args


def report(rows: list[Row], seconds: float) -> dict[str, Any]:
    """Returns the JSON object."""
    return {'seconds': seconds, 'rows': [row.to_json() for row in rows]}


def summary(rows: list[Row]) -> str:
    """Returns how many rows have each verdict."""
    verdicts = [row.verdict for row in rows]
    return ', '.join(f'{verdicts.count(verdict)} {verdict}' for verdict in dict.fromkeys(verdicts))


if __name__ == '__main__':
    main()
