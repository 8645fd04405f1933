"""DigitsInput: the handwritten digits in tasks/image/data."""
from __future__ import annotations

import gzip
import pathlib
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from lingpipe.hyperparams import field
from lingpipe.input import ArrayInput
from lingpipe.tasks.image.inputs.subset import Subset

DIGITS_FILE = pathlib.Path(__file__).parent.parent / 'data' / 'digits.csv.gz'
TEST_EVERY = 5


class DigitsInput(ArrayInput):
    """1,797 grey 8x8 images of handwritten digits: image [B, 8, 8, 1] float32.

    They are the test part of UCI's Optical Recognition of Handwritten Digits. The split is ours: in
    the order of the file, every fifth image of each digit (the 5th, 10th, ...) is a test image. So
    both parts have all digits in the same proportions: there are 1,442 training images and 355 test
    images. The same 13 people wrote both. Pixels are 0 to 16 in the file and scaled to [-1, 1].
    """

    class Params(ArrayInput.Params):
        """The images that are read, and how far they are moved."""
        split: Literal['train', 'test'] = field('train', 'The part of the data.')
        subset: Subset = field(Subset(), 'The classes, and how many examples of each.')
        max_shift: int = field(
            0, 'Each image is moved at random by up to this many pixels in both directions; the '
               'pixels that move in are empty.', least=0)

    params: Params

    def load(self) -> dict[str, np.ndarray]:
        """Returns image float32 [n, 8, 8, 1] and label int32 [n]."""
        images, labels = read_digits()
        in_split = np.flatnonzero(is_test(labels) == (self.params.split == 'test'))
        chosen, label = self.params.subset.of(labels[in_split])
        image = images[in_split[chosen]].astype(np.float32)[..., np.newaxis] / 8 - 1
        return {'image': image, 'label': label}

    @property
    def class_names(self) -> tuple[str, ...]:
        """The digits, as text."""
        return self.params.subset.names([str(digit) for digit in range(10)])

    def preprocess(self, example: dict[str, Any], seed: tf.Tensor) -> dict[str, Any]:
        """Moves the image."""
        shift = self.params.max_shift
        if not shift:
            return example
        image = example['image']
        padded = tf.pad(image, [[shift, shift], [shift, shift], [0, 0]], constant_values=-1.)
        return {**example, 'image': tf.image.stateless_random_crop(padded, image.shape, seed)}


def read_digits() -> tuple[np.ndarray, np.ndarray]:
    """Reads all digits, in the order of the file.

    Returns:
      (images uint8 [1797, 8, 8] of 0 to 16, labels uint8 [1797]).
    """
    with gzip.open(DIGITS_FILE, 'rt') as file:
        rows = np.loadtxt(file, delimiter=',', dtype=np.uint8)
    return rows[:, :64].reshape(-1, 8, 8), rows[:, 64]


def is_test(labels: np.ndarray) -> np.ndarray:
    """Returns which of the examples with labels [n] are test examples: bool [n]."""
    mask = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        examples = np.flatnonzero(labels == label)
        mask[examples[TEST_EVERY - 1::TEST_EVERY]] = True
    return mask
