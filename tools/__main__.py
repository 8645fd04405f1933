"""The command lingpipe-tools: runs a tool, or lists all of them.

    lingpipe-tools
    lingpipe-tools show_schedule --num_cells=4

`python -m lingpipe.tools` does the same.
"""
from __future__ import annotations

import ast
import difflib
import importlib
import os
import pathlib
import sys
from collections.abc import Mapping, Sequence

from lingpipe.process import closed_pipe


def main(argv: Sequence[str]) -> int:
    """Runs the tool that argv names first, with the flags behind it; returns the exit code."""
    summaries = find_all()
    if not argv or argv[0] in ('-h', '--help'):
        return closed_pipe.ends_quietly(lambda: print_list(summaries))

    name, *flags = argv
    if name not in summaries:
        near = difflib.get_close_matches(name, summaries, 3)
        hint = f'did you mean {" or ".join(near)}?' if near else 'without a name it lists all.'
        print(f'tools: there is no tool {name!r}; {hint}', file=sys.stderr)
        return 2
    importlib.import_module(f'lingpipe.tools.{name}').main(flags)
    return 0


def print_list(summaries: Mapping[str, str]) -> int:
    """Prints a line for every tool."""
    width = max(map(len, summaries))
    print('lingpipe-tools NAME FLAGS; lingpipe-tools NAME --help lists the flags.\n')
    for name, summary in summaries.items():
        print(f'{name.ljust(width)}  {summary}')
    return 0


def find_all() -> dict[str, str]:
    """The tools by name, each with the first line of its docstring; imports none of them."""
    summaries = {}
    for path in sorted(pathlib.Path(__file__).parent.glob('*.py')):
        tree = ast.parse(path.read_text(encoding='utf-8'))
        commands = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)
                    and 'command' in map(ast.unparse, node.decorator_list)]
        if 'main' in commands:
            summaries[path.stem] = (ast.get_docstring(tree) or '').split('\n')[0]
    return summaries


def script() -> int:
    """The entry point of lingpipe-tools; as with python -m, modules are found here too."""
    if not sys.flags.safe_path:
        sys.path.insert(0, os.getcwd())
    return main(sys.argv[1:])


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
