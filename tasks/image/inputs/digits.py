"""DigitsInput: handwritten digits that are in tasks/image/data."""
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
NUM_DIGITS = 1797
TEST_EVERY = 5


class DigitsInput(ArrayInput):
    """1,797 handwritten digits, grey, 8x8 pixels: the test part of UCI's Optical Recognition of Handwritten Digits.

    The split is ours: in the order of the file, every fifth image of each digit (the 5th, 10th, ...) is a test image, so that
    both parts hold all digits alike: 1,442 images to train on, 355 to test with. The same 13 people wrote both. Pixels, 0 to 16
    in the file, are scaled to [-1, 1]: image [B, 8, 8, 1] float32.
    """

    class Params(ArrayInput.Params):
        split: Literal['train', 'test'] = field('train', 'Which part.')
        subset: Subset = field(Subset(), 'Which classes, and how many examples of each.')
        max_shift: int = field(0, 'Each image is moved by up to so many pixels both ways, at random; what moves in is empty.',
                               least=0)

    params: Params

    def load(self) -> dict[str, np.ndarray]:
        images, labels = read_digits()
        mine = np.flatnonzero(is_test(labels) == (self.params.split == 'test'))
        chosen, label = self.params.subset.of(labels[mine])
        return {'image': images[mine[chosen]].astype(np.float32)[..., np.newaxis] / 8 - 1, 'label': label}

    @property
    def class_names(self) -> tuple[str, ...]:
        """The digits."""
        return self.params.subset.names([str(digit) for digit in range(10)])

    def preprocess(self, example: dict[str, Any], seed: tf.Tensor) -> dict[str, Any]:
        shift = self.params.max_shift
        if not shift:
            return example
        image = example['image']
        padded = tf.pad(image, [[shift, shift], [shift, shift], [0, 0]], constant_values=-1.)
        return {**example, 'image': tf.image.stateless_random_crop(padded, image.shape, seed)}


def read_digits() -> tuple[np.ndarray, np.ndarray]:
    """All images, uint8 [1797, 8, 8] of 0 to 16, and their digits, uint8 [1797], in the order of the file."""
    with gzip.open(DIGITS_FILE, 'rt') as file:
        rows = np.loadtxt(file, delimiter=',', dtype=np.uint8)
    return rows[:, :64].reshape(-1, 8, 8), rows[:, 64]


def is_test(labels: np.ndarray) -> np.ndarray:
    """Which examples are test examples: bool, of the shape of labels [n]."""
    chosen = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        chosen[np.flatnonzero(labels == label)[TEST_EVERY - 1::TEST_EVERY]] = True
    return chosen
