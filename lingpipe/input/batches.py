"""Batches: the iterator over a tf.data.Dataset that training and evaluation read.

Sources read in Python, from threads of tf.data. That has two consequences, which this iterator takes care of:

An error comes back as one of TensorFlow, its sentence between the names of ops and a traceback. Here it is a ValueError again.

When Python ends it stops every other thread that wants to run Python, and then an iterator that is still alive (in a global, or in the
traceback of an error) waits for ever for the calls of those threads: the process hangs instead of ending. So the iterator ends before.
"""
from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from lingpipe.input.errors import one_sentence


class Batches(Iterator[dict[str, Any]]):
    """The elements of a dataset, one after the other; what is wrong in making one is a ValueError."""

    def __init__(self, dataset: tf.data.Dataset, name: str = 'the input'):
        """name: of the input, for errors."""
        self._name = name
        self._held = [iter(dataset)]
        weakref.finalize(self, self._held.clear)   # which also runs before Python ends

    def __next__(self) -> dict[str, Any]:
        """The next batch."""
        if not self._held:
            raise StopIteration
        with one_sentence(self._name):
            return next(self._held[0])   # type: ignore[no-any-return]
