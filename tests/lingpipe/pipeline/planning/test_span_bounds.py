"""Span bounds: what cells take and need, for every span of units."""
from __future__ import annotations

import numpy as np
import pytest

from lingpipe.pipeline.planning.span_bounds import SpanSeconds, need_alone, tables_of
from tests.support.planned_chains import CHAIN, plan_of

SECONDS = [(1.0, 2.0), (3.0, 4.0), (5.0, 6.0), (0.5, 0.5)]   # the loss is the last


def spans(schedule='1f1b'):
    plan = plan_of(*CHAIN, num_cells=2, num_micro_batches=2, schedule=schedule)
    return SpanSeconds(plan.elements, SECONDS, plan.params, range(5))


@pytest.mark.parametrize(('mode', 'is_last', 'load'), [
    ('none', False, 3 + 7), ('cell', False, 3 + 7 + 1 + 3), ('cell', True, 3 + 7),
    # The last layer of a cell runs again with the cell only.
    ('layer', False, 3 + 7 + 2 * (1 + 3) - 3), ('layer', True, 3 + 7 + 1 + 3)])
def test_a_cell_repeats_what_its_mode_says(mode, is_last, load):
    of_device = spans().device_s(mode, is_last, is_first=False)
    assert of_device[0, 2] == 2 * load


def test_a_cell_waits_for_the_forwards_before_it_and_is_waited_for():
    assert spans().alone_s('none', is_last=False)[2, 3] == (1 + 3) + 2 * 11 + (2 + 4)


def test_of_later_cells_only_the_load_counts():
    of_first = spans().device_s('none', is_last=False, is_first=True)
    of_later = spans().device_s('none', is_last=False, is_first=False)
    assert of_first[2, 3] - of_later[2, 3] == (1 + 3) + (2 + 4)


def test_no_cell_is_empty():
    below = np.tril_indices(5)
    assert np.isinf(spans('zb_h1').alone_s('none', is_last=False)[below]).all()


def test_what_a_cell_needs_grows_with_its_live_micro_batches():
    plan = plan_of(*CHAIN, num_cells=2, num_micro_batches=2)
    memory = plan.forecast.memory
    tables = tables_of(['none', 'fit'], memory, range(5))
    footprint = memory.of_span(range(0, 2), 'none')
    assert need_alone('none', tables, live=1)[0, 2] == footprint.fixed + max(
        footprint.held + footprint.working, footprint.received)
    assert need_alone('none', tables, live=9)[0, 2] == footprint.fixed + 9 * footprint.held
    assert (need_alone('fit', tables, live=1) <= need_alone('none', tables, live=1))[0, 1:].all()
