"""Placement: every op of a cell is on the cell's device.

What crosses between devices is what sent_bytes says, and a few scalars. The tests read the graphs
that TensorFlow makes for each device, for every function that a step runs: see partition_graphs.py.
"""
from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

from tests.lingpipe.pipeline.execution import placement_cases
from tests.support import partition_graphs
from tests.support.forks import Fork

NUM_CASES = 9
pytestmark = pytest.mark.slow   # One process makes what all tests look at.
FLOAT, DOUBLE = 4, 8   # Sizes in bytes.


@pytest.fixture(scope='module')
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What was found in the graphs, by case."""
    directory: pathlib.Path = tmp_path_factory.mktemp('graphs')
    process = Fork(placement_cases.record, str(directory),
                   env=partition_graphs.environment(directory))
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    made = json.loads(out.splitlines()[-1])
    assert len(made) == NUM_CASES
    return made   # type: ignore[no-any-return]


def test_what_is_called_runs_on_one_device(found):
    """The function that equal layers share once carried the device of the first of them.

    The updates of most layers then sent gradients, weights and slots there and back.
    """
    for name, case in found.items():
        assert case['spread'] == [], name
        assert case['num_calls'] > 0 or name == 'copy'


def test_ops_of_a_layer_are_on_its_cells_device(found):
    for name, case in found.items():
        assert case['misplaced'] == [], name
        # Decoding does not name ops after layers.
        assert case['num_ops_of_layers'] > 50 or name in ('copy', 'decoding')


@pytest.mark.parametrize('name', ['accumulation', 'evaluation', 'groups', 'replicas', 'ring',
                                  'rows'])
def test_what_crosses_is_what_is_predicted(found, name):
    case = found[name]
    assert case['of_unknown_size'] == []
    assert case['num_bytes'] == sum(case['predicted'].values()) > 0


def test_a_timed_step_sends_the_stamps_of_every_other_device_too(found):
    case = found['training']
    # There are two micro-batches, and each cell stamps its norms and its update.
    num_stamped = {'second cell': 4 + 2, 'last cell': 2 + 2}
    assert (case['num_bytes']
            == sum(case['predicted'].values()) + sum(num_stamped.values()) * 3 * DOUBLE)


def test_the_terms_of_what_is_predicted(found):
    """Writes the prediction out for two micro-batches of 16 examples together.

    Labels and weight go to the last cell. 12 channels cross the first boundary, also for a skip,
    and 8 cross the second, where the cells share a weight [8, 12]. Six weights are trained outside
    the first cell.
    """
    x, skip, last, tied = 16 * 12 * FLOAT, 16 * 12 * FLOAT, 16 * 8 * FLOAT, 8 * 12 * FLOAT
    predicted = found['training']['predicted']
    assert predicted == {'batch': 2 * 16 * FLOAT, 'values': x + skip + last,
                         'gradients': x + skip + last, 'shared_weights': tied,
                         'shared_gradients': tied, 'norms': 6 * DOUBLE, 'sums': 0, 'gathered': 0,
                         'updated_weights': 0, 'fetched': 0}
    # Only x of the last cell is fetched; the skip is where the mini-batch is.
    assert found['evaluation']['predicted']['fetched'] == last
    assert found['groups']['predicted']['values'] == 4 * x / 2   # They cross as bfloat16.


def test_scalars_that_cross_are_few(found):
    """Six scalars go to each other device, and what layers emit comes back from each cell.

    They are the step, the index of the first micro-batch, 1 / weight, the scale, the learning rate,
    and whether all values are finite. The results go from the first cell to the process' own
    device, which in 'groups' is another one.
    """
    num_other_devices = {'training': 2, 'accumulation': 2, 'evaluation': 2, 'groups': 1,
                         'replicas': 3, 'ring': 3}
    num_emitted = 5
    for name, num in num_other_devices.items():
        num_results = 6 if name == 'groups' else 0
        assert 0 < found[name]['num_scalars'] <= 6 * num + num_emitted + num_results, name


def test_a_copy_of_variables_stays_where_they_are(found):
    assert found['copy']['num_bytes'] == 0


def test_each_position_of_decoding_sends_ids_and_one_activation(found):
    """Encoder outputs, mask, limits and the tied weight [13, 16] go to the last cell once.

    Where sentences begin goes from there to the first cell, and to the host.
    """
    case = found['decoding']
    inside = [(dtype, receiver[-1])
              for tensor, dtype, receiver in case['of_unknown_size']
              if 'while' in tensor and '/exit/' not in tensor]
    once = [(dtype, receiver[-1])
            for tensor, dtype, receiver in case['of_unknown_size'] if 'while' not in tensor]
    # Inside the loop cross x, the ids, their places in the beam, and the position.
    assert sorted(inside) == [('float32', '1'), *[('int32', '0')] * 3]
    assert sorted(once) == [('bool', '1'), ('float32', '1'), *[('int32', '0')] * 2, ('int32', '1')]
    assert case['num_bytes'] == 13 * 16 * FLOAT and case['num_scalars'] == 1   # whether to go on
