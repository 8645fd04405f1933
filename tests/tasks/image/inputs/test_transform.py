"""Each field of Transform changes pixels as documented, and the same seed gives the same pixels."""
from __future__ import annotations

import re

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.tasks.image.inputs import Transform

IMAGE = np.random.default_rng(0).integers(0, 256, [40, 60, 3], np.uint8)
SQUARE = np.random.default_rng(1).integers(0, 256, [16, 16, 3], np.uint8)
NUM_SEEDS = 200


def transform(**values) -> Transform:
    return Transform.Params(**{'size': 16, **values}).instantiate()


def many(image: np.ndarray, num_seeds: int = NUM_SEEDS, **values) -> np.ndarray:
    """Returns images by the seeds [0, 0], [0, 1], ...: uint8 [num_seeds, size, size, C]."""
    one = transform(**values)
    seeds = tf.stack([tf.zeros([num_seeds], tf.int64), tf.range(num_seeds, dtype=tf.int64)], 1)
    return tf.function(lambda: tf.map_fn(lambda seed: one(tf.constant(image), seed), seeds,
                                         fn_output_signature=tf.uint8),
                       autograph=False)().numpy()


def windows(**values) -> np.ndarray:
    """Returns windows of an image of 375 x 500: int32 [NUM_SEEDS, 4]."""
    one = transform(**values)
    seeds = tf.stack([tf.zeros([NUM_SEEDS], tf.int64), tf.range(NUM_SEEDS, dtype=tf.int64)], 1)
    return tf.function(lambda: tf.map_fn(lambda seed: one.window(375, 500, seed), seeds,
                                         fn_output_signature=tf.int32),
                       autograph=False)().numpy()


def test_an_image_of_the_right_size_is_left_alone():
    assert np.array_equal(many(SQUARE, 2), [SQUARE, SQUARE])


def test_random_windows_have_the_area_and_aspect_that_are_asked_for():
    top, left, height, width = windows(window='random').T
    assert (np.all(top >= 0) and np.all(left >= 0)
            and np.all(top + height <= 375) and np.all(left + width <= 500))

    area, aspect = height * width / (375 * 500), width / height
    is_whole = (height == 375) & (width == 500)
    assert is_whole.mean() < 0.02
    assert area.min() > 0.079 and area[~is_whole].max() < 0.99 and area.max() - area.min() > 0.6
    assert 0.74 < aspect[~is_whole].min() < 0.85 and 1.2 < aspect[~is_whole].max() < 1.35


def test_an_area_of_a_tenth_is_not_left_out():
    """By default, min_object_covered=0.1 of tf.image refuses windows under a tenth of an image."""
    _, _, height, width = windows(window='random', area=(0.05, 0.09)).T
    assert np.all(height * width < 0.1 * 375 * 500)


def test_the_centre_keeps_the_aspect():
    assert windows(window='centre')[0].tolist() == [23, 86, 328, 328]
    assert windows(window='centre', centre_share=1.)[0].tolist() == [0, 62, 375, 375]


def test_the_centre_is_cut_and_resized_without_a_seed_mattering():
    expected = tf.image.resize(IMAGE[2:37, 12:47], [16, 16])
    found = many(IMAGE, 2, window='centre')
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], np.round(expected))


def test_half_of_the_images_are_mirrored():
    found = many(SQUARE, flip=True)
    is_mirrored = (found == SQUARE[:, ::-1]).all((1, 2, 3))
    assert np.all(is_mirrored | (found == SQUARE).all((1, 2, 3)))
    assert 0.4 < is_mirrored.mean() < 0.6


def test_moved_images_are_filled():
    found = many(SQUARE, max_shift=1, fill=7)
    padded = np.pad(SQUARE, [(1, 1), (1, 1), (0, 0)], constant_values=7)
    candidates = np.stack([padded[i:i + 16, j:j + 16]
                           for i in range(3) for j in range(3)])[:, np.newaxis]
    is_shift = (candidates == found).all((2, 3, 4))  # [shifts, seeds]
    assert np.all(is_shift.any(0)) and np.all(is_shift.any(1))


