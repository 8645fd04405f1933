"""Variables: where weights are, and their keys in a checkpoint."""
from __future__ import annotations

import numpy as np
import tensorflow as tf

from lingpipe import layers
from lingpipe.layers import Sequential
from lingpipe.learning import learning_rates, optimizers
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution.variables import Variables
from lingpipe.pipeline.planning.cell import Cell
from lingpipe.pipeline.planning.dataflow import wire

DEVICES = ('/device:CPU:1', '/device:CPU:2')


def variables_of(num_cells: int = 2, seed: int = 0, ema_decay: float | None = None,
                 ) -> tuple[Variables, list[Cell]]:
    """The variables of two layers, the second of which shares the first's w, and their cells."""
    network = Sequential.Params(name='model', layers=(
        layers.Dense.Params(name='in', input_dim=3, units=3),
        layers.Dense.Params(name='out', input_dim=3, units=3, share={'w': 'model/in/w'}),
    )).instantiate('model')
    elements = wire(network, {'x': tf.TensorSpec([2, 3])})
    spans = [elements] if num_cells == 1 else [elements[:1], elements[1:]]
    cells = [Cell(k, span, DEVICES[k]) for k, span in enumerate(spans)]

    learner = Learner.Params(
        optimizer=optimizers.SGD.Params(momentum=0.9), ema_decay=ema_decay,
        learning_rate=learning_rates.Constant.Params(rate=0.1)).instantiate()
    return Variables(network, cells, learner, seed), cells


def test_a_shared_weight_is_one_variable():
    variables, _ = variables_of()
    assert variables.weights.keys() == {'model/in/w', 'model/in/b', 'model/out/b'}


def test_a_variable_is_on_the_device_of_the_cell_that_owns_it():
    variables, _ = variables_of()
    devices = {path: variable.device[-len(DEVICES[0]):]
               for path, variable in variables.weights.items()}
    assert devices == {'model/in/w': DEVICES[0], 'model/in/b': DEVICES[0],
                       'model/out/b': DEVICES[1]}
    assert variables.cell_of == {'model/in/w': 0, 'model/in/b': 0, 'model/out/b': 1}


def test_slots_and_averages_are_on_the_device_of_their_weight():
    variables, _ = variables_of(ema_decay=0.9)
    of_out = {key: variable.device[-len(DEVICES[1]):]
              for key, variable in variables.by_key().items()
              if key.endswith('model/out/b') or '/model/out/b/' in key}
    assert len(of_out) == 3   # the weight, its average and its momentum
    assert set(of_out.values()) == {DEVICES[1]}


def test_keys_do_not_depend_on_the_partition():
    one, two = (variables_of(num_cells, ema_decay=0.9)[0].by_key() for num_cells in (1, 2))
    assert one.keys() == two.keys()
    assert {'weights/model/in/w', 'ema/model/in/w'} <= one.keys()


def test_initial_values_do_not_depend_on_the_partition():
    one, two = (variables_of(num_cells)[0].by_key() for num_cells in (1, 2))
    for key, variable in one.items():
        np.testing.assert_array_equal(variable, two[key], err_msg=key)


def test_the_seed_determines_the_initial_values():
    first, other = (variables_of(seed=seed)[0].weights['model/in/w'] for seed in (0, 1))
    assert not np.array_equal(first, other)


def test_an_evaluation_uses_the_averages_where_there_are_any():
    variables, _ = variables_of(ema_decay=0.9)
    variables.weights['model/in/b'].assign([1., 2., 3.])
    np.testing.assert_array_equal(variables.averaged()['model/in/b'], [0., 0., 0.])


def test_without_averages_an_evaluation_uses_the_weights():
    variables, _ = variables_of()
    assert variables.averaged()['model/in/b'] is variables.weights['model/in/b']


def test_averages_follow_weights_that_other_code_has_assigned():
    variables, _ = variables_of(ema_decay=0.9)
    variables.weights['model/in/b'].assign([1., 2., 3.])
    variables.weights['model/out/b'].assign([4., 5., 6.])
    variables.follow_weights(but={'ema/model/out/b'})
    np.testing.assert_array_equal(variables.averaged()['model/in/b'], [1., 2., 3.])
    np.testing.assert_array_equal(variables.averaged()['model/out/b'], [0., 0., 0.])


def test_a_cell_reads_its_own_weights_and_no_others():
    variables, cells = variables_of()
    variables.weights['model/out/b'].assign([4., 5., 6.])
    read = variables.reader(cells[1], variables.weights)
    np.testing.assert_array_equal(read('model/out/b'), [4., 5., 6.])
    assert read('model/in/w') is None


def test_a_shared_weight_is_read_on_the_device_of_its_owner():
    variables, _ = variables_of()
    value = variables.shared_reader(variables.weights)('model/in/w')
    assert value.device.endswith(DEVICES[0])
    np.testing.assert_array_equal(value, variables.weights['model/in/w'])
