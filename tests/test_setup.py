"""What setup.py promises: one version, commands that exist, every package, and types."""
from __future__ import annotations

import importlib
import pathlib
import re
import runpy
from typing import Any

import pytest
import setuptools

import lingpipe

ROOT = pathlib.Path(__file__).resolve().parent.parent


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Returns what setup.py passes to setuptools, by name; nothing is built."""
    said: dict[str, Any] = {}
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(setuptools, 'setup', lambda **arguments: said.update(arguments))
    runpy.run_path('setup.py')
    return said


def test_the_version_is_one(said: dict[str, Any]) -> None:
    citation = (ROOT / 'CITATION.cff').read_text(encoding='utf-8')
    cited, = re.findall(r'^version: (.+)$', citation, re.MULTILINE)
    assert said['version'] == lingpipe.__version__ == cited


def test_every_command_is_a_function(said: dict[str, Any]) -> None:
    for command in said['entry_points']['console_scripts']:
        module, _, function = command.partition(' = ')[2].partition(':')
        assert callable(getattr(importlib.import_module(module), function)), command


def test_every_python_file_is_in_a_package_that_is_installed(said: dict[str, Any]) -> None:
    folders = {'lingpipe': 'lingpipe', 'params': 'lingpipe.params', 'tasks': 'lingpipe.tasks',
               'tools': 'lingpipe.tools'}
    for folder, name in folders.items():
        for path in (ROOT / folder).rglob('*.py'):
            package = '.'.join([name, *path.parent.relative_to(ROOT / folder).parts])
            assert package in said['packages'], path


def test_type_checkers_may_use_the_types_of_an_installed_lingpipe(said: dict[str, Any]) -> None:
    assert 'py.typed' in said['package_data']['lingpipe']
    assert (ROOT / 'lingpipe/py.typed').exists()


def test_every_dependency_has_a_lower_bound(said: dict[str, Any]) -> None:
    extras = said['extras_require']
    required = [*said['install_requires'], *(name for names in extras.values() for name in names)]
    assert [name for name in required if '>=' not in name] == []


def test_the_tests_need_no_other_extra_than_tensorflow(said: dict[str, Any]) -> None:
    extras = said['extras_require']
    assert {*extras['tfds'], *extras['translation']} <= set(extras['test'])


def test_every_dependency_has_its_reason() -> None:
    """The reason is a comment beside the dependency."""
    lines = (ROOT / 'setup.py').read_text(encoding='utf-8').splitlines()
    required = [line for line in lines if re.match(r" +'.+>=[\d.]+'", line)]
    assert len(required) > 10
    assert [line for line in required if '#' not in line] == []
