"""Prints how the variables of two checkpoints differ.

    python -m lingpipe.tools.compare_checkpoints /tmp/one_cell /tmp/four_cells --keys='weights/.*'

Each argument is a logdir or its directory of checkpoints, which mean the newest checkpoint, or one
checkpoint. The exit code is 1 if any bit differs.
"""
from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from lingpipe.checkpoint import files
from lingpipe.checkpoint.facts import DamagedError
from lingpipe.checkpoint.initialization import find_whole
from lingpipe.checkpoint.parts import Kinds
from lingpipe.tools import parser
from lingpipe.tools.command_line import command
from lingpipe.wording.counts import are, counted


def compare(first: str, second: str, pattern: str) -> list[dict[str, Any]]:
    """Returns a row for every key of either checkpoint that matches.

    The row holds the key, and either the problem if the key is not the same in both, or the largest
    absolute difference.

    Raises:
      ValueError: a checkpoint is missing or damaged, or the pattern is no regular expression or
        matches nothing.
    """
    try:
        first_path, first_facts = find_whole(first)
        second_path, second_facts = find_whole(second)
        rows, common_keys = _rows_of_kinds(first_facts['variables'], second_facts['variables'],
                                           pattern)
        pairs = zip(files.tensors(first_path, common_keys),
                    files.tensors(second_path, common_keys), strict=True)
        for key, (a, b) in zip(common_keys, pairs, strict=True):
            differences = np.abs(a.astype(np.float64) - b.astype(np.float64))
            rows.append({'key': key, 'is_same': a.tobytes() == b.tobytes(),
                         'difference': float(np.max(differences, initial=0.))})
        return rows
    except DamagedError as error:
        raise ValueError(f'a checkpoint is damaged: {error}; name another.') from error
    except re.error as error:
        raise ValueError(f'--keys={pattern!r} is not a regular expression: {error}.') from error


def _rows_of_kinds(first: Kinds, second: Kinds, pattern: str
                   ) -> tuple[list[dict[str, Any]], list[str]]:
    """Returns the rows of the keys whose shapes or dtypes differ, and the other keys."""
    keys = [key for key in {**first, **second} if re.fullmatch(pattern, key)]
    if not keys:
        raise ValueError(f'--keys={pattern!r} matches no key; they look like '
                         f'{", ".join(list(first)[:3])}.')

    rows = []
    common_keys = []
    for key in keys:
        kinds = (first.get(key), second.get(key))
        if kinds[0] == kinds[1]:
            common_keys.append(key)
        else:
            problem = f'{_kind_text(kinds[0])} there, {_kind_text(kinds[1])} here'
            rows.append({'key': key, 'problem': problem})
    return rows, common_keys


def _kind_text(kind: Mapping[str, Any] | None) -> str:
    return f'{kind["dtype"]}{kind["shape"]}' if kind else 'nothing'


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
            difference = f'differs by up to {row.get("difference", 0.):.3g}'
            print(f'{row["key"]}: {row.get("problem", difference)}')
        num_equal = len(rows) - len(differing)
        print(f'{num_equal} of {counted(len(rows), "variable")} {are(num_equal)} equal to the last '
              'bit')
    if differing:
        sys.exit(1)


if __name__ == '__main__':
    main()
