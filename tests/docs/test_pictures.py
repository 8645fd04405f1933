"""The pictures of the documentation show what is planned today."""
from __future__ import annotations

import importlib.util
from types import ModuleType

from tests.docs.pages import ROOT

PICTURES = ROOT / 'docs' / 'pictures'


def drawer() -> ModuleType:
    """Returns the module docs/pictures/draw.py, which is in no package."""
    spec = importlib.util.spec_from_file_location('draw', PICTURES / 'draw.py')
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pictures_are_what_the_plans_give_today() -> None:
    stale = [name for name, text in drawer().all_pictures()
             if (PICTURES / name).read_text(encoding='utf-8') != text]
    assert not stale, 'run python docs/pictures/draw.py'
