"""The picture shows the surest mistakes, needs little memory, and counts as the accuracy does."""
from __future__ import annotations

import io

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lingpipe.input import ArrayInput
from lingpipe.keras_models import from_keras, learner_from_keras
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.tasks.image.classifier import ImageClassification
from lingpipe.tasks.image.misclassified import NUM_SHOWN, Misclassified, caption, picture
from lingpipe.training import registry
from lingpipe.training.loop import LoopOptions, TrainLoop


def batch_of(labels, weight=None, size=4):
    """Returns images [B, size, size, 3] that begin with their number, labels and weights [B]."""
    image = np.zeros([len(labels), size, size, 3], np.float32)
    image[:, 0, 0, 0] = 1 + np.arange(len(labels))
    return {'image': image, 'label': np.array(labels, np.int32),
            'weight': np.ones(len(labels), np.float32) if weight is None
            else np.array(weight, np.float32)}


def logits_of(*probabilities):
    """Returns logits [B, V] whose softmax gives the rows."""
    return {'x': tf.math.log(tf.constant(probabilities))}


class GivenImages(ArrayInput):
    def load(self):
        return {name: batch_of([0, 1])[name] for name in ('image', 'label')}


def make(class_names=()):
    return Misclassified(image='image', label='label', logits='x', class_names=class_names)


def test_the_surest_mistake_comes_first_and_what_is_right_not_at_all():
    made = make()
    made.see(batch_of([0, 1, 2]), logits_of([.1, .6, .3], [.2, .7, .1], [.9, .1, .0]))
    made.see(batch_of([1]), logits_of([.8, .1, .1]))
    assert made.rows() == [('2', '0', pytest.approx(.9)), ('1', '0', pytest.approx(.8)),
                           ('0', '1', pytest.approx(.6))]
    assert made.text() == '3 of 4 images are misclassified'


def test_padding_is_never_shown_nor_counted():
    made = make()
    made.see(batch_of([1, 1, 1], weight=[1, 0, 0]), logits_of([.6, .4], [.9, .1], [.9, .1]))
    assert made.rows() == [('1', '0', pytest.approx(.6))]
    assert made.text() == '1 of 1 image is misclassified'


def test_logits_that_are_not_finite_predict_nothing():
    made = make()
    made.see(batch_of([1, 1]), {'x': np.array([[np.nan, 0], [1, 0]], np.float32)})
    assert [row[:2] for row in made.rows()] == [('1', '0')]


def test_one_logit_is_that_of_the_second_of_two_classes():
    made = make()
    made.see(batch_of([1, 0, 0]), {'x': np.array([[1.], [1.], [-1.]], np.float32)})
    assert made.rows() == [('0', '1', pytest.approx(1 / (1 + np.exp(-1))))]


def test_labels_may_be_a_column_as_keras_gives_those_of_cifar():
    """Each prediction was compared with all labels, and an evaluation ended with a TypeError."""
    made = make()
    made.see({**batch_of([0, 1]), 'label': np.array([[0], [1]], np.int32)},
             logits_of([.9, .1], [.8, .2]))
    assert made.rows() == [('1', '0', pytest.approx(.8))]
    assert made.text() == '1 of 2 images is misclassified'


def test_grey_images_may_have_no_channels():
    made = make()
    made.see({**batch_of([1]), 'image': np.eye(8, dtype=np.float32)[np.newaxis]},
             logits_of([.9, .1]))
    assert made.rows() == [('1', '0', pytest.approx(.9))]


@pytest.mark.parametrize(('values', 'has_picture', 'has_review'), [
    ({'image': np.zeros([2, 4, 4, 3])}, True, True),
    ({'image': np.zeros([2, 4, 4])}, True, True),
    ({'image': np.zeros([2, 16])}, False, False),
    ({'label': np.array([[0], [1]])}, True, True),
    ({'label': np.eye(2, dtype=np.int64)}, True, False)])
def test_only_images_with_a_number_of_a_class_are_reviewed(values, has_picture, has_review):
    """Rows of numbers ended a run with an AxisError, and labels of a number a class did, too."""
    source = ArrayInput.of({'image': np.zeros([2, 4, 4, 3]), 'label': np.array([0, 1]), **values},
                           batch_size=2).instantiate()
    task = registry.get('image.digits.Dense').task.instantiate()
    pictures = task.images(next(source.batches()))
    assert [image.shape for image in pictures.values()] == has_picture * [(2, 4, 4, 3)]
    assert bool(task.review(source)) == has_review


def test_an_eval_input_without_labels_is_refused_by_a_sentence(tmp_path):
    """The review looked for the labels first, and raised a KeyError."""
    params = registry.get('image.digits.Dense').set(**{'train.num_steps': 1, 'eval_inputs': {
        'bare': ArrayInput.of({'image': np.zeros([4, 8, 8, 1], np.float32)}, batch_size=4,
                              num_epochs=1)}})
    with pytest.raises(ValueError, match="eval_inputs.bare: .* reads 'label'"):
        TrainLoop(params.instantiate(), str(tmp_path), LoopOptions(out=io.StringIO())).run()


