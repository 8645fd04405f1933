"""Normalize computes the right numbers and cost, and gives the same bits in any number of cells."""
from __future__ import annotations

import re

import numpy as np
import pytest
import tensorflow as tf

from lingpipe import pricing
from lingpipe.input import ArrayInput
from lingpipe.layers import Dense, Flatten, Sequential, static_shapes
from lingpipe.layers.context import Context
from lingpipe.layers.nested import NestedMap
from lingpipe.learning import learning_rates, optimizers
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.tasks.image.classifier import classifier
from lingpipe.tasks.image.mixup import MIXUP_READS, Mixup
from lingpipe.tasks.image.normalize import Normalize

IMAGES = np.random.default_rng(0).integers(0, 256, [8, 6, 6, 3], np.uint8)
MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])


def test_bytes_become_standard_deviations_from_the_mean():
    found = Normalize.Params().instantiate().fprop(NestedMap(), Context(), tf.constant(IMAGES))
    np.testing.assert_allclose(found, (IMAGES / 255 - MEAN) / STD, atol=1e-6)


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
def test_the_cost_is_that_of_the_graph(dtype):
    layer, x = (Normalize.Params(mean=(0.5,), std=(0.25,), dtype=dtype).instantiate(),
                tf.TensorSpec([2, 6, 6, 1], tf.uint8))
    cost, traced = layer.cost(x), pricing.traced_cost(layer, x)
    assert (cost.flops, cost.num_weights) == (traced.flops, 0)
    assert (static_shapes.as_spec(cost.outputs) == static_shapes.as_spec(traced.outputs)
            == tf.TensorSpec([2, 6, 6, 1], dtype))


def test_channels_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=re.escape(
            'mean has 3 numbers, and x is (2, 6, 6, 1); give one for each of its channels')):
        Normalize.Params().instantiate('model/normalize').cost(
            tf.TensorSpec([2, 6, 6, 1], tf.uint8))
    with pytest.raises(ValueError, match=re.escape('std[0]=0.0 is not above 0; use more than 0')):
        Normalize.Params(std=(0.,)).instantiate()


@pytest.mark.parametrize('dtype', [np.uint8, np.float32])
def test_floats_that_may_be_scaled_already_are_named(dtype, caplog):
    """Images from 0 to 1 were divided by 255 once more, and nothing said so."""
    network = Sequential.Params(name='network', layers=(
        Flatten.Params(name='flatten', reads={'x': 'image'}),
        Dense.Params(name='logits', input_dim=108, units=5)))
    task = classifier(network, Learner.Params(
        optimizer=optimizers.SGD.Params(), learning_rate=learning_rates.Constant.Params(rate=0.1)),
        preprocess=(Normalize.Params(name='normalize'),)).instantiate()
    source = ArrayInput.of({'image': IMAGES.astype(dtype), 'label': np.arange(8) % 5}, batch_size=4)
    task.check_input(source.instantiate())
    assert caplog.messages == ([] if dtype is np.uint8 else [
        'model/normalize divides by 255, as bytes need it, and GivenArrays gives float32; if these '
        'are numbers from 0 to 1 already, divide mean and std of its Params by 255, or leave it '
        'out'])


class Unread(ArrayInput):
    """An input whose files are on another machine."""

    def load(self):
        raise AssertionError('the files are asked for')


def test_an_input_before_another_layer_is_not_read():
    """A run that only predicts has no use for the data of its eval inputs."""
    network = Sequential.Params(name='network', layers=(
        Flatten.Params(name='flatten', reads={'x': 'image'}),
        Dense.Params(name='logits', input_dim=108, units=5)))
    task = classifier(network, Learner.Params(
        optimizer=optimizers.SGD.Params(), learning_rate=learning_rates.Constant.Params(rate=0.1)))
    task.instantiate().check_input(Unread.Params(batch_size=4).instantiate())


@pytest.mark.parametrize('is_mixed', [False, True])
def test_a_network_that_begins_with_bytes_is_the_same_in_any_number_of_cells(is_mixed):
    network = Sequential.Params(name='network', layers=(
        Normalize.Params(name='normalize'), *([Mixup.Params(name='mixup')] if is_mixed else []),
        Flatten.Params(name='flatten', reads={'x': 'image'}),
        Dense.Params(name='hidden', input_dim=108, units=16, activation='relu'),
        Dense.Params(name='logits', input_dim=16, units=5)))
    task = classifier(network, Learner.Params(
        optimizer=optimizers.SGD.Params(), learning_rate=learning_rates.Constant.Params(rate=0.1)))
    if is_mixed:
        task['model.layers[1].reads'] = {'labels': 'label', **MIXUP_READS}
    batch = {'image': tf.constant(IMAGES), 'label': tf.constant(np.arange(8) % 5, tf.int32),
             'weight': tf.ones([8])}
    spec = {name: tf.TensorSpec(value.shape, value.dtype) for name, value in batch.items()}

    losses, weights = [], []
    for num_cells in 1, 3:
        made = task.instantiate()
        program = Program(made.network, spec,
                          PipelineParams(num_cells=num_cells, num_micro_batches=2), made.learner, 0)
        losses.append([float(program.train_step(batch, step)['loss']) for step in range(3)])
        weights.append({name: value.numpy() for name, value in program.variables().items()
                        if hasattr(value, 'numpy')})

    assert losses[0] == losses[1] and losses[0][2] < losses[0][0]
    assert weights[0]
    for name, value in weights[0].items():
        assert np.array_equal(value, weights[1][name]), name
