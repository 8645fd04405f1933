"""Input: batches of examples as a tf.data.Dataset that can start anywhere.

    positions [B] -> indices [B] -> read -> decode and preprocess of each example
                  -> batch [B, ...] and weight [B]
"""
from __future__ import annotations

import functools

import tensorflow as tf

from lingpipe.input import order
from lingpipe.input.batches import Batches
from lingpipe.input.dataset import as_written, check_static, fetched_ahead, traceable, with_weight
from lingpipe.input.errors import one_sentence
from lingpipe.input.example_source import ExampleSource
from lingpipe.layers.nested import Nested

_ENDLESS = 1 << 62  # A number of positions that no run reaches.


class Input(ExampleSource):
    """The base of inputs: the batches of a source."""

    def dataset(self, position: int = 0) -> tf.data.Dataset:
        """The batches from `position` on, the number of examples consumed before.

        A batch is a nested dict of tensors [B, ...], among them 'weight', float32 [B]. The weight
        is 1, or what the source says: one for each example, or one for each of its tokens, [B, T].
        It is 0 for the padding of the last batch.

        Raises:
          ValueError: the batch is larger than the data, an example is not of static shape, or the
            source finds something wrong.
        """
        return self._indexed(position)

    def _indexed(self, position: int, stride: int = 1) -> tf.data.Dataset:
        """What `dataset` says; of `stride` batches, only the first is made."""
        p = self.params
        num_examples = self.checked_num_examples()
        if position < 0:
            raise ValueError(f'position={position} is negative; it is the number of examples '
                             'consumed before.')
        total = _ENDLESS if p.num_epochs is None else p.num_epochs * num_examples

        def examples_from(first: tf.Tensor) -> dict[str, Nested]:
            """Reads the examples of the batch whose first position is given, with their seeds."""
            positions = first + tf.range(p.batch_size, dtype=tf.int64)
            is_real = tf.cast(positions < total, tf.float32)
            # Padding repeats the last example: zeros might be no example at all, and give nan.
            index, epoch = order.indices(
                tf.minimum(positions, total - 1), num_examples, p.seed, p.shuffle,
                p.shuffle_rounds)
            return {'example': self.read(index),
                    'seed': order.example_seeds(index, epoch, p.seed), 'is_real': is_real}

        calls = p.num_parallel_calls or tf.data.AUTOTUNE
        with one_sentence(type(self).__name__):  # The maps below trace what subclasses define.
            dataset = tf.data.Dataset.range(position, total, p.batch_size * stride)
            dataset = dataset.map(traceable(examples_from, type(self)), calls, deterministic=True)
            if type(self).decode is Input.decode and type(self).preprocess is Input.preprocess:
                dataset = as_written(dataset.map(traceable(with_weight, type(self))))
            else:
                dataset = dataset.unbatch().map(
                    traceable(self._preprocessed, type(self)), calls, deterministic=True)
                dataset = dataset.batch(p.batch_size, drop_remainder=True)
            shapes = tf.nest.map_structure(lambda t: t.shape[1:], dataset.element_spec)
            check_static(shapes, type(self).__name__)
        return self.fetch_ahead(dataset)

    def _preprocessed(self, read: dict[str, Nested]) -> dict[str, Nested]:
        """Makes one example as the network wants it, with its weight."""
        example = self.preprocess(self.decode(read['example']), read['seed'])
        return with_weight({**read, 'example': example})

    def fetch_ahead(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """The dataset with Params.prefetch, in a fixed order; see `fetched_ahead`."""
        return fetched_ahead(dataset, self.params.prefetch)

    def batches(self, position: int = 0, stride: int = 1) -> Batches:
        """The batches of dataset(position), or every `stride`-th of them, beginning with the first.

        An indexed input does not make the others. An error while one is made is a ValueError too.
        """
        return Batches(self._dataset(position, stride), type(self).__name__)

    @property
    def is_indexed(self) -> bool:
        """Whether a position tells which examples follow: the class does not make its dataset."""
        return type(self).dataset is Input.dataset

    def num_real_examples(self, position: int) -> int:
        """How many examples the mini-batch at a position has, without copies that fill it up.

        Raises:
          ValueError: the source makes its own mini-batches, and does not say this about them.
        """
        p = self.params
        if not self.is_indexed:
            raise ValueError(f'{type(self).__name__} makes its own mini-batches, and a layer of '
                             'the network must not see the copies that fill up the last one; give '
                             'it num_real_examples(position).')
        if p.num_epochs is None:
            return p.batch_size
        return min(p.batch_size, p.num_epochs * self.num_examples() - position)

    def spec(self) -> dict[str, Nested]:
        """The tf.TensorSpec of every entry of a batch; at most the first example is read."""
        return dict(self._spec)

    @functools.cached_property
    def _spec(self) -> dict[str, Nested]:
        return dict(self._dataset(0).element_spec)

    def _dataset(self, position: int, stride: int = 1) -> tf.data.Dataset:
        """What `batches` goes over. From 0 on it is kept, unless it may hold all of the data."""
        if not self.is_indexed:
            own = self.dataset(position)
            return own if stride == 1 else own.shard(stride, 0)
        return self._indexed(position, stride) if position or stride > 1 else self._from_start

    @functools.cached_property
    def _from_start(self) -> tf.data.Dataset:
        return self._indexed(0)

    def specs(self) -> list[dict[str, Nested]]:
        """The spec of every shape of the batches, the largest first; most inputs have one."""
        return [self.spec()]
