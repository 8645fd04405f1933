"""DigitsInput reads all images and splits them into two parts that share none."""
from __future__ import annotations

from typing import Any

import numpy as np

from lingpipe.tasks.image.inputs import DigitsInput, Subset
from lingpipe.tasks.image.inputs.digits import is_test, read_digits


def examples(split: Any, **values) -> tuple[np.ndarray, np.ndarray]:
    made = DigitsInput.Params(batch_size=64, split=split, shuffle=False, num_epochs=1,
                              **values).instantiate()
    batches = list(made.dataset().as_numpy_iterator())
    real = np.concatenate([b['weight'] for b in batches]) == 1
    return (np.concatenate([b['image'] for b in batches])[real],
            np.concatenate([b['label'] for b in batches])[real])


def test_there_are_1797_digits_of_all_ten_kinds():
    images, labels = read_digits()
    assert images.shape == (1797, 8, 8) and images.min() == 0 and images.max() == 16
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_the_first_digit_is_the_zero_of_the_data_set():
    images, labels = read_digits()
    assert labels[0] == 0
    assert images[0, :2].tolist() == [[0, 0, 5, 13, 9, 1, 0, 0], [0, 0, 13, 15, 10, 15, 5, 0]]


def test_train_and_test_share_no_image_and_leave_none_out():
    train, test = examples('train')[0], examples('test')[0]
    assert (len(train), len(test)) == (1442, 355)
    assert not {image.tobytes() for image in train} & {image.tobytes() for image in test}
    all_images = read_digits()[0].astype(np.float32)[..., np.newaxis] / 8 - 1
    assert sorted(image.tobytes() for image in all_images) == sorted(
        image.tobytes() for image in np.concatenate([train, test]))


def test_every_fifth_of_each_digit_is_a_test_image():
    assert (is_test(np.array([1, 0, 1, 1, 1, 1, 0, 0, 0, 0])).tolist()
            == [False] * 5 + [True] + [False] * 3 + [True])
    assert np.bincount(examples('test')[1]).tolist() == [35, 36, 35, 36, 36, 36, 36, 35, 34, 36]


def test_a_batch_is_what_a_classifier_reads():
    spec = DigitsInput.Params(batch_size=16).instantiate().spec()
    assert {name: (tuple(s.shape), s.dtype.name) for name, s in spec.items()} == {
        'image': ((16, 8, 8, 1), 'float32'), 'label': ((16,), 'int32'),
        'weight': ((16,), 'float32')}


def test_shifted_images_are_the_images_moved_by_at_most_a_pixel():
    plain, moved = examples('test')[0], examples('test', max_shift=1)[0]
    padded = np.pad(plain, [(0, 0), (1, 1), (1, 1), (0, 0)], constant_values=-1)
    candidates = np.stack([padded[:, i:i + 8, j:j + 8] for i in range(3) for j in range(3)])
    is_shift = np.all(candidates == moved, axis=(2, 3, 4))  # [shifts, examples]
    assert np.all(is_shift.any(0))
    assert np.all(is_shift.any(1))


def test_a_subset_has_the_chosen_classes_relabelled():
    images, labels = examples('test', subset=Subset(classes=(7, 3), examples_per_class=5))
    assert np.bincount(labels).tolist() == [5, 5]
    sevens = {image.tobytes() for image in examples('test', subset=Subset(classes=(7,)))[0]}
    assert [image.tobytes() in sevens for image in images] == (labels == 0).tolist()


def test_classes_are_called_by_their_digits():
    assert DigitsInput.Params(batch_size=1).instantiate().class_names == tuple('0123456789')
    assert DigitsInput.Params(
        batch_size=1, subset=Subset(classes=(7, 3))).instantiate().class_names == ('7', '3')
