"""Inputs of JPEG and PNG files, of which a broken one does not end the run.

The obvious way is tf.io.decode_image in the graph of tf.data. But there a broken file ends the run,
and tf.data's ignore_errors drops the example, which shifts every example after it to another
position. So each image is decoded in a dataset of its own within the graph: the image itself,
without errors, and behind it an empty image, of which the first is taken. If that is the empty one,
TensorFlow's decoders are called again from Python, where an error says why. Whole images do without
Python: its calls took 0.5 ms of CPU time an image, and only one thread at a time runs Python.

A broken image keeps its place: it is grey and has weight 0, as padding has, so no loss and no
metric counts it.
"""
from __future__ import annotations

import functools
import struct
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from lingpipe.hyperparams import field
from lingpipe.input import Input
from lingpipe.input.dataset import traceable
from lingpipe.tasks.image.inputs.transform import Transform
from lingpipe.wording.counts import are, counted

WindowOf = Callable[[Any, Any], tf.Tensor]
"""(height, width) of an image -> int32 [4]: top, left, height and width of its window."""

GREY = np.full([1, 1, 3], 128, np.uint8)
NUM_NAMED = 5   # Broken images that an error names.
LONGEST_SIDE = 1 << 27   # of an image, in pixels, that TensorFlow decodes
# Images, or all if there are fewer: the share of broken ones among the first few says nothing.
MIN_READ_FOR_SHARE = 1000
_JPEG = b'\xff\xd8\xff'
_PNG = b'\x89PNG\r\n\x1a\n'
_ERRORS = (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError, struct.error)