@pytest.mark.parametrize('channels', [1, 3])
def test_cutout_paints_a_square_whose_centre_is_anywhere(channels):
    found = many(np.full([16, 16, channels], 200, np.uint8), cutout=6)
    sizes = set()
    for mask in (found == 128).all(-1):
        rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
        assert np.all(np.diff(rows) == 1) and np.all(np.diff(columns) == 1)
        assert mask.sum() == len(rows) * len(columns)
        sizes |= {len(rows), len(columns)}
    assert sizes == {3, 4, 5, 6}
    assert np.all((found == 128) | (found == 200))
    assert (found == 128).any((0, 3)).all()


def test_brightness_adds_the_same_to_all_pixels():
    added = many(np.full([16, 16, 3], 100, np.uint8), brightness=0.1).astype(int) - 100
    assert np.all(added == added[:, :1, :1, :1])
    assert -26 <= added.min() < -20 and 20 < added.max() <= 26


def test_contrast_multiplies_distances_to_the_mean():
    image = (np.where(np.arange(16) < 8, 90, 110).astype(np.uint8)[:, np.newaxis, np.newaxis]
             + np.zeros([16, 16, 3], np.uint8))
    found = many(image, contrast=0.5).astype(int)
    distance = found[:, -1, 0, 0] - found[:, 0, 0, 0]
    assert 10 <= distance.min() < 12 and 28 < distance.max() <= 30


def test_hue_and_saturation_leave_grey_grey_and_turn_colours():
    grey, red = np.full([16, 16, 3], 77, np.uint8), np.full([16, 16, 3], [200, 50, 50], np.uint8)
    assert np.array_equal(many(grey, 20, saturation=0.5, hue=0.2), [grey] * 20)
    assert len(np.unique(many(red, 20, hue=0.2)[:, 0, 0], axis=0)) > 10
    spread = np.ptp(many(red, saturation=0.5)[:, 0, 0].astype(int), axis=-1)
    assert 75 <= spread.min() < 90 and 190 < spread.max() <= 200


def test_pixels_stay_within_0_to_255():
    found = many(np.where(SQUARE > 128, 255, 0).astype(np.uint8), brightness=0.9)
    assert np.isin(found, [0, 255]).any((1, 2, 3)).all()
    # Each image has at most two values, so none wrapped around.
    assert np.all((np.diff(np.sort(found.reshape(NUM_SEEDS, -1)), axis=1) != 0).sum(1) <= 1)


def test_one_random_field_does_not_change_the_numbers_of_another():
    plain, cut = many(SQUARE, 20, flip=True), many(SQUARE, 20, flip=True, cutout=4, max_shift=0)
    assert ((plain == cut).all(-1) | (cut == 128).all(-1)).all()


def test_the_images_of_a_seed_never_change():
    """A run resumed with another version must see the same images: do not edit these literals."""
    gradient = np.arange(40 * 60 * 3).reshape(40, 60, 3).astype(np.uint8)
    found = many(gradient, 2, window='random', flip=True, cutout=4, max_shift=1)
    assert found.sum((1, 2, 3)).tolist() == [96406, 94222]


@pytest.mark.parametrize('channels', [1, 4])
def test_colours_of_grey_images_are_refused(channels):
    with pytest.raises(ValueError, match=re.escape(
            f'saturation=0.5 and hue=0.0 are of colours, and the images have {channels} channel')):
        many(np.zeros([16, 16, channels], np.uint8), 1, saturation=0.5)


@pytest.mark.parametrize(('values', 'sentence'), [
    ({'size': 0}, 'size=0 is below 1; use 1 or more'),
    ({'hue': 0.6}, 'hue=0.6 is above 0.5; use 0 to 0.5'),
    ({'area': (0.5, 0.1)}, 'area=(0.5, 0.1) ends before it begins; use (0.1, 0.5)'),
    ({'aspect': (0., 1.)}, 'aspect[0]=0.0 is not above 0; use more than 0'),
    ({'centre_share': 1.5}, 'centre_share=1.5 is above 1; use more than 0 and 1 or less'),
    ({'fill': 256}, 'fill=256 is above 255; use 0 to 255')])
def test_fields_that_make_no_sense_are_refused(values, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        transform(**values)
