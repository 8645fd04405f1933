"""Input: batches of examples as a tf.data.Dataset that can start anywhere.

A source says how many examples it has and reads them by index, many at once. `decode` and
`preprocess` work on one example.

    positions [B] -> indices [B] -> read -> decode and preprocess of each example
                  -> batch [B, ...] and weight [B]
"""
from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from lingpipe.hyperparams import REQUIRED, Configurable, field
from lingpipe.input import order
from lingpipe.input.batches import Batches
from lingpipe.input.dataset import check_static, fetched_ahead, traceable, with_weight
from lingpipe.input.errors import one_sentence

_ENDLESS = 1 << 62  # A number of positions that no run reaches.


class Input(Configurable):
    """The base of inputs. Subclasses have num_examples, read, and if needed decode and preprocess.

    The defaults of Params are for training. An evaluation has shuffle=False, num_epochs=1.
    """

    class Params(Configurable.Params):
        """Batches, their order, and how far ahead they are made."""
        batch_size: int = field(REQUIRED, 'Examples in a mini-batch, over all replicas and '
                                          'micro-batches.', least=1)
        shuffle: bool = field(True, 'Whether every epoch has an order of its own.')
        seed: int = field(0, 'Seeds the order and the random numbers of preprocess.')
        num_epochs: int | None = field(None, 'Passes over the data, the last batch padded with '
                                             'examples of weight 0; none: for ever.', least=1)
        prefetch: int = field(2, 'Batches that are made ahead.', least=0)
        num_parallel_calls: int | None = field(None, 'Examples preprocessed at a time; none: '
                                                     'TensorFlow decides, up to 16.',
                                               least=1, most=1024)

    params: Params

    # For subclasses.

    def num_examples(self) -> int:
        """How many examples there are. It is called often, so it should remember."""
        raise NotImplementedError(f'{type(self).__name__} has no num_examples')

    def read(self, index: tf.Tensor) -> dict[str, Any]:
        """Returns the examples at index, int64 [n].

        They are a nested dict of tensors [n, ...] or of ragged tensors. A graph is traced from this
        method; Python code goes into tf.numpy_function.
        """
        raise NotImplementedError(f'{type(self).__name__} has no read')

    def decode(self, example: dict[str, Any]) -> dict[str, Any]:
        """Makes one example as preprocess wants it from what read returned, without randomness."""
        return example

    def preprocess(self, example: dict[str, Any], seed: tf.Tensor) -> dict[str, Any]:
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

    # For users.

    def dataset(self, position: int = 0) -> tf.data.Dataset:
        """The batches from `position` on, the number of examples consumed before.

        A batch is a nested dict of tensors [B, ...], among them 'weight', float32 [B]. The weight
        is 1, or what the source says: one for each example, or one for each of its tokens, [B, T].
        It is 0 for the padding of the last batch.

        Raises:
          ValueError: the batch is larger than the data, an example is not of static shape, or the
            source finds something wrong.
        """
        p = self.params
        num_examples = self._checked_num_examples()
        if position < 0:
            raise ValueError(f'position={position} is negative; it is the number of examples '
                             'consumed before.')
        total = _ENDLESS if p.num_epochs is None else p.num_epochs * num_examples

        def examples_from(first: tf.Tensor) -> dict[str, Any]:
            """Reads the examples of the batch whose first position is given, with their seeds."""
            positions = first + tf.range(p.batch_size, dtype=tf.int64)
            is_real = tf.cast(positions < total, tf.float32)
            # Padding repeats the last example: zeros might be no example at all, and give nan.
            index, epoch = order.indices(
                tf.minimum(positions, total - 1), num_examples, p.seed, p.shuffle)
            return {'example': self.read(index),
                    'seed': order.example_seeds(index, epoch, p.seed), 'is_real': is_real}

        calls = p.num_parallel_calls or tf.data.AUTOTUNE
        methods = (type(self).read, type(self).decode, type(self).preprocess)
        with one_sentence(type(self).__name__):  # The maps below trace what subclasses define.
            dataset = tf.data.Dataset.range(position, total, p.batch_size)
            dataset = dataset.map(traceable(examples_from, methods), calls, deterministic=True)
            if type(self).decode is Input.decode and type(self).preprocess is Input.preprocess:
                dataset = dataset.map(traceable(with_weight, methods))
                shapes = tf.nest.map_structure(lambda t: t.shape[1:], dataset.element_spec)
                check_static(shapes, type(self).__name__)
            else:
                dataset = dataset.unbatch().map(
                    traceable(self._preprocessed, methods), calls, deterministic=True)
                shapes = tf.nest.map_structure(lambda t: t.shape, dataset.element_spec)
                check_static(shapes, type(self).__name__)
                dataset = dataset.batch(p.batch_size, drop_remainder=True)
        return self.fetch_ahead(dataset)

    def _preprocessed(self, read: dict[str, Any]) -> dict[str, Any]:
        """Makes one example as the network wants it, with its weight."""
        example = self.preprocess(self.decode(read['example']), read['seed'])
        return with_weight({**read, 'example': example})

    def fetch_ahead(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """The dataset with Params.prefetch, in a fixed order; see `fetched_ahead`."""
        return fetched_ahead(dataset, self.params.prefetch)

    def batches(self, position: int = 0) -> Batches:
        """The batches of dataset(position). An error while one is made is a ValueError too."""
        return Batches(self.dataset(position), type(self).__name__)

    def example_name(self, position: int) -> str:
        """What errors call the example at a position; empty if only the batch knows."""
        if type(self).dataset is not Input.dataset:
            return ''
        p = self.params
        index, _ = order.indices(
            tf.constant([position], tf.int64), self.num_examples(), p.seed, p.shuffle)
        return self.name_of(int(index[0]))

    def num_real_examples(self, position: int) -> int:
        """How many examples the mini-batch at a position has, without copies that fill it up.

        Raises:
          ValueError: the source makes its own mini-batches, and does not say this about them.
        """
        p = self.params
        if type(self).dataset is not Input.dataset:
            raise ValueError(f'{type(self).__name__} makes its own mini-batches, and a layer of '
                             'the network must not see the copies that fill up the last one; give '
                             'it num_real_examples(position).')
        if p.num_epochs is None:
            return p.batch_size
        return min(p.batch_size, p.num_epochs * self.num_examples() - position)

    def num_batches(self, position: int = 0) -> int | None:
        """How many batches `dataset(position)` has; None if it has no end."""
        if self.params.num_epochs is None:
            return None
        num_left = self.params.num_epochs * self.num_examples() - position
        return max(0, -(-num_left // self.params.batch_size))

    def spec(self) -> dict[str, Any]:
        """The tf.TensorSpec of every entry of a batch; at most the first example is read."""
        return dict(self._spec)

    @functools.cached_property
    def _spec(self) -> dict[str, Any]:
        # A dataset takes a tenth of a second to make, and a run asks for the spec several times.
        spec: dict[str, Any] = self.dataset().element_spec
        return spec

    def specs(self) -> list[dict[str, Any]]:
        """The spec of every shape that batches may have, the largest first.

        There is one, unless a source says otherwise.
        """
        return [self.spec()]

    def check_keys(self, needed: Iterable[str]) -> None:
        """Raises ValueError unless a batch has all of the entries that a network reads."""
        entries = sorted(self.spec())
        for key in needed:
            if key not in entries:
                near = difflib.get_close_matches(key, entries, 1)
                remedy = (f'is it {near[0]!r}?' if near
                          else 'rename an entry in preprocess, or read another.')
                raise ValueError(f'the network reads {key!r}, and {type(self).__name__} gives '
                                 f'{", ".join(entries)}; {remedy}')

    def _checked_num_examples(self) -> int:
        """The number of examples. Raises ValueError if they are too few for a batch."""
        p = self.params
        with one_sentence(type(self).__name__):
            n = self.num_examples()
        if n == 0:
            raise ValueError(f'{type(self).__name__} has no examples; name data that is not empty.')
        if p.num_epochs is None and p.batch_size > n:
            raise ValueError(f'batch_size={p.batch_size} is larger than the {n} examples of '
                             f'{type(self).__name__}, so a batch would hold an example twice; use '
                             f'{n} or less.')
        return n