class EncodedImageInput(Input):
    """The base of inputs of image files: image [B, size, size, 3] uint8, label [B] int32.

    Subclasses implement num_examples, read and name_of. `read`, or `decode` after it, gives image
    (the bytes of a file, empty if it cannot be read), label and index.

    Attributes:
      broken: counts the images that were read and those among them that are broken.
    """

    class Params(Input.Params):
        """How images are transformed, and how many may be broken."""
        transform: Transform.Params = field(
            Transform.Params(), 'How an image is cropped, resized and augmented.')
        max_broken_share: float = field(
            0.01, 'Largest part of the images read that may be broken; each broken image gets '
                  'weight 0. More of them are an error.', least=0, most=1)

    params: Params

    def __init__(self, params: Params):
        super().__init__(params)
        self._transform: Transform = self.params.transform.instantiate()
        self.broken = BrokenImages(
            self.params.max_broken_share, lambda: int(self._num_whole.numpy()))

    def name_of(self, index: int) -> str:
        """Returns where a person finds the example, such as the path of its file."""
        raise NotImplementedError(f'{type(self).__name__} has no name_of')

    def spec(self) -> dict[str, Any]:
        """The spec of a batch. It needs no image, so a pipeline can be planned without the data."""
        return self._transform.batch_spec(self.params.batch_size, 3)

    def preprocess(self, example: dict[str, Any], seed: tf.Tensor) -> dict[str, Any]:
        """Decodes the window of the image and transforms it. A broken image gets weight 0."""
        encoded, index = example['image'], example['index']

        def window(height: Any, width: Any) -> tf.Tensor:
            return self._transform.window(height, width, seed)

        image = decoded_in_graph(encoded, window)

        def whole() -> tuple[tf.Tensor, tf.Tensor]:
            with tf.control_dependencies([self._num_whole.assign_add(1)]):
                return tf.identity(image), tf.constant(True)

        image, is_whole = tf.cond(
            tf.size(image) > 0, whole, lambda: self._decoded_in_python(encoded, window, index))
        image = self._transform.finish(tf.ensure_shape(image, [None, None, 3]), seed)
        weight = tf.cast(tf.ensure_shape(is_whole, []), tf.float32)
        return {'image': image, 'label': tf.cast(example['label'], tf.int32), 'weight': weight}

    @functools.cached_property
    def _num_whole(self) -> tf.Variable:
        """How many images the graph has decoded."""
        with tf.init_scope(), tf.device('CPU:0'):
            return tf.Variable(0, trainable=False, dtype=tf.int64)

    def _decoded_in_python(self, encoded: tf.Tensor, window_of: WindowOf,
                           index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns what `_decoded` does, in a graph."""
        size = tf.numpy_function(_size, [encoded], tf.int32, stateful=False)  # [2]; 0 if broken
        # A damaged header may say 2^31 - 1, for which there is no random window.
        height, width = tf.unstack(tf.clip_by_value(tf.ensure_shape(size, [2]), 1, LONGEST_SIDE))
        image, is_whole = tf.numpy_function(
            self._decoded, [encoded, size, window_of(height, width), index], [tf.uint8, tf.bool])
        return image, is_whole

    def _decoded(self, encoded: bytes, size: np.ndarray, window: np.ndarray,
                 index: np.ndarray) -> tuple[np.ndarray, np.bool_]:
        """Returns the window of an image, uint8 [h, w, 3], and whether it could be decoded."""
        if not encoded:
            why = 'it is empty or cannot be read'
        elif _has_palette(encoded):   # TensorFlow reads the size of one with 8 bits alone.
            why = 'it is a BMP with a palette of colours, which is not read; make it a PNG'
        elif not size.all():
            why = 'it has no header of an image'
        else:
            try:
                image = decoded(encoded, window)
            except _ERRORS as error:
                message = getattr(error, 'message', str(error))
                why = message.split(' [Op:')[0].rpartition('}} ')[2]
            else:
                self.broken.count(None, self.num_examples())
                return image, np.True_

        self.broken.count(f'{self.name_of(int(index))} ({why})', self.num_examples())
        return GREY, np.False_


class BrokenImages:
    """Counts images, and raises when too many are broken.

    The counts are those of this process. A file that is read twice counts twice.

    Attributes:
      num_broken: how many of them are broken.
    """

    def __init__(self, max_share: float, num_others: Callable[[], int] = lambda: 0):
        """
        Args:
          max_share: the largest part of the images that may be broken.
          num_others: returns how many images were read of which `count` was not told.
        """
        self.num_broken = 0
        self._num_counted = 0
        self._max_share, self._num_others = max_share, num_others
        self._names: dict[str, None] = {}   # The first few names, in order.
        self._lock = threading.Lock()

    @property
    def num_read(self) -> int:
        """The number of images."""
        return self._num_counted + self._num_others()

    def count(self, broken: str | None, num_examples: int) -> None:
        """Counts an image.

        Args:
          broken: the name of the image if it is broken, otherwise None.
          num_examples: examples of the input.

        Raises:
          ValueError: the share of broken images is too large.
        """
        with self._lock:
            self._num_counted += 1
            if broken is None:
                return
            self.num_broken += 1
            if len(self._names) < NUM_NAMED:
                self._names.setdefault(broken)
            num_broken = self.num_broken
            num_read = self.num_read
            names = '; '.join(self._names)

        is_power_of_2 = num_broken & (num_broken - 1) == 0
        if is_power_of_2:
            logging.warning('%d of %s read %s broken and of no weight; this one: %s',
                            num_broken, counted(num_read, 'image'), are(num_broken), broken)
        if num_broken > self._max_share * max(num_read, min(num_examples, MIN_READ_FOR_SHARE)):
            raise ValueError(
                f'{num_broken} of the first {counted(num_read, "image")} {are(num_broken)} broken, '
                f'more than max_broken_share={self._max_share} allows; among them {names}. Repair '
                'them or leave them out, or raise max_broken_share.')


def decoded_in_graph(encoded: tf.Tensor, window_of: WindowOf) -> tf.Tensor:
    """Decodes the window of a JPEG or PNG image in a graph of tf.data.

    The pixels are those of `decoded`.

    Returns:
      uint8 [h, w, 3], or [0, 0, 3] if the image is broken or of another kind.
    """
    def jpeg(encoded: tf.Tensor) -> tf.Tensor:
        height, width, _ = tf.unstack(tf.ensure_shape(tf.io.extract_jpeg_shape(encoded), [3]))
        return tf.io.decode_and_crop_jpeg(encoded, window_of(height, width), 3)

    def png(encoded: tf.Tensor) -> tf.Tensor:
        image = tf.ensure_shape(tf.io.decode_png(encoded, 3), [None, None, 3])
        size = tf.shape(image)
        top, left, height, width = tf.unstack(window_of(size[0], size[1]))
        return image[top:top + height, left:left + width]

    def decode(encoded: tf.Tensor) -> tf.Tensor:
        return tf.cond(tf.strings.substr(encoded, 0, len(_JPEG)) == _JPEG, lambda: jpeg(encoded),
                       lambda: tf.cond(tf.strings.substr(encoded, 0, len(_PNG)) == _PNG,
                                       lambda: png(encoded), lambda: nothing))

    nothing = tf.zeros([0, 0, 3], tf.uint8)
    image = tf.data.Dataset.from_tensors(encoded).map(traceable(decode)).ignore_errors()
    first = image.concatenate(tf.data.Dataset.from_tensors(nothing)).take(1)
    decoded_image: tf.Tensor = first.get_single_element()
    return decoded_image


def _size(encoded: bytes) -> np.ndarray:
    """Returns (height, width), int32 [2], from the header of a file; zeros if there is none."""
    try:
        if _is_jpeg(encoded):
            with tf.device('CPU:0'):
                shape: np.ndarray = tf.io.extract_jpeg_shape(encoded).numpy()
            return shape[:2]
        if encoded[:8] == _PNG:
            width, height = struct.unpack('>II', encoded[16:24])
            return np.array([height, width], np.uint32).astype(np.int32)
        return np.array(decoded(encoded).shape[:2], np.int32)
    except _ERRORS:
        return np.zeros([2], np.int32)


def decoded(encoded: bytes, window: np.ndarray | None = None) -> np.ndarray:
    """Decodes JPEG, PNG, BMP, or the first image of a GIF.

    Args:
      encoded: the bytes of a file.
      window: (top, left, height, width) of the part that is wanted; None: all.

    Returns:
      uint8 [h, w, 3].

    Raises:
      tf.errors.InvalidArgumentError: it cannot be decoded.
    """
    image: np.ndarray
    if window is None:
        with tf.device('CPU:0'):
            image = tf.io.decode_image(encoded, 3, expand_animations=False).numpy()
        return image
    if _is_jpeg(encoded):
        with tf.device('CPU:0'):
            image = tf.io.decode_and_crop_jpeg(encoded, window, 3).numpy()
        return image
    top, left, height, width = window
    return decoded(encoded)[top:top + height, left:left + width]


def _has_palette(encoded: bytes) -> bool:
    """Whether this is a BMP whose pixels are numbers of colours: TensorFlow takes them for grey."""
    if encoded[:2] != b'BM' or len(encoded) < 30 or encoded[28] not in (1, 4, 8):
        return False
    first, = struct.unpack('<I', encoded[10:14])  # The byte where the pixels begin.
    palette = np.frombuffer(encoded[14 + encoded[14]:first][:1024], np.uint8)
    colours = palette[:len(palette) // 4 * 4].reshape(-1, 4)[:, :3]
    return encoded[28] < 8 or not np.array_equal(
        colours, np.arange(len(colours))[:, np.newaxis].repeat(3, 1))


def _is_jpeg(encoded: bytes) -> bool:
    return encoded[:3] == _JPEG
