"""Evaluate: an experiment without eval inputs is refused before anything is restored."""
from __future__ import annotations

import types
from typing import Any

import pytest

from lingpipe.commands.evaluate import evaluate_at
from lingpipe.training.site import THIS_PROCESS


def test_there_must_be_something_to_evaluate_on(tmp_path: Any) -> None:
    experiment: Any = types.SimpleNamespace(eval_inputs={})
    with pytest.raises(ValueError, match='eval_inputs is empty; give the experiment one'):
        evaluate_at(THIS_PROCESS, experiment, str(tmp_path))
    assert list(tmp_path.iterdir()) == []
