"""Mixup keeps images, labels and shares together, and mixes nothing in evaluation."""
from __future__ import annotations

import re

import numpy as np
import pytest
import tensorflow as tf

from lingpipe import pricing
from lingpipe.export.served_network import ServedNetwork
from lingpipe.layers.context import Context
from lingpipe.layers.nested import NestedMap
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.tasks.image.mixup import Mixup
from lingpipe.training import registry

NUM = 500
IMAGES = np.random.default_rng(0).normal(size=[NUM, 2, 2, 1]).astype(np.float32)
LABELS = np.arange(NUM, dtype=np.int32)
WEIGHT = (np.arange(NUM) % 10 != 3).astype(np.float32)


def mixed(training: bool = True, step: int = 0, alpha: float = 0.4) -> dict[str, np.ndarray]:
    layer = Mixup.Params(alpha=alpha).instantiate('model/mixup')
    found = layer.fprop(NestedMap(), Context(training, 0, step),
                        *map(tf.constant, (IMAGES, LABELS, WEIGHT)))
    return {name: value.numpy() for name, value in found.items()}


def test_every_image_is_mixed_with_the_one_whose_label_it_is_given():
    found = mixed()
    share = found['share'][:, np.newaxis, np.newaxis, np.newaxis]
    np.testing.assert_allclose(
        found['image'], share * IMAGES + (1 - share) * IMAGES[found['other_label']], atol=1e-6)
    assert not np.any(found['other_label'] == LABELS)


@pytest.mark.parametrize('alpha', [0.2, 1.])
def test_shares_have_the_distribution_of_the_paper(alpha):
    """Beta(alpha, alpha) has the mean 1/2 and the variance 1 / (4 (2 alpha + 1))."""
    found = mixed(alpha=alpha)
    share = found['share'][WEIGHT[found['other_label']] != 0]
    assert share.min() >= 0 and share.max() <= 1
    assert share.mean() == pytest.approx(0.5, abs=0.06)
    assert share.var() == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.15)


def test_padding_is_mixed_into_nothing():
    found = mixed()
    assert np.all(found['share'][WEIGHT[found['other_label']] == 0] == 1)


def test_shares_differ_by_step_and_repeat_in_recomputation():
    assert np.array_equal(mixed()['share'], mixed()['share'])
    assert not np.array_equal(mixed()['share'], mixed(step=1)['share'])


def test_evaluation_mixes_nothing():
    found = mixed(training=False)
    assert (np.array_equal(found['image'], IMAGES) and np.array_equal(found['other_label'], LABELS)
            and np.all(found['share'] == 1))


def test_no_op_is_stateful():
    layer = Mixup.Params().instantiate()
    traced = tf.function(lambda *values: layer.fprop(NestedMap(), Context(True), *values),
                         autograph=False)
    graph = traced.get_concrete_function(IMAGES, LABELS, WEIGHT).graph
    assert [kind for op in graph.get_operations() for kind in pricing.stateful_types(op)] == []


@pytest.mark.parametrize(('images', 'sentence'), [
    (np.zeros([2, 4, 4, 3], np.uint8),
     'image is uint8, and only floats can be mixed; put Normalize before it'),
    (np.zeros([1, 4, 4, 3], np.float32),
     'a micro-batch has one example, which has none to be mixed with; use fewer micro-batches')])
def test_what_cannot_be_mixed_is_refused(images, sentence):
    values = tf.constant(images), tf.zeros([len(images)], tf.int32), tf.ones([len(images)])
    with pytest.raises(ValueError, match=re.escape(f'model/mixup: {sentence}')):
        Mixup.Params().instantiate('model/mixup').fprop(NestedMap(), Context(True), *values)


def test_padding_may_hold_anything():
    layer = Mixup.Params(alpha=0.4).instantiate('model/mixup')
    images = np.where(WEIGHT[:, np.newaxis, np.newaxis, np.newaxis] == 0, np.nan, IMAGES)
    found = layer.fprop(NestedMap(), Context(True, 0, 0),
                        *map(tf.constant, (images.astype(np.float32), LABELS, WEIGHT)))
    assert np.isfinite(found['image'].numpy()[WEIGHT != 0]).all()


def test_labels_and_weights_are_needed_in_training_alone():
    """Predictions and exports asked for the labels of the images whose labels they predict."""
    params = registry.get('image.digits.Dense').task
    mixup = Mixup.Params(name='mixup')
    layers = (mixup, *params.model.layers)
    task = params.set(**{'model.layers': layers}).instantiate()
    spec = {'image': tf.TensorSpec([4, 8, 8, 1]), 'label': tf.TensorSpec([4], tf.int32),
            'weight': tf.TensorSpec([4])}
    program = Program(task.network, spec, PipelineParams(num_micro_batches=2), task.learner, 0)
    predictor = program.predictor(spec)
    images = np.random.default_rng(0).normal(size=[5, 8, 8, 1]).astype(np.float32)
    assert predictor.optional_inputs == {'label', 'weight'}
    assert list(ServedNetwork(program, predictor).inputs) == ['image']
    found = predictor.predict(images)['x']
    labelled = predictor.predict({'image': images, 'label': ['no number of a class'] * 5})['x']
    np.testing.assert_array_equal(found, labelled)
