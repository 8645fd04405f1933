"""Prints how two experiments differ.

    python -m lingpipe.tools.compare_params image.digits.AmoebaNet /tmp/digits/params.txt

Each is a registered name or a file of Params as text (LOGDIR/params.txt). A file may name classes
of lingpipe, of all modules that the experiments in params/ import, and of the modules that --import
names.
"""
from __future__ import annotations

import difflib
import json
import os

from lingpipe.hyperparams import Params, diff
from lingpipe.tools import parser
from lingpipe.tools.command_line import command
from lingpipe.training import experiment_modules, registry


def read(name: str) -> Params:
    """Returns the Params of a registered experiment or of a file."""
    if not os.path.exists(name):
        if os.sep in name:
            raise ValueError(f'{name} does not exist; name a file of Params as text, or a '
                             'registered experiment')
        return registry.get(name)
    experiment_modules.find_all()   # imports the modules that a text may name
    try:
        with open(name, encoding='utf-8') as file:
            return Params.from_text(file.read())
    except OSError as error:
        raise ValueError(f'{name} cannot be read: {error.strerror or error}') from error
    except ValueError as error:
        raise ValueError(f'{name} cannot be read: {error}') from error


@command
def main(argv: list[str] | None = None) -> None:
    """Parses the arguments and prints."""
    p = parser('compare_params', __doc__)
    p.add_argument('first')
    p.add_argument('second')
    p.add_argument('--import', dest='modules', metavar='MODULE', action='append', default=[],
                   help='import this module, which a file names; may be repeated')
    p.add_argument('--json', action='store_true',
                   help='print one JSON object: path -> [first, second]')
    args = p.parse_args(argv)
    for module in args.modules:
        experiment_modules.import_module(module)
    first = read(args.first)
    second = read(args.second)
    if args.json:
        print(json.dumps({path: [_text(a), _text(b)] for path, a, b in diff(first, second)}))
    else:
        texts = first.to_text().splitlines(), second.to_text().splitlines()
        lines = difflib.unified_diff(*texts, args.first, args.second, n=0, lineterm='')
        print('\n'.join(line for line in lines if line[:2] != '@@') or 'no difference')


def _text(value: object) -> str:
    """A value as text; that of Params has a line for each of theirs."""
    return value.to_text() if isinstance(value, Params) else repr(value)


if __name__ == '__main__':
    main()