def test_a_network_of_keras_is_seen_by_the_logits_of_its_loss():
    """It asked for a value x, which no layer of a Keras model writes."""
    image = keras.Input((4, 4, 3), name='image')
    flat = keras.layers.Flatten()(image)
    model = keras.Model(image, keras.layers.Dense(2, 'softmax', name='out')(flat))
    model.compile('sgd', 'sparse_categorical_crossentropy')
    task = ImageClassification.Params(
        model=from_keras(model, labels='label'), learner=learner_from_keras(model)).instantiate()
    source = GivenImages.Params(batch_size=2).instantiate()
    logits, = task.review(source).fetch
    program = Program(task.network, source.spec(), PipelineParams(), task.learner)
    batch = batch_of([1, 0])
    evaluated = program.evaluator(program.batch_spec, fetch=[logits]).step(batch)[1][logits]
    np.testing.assert_allclose(tf.nn.softmax(evaluated), model(batch['image']), atol=1e-6)


def test_of_many_only_the_surest_are_kept():
    made, rng = make(), np.random.default_rng(0)
    sure = rng.uniform(0.5, 1, [10, 20])
    for row in sure:
        made.see(batch_of([1] * 20), logits_of(*[[p, 1 - p] for p in row]))
    assert [p for *_, p in made.rows()] == pytest.approx(
        sorted(sure.flat, reverse=True)[:NUM_SHOWN])
    assert made.text() == '200 of 200 images are misclassified'


def test_classes_have_their_names():
    made = make(['cat', 'dog'])
    made.see(batch_of([0, 1]), logits_of([.0, .9, .1], [.0, .2, .8]))
    assert [row[:2] for row in made.rows()] == [('cat', 'dog'), ('dog', '2')]


@pytest.mark.parametrize('row, text', [
    (('8', '1', 0.934), '8 -> 1 (0.93)'),
    (('cat', 'a dog of any kind', 0.5), 'cat\n-> a dog of any ... (0.50)'),
    (('black-footed ferret, polecat', 'cat', 1.0), 'black-footed ferret, po...\n-> cat (1.00)')])
def test_a_long_name_is_cut(row, text):
    assert caption(*row) == text


@pytest.mark.parametrize('low, high', [(0, 1), (-1, 1), (-2.1, 2.6), (0, 255)])
def test_an_image_is_seen_whatever_its_range(low, high):
    image = np.array([[[low], [(low + high) / 2]],
                      [[high], [np.nan if low < 0 else low]]], np.float32)   # [2, 2, 1]
    found = picture(image)
    assert found.shape == (2, 2, 3) and found.dtype == np.uint8
    assert found[0, 0, 0] == 0 and found[1, 0, 0] == 255 and found[0, 1, 0] in (127, 128)


def test_the_picture_shows_the_images(tmp_path):
    made, image = make(['a$b', '$']), np.zeros([1, 8, 8, 3], np.float32)
    image[..., 0] = 1   # red
    made.see({**batch_of([0]), 'image': image}, logits_of([.1, .9]))
    made.save_png(str(tmp_path / 'one.png'), 'test')
    pixels = tf.io.decode_png((tmp_path / 'one.png').read_bytes(), channels=3).numpy()
    assert (pixels == [255, 0, 0]).all(-1).sum() > 100 * 100


def test_without_a_mistake_the_picture_of_before_is_replaced(tmp_path):
    (tmp_path / 'one.png').write_text('old')
    make().save_png(str(tmp_path / 'one.png'), 'test')
    assert (tmp_path / 'one.png').read_bytes().startswith(b'\x89PNG')


def test_a_training_leaves_the_picture_in_its_logdir_and_in_tensorboard(tmp_path):
    params = registry.get('image.digits.Dense').set(**{'train.num_steps': 2})
    out = io.StringIO()
    outcome = TrainLoop(params.instantiate(), str(tmp_path), LoopOptions(out=out)).run()
    num_wrong = round((1 - outcome.metrics['test']['accuracy']) * 355)
    path = tmp_path / 'pictures' / 'misclassified-test.png'
    assert f'{num_wrong} of 355 images are misclassified: {path}\n' in out.getvalue()
    assert outcome.pictures['test'].path == str(path)
    assert path.read_bytes().startswith(b'\x89PNG')

    events = EventAccumulator(str(tmp_path / 'tensorboard' / 'eval_test')).Reload()
    width, height, png = events.Tensors('misclassified')[0].tensor_proto.string_val
    assert (tf.io.decode_png(png).shape[:2] == (int(height), int(width))
            == tf.io.decode_png(path.read_bytes()).shape[:2])

    events = EventAccumulator(str(tmp_path / 'tensorboard' / 'train')).Reload()
    # Width and height come before the images.
    assert len(events.Tensors('image')[0].tensor_proto.string_val) == 2 + 8
