"""Waits: what a chain, and a layer that reads an early value, wait for."""
from __future__ import annotations

import numpy as np

from lingpipe.pipeline.planning.units import units_of
from lingpipe.pipeline.planning.waits import waits
from tests.support.planned_chains import CHAIN, elements_with_skip, plan_of


def waits_of(elements):
    starts = units_of(elements).starts
    forward_s = [1.0] * len(elements)
    backward_s = [10.0] * len(elements)
    return waits(elements, forward_s, backward_s, starts)


def test_a_chain_waits_for_all_layers_before():
    elements = plan_of(*CHAIN).elements
    found = waits_of(elements)
    places = np.arange(len(elements))
    assert found.before[:-1].tolist() == places.tolist()
    assert found.after[:-1].tolist() == (10.0 * places).tolist()
    assert found.path_s == 11.0 * len(elements)


def test_frozen_layers_are_not_waited_for_after_a_backward():
    elements = plan_of(*CHAIN, frozen=('model/a/kernel', 'model/a/w')).elements
    num_frozen = sum(not element.has_backward for element in elements)
    found = waits_of(elements)
    assert num_frozen and not found.after[:num_frozen + 1].any()
    assert found.after[num_frozen + 1] == 10.0


def test_later_units_wait_no_less_than_it_says():
    found = waits_of(elements_with_skip())
    least = found.of_later_units()
    for unit in range(len(found.before) - 1):
        assert least.before[unit] == found.before[unit:-1].min()
        assert least.after[unit] == found.after[unit:-1].min()
