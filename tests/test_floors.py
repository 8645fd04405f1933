"""The house: imports go down the floors of WORKSPACE.md, and pure files stay free of TensorFlow."""
from __future__ import annotations

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Each file of lingpipe/ (or folder) with its floor; a file imports only from floors below its own, or from its own folder.
FLOORS = {
    0: ['nested', 'cost', 'tensorflow_import', 'error_text', 'side_files', 'process_name', 'closed_pipe'],
    1: ['hyperparams'],
    2: ['context', 'cluster', 'layer', 'schedules', 'optimizers'],
    3: ['tracing', 'learner', 'checkpoint', 'input', 'summaries', 'progress', 'stop_signals'],
    4: ['layers'],
    5: ['pipeline'],
    6: ['task', 'overview', 'timeline_report', 'evaluate'],
    7: ['outcome', 'remedy', 'saved_state'],
    8: ['train_loop'],
    9: ['experiment'],
    10: ['registry'],
    11: ['modes'],
    12: ['trainer'],
}
FLOOR_OF = {name: floor for floor, names in FLOORS.items() for name in names}

# (importer, imported): an import that goes up, inside a function, with its reason in the code.
EXCEPTIONS = {('layer', 'tracing')}

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


@pytest.mark.parametrize('path', FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_down(path):
    parts = path.relative_to(ROOT).with_suffix('').parts
    mine = parts[1] if len(parts) > 1 else ''
    for name in imported(path):
        top, *rest = name.split('.')
        if top not in TOP:
            continue
        assert top in TOP[parts[0]], f'{path} imports {name}: {parts[0]}/ may import only {sorted(TOP[parts[0]])}'
        if parts[0] == 'lingpipe' and mine != '__init__' and rest and rest[0] in FLOOR_OF and rest[0] != mine:
            is_down = FLOOR_OF[rest[0]] < FLOOR_OF[mine] or (mine, rest[0]) in EXCEPTIONS
            assert is_down, f'{path} on floor {FLOOR_OF[mine]} imports {name} on floor {FLOOR_OF[rest[0]]}'


def test_every_file_has_a_floor():
    found = {p.stem if p.is_file() else p.name for p in (ROOT / 'lingpipe').iterdir() if p.suffix == '.py' or (p / '__init__.py').exists()}
    assert found - {'__init__'} == set(FLOOR_OF)


@pytest.mark.parametrize('name', ['nested', 'cost', 'error_text',
                                  *sorted(f'hyperparams/{p.stem}' for p in (ROOT / 'lingpipe/hyperparams').glob('*.py')),
                                  'pipeline/partitioner', 'pipeline/schedule', 'pipeline/simulator', 'pipeline/timeline'])
def test_pure_files_import_no_tensorflow(name):
    assert not any(i.split('.')[0] in ('tensorflow', 'keras') for i in imported(ROOT / 'lingpipe' / f'{name}.py'))


def test_the_project_names_no_path_outside_it():
    for path in FILES:
        assert '/work/' not in path.read_text(encoding='utf-8'), path
