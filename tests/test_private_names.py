"""The promise of the tests: what they check, they see as users do, by public names."""
from __future__ import annotations

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parent
FILES = sorted(ROOT.rglob('*.py'))
FOLDERS = sorted({path.parent for path in FILES})

BY_WORD = ('setattr', 'getattr', 'delattr', 'hasattr')

# What tests touched when this rule was made. The list only shrinks: a name that is gone from the
# file must go from here, and no name may come.
STILL_TOUCHED: dict[str, set[str]] = {
    'lingpipe/learning/test_slots.py': {'_optimizer'},
    'lingpipe/pipeline/decoding/test_decoding_cell.py': {'_list_all_concrete_functions'},
    'tasks/image/inputs/test_files.py': {'_records'},
    'tasks/translation/test_inputs.py': {'_deck', '_suits'},
}


def is_private(name: str) -> bool:
    is_special = name == '_' or (name.startswith('__') and name.endswith('__'))
    is_shown = name.startswith('_repr_') and name.endswith('_')   # what notebooks call
    return name.startswith('_') and not is_special and not is_shown


def private_names_of_others(source: str) -> set[str]:
    """The private names in a file's source that are not its own.

    Those are attributes of anything but `self` and `super()`; imported names; and names that
    are set or read as words, as by monkeypatch.setattr(thing, '_name', ...).
    """
    tree = ast.parse(source)
    touched: set[str] = set()
    own: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            if not is_private(node.attr):
                continue
            owner = ast.unparse(node.value)
            if owner == 'self' and isinstance(node.ctx, ast.Store):
                own.add(node.attr)
            if owner not in ('self', 'super()', 'os'):   # os._exit has no other name.
                touched.add(node.attr)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            touched.update(part for alias in node.names for part in alias.name.split('.'))
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split('.')[-1] in BY_WORD:
            words = [argument.value for argument in node.args
                     if isinstance(argument, ast.Constant) and isinstance(argument.value, str)]
            touched.update(word.split('.')[-1] for word in words)
    return {name for name in touched if is_private(name)} - own


@pytest.mark.parametrize('folder', FOLDERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_tests_touch_no_private_name(folder: pathlib.Path) -> None:
    for path in sorted(folder.glob('*.py')):
        name = str(path.relative_to(ROOT))
        touched = private_names_of_others(path.read_text(encoding='utf-8'))
        listed = STILL_TOUCHED.get(name, set())
        assert not touched - listed, f'{name}: test it by a public name'
        assert not listed - touched, f'{name}: it is touched no more: take it off the list'


def test_listed_files_exist() -> None:
    assert STILL_TOUCHED.keys() <= {str(path.relative_to(ROOT)) for path in FILES}


@pytest.mark.parametrize(('source', 'touched'), [
    ('thing._held', {'_held'}),
    ('thing.held', set()),
    ('self._held', set()),
    ('thing.__name__', set()),
    ('thing._repr_html_()', set()),
    ('from module import _name', {'_name'}),
    ('import package._module', {'_module'}),
    ("monkeypatch.setattr(thing, '_name', 3)", {'_name'}),
    ("monkeypatch.setattr('module._name', 3)", {'_name'}),
    ("print('_name')", set()),
    ('for _ in range(3): pass', set()),
])
def test_private_names_are_found(source: str, touched: set[str]) -> None:
    assert private_names_of_others(source) == touched
