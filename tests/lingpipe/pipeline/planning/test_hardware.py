"""Hardware: estimated seconds, and the types of devices that have a name."""
from __future__ import annotations

import pytest

from lingpipe.layers.low_rank import Adapters
from lingpipe.pipeline.planning.dataflow import wire
from lingpipe.pipeline.planning.hardware import DEVICE_TYPES, Hardware, device_type
from tests.support.planned_chains import CHAIN, IMAGE, MICRO_BATCH_SPEC, WIDE, dense, made


def seconds_of_chain(**hardware):
    elements = wire(made(*CHAIN), MICRO_BATCH_SPEC)
    return Hardware('any', **hardware).layer_seconds(elements)


def test_a_layer_takes_as_long_as_its_arithmetic():
    forward_flops = 2 * 4 * 8 * 16   # [4, 8] @ [8, 16]
    assert seconds_of_chain(flops_per_s=10.0)[0] == (
        pytest.approx(forward_flops / 10), pytest.approx(2 * forward_flops / 10))


def test_a_layer_takes_as_long_as_the_bytes_that_it_moves():
    moved_bytes = IMAGE + WIDE + 4 * 8 * 16   # its input, its output, its weights
    assert seconds_of_chain(flops_per_s=1e30, memory_bytes_per_s=10.0)[0] == (
        pytest.approx(moved_bytes / 10), pytest.approx(2 * moved_bytes / 10))


def test_a_layer_without_backward_takes_no_time_for_it():
    elements = wire(made(*CHAIN), MICRO_BATCH_SPEC, lambda path: path == 'model/a/w')
    assert Hardware('any', flops_per_s=1.0).layer_seconds(elements)[0][1] == 0.0


def test_adapters_and_frozen_weights_save_the_products_that_are_not_computed():
    adapted = dense('adapted', 16, 16, adapters=Adapters(rank=1))
    network = made(CHAIN[0], dense('frozen', 16, 16), adapted, CHAIN[2])
    elements = wire(network, MICRO_BATCH_SPEC, lambda path: path == 'model/frozen/w')
    seconds = Hardware('any', flops_per_s=1.0).layer_seconds(elements)
    ratios = [backward / forward for forward, backward in seconds]
    assert (ratios[0], ratios[1], ratios[3]) == (2, 1, 2)
    assert 1 < ratios[2] < 1.4


def test_names_are_found_in_any_case_and_faster_ones_are_newer():
    assert device_type('H100') is DEVICE_TYPES['h100']
    names = ['p100', 'v100', 'a100', 'h100']
    rates = [DEVICE_TYPES[name].flops_per_s for name in names]
    assert rates == sorted(rates)


def test_an_unknown_name_is_told_with_the_nearest_ones():
    with pytest.raises(ValueError, match=r'--device_type=h1000 is unknown; did you mean h100'):
        device_type('h1000')
    with pytest.raises(ValueError, match=r'unknown; use one of p100, v100, a100, h100, h200'):
        device_type('abacus')
