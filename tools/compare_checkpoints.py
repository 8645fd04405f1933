"""Prints how the variables of two checkpoints differ; each is a logdir (its newest), its checkpoints, or one of them.

    python -m lingpipe.tools.compare_checkpoints /tmp/one_cell /tmp/four_cells --keys='weights/.*'

Exit code 1 if they differ in a bit.
"""
from __future__ import annotations

import json
import re
import sys
from typing import Any

import numpy as np

from lingpipe.checkpoint import files
from lingpipe.checkpoint.initialization import find_whole
from lingpipe.tools import parser
from lingpipe.tools.command_line import command


def compare(first: str, second: str, pattern: str) -> list[dict[str, Any]]:
    """A row for every key of either checkpoint that matches: key, and why it is not in both, or the largest absolute difference.

    Raises:
      ValueError: a checkpoint is not there or damaged, the pattern is no regular expression or matches nothing.
    """
    try:
        (one, facts), (other, other_facts) = find_whole(first), find_whole(second)
        keys = [key for key in {**facts['variables'], **other_facts['variables']} if re.fullmatch(pattern, key)]
        if not keys:
            raise ValueError(f'--keys={pattern!r} matches no key; they look like {", ".join(list(facts["variables"])[:3])}.')
        rows, both = [], []
        for key in keys:
            here, there = facts['variables'].get(key), other_facts['variables'].get(key)
            if here == there:
                both.append(key)
            else:
                rows.append({'key': key, 'problem': f'{_kind(here)} there, {_kind(there)} here'})
        for key, a, b in zip(both, files.tensors(one, both), files.tensors(other, both), strict=True):
            difference = float(np.max(np.abs(a.astype(np.float64) - b.astype(np.float64)), initial=0.))
            rows.append({'key': key, 'is_same': a.tobytes() == b.tobytes(), 'difference': difference})
        return rows
    except files.DamagedError as error:
        raise ValueError(f'a checkpoint is damaged: {error}; name another.') from error
    except re.error as error:
        raise ValueError(f'--keys={pattern!r} is not a regular expression: {error}.') from error


def _kind(fact: dict[str, Any] | None) -> str:
    return f'{fact["dtype"]}{fact["shape"]}' if fact else 'nothing'


@command
def main(argv: list[str] | None = None) -> None:
    """Parses the arguments, prints, and exits with 1 if there is a difference."""
    p = parser('compare_checkpoints', __doc__)
    p.add_argument('first')
    p.add_argument('second')
    p.add_argument('--keys', default='.*', help='regular expression that a whole key must match')
    p.add_argument('--json', action='store_true', help='print one JSON object')
    args = p.parse_args(argv)
    rows = compare(args.first, args.second, args.keys)
    differing = [row for row in rows if not row.get('is_same')]
    if args.json:
        print(json.dumps({'num_compared': len(rows), 'differing': differing}))
    else:
        for row in differing:
            print(f'{row["key"]}: ' + row.get('problem', f'differs by up to {row.get("difference", 0.):.3g}'))
        print(f'{len(rows) - len(differing)} of {len(rows)} variables are equal to the last bit')
    if differing:
        sys.exit(1)


if __name__ == '__main__':
    main()
