"""ExampleSource: the part of an Input that its subclasses define.

A source says how many examples it has and reads them by index, many at once. `decode` and
`preprocess` work on one example.
"""
from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import tensorflow as tf

from lingpipe.hyperparams import REQUIRED, Configurable, Params, field
from lingpipe.input.errors import one_sentence
from lingpipe.layers.nested import Nested
from lingpipe.wording.counts import counted


class ExampleSource(Configurable):
    """Subclasses have num_examples, read, and if needed decode and preprocess.

    The defaults of Params are for training. An evaluation has shuffle=False, num_epochs=1.
    """

    class Params(Configurable.Params):
        """Batches, their order, and how far ahead they are made."""
        batch_size: int = field(REQUIRED, 'Examples in a mini-batch, over all replicas and '
                                          'micro-batches.', least=1)
        shuffle: bool = field(True, 'Whether every epoch has an order of its own.')
        shuffle_rounds: Literal[4, 16] = field(
            16, 'Rounds of the cipher that makes the orders. With 4, many examples of a mini-batch '
                'are together again in the next epochs; a run that began so goes on so.')
        seed: int = field(0, 'Seeds the order and the random numbers of preprocess.')
        num_epochs: int | None = field(None, 'Passes over the data, the last batch padded with '
                                             'examples of weight 0; none: for ever.', least=1)
        prefetch: int = field(2, 'Batches that are made ahead.', least=0)
        num_parallel_calls: int | None = field(None, 'Examples preprocessed at a time; none: '
                                                     'TensorFlow decides, up to 16.',
                                               least=1, most=1024)

    params: Params

    @property
    def saves_iterator(self) -> bool:
        """Whether a resumed run goes on from the saved iterator of `dataset()`.

        Here a position is enough; see saved_iterators.py.
        """
        return False

    def num_examples(self) -> int:
        """How many examples there are. It is called often, so it should remember."""
        raise NotImplementedError(f'{type(self).__name__} has no num_examples')

    def num_batches(self, position: int = 0) -> int | None:
        """How many batches there are from a position on; None if it has no end."""
        if self.params.num_epochs is None:
            return None
        num_left = self.params.num_epochs * self.num_examples() - position
        return max(0, -(-num_left // self.params.batch_size))

    def read(self, index: tf.Tensor) -> dict[str, Nested]:
        """Returns the examples at index, int64 [n].

        They are a nested dict of tensors [n, ...] or of ragged tensors. A graph is traced from this
        method; Python code goes into tf.numpy_function.
        """
        raise NotImplementedError(f'{type(self).__name__} has no read')

    def decode(self, example: dict[str, Nested]) -> dict[str, Nested]:
        """Makes one example as preprocess wants it from what read returned, without randomness."""
        return example

    def preprocess(self, example: dict[str, Nested], seed: tf.Tensor) -> dict[str, Nested]:
        """Makes one example as the network wants it, of static shapes.

        Args:
          example: a nested dict of tensors without the dimension of the batch.
          seed: int64 [2] for tf.random.stateless_*, which depends on Params.seed, the epoch and the
            example.
        """
        return example

    def name_of(self, index: int) -> str:
        """What errors call an example: its number, or the path of a file that holds it alone."""
        return f'example {index} of {type(self).__name__}'

    @property
    def class_names(self) -> Sequence[str]:
        """The names of the classes, that of label 0 first; empty if there are none."""
        return ()

    def statistics_text(self) -> str:
        """A line for a run's log about what is read and left out; empty if there is none."""
        return ''

    def checked_num_examples(self) -> int:
        """The number of examples. Raises ValueError if they are too few for a batch."""
        p = self.params
        with one_sentence(type(self).__name__):
            n = self.num_examples()
        if n == 0:
            raise ValueError(f'{type(self).__name__} has no examples; name data that is not empty.')
        if p.num_epochs is None and p.batch_size > n:
            raise ValueError(f'batch_size={p.batch_size} is larger than the '
                             f'{counted(n, "example")} of {type(self).__name__}, so a batch would '
                             f'hold an example twice; use {n} or less.')
        return n


def text_of_data(params: Params) -> str:
    """The text of an input's Params by which files know its data, without shuffle_rounds.

    The data are the same in any order, and older files were written before there was that field.
    """
    return re.sub('(?m)^shuffle_rounds : .*\n', '', params.to_text())
