"""The house: imports go down the floors of WORKSPACE.md, and pure files stay free of TensorFlow."""
from __future__ import annotations

import ast
import pathlib
from collections.abc import Sequence

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Floors of lingpipe/, the lowest first: folders, and files where a folder has rooms on several floors. A file imports only from
# floors below its own, or from its own room. The longest name that fits a file says where it is.
FLOORS = [
    ['process', 'hyperparams', 'layers/nested', 'layers/cost', 'layers/context', 'layers/static_shapes'],
    ['cluster', 'layers/base', 'learning'],
    ['pricing', 'checkpoint', 'input'],
    ['layers'],
    ['pipeline', 'pipeline/planning'],
    ['pipeline/execution'],
    ['pipeline/replication'],
    ['pipeline/execution/program'],
    ['pipeline/decoding'],
    ['training/site', 'training/train_params', 'training/problem', 'training/reporting'],
    ['training/experiment', 'training/evaluation'],
    ['training/outcome', 'training/remedy', 'training/saved_state', 'training/resumption'],
    ['training/loop'],
    ['training', 'training/registry', 'training/logdir', 'training/logdir_lock'],
    ['commands/run_options'],
    ['commands'],
    ['trainer'],
]
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}

# (importer, imported): an import that goes up, inside a function, with its reason in the code.
EXCEPTIONS = {('layers/base', 'pricing')}

TOP = {'lingpipe': {'lingpipe'}, 'tasks': {'tasks', 'lingpipe'}, 'params': {'params', 'tasks', 'lingpipe'},
       'tools': {'tools', 'params', 'tasks', 'lingpipe'}}


def imported(path: pathlib.Path) -> set[str]:
    """Dotted names of all modules that a file imports, those for the type checker alone left out."""
    tree = ast.parse(path.read_text(encoding='utf-8'))
    for_types = {id(child) for node in ast.walk(tree) if isinstance(node, ast.If) and 'TYPE_CHECKING' in ast.unparse(node.test)
                 for child in ast.walk(node)}
    names = set()
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f'{node.module}.{alias.name}' for alias in node.names}
    return names


FILES = sorted(p for top in TOP for p in (ROOT / top).rglob('*.py'))


def room_of(parts: Sequence[str]) -> str:
    """The room of a module of lingpipe, given by the parts of its name or path below lingpipe/; '' for the front door."""
    names = ['/'.join(parts[:length]) for length in range(len(parts), 0, -1)]
    return next((name for name in names if name in FLOOR_OF), '')


@pytest.mark.parametrize('path', FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_down(path):
    folder, *parts = path.relative_to(ROOT).with_suffix('').parts
    mine = room_of(parts)
    for name in imported(path):
        top, *rest = name.split('.')
        if top != 'lingpipe':
            assert top not in TOP, f'{path} imports {name}; write lingpipe.{name}'
            continue
        if rest and rest[0] in TOP:   # a folder at the top level, installed below lingpipe
            top, *rest = rest
        assert top in TOP[folder], f'{path} imports {name}: {folder}/ may import only {sorted(TOP[folder])}'
        other = room_of(rest)
        if folder == 'lingpipe' and mine and other and other != mine:
            is_down = FLOOR_OF[other] < FLOOR_OF[mine] or (mine, other) in EXCEPTIONS
            assert is_down, f'{path} on floor {FLOOR_OF[mine]} imports {name} on floor {FLOOR_OF[other]}'


def test_every_file_has_a_floor():
    for path in (ROOT / 'lingpipe').rglob('*.py'):
        parts = path.relative_to(ROOT / 'lingpipe').with_suffix('').parts
        assert parts == ('__init__',) or room_of(parts), f'{path} is on no floor'


def test_nothing_is_loose_in_the_root():
    assert {path.name for path in (ROOT / 'lingpipe').glob('*.py')} == {'__init__.py', 'trainer.py'}


@pytest.mark.parametrize('name', ['layers/nested', 'layers/cost', 'process/error_text',
                                  *sorted(f'hyperparams/{p.stem}' for p in (ROOT / 'lingpipe/hyperparams').glob('*.py')),
                                  *sorted(f'pipeline/planning/{name}' for name in (
                                      'dependencies', 'drawing', 'memory_limit', 'partitioner', 'schedules', 'shared_devices',
                                      'simulator', 'validation'))])
def test_pure_files_import_no_tensorflow(name):
    assert not any(i.split('.')[0] in ('tensorflow', 'keras') for i in imported(ROOT / 'lingpipe' / f'{name}.py'))


def test_the_project_names_no_path_outside_it():
    for path in FILES:
        assert '/work/' not in path.read_text(encoding='utf-8'), path
