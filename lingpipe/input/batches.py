"""Batches: the iterator over a tf.data.Dataset that training and evaluation read.

Sources read in Python, from threads of tf.data. This has two consequences, which the iterator takes
care of:

An error arrives as one of TensorFlow's, its sentence between the names of ops and a traceback. Here
it becomes a ValueError again.

When Python ends, it stops every other thread that wants to run Python. An iterator that is still
alive (in a global, or in the traceback of an error) then waits for ever for the calls of those
threads: the process hangs instead of ending. So the iterator ends before Python does.
"""
from __future__ import annotations

import traceback
import weakref
from collections.abc import Iterator

import tensorflow as tf

from lingpipe.input.errors import one_sentence
from lingpipe.layers.nested import Nested


class Batches(Iterator[dict[str, Nested]]):
    """The elements of a dataset, in order; whatever fails while one is made is a ValueError.

    Attributes:
      num_given: how many were given out.
    """

    def __init__(self, dataset: tf.data.Dataset, name: str = 'the input'):
        """
        Args:
          dataset: the dataset.
          name: what errors call the input.
        """
        self._name = name
        self.num_given = 0
        self._iterators = [iter(dataset)]
        weakref.finalize(self, self._iterators.clear)  # This also runs before Python ends.

    def __next__(self) -> dict[str, Nested]:
        """The next batch."""
        if not self._iterators:
            raise StopIteration
        with one_sentence(self._name):
            try:
                batch: dict[str, Nested] = next(self._iterators[0])
            except Exception as error:
                # The frames of TensorFlow hold the iterator as long as the error is kept.
                traceback.clear_frames(error.__traceback__)
                raise
        self.num_given += 1
        return batch

    def save(self, path: str) -> None:
        """Writes where the iterator is. `path` begins the names of the files.

        Raises:
          tf.errors.OpError: a transformation of the dataset cannot be saved, or the disk is full.
        """
        tf.train.Checkpoint(iterator=self._iterators[0]).write(path)

    def restore(self, path: str) -> None:
        """Goes to where an iterator of the same dataset was when it was saved.

        Raises:
          Exception: the files are not whole, or of another dataset.
        """
        tf.train.Checkpoint(iterator=self._iterators[0]).read(path).assert_consumed()
