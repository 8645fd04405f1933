"""Layer times: measured seconds or FLOPs, and what recomputation adds to them."""

import pytest

from lingpipe.pipeline.planning.dataflow import wire
from lingpipe.pipeline.planning.layer_times import layer_times
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from tests.support.planned_chains import MICRO_BATCH_SPEC, dense, made


def times_of(frozen=('model/a/w',), **pipeline):
    """Returns the times of the layers a, whose weight is frozen, c and the loss."""
    network = made(dense('a', 8, 16, reads={'x': 'image'}), dense('c', 16, 8))
    elements = wire(network, MICRO_BATCH_SPEC, lambda path: path in frozen)
    return layer_times(elements, PipelineParams(**pipeline))


# 2 FLOPs a product: 4 rows * 16 * 8 for a and for c. The loss has 9 for each of 4 * 8 logits and 7
# for each row.
A, C, LOSS = 1024, 1024, 316


def test_flops_stand_for_seconds_and_a_backward_is_two_forwards():
    times = times_of(frozen=(), recompute='none')
    assert times.forward == (A, C, LOSS)
    assert times.backward == (2 * A, 2 * C, 2 * LOSS)


def test_layers_up_to_the_first_that_trains_have_no_gradients_of_their_inputs():
    times = times_of(recompute='none')
    assert times.forward == (A, C, LOSS)
    assert times.backward == (0, C, 2 * LOSS)


@pytest.mark.parametrize(('mode', 'unfused', 'fused'), [
    ('none', [A, 2 * C, 3 * LOSS], [A, 2 * C, 3 * LOSS]),
    ('cell', [A, 3 * C, 4 * LOSS], [A, 2 * C, 3 * LOSS]),
    ('layer', [A, 4 * C, 5 * LOSS], [A, 3 * C, 4 * LOSS]),
])
def test_recomputation_repeats_forwards_of_layers_with_a_backward(mode, unfused, fused):
    times = times_of()
    assert times.in_cell(mode, is_last=False) == unfused
    assert times.in_cell(mode, is_last=True) == fused


def test_two_thirds_of_measured_seconds_are_the_backward():
    times = times_of(frozen=(), recompute='none', layer_seconds=(3.0, 6.0, 9.0))
    assert times.forward == (1.0, 2.0, 3.0)
    assert times.backward == (2.0, 4.0, 6.0)


def test_measured_seconds_are_the_forward_where_there_is_no_backward():
    times = times_of(recompute='none', layer_seconds=(3.0, 6.0, 9.0))
    assert times.forward == (3.0, 3.0, 3.0)
    assert times.backward == (0.0, 3.0, 6.0)


def test_weights_take_half_of_a_backward_that_passes_a_gradient_on():
    times = times_of(frozen=(), recompute='none', layer_seconds=(3.0, 6.0, 9.0))
    assert times.weight == (2.0, 2.0, 0.0)


def test_a_frozen_layer_behind_a_trained_one_has_half_a_backward():
    times = times_of(frozen=('model/c/w',), recompute='none')
    assert times.backward == (2 * A, C, 2 * LOSS)
    assert times.weight == (2 * A, 0, 0)
    measured = times_of(frozen=('model/c/w',), recompute='none', layer_seconds=(3.0, 6.0, 9.0))
    assert measured.forward == (1.0, 3.0, 3.0)
    assert measured.backward == (2.0, 3.0, 6.0)


def test_measured_seconds_of_the_backward_are_taken_off_those_of_both():
    times = times_of(frozen=(), recompute='none', layer_seconds=(3.0, 6.0, 9.0),
                     layer_backward_seconds=(1.0, 5.0, 6.0))
    assert times.forward == (2.0, 1.0, 3.0)
    assert times.backward == (1.0, 5.0, 6.0)


def test_seconds_of_another_number_of_layers_are_refused():
    with pytest.raises(ValueError, match='layer_seconds has 2 numbers, but the network has 3 '
                                         r'layers; measure again\.'):
        times_of(layer_seconds=(1.0, 2.0))
