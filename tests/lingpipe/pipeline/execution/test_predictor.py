"""Predictor: the outputs of any number of examples, with the bits of the evaluation."""
from __future__ import annotations

import re
import tracemalloc

import numpy as np
import pytest
import tensorflow as tf

from lingpipe import layers
from lingpipe.layers import Sequential
from lingpipe.layers.base import Layer
from lingpipe.layers.cost import Cost
from lingpipe.learning import learning_rates
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.planning.pipeline_params import PipelineParams

B, M, D, V = 8, 4, 3, 5


class Mean(Layer):
    """The weighted mean of two values, with a penalty, as layers with regularizers have one."""

    def fprop(self, theta, ctx, x, y, weight=None):
        ctx.emit_penalty(self.path, 'penalty', tf.reduce_sum(x))
        return (x + y) / (2. if weight is None else 1. + weight[:, tf.newaxis])

    def cost(self, x, y, weight=None):
        return Cost(0, 0, x)


class WholeBatch(Layer):
    """A layer that compares the examples of a mini-batch."""
    needs_whole_batch = True

    def fprop(self, theta, ctx, x):
        return x - tf.reduce_mean(x, 0)

    def cost(self, x):
        return Cost(0, 0, x)


def batch_of(num_examples: int = B) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {'image': random.standard_normal([num_examples, D]).astype(np.float32),
            'id': random.integers(0, V, num_examples).astype(np.int32),
            'labels': random.integers(0, D, num_examples).astype(np.int32),
            'weight': np.ones(num_examples, np.float32)}


SPEC = {name: tf.TensorSpec(value.shape, value.dtype) for name, value in batch_of().items()}


def dense(name: str, **params) -> layers.Dense.Params:
    return layers.Dense.Params(name=name, input_dim=D, units=D, **params)


LAYERS = (
    dense('stem', reads={'x': 'image'}),
    layers.Embedding.Params(name='table', vocab_size=V, dim=D, reads={'ids': 'id'}, writes='y'),
    dense('side', reads={'x': 'y'}, writes='side'),
    Mean.Params(name='mean', reads={'x': 'x', 'y': 'y'}),
    layers.CrossEntropyLoss.Params(name='side_loss', reads={'x': 'side'}, is_auxiliary=True),
    dense('head'),
    layers.CrossEntropyLoss.Params(name='loss'))


def program_of(num_cells: int = 3, chain: tuple[Layer.Params, ...] = LAYERS,
               num_micro_batches: int = M) -> Program:
    """With three cells, the last one has nothing but the loss."""
    cuts = {1: (len(chain),), 3: (3, 3, 1)}[num_cells]
    learner = Learner.Params(learning_rate=learning_rates.Constant.Params(rate=0.1), ema_decay=0.5,
                             ema_warmup=False)
    return Program(
        Sequential.Params(name='model', layers=chain).instantiate('model'), SPEC,
        PipelineParams(num_cells=num_cells, num_micro_batches=num_micro_batches,
                       layers_per_cell=cuts), learner.instantiate())


@pytest.fixture(scope='module')
def program() -> Program:
    """A program that has been trained for two steps, so that averages are not the weights."""
    made = program_of()
    for step in range(2):
        made.train_step(batch_of(), step)
    return made


def inputs(num_examples: int = B) -> dict[str, np.ndarray]:
    return {name: batch_of(num_examples)[name] for name in ('image', 'id')}


def test_a_prediction_has_the_bits_of_the_evaluation(program):
    _, fetched = program.evaluator(SPEC, fetch=['x', 'side']).step(batch_of())
    predicted = program.predict(inputs(), ['x', 'side'])
    assert predicted.keys() == fetched.keys()
    for name, value in fetched.items():
        np.testing.assert_array_equal(predicted[name], value.numpy(), err_msg=name)


@pytest.mark.parametrize('num_examples', [1, 5, B + 3])
def test_any_number_of_examples_gives_the_outputs_of_each(program, num_examples):
    examples = {name: np.resize(value, [num_examples, *value.shape[1:]])
                for name, value in inputs().items()}
    whole = program.predict(inputs())['x']
    np.testing.assert_array_equal(program.predict(examples)['x'],
                                  np.resize(whole, [num_examples, D]))


