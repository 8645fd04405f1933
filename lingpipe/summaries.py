"""Summaries: scalars, texts and pictures for TensorBoard, one directory a run."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf


class Summaries:
    """Writes one run. The file is made when the first value comes."""

    def __init__(self, directory: str):
        self.directory = directory
        self._writer: Any = None

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Writes numbers by name, nan and inf too; they are on the disk when it returns."""
        with self._open():
            for name, value in values.items():
                tf.summary.scalar(name, value, step=step)
        self._writer.flush()

    def text(self, name: str, text: str, step: int = 0) -> None:
        """Writes a text; TensorBoard reads Markdown, so that lines are kept by making it code."""
        with self._open():
            tf.summary.text(name, '\n'.join(f'    {line}' for line in text.split('\n')), step=step)
        self._writer.flush()

    def images(self, step: int, images: Mapping[str, Any]) -> None:
        """Writes [n, height, width, 1, 3 or 4] uint8, or floats from 0 to 1, by name; at most 8 of each."""
        with self._open():
            for name, value in images.items():
                tf.summary.image(name, value, step=step, max_outputs=8)
        self._writer.flush()

    def png(self, step: int, name: str, path: str) -> None:
        """Writes a picture from a file."""
        with tf.device('CPU:0'):
            self.images(step, {name: tf.io.decode_png(tf.io.read_file(path), channels=4)[tf.newaxis]})

    def close(self) -> None:
        """Closes the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _open(self) -> Any:
        if self._writer is None:
            with tf.device('CPU:0'):
                self._writer = tf.summary.create_file_writer(self.directory)
        return self._writer.as_default()
