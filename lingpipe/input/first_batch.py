"""Looks at mini-batches: at the first of an input before a run begins, and at one that failed."""
from __future__ import annotations

import contextlib
import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol, TypeAlias

import numpy as np
import tensorflow as tf
from absl import logging

from lingpipe.input import order
from lingpipe.input.base import Input
from lingpipe.input.checked_arrays import check_weights
from lingpipe.layers import nested
from lingpipe.layers.nested import Nested
from lingpipe.process.error_text import reason
from lingpipe.wording.keras_words import place_of


class Bad(Protocol):
    """What is wrong with an example of a mini-batch, as pipeline.bad_ids finds it."""

    @property
    def example(self) -> int:
        """The place of the example in the mini-batch."""

    def sentence(self, example_name: str = '') -> str:
        """Says what is wrong, and calls the example by its name."""


_WEIGHTS = ('weight', 'sample_weight', 'class_weight')   # What examples count, here and in Keras.

Check: TypeAlias = Callable[[Mapping[str, Nested]], Bad | None]
"""Finds what is wrong with a mini-batch, or nothing."""


@contextlib.contextmanager
def named(name: str) -> Iterator[None]:
    """Says which input an error is about: 'eval_inputs.test: ...'."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f'{name}: {error}') from error
    except OSError as error:
        raise OSError(f'{name}: {reason(error)}') from error


def check_unread(source: Input, needed: Iterable[str]) -> None:
    """Raises ValueError if a batch has the weights of examples under a name of Keras.

    An entry that nothing reads and whose name is nearly that of the weights costs a warning.
    """
    unread = set(source.spec()).difference(needed)
    for key in sorted(unread.difference(_WEIGHTS)):
        if difflib.get_close_matches(key, _WEIGHTS, 1, cutoff=0.85):
            logging.warning('%s gives %r, which nothing reads; if it says what examples count, '
                            "call it 'weight'.", type(source).__name__, key)
    for key in sorted(unread.intersection(_WEIGHTS[1:])):
        raise ValueError(f'{type(source).__name__} gives {key!r}, which nothing reads: '
                         f'{place_of(key)}')


def check_keys(source: Input, needed: Iterable[str]) -> None:
    """Raises ValueError unless a batch has all of the entries that a network reads.

    Entries that it does not read are looked at by `check_unread`.
    """
    entries = sorted(source.spec())
    needed = list(needed)
    check_unread(source, needed)
    for key in needed:
        if key not in entries:
            near = difflib.get_close_matches(key, entries, 1)
            remedy = (f'is it {near[0]!r}?' if near else 'give an entry of that name, or let the '
                      "layer read another, as reads={'x': 'image'} in its Params.")
            raise ValueError(f'the network reads {key!r}, and {type(source).__name__} gives '
                             f'{", ".join(entries)}; {remedy}')


def example_name(source: Input, position: int) -> str:
    """What errors call the example at a position; empty if only the batch knows."""
    if not source.is_indexed:
        return ''
    p = source.params
    index, _ = order.indices(
        tf.constant([position], tf.int64), source.num_examples(), p.seed, p.shuffle,
        p.shuffle_rounds)
    return source.name_of(int(index[0]))


def check_batch(name: str, source: Input, position: int, batch: Mapping[str, Nested],
                check: Check) -> None:
    """Raises ValueError, naming input and example, for a mini-batch that the network cannot use.

    Args:
      name: what the error calls the input.
      source: the input.
      position: that of the mini-batch.
      batch: the mini-batch.
      check: finds what is wrong.
    """
    with named(name):
        check_weights(batch.get('weight', 1.))
        bad = check(batch)
        if bad is not None:
            raise ValueError(bad.sentence(example_name(source, position + bad.example)))


def nonfinite(source: Input, position: int, batch: Mapping[str, Nested]) -> str:
    """Names the first example of a mini-batch with a value that is nan or infinite, or ''.

    Examples of weight 0 are not looked at. `position` is that of the mini-batch.
    """
    counts = np.asarray(batch.get('weight', 1.)) != 0
    counts = counts.reshape(len(counts), -1).any(axis=1) if counts.ndim else counts
    for name, leaf in nested.flatten(dict(batch)):
        values = np.asarray(leaf)
        if values.dtype.kind == 'f':
            is_bad = counts & ~np.isfinite(values).reshape(len(values), -1).all(axis=1)
            if is_bad.any():
                number = int(is_bad.argmax())
                example = (example_name(source, position + number)
                           or f'example {number} of the mini-batch')
                return f'{name!r} of {example} is not finite'
    return ''


def first_batch(name: str, source: Input, position: int, batches: Iterator[dict[str, Nested]],
                check: Check) -> dict[str, Nested] | None:
    """Returns the first of `batches`, which begin at a position of the source, or None.

    Raises:
      ValueError: it cannot be made, or the network cannot use it. The message begins with `name`.
    """
    with named(name):
        batch = next(batches, None)
    if batch is not None:
        check_batch(name, source, position, batch, check)
    return batch
