"""The walks of WORKSPACE.md: every station exists, is short, and is not visited twice."""
from __future__ import annotations

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
MOST_STATIONS = {'a mini-batch': 9, 'a Params object': 5, 'a translation': 5}
TWO_SCREENS = 130   # lines
STATION = re.compile(r'\| (\d+) \| `([\w/]+\.py)` `([\w.]+)` \| .+ \|')


def stations(walk: str) -> list[tuple[int, str, str]]:
    """Returns (number, file, function or class) for each station of a walk."""
    text = (ROOT / 'WORKSPACE.md').read_text(encoding='utf-8')
    section = text.split(f'## The walk of {walk}\n')[1].split('\n## ')[0]
    rows = [line for line in section.splitlines() if re.match(r'\| \d', line)]
    matches = [STATION.fullmatch(row) for row in rows]
    assert rows and all(matches), f'a station is not a number, a file and a function: {rows}'
    return [(int(match[1]), match[2], match[3]) for match in matches if match]


def names_in(path: pathlib.Path) -> set[str]:
    """Returns the functions and classes at the top of a file, and the methods of its classes."""
    names = set()
    for node in ast.parse(path.read_text(encoding='utf-8')).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f'{node.name}.{child.name}' for child in node.body
                      if isinstance(child, ast.FunctionDef)}
    return names


@pytest.mark.parametrize('walk', MOST_STATIONS)
def test_a_walk_leads_through_files_and_functions_that_are_there(walk):
    for _, file, name in stations(walk):
        assert (ROOT / file).exists(), f'WORKSPACE.md leads to {file}, which is gone'
        assert name in names_in(ROOT / file), f'WORKSPACE.md leads to {name}, not in {file}'


@pytest.mark.parametrize(('walk', 'most'), MOST_STATIONS.items())
def test_a_walk_is_short_and_visits_no_file_twice(walk, most):
    found = stations(walk)
    assert [number for number, _, _ in found] == list(range(1, len(found) + 1))
    assert len(found) <= most
    assert len({file for _, file, _ in found}) == len(found)


@pytest.mark.parametrize('walk', MOST_STATIONS)
def test_every_station_fits_two_screens(walk):
    lengths = {file: len((ROOT / file).read_text(encoding='utf-8').splitlines())
               for _, file, _ in stations(walk)}
    too_long = {file: length for file, length in lengths.items() if length > TWO_SCREENS}
    assert too_long == {}, 'move what is not the noun of the station into a file of its own'
