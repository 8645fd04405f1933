"""Encoded images: JPEG and PNG files, decoded where an error can be caught.

The obvious way is tf.io.decode_image in the graph of tf.data; but there a file that is broken ends the training, and
tf.data's ignore_errors drops the example, so that every position after it means another one. Here TensorFlow's decoders are called
one at a time from Python, which they leave free meanwhile. A broken image keeps its place: it is grey and its weight is 0,
as that of padding, so no loss and no metric counts it.
"""
from __future__ import annotations

import struct
import threading
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from lingpipe.hyperparams import field
from lingpipe.input import Input
from lingpipe.tasks.image.inputs.transform import Transform

GREY = np.full([1, 1, 3], 128, np.uint8)
NUM_NAMED = 5              # broken images that an error names
MIN_READ_FOR_SHARE = 1000  # images, or all if there are fewer: the share among the first few says nothing
_ERRORS = (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError, struct.error)


class EncodedImageInput(Input):
    """What inputs of image files share: image [B, size, size, 3] uint8, label [B] int32. Subclasses: num_examples, read and name_of.

    `read`, or `decode` after it, gives image (the bytes of a file; none if it cannot be read), label and index.

    Attributes:
      broken: how many images were read and how many of them were broken, up to now.
    """

    class Params(Input.Params):
        """What is done to images, and how many may be broken."""
        transform: Transform.Params = field(Transform.Params(), 'What is done to an image.')
        max_broken_share: float = field(0.01, 'The part of the images read that may be broken; each gets weight 0. With more, an error.',
                                        least=0, most=1)

    params: Params

    def __init__(self, params: Any):
        super().__init__(params)
        self._transform: Transform = self.params.transform.instantiate()
        self.broken = BrokenImages(self.params.max_broken_share)

    def name_of(self, index: int) -> str:
        """What a person calls the example: where to find it."""
        raise NotImplementedError(f'{type(self).__name__} has no name_of')

    def spec(self) -> dict[str, Any]:
        """Needs no image, so that a network for a data set that is not there can be planned."""
        return self._transform.batch_spec(self.params.batch_size, 3)

    def preprocess(self, example: dict[str, Any], seed: tf.Tensor) -> dict[str, Any]:
        """Decodes the window of the image and transforms it; weight 0 if it is broken."""
        encoded = example['image']
        size = tf.numpy_function(_size, [encoded], tf.int32, stateful=False)  # [2], 0 if it is broken
        height, width = tf.unstack(tf.maximum(tf.ensure_shape(size, [2]), 1))
        window = self._transform.window(height, width, seed)
        image, is_whole = tf.numpy_function(self._decoded, [encoded, size, window, example['index']], [tf.uint8, tf.bool])
        image = self._transform.finish(tf.ensure_shape(image, [None, None, 3]), seed)
        return {'image': image, 'label': tf.cast(example['label'], tf.int32), 'weight': tf.cast(tf.ensure_shape(is_whole, []), tf.float32)}

    def _decoded(self, encoded: bytes, size: np.ndarray, window: np.ndarray, index: np.ndarray) -> tuple[np.ndarray, np.bool_]:
        """The window of an image, uint8 [h, w, 3], and whether it could be decoded."""
        image, why = None, 'it has no header of an image' if encoded else 'it is empty or cannot be read'
        if size.all():
            try:
                image = decoded(encoded, window)
            except _ERRORS as error:
                why = getattr(error, 'message', str(error)).split(' [Op:')[0].rpartition('}} ')[2]
        self.broken.count(None if image is not None else f'{self.name_of(int(index))} ({why})', self.num_examples())
        return (GREY, np.False_) if image is None else (image, np.True_)


class BrokenImages:
    """Counts images, and raises when too many are broken. Counts are of this process; a file that is read twice counts twice.

    Attributes:
      num_read: images.
      num_broken: how many of them were broken.
    """

    def __init__(self, max_share: float):
        self.num_read = self.num_broken = 0
        self._max_share = max_share
        self._names: dict[str, None] = {}   # the first few, in order
        self._lock = threading.Lock()

    def count(self, broken: str | None, num_examples: int) -> None:
        """Counts an image, and if it is broken its name.

        Raises:
          ValueError: the share is too large.
        """
        with self._lock:
            self.num_read += 1
            if broken is None:
                return
            self.num_broken += 1
            if len(self._names) < NUM_NAMED:
                self._names.setdefault(broken)
            num_broken, num_read, names = self.num_broken, self.num_read, '; '.join(self._names)
        if num_broken & (num_broken - 1) == 0:   # 1, 2, 4, 8, ...
            logging.warning('%d of %d images read are broken and count nothing; this one: %s', num_broken, num_read, broken)
        if num_broken > self._max_share * max(num_read, min(num_examples, MIN_READ_FOR_SHARE)):
            raise ValueError(f'{num_broken} of the first {num_read} images are broken, more than max_broken_share={self._max_share} '
                             f'allows; among them {names}. Repair them or leave them out, or raise max_broken_share.')


def _size(encoded: bytes) -> np.ndarray:
    """(height, width), int32 [2], from the header; zeros if there is none."""
    try:
        if _is_jpeg(encoded):
            with tf.device('CPU:0'):
                return tf.io.extract_jpeg_shape(encoded).numpy()[:2]   # type: ignore[no-any-return]
        if encoded[:8] == b'\x89PNG\r\n\x1a\n':
            width, height = struct.unpack('>II', encoded[16:24])
            return np.array([height, width], np.uint32).astype(np.int32)
        return np.array(decoded(encoded).shape[:2], np.int32)
    except _ERRORS:
        return np.zeros([2], np.int32)


def decoded(encoded: bytes, window: np.ndarray | None = None) -> np.ndarray:
    """The image in a file's bytes, or its window (top, left, height, width): uint8 [h, w, 3]. JPEG, PNG, BMP, or GIF's first image.

    Raises:
      tf.errors.InvalidArgumentError: it cannot be decoded.
    """
    with tf.device('CPU:0'):
        if window is None:
            return tf.io.decode_image(encoded, 3, expand_animations=False).numpy()   # type: ignore[no-any-return]
        if _is_jpeg(encoded):
            return tf.io.decode_and_crop_jpeg(encoded, window, 3).numpy()   # type: ignore[no-any-return]
    top, left, height, width = window
    return decoded(encoded)[top:top + height, left:left + width]


def _is_jpeg(encoded: bytes) -> bool:
    return encoded[:3] == b'\xff\xd8\xff'
