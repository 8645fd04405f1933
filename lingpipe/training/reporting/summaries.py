"""Summaries: scalars, texts and pictures for TensorBoard."""
from __future__ import annotations

import contextlib
import glob
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from lingpipe.checkpoint import side_files


class Summaries:
    """Writes summaries to one directory.

    The file is created with the first value. When a method returns, its values are on disk. All
    methods raise OSError if the file cannot be written, for example because the disk is full. Later
    values then go to another file, since TensorBoard stops reading at an incomplete record.
    """

    def __init__(self, directory: str):
        self.directory = directory
        self._writer: tf.summary.SummaryWriter | None = None

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Writes numbers by name, including nan and inf."""
        with self._writing():
            for name, value in values.items():   # NumPy's numbers: see process/fresh_tensor.py
                tf.summary.scalar(name, np.asarray(value), step=np.int64(step))

    def text(self, name: str, text: str, step: int = 0) -> None:
        """Writes a text as a code block, since TensorBoard's Markdown would join its lines."""
        with self._writing():
            tf.summary.text(name, '\n'.join(f'    {line}' for line in text.split('\n')), step=step)

    def images(self, step: int, images: Mapping[str, Any]) -> None:
        """Writes pictures by name, at most 8 of each.

        Each is [n, height, width, 1, 3 or 4], of uint8 or of floats from 0 to 1.
        """
        with self._writing():
            for name, value in images.items():
                tf.summary.image(name, value, step=step, max_outputs=8)

    def png(self, step: int, name: str, path: str) -> None:
        """Writes a picture from a file."""
        with tf.device('CPU:0'):
            image = tf.io.decode_png(tf.io.read_file(path), channels=4)  # [height, width, 4]
            self.images(step, {name: image[tf.newaxis]})

    def close(self) -> None:
        """Closes the file."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Opens the writer if necessary, and raises OSError if its file cannot be written."""
        try:
            if self._writer is None:
                for directory in filter(None, (os.path.dirname(self.directory), self.directory)):
                    side_files.make_directory(directory)
                with tf.device('CPU:0'):
                    self._writer = tf.summary.create_file_writer(self.directory)
            with self._writer.as_default():
                yield
            self._writer.flush()
        except tf.errors.InvalidArgumentError:  # the value is wrong, not the file
            raise
        except tf.errors.OpError as error:
            self._writer = None
            for path in glob.glob(os.path.join(glob.escape(self.directory), f'*.{os.getpid()}.*')):
                if not os.path.getsize(path):
                    os.remove(path)
            first_line = str(error.message).split('\n')[0]
            raise OSError(re.sub(r'^\{\{.*?\}\} *', '', first_line)) from error
