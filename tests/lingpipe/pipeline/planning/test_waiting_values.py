"""What was sent to a device and is not yet read there: micro-batches of [4, 8], 128 bytes."""

import pytest

from lingpipe import layers
from tests.support.planned_chains import dense, made, plan_of
from tests.support.toy_layers import Add

TWO = made(dense('a', 8, 8, reads={'x': 'image'}), dense('b', 8, 8))
FOUR = made(dense('a', 8, 8, reads={'x': 'image'}), dense('b', 8, 8), dense('c', 8, 8),
            dense('d', 8, 8))
SKIP = made(dense('a', 8, 8, reads={'x': 'image'}, writes='skip'),
            dense('b', 8, 8, reads={'x': 'skip'}), dense('c', 8, 8),
            Add.Params(name='add'))


def waiting(network, **pipeline) -> list[float]:
    plan = plan_of(network, **{'num_micro_batches': 4, 'recompute': 'none', **pipeline})
    return list(plan.waiting_bytes().values())


@pytest.mark.parametrize(('schedule', 'num_values'), [('gpipe', 3), ('1f1b', 1)])
def test_values_wait_where_a_cell_runs_ahead(schedule, num_values):
    """A forward takes 1, and the last cell's B almost 5. Nothing told of the values that wait.

    gpipe: F0 F1 F2 F3 ..      1f1b: F0 F1 .. .. ..
           .. B0 -- -- --            .. B0 -- -- --
    """
    assert waiting(TWO, num_cells=2, layers_per_cell=(1, 2), schedule=schedule) == [
        0, num_values * 128]


def test_values_wait_as_they_are_sent():
    assert waiting(TWO, num_cells=2, layers_per_cell=(1, 2), schedule='gpipe',
                   wire_dtype='bfloat16') == [0, 3 * 64]


def test_gradients_wait_until_their_cell_takes_them():
    """Cell 0 runs forwards until 12. Gradients come at 8, 13, 18 and 22, and it takes 9 for each.

    Its second forward waits for the end of the first gradient's B, and the two others for more.
    """
    assert waiting(FOUR, num_cells=2, layers_per_cell=(3, 2), schedule='gpipe',
                   recompute='cell') == [2 * 128, 2 * 128]


def test_a_value_waits_at_the_end_of_a_skip_connection():
    """While B0 runs, the skips of two micro-batches wait, and what cell 1 made of one of them.

    F0 F1 F2 .. .. ..
    .. F0 F1 .. .. ..
    .. .. B0 -- -- --
    """
    assert waiting(FOUR, num_cells=3, layers_per_cell=(1, 1, 3)) == [0, 128, 128]
    assert waiting(SKIP, num_cells=3, layers_per_cell=(1, 1, 3)) == [0, 128, 3 * 128]


@pytest.mark.parametrize(('activation', 'recompute', 'num_values'), [
    ('linear', 'none', 1), ('relu', 'none', 0), ('relu', 'cell', 1)])
def test_on_one_device_a_value_waits_if_no_backward_of_its_cell_holds_it(
        activation, recompute, num_values):
    """With two micro-batches, a value has twice the bytes."""
    network = made(dense('a', 8, 8, reads={'x': 'image'}, activation=activation),
                   layers.Dense.Params(name='b', input_dim=8, units=8))
    assert waiting(network, num_cells=2, layers_per_cell=(1, 2), recompute=recompute,
                   num_micro_batches=2, schedule='text', devices=['CPU:0'],
                   schedule_text='F0.0 F0.1 B1.0 -- B0.0 B1.1 -- B0.1') == [num_values * 256]


def test_one_cell_waits_for_nothing():
    assert waiting(TWO, num_cells=1) == [0]
