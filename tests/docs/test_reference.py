"""The reference has every layer and every input."""
from __future__ import annotations

import inspect
import pathlib
import pkgutil
import re

import pytest

import lingpipe
import lingpipe.input
import lingpipe.layers
from tests.docs.pages import ROOT

REFERENCE = ROOT / 'docs' / 'reference'
PAGES = sorted(REFERENCE.glob('*.md'))

NOT_FOR_USERS = {'lingpipe.input.InputMeter'}


def described(page: pathlib.Path) -> list[str]:
    """Returns the dotted names of what a page of the reference describes."""
    return re.findall(r'^::: ([\w.]+)$', page.read_text(encoding='utf-8'), re.MULTILINE)


@pytest.mark.parametrize('name', [name for page in PAGES for name in described(page)])
def test_what_is_described_is_there(name: str) -> None:
    assert pkgutil.resolve_name(name).__doc__


def test_the_reference_has_every_layer() -> None:
    names = {f'lingpipe.layers.{name}' for name in lingpipe.layers.__all__}
    assert names <= set(described(REFERENCE / 'layers.md'))


def test_the_reference_has_every_input() -> None:
    names = {f'lingpipe.input.{name}' for name in lingpipe.input.__all__} - NOT_FOR_USERS
    assert names <= set(described(REFERENCE / 'input.md'))


def test_the_reference_has_every_class_and_function_of_the_front_door() -> None:
    last_names = {name.rpartition('.')[2] for page in PAGES for name in described(page)}
    public = {name for name in dir(lingpipe) if inspect.isroutine(getattr(lingpipe, name))
              or inspect.isclass(getattr(lingpipe, name))}
    assert public - last_names == set()
