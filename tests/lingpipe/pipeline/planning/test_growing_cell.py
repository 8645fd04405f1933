"""A growing cell: what it receives, and a tied weight that is copied until its owner comes."""
import pytest

from lingpipe.pipeline.planning.growing_cell import FixedBytes
from lingpipe.pipeline.planning.layer_bytes import LayerBytes


def layer(**fields):
    """A layer that reads and keeps nothing."""
    return LayerBytes(**{
        'own_bytes': 0, 'gradient_bytes': 0, 'owned': frozenset(), 'shared': (), 'reads': (),
        'repeats': (), 'residuals': (), 'inner_bytes': 0, 'handed': (), 'handed_inner_bytes': 0,
        'seeds': (), 'handed_gradient_bytes': 0, 'passed_on': {}, 'gradients_out': (),
        'repeated_bytes': 0, 'has_backward': True, **fields})


def test_a_tied_weight_is_copied_until_the_cell_owns_it():
    fixed = FixedBytes(num_replicas=1, is_summed_in_groups=False, receives_gradients=True)
    fixed.add(layer(shared=(('w', 50),)))
    fixed.add(layer(shared=(('w', 50),)))
    assert fixed.total == 50
    fixed.add(layer(own_bytes=1000, owned=frozenset({'w'})))
    assert fixed.total == 1000


@pytest.mark.parametrize(('num_replicas', 'receives_gradients', 'received'), [
    (1, True, 0), (2, True, 101), (3, True, 135), (3, False, 0)])
def test_gradients_of_other_replicas_are_received(num_replicas, receives_gradients, received):
    fixed = FixedBytes(num_replicas, True, receives_gradients)
    fixed.add(layer(own_bytes=1000, gradient_bytes=101))
    assert fixed.total == 1000 + 2 * 101   # The sums of a group are set aside.
    assert fixed.received == received


def test_the_update_needs_room_for_the_largest_weight_once_the_gradients_are_received():
    fixed = FixedBytes(num_replicas=2, is_summed_in_groups=False, receives_gradients=True)
    for update_bytes in (30, 70, 50):
        fixed.add(layer(gradient_bytes=20, update_bytes=update_bytes))
    assert (fixed.total, fixed.received) == (60, 70)
    fixed.add(layer(gradient_bytes=20))
    assert fixed.received == 80
