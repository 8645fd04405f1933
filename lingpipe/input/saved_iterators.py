"""Saved iterators: where a tf.data.Dataset is, in files beside the checkpoints.

A dataset that cannot begin anywhere is made again from its start when a run is resumed, and what
was consumed is skipped. Where that takes too long, tf.data can save its iterator instead. Such a
file holds all that shuffle buffers hold: 4.8 MB for 1,000 examples of 4 kB. Datasets that call
Python or draw numbers without a seed of their own (py_function, from_generator, tf.random.uniform)
cannot be saved, and are skipped as before; the log says so.

A file has the position in its name, so that no other checkpoint goes on from it.
"""
from __future__ import annotations

import glob
import os
import re
import zlib

import tensorflow as tf
from absl import logging

from lingpipe.input.base import Input
from lingpipe.input.batches import Batches
from lingpipe.input.example_source import text_of_data

_NUM_KEPT = 2   # A run may go on from the checkpoint before the newest.


class SavedIterators:
    """The mini-batches of an input, whose iterator is saved if the input wants it."""

    def __init__(self, source: Input, directory: str):
        self._source, self._directory = source, directory
        self._is_used = source.saves_iterator
        self._batches: Batches | None = None
        self._start = 0
        # Another dataset would go on anywhere, or nowhere.
        self._checksum = f'{zlib.crc32(text_of_data(source.params).encode()):08x}'

    def batches(self, position: int) -> Batches:
        """The mini-batches from a position on, by a saved iterator if there is one."""
        path = self._path(position)
        if self._is_used and position and os.path.exists(f'{path}.index'):
            batches = self._source.batches()
            try:
                batches.restore(path)
            except Exception as error:   # TensorFlow has errors of many classes for broken files.
                logging.warning('the saved iterator %s cannot be used: %s', path, _first(error))
                batches = self._source.batches(position)
            else:
                logging.info('%s goes on from its saved iterator %s',
                             type(self._source).__name__, path)
        else:
            batches = self._source.batches(position)
        self._batches, self._start = batches, position
        return batches

    def save(self) -> None:
        """Saves the iterator of the mini-batches that `batches` returned last, if that is wanted.

        What fails costs a line of the log, and a resumed run skips.
        """
        if not self._is_used or self._batches is None:
            return
        position = self._start + self._batches.num_given * self._source.params.batch_size
        try:
            os.makedirs(self._directory, exist_ok=True)
            self._batches.save(self._path(position))
            self._prune(position)
        except tf.errors.FailedPreconditionError as error:
            self._is_used = False
            logging.warning('the iterator of %s cannot be saved (%s), so that a resumed run makes '
                            'the examples before again and skips them',
                            type(self._source).__name__, _first(error))
        except (OSError, tf.errors.OpError) as error:
            logging.warning('the iterator of %s is not saved: %s', type(self._source).__name__,
                            _first(error))

    def _path(self, position: int) -> str:
        return os.path.join(self._directory, f'{position}-{self._checksum}')

    def _prune(self, newest: int) -> None:
        """Removes the files of all positions but the newest.

        Those beyond belong to checkpoints that the run has not gone on from.
        """
        paths = glob.glob(os.path.join(glob.escape(self._directory), '*-*.*'))
        positions = {path: int(match[1]) for path in paths
                     if (match := re.match(r'(\d+)-', os.path.basename(path)))}
        kept = sorted(p for p in set(positions.values()) if p <= newest)[-_NUM_KEPT:]
        for path, position in positions.items():
            if position not in kept:
                os.remove(path)


def _first(error: Exception) -> str:
    """What an error of TensorFlow says, without the names of its ops."""
    text = getattr(error, 'message', None) or str(error)
    return re.sub(r'\{\{.*?\}\} ?| ?\[Op:.*', '', text.partition('\n')[0]).rstrip('. ')
