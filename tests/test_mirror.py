"""The tests mirror the tree: every module of lingpipe/pipeline has a test file at its place."""
from __future__ import annotations

import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent


def modules() -> list[str]:
    """Returns the modules of the pipeline, as paths from the root."""
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / 'lingpipe/pipeline').rglob('*.py')
                  if path.name != '__init__.py')


def place_of_tests(module: str) -> pathlib.Path:
    path = ROOT / 'tests' / module
    return path.with_name(f'test_{path.name}')


def test_every_module_has_a_test_file_at_its_place() -> None:
    assert [module for module in modules() if not place_of_tests(module).exists()] == []
