"""The experiments' promise: every registered one is whole; its plan follows from its Params, before any variable exists."""
from __future__ import annotations

import pytest

from lingpipe import registry
from lingpipe.experiment import Experiment


@pytest.mark.parametrize('name', registry.all_names())
def test_the_plan_follows_from_the_params(name):
    plan = registry.get(name).instantiate().make_plan()
    assert len(plan.cells) == plan.params.num_cells
    assert all(cell.elements for cell in plan.cells)
    assert sum(element.cost.num_weights for element in plan.elements) > 0


@pytest.mark.parametrize('name', registry.all_names())
def test_the_params_are_their_text(name):
    params = registry.get(name)
    assert Experiment.Params.from_text(params.to_text()) == params


@pytest.mark.parametrize('name', registry.all_names())
def test_the_docstring_says_the_command(name):
    assert f'--model={name}' in (registry.find(name).__doc__ or '')


def test_the_digits_are_there():
    assert {'image.digits.AmoebaNet', 'image.digits.Dense'} <= set(registry.all_names())
