"""The reference's promise: it has every layer and every input."""
from __future__ import annotations

import re

import lingpipe.input
import lingpipe.layers
from tests.docs.pages import ROOT

NOT_FOR_USERS = {'InputMeter'}


def documented(page: str) -> set[str]:
    """The last names of what a page of the reference describes."""
    text = (ROOT / 'docs' / 'reference' / page).read_text(encoding='utf-8')
    return set(re.findall(r'^::: [\w.]+\.(\w+)$', text, re.MULTILINE))


def test_the_reference_has_every_layer() -> None:
    assert set(lingpipe.layers.__all__) <= documented('layers.md')


def test_the_reference_has_every_input() -> None:
    assert set(lingpipe.input.__all__) - NOT_FOR_USERS <= documented('input.md')