def test_outputs_are_in_memory_once():
    """They were concatenated, and so took their bytes twice."""
    wide = program_of(1, (layers.Dense.Params(name='wide', input_dim=D, units=1 << 13,
                                              reads={'x': 'image'}),
                          layers.CrossEntropyLoss.Params(name='loss')), num_micro_batches=1)
    examples = {'image': np.ones([100 * B, D], np.float32)}
    wide.predict({'image': examples['image'][:B]})   # It traces.
    tracemalloc.start()
    output = wide.predict(examples)['x']
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert output.shape == (100 * B, 1 << 13)
    assert output.nbytes < peak_bytes < 1.2 * output.nbytes


def test_layers_that_feed_losses_alone_are_left_out(program):
    paths = [element.layer.path for element in program.predictor(SPEC).elements]
    assert paths == ['model/stem', 'model/table', 'model/mean', 'model/head']


def test_the_specs_say_what_one_example_is(program):
    predictor = program.predictor(SPEC)
    assert predictor.input_specs == {
        'image': tf.TensorSpec([D]), 'id': tf.TensorSpec([], tf.int32),
        'weight': tf.TensorSpec([])}
    assert predictor.optional_inputs == {'weight'}
    assert predictor.output_specs == {'x': tf.TensorSpec([D])}


def test_a_network_with_one_input_takes_it_without_its_name():
    program = program_of(1, (dense('out', reads={'x': 'image'}), LAYERS[-1]))
    image = inputs()['image']
    np.testing.assert_array_equal(program.predict(image.astype(np.float64))['x'],
                                  program.predict({'image': image})['x'])


@pytest.mark.parametrize(('examples', 'sentence'), [
    ({'image': np.zeros([2, D], np.float32)},
     'id is missing; the network takes id, image, and there are image.'),
    (np.zeros([2, D]), 'the network takes id, image; give a dict of arrays by these names.'),
    ({**inputs(), 'image': np.zeros([B, 4], np.float32)},
     "'image' is float32 (8, 4), but the network takes float32 [N, 3], a row for every example."),
    ({**inputs(), 'image': np.zeros([B, D], np.uint8)},
     "'image' is of uint8, but the network takes float32; convert it as the input of the "
     'experiment does.'),
    ({**inputs(), 'id': np.full([B], 1 << 40)},
     "'id' has whole numbers that int32 cannot hold; correct them."),
    ({'id': np.array([1]), 'image': np.full([1, 3], 1e300)},
     "'image' has 1e+300, which is larger than float32 can hold; scale it."),
    ({**inputs(), 'image': np.ma.masked_less(np.zeros([B, D]), 1.)},
     "'image' is an array with masked values, which a network cannot skip; fill them"),
    ({**inputs(), 'image': [[1j] * D] * B},
     "'image' is not float32 in every example: it has complex numbers."),
    ({**inputs(), 'image': [[1.] * D] * (B - 1) + [[1.]]},
     "'image' is not float32 in every example: its lists have different lengths."),
    ({**inputs(), 'id': [0] * (B - 1) + [1.5]},
     "'id' is not int32 in every example: 1.5 is no whole number that int32 can hold."),
    ({**inputs(), 'id': [True] * B}, "'id' is not int32 in every example: it has true or false."),
    ({**inputs(), 'id': np.zeros([3], np.int32)},
     'the inputs have different numbers of examples: id 3, image 8; give one row to every '
     'example.'),
    (inputs(0), 'there are no examples; give at least one.'),
    ({**inputs(), 'id': np.full([B], V)},
     'example 0 of the mini-batch has id 5 but model/table takes whole numbers from 0 to 4'),
])
def test_wrong_examples_are_refused(program, examples, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        program.predict(examples)


def test_copies_do_not_fill_up_a_batch_whose_examples_are_compared():
    program = program_of(1, (WholeBatch.Params(name='compare', reads={'x': 'image'}), LAYERS[-1]),
                         num_micro_batches=1)
    assert program.predict(inputs())['x'].shape == (B, D)
    with pytest.raises(ValueError, match='if it does so in training alone, set '
                                         'mixes_in_training_only = True in its class; give a '
                                         'multiple of 8 examples'):
        program.predict(inputs(B + 1))
