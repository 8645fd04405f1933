"""Fitting modes: the cells of `fit` recompute as little as their devices allow."""

import pytest

from lingpipe.pipeline.planning.fitting_modes import Recomputation
from tests.support.planned_chains import CHAIN, IMAGE, WIDE, plan_of

# The chain a, b, c and the loss, with a, b and c in the first cell, which has 2 live micro-batches.
SHAPE = dict(num_cells=2, num_micro_batches=4, layers_per_cell=(3, 1))


def peak_of(recompute, **pipeline):
    return max(plan_of(*CHAIN, recompute=recompute, **SHAPE, **pipeline).peak_bytes().values())


def recomputation_of(missing_bytes, recompute='fit', **pipeline):
    """What runs again on devices that lack some of the bytes of 'none'."""
    limit = peak_of('none', **pipeline) - missing_bytes
    plan = plan_of(*CHAIN, recompute=recompute, device_bytes=limit, **SHAPE, **pipeline)
    assert max(plan.peak_bytes().values()) <= limit
    return plan.forecast.recomputation


def test_what_fits_recomputes_nothing():
    assert recomputation_of(0) == Recomputation(('none', 'none'))
    free = plan_of(*CHAIN, recompute='fit', **SHAPE)
    assert free.forecast.recomputation == Recomputation(('none', 'none'))


def test_a_device_that_lacks_a_byte_drops_what_is_made_again_in_the_least_time():
    """It drops the output of a: WIDE bytes for each of two micro-batches but the one that works."""
    recomputation = recomputation_of(1)
    assert recomputation.modes == ('fit', 'none')
    kept = recomputation.kept[0]
    assert (kept.held, kept.working) == (IMAGE + WIDE, WIDE)
    assert {path for path, _ in kept.names} == {'model/b'}


def test_only_cells_whose_mode_is_fit_change():
    assert recomputation_of(-1, ('none', 'fit')).modes == ('none', 'none')
    with pytest.raises(ValueError, match='device_bytes'):
        recomputation_of(1, ('none', 'fit'))


def test_cells_that_share_a_device_are_chosen_for_together():
    recomputation = recomputation_of(489, devices=['CPU:0', 'CPU:0'])
    assert recomputation.modes[0] == 'fit'


def test_nothing_is_recomputed_if_another_order_of_the_same_cells_holds_few_enough_bytes():
    """A cell with cuts by hand was recomputed, which took longer."""
    assert recomputation_of(488, devices=['CPU:0', 'CPU:0']).modes == ('none', 'none')


def test_a_cell_that_cannot_fit_otherwise_recomputes_as_a_whole_or_by_layers():
    limit = peak_of('layer')
    plan = plan_of(*CHAIN, recompute='fit', device_bytes=limit, **SHAPE)
    assert max(plan.peak_bytes().values()) <= limit
