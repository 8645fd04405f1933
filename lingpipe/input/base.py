"""Input: batches of examples as a tf.data.Dataset that can start anywhere.

A source says how many examples it has and reads them by index, many at once; `decode` and `preprocess` work on one example.

    positions [B] -> indices [B] -> read -> decode, preprocess of each example -> batch [B, ...] and weight [B]
"""
from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from lingpipe.hyperparams import REQUIRED, Configurable, field
from lingpipe.input import order
from lingpipe.input.batches import Batches
from lingpipe.input.errors import one_sentence
from lingpipe.layers.nested import flatten

_ENDLESS = 1 << 62   # positions


class Input(Configurable):
    """The base of inputs. Subclasses: num_examples, read, and if need be decode and preprocess.

    For training: the defaults. For evaluation: shuffle=False, num_epochs=1.
    """

    class Params(Configurable.Params):
        """Batches, their order, and how far ahead they are made."""
        batch_size: int = field(REQUIRED, 'Examples in a mini-batch, over all replicas and micro-batches.',
                                least=1)
        shuffle: bool = field(True, 'Whether every epoch has an order of its own.')
        seed: int = field(0, 'Of the order and of the random numbers of preprocess.')
        num_epochs: int | None = field(None, 'Passes over the data, the last batch padded with examples of weight 0; none: for ever.',
                                       least=1)
        prefetch: int = field(2, 'Batches that are made ahead.', least=0)
        num_parallel_calls: int | None = field(None, 'Examples preprocessed at a time; none: TensorFlow decides, up to 16.',
                                               least=1, most=1024)

    params: Params

    # For subclasses.

    def num_examples(self) -> int:
        """How many examples there are; called often, so it should remember."""
        raise NotImplementedError(f'{type(self).__name__} has no num_examples')

    def read(self, index: tf.Tensor) -> dict[str, Any]:
        """The examples of the given indices (int64 [n]): a nested dict of tensors [n, ...] or of ragged tensors. A graph is traced of
        it; Python goes into tf.numpy_function."""
        raise NotImplementedError(f'{type(self).__name__} has no read')

    def decode(self, example: dict[str, Any]) -> dict[str, Any]:
        """One example as preprocess wants it, from what read gave: no random numbers."""
        return example

    def preprocess(self, example: dict[str, Any], seed: tf.Tensor) -> dict[str, Any]:
        """One example as the network wants it, of static shapes.

        Args:
          example: nested dict of tensors without the dimension of the batch.
          seed: int64 [2] for tf.random.stateless_*, a function of Params.seed, the epoch and the example.
        """
        return example

    def name_of(self, index: int) -> str:
        """What a person finds an example by, for errors: its number, or the path of a file that holds it alone."""
        return f'example {index} of {type(self).__name__}'

    @property
    def class_names(self) -> Sequence[str]:
        """What the classes are called, label 0 first; empty where there are no classes or they have only numbers."""
        return ()

    def statistics_text(self) -> str:
        """A line for the log of a training on what is read, and what is left out; empty if there is nothing to say."""
        return ''

    # For users.

    def dataset(self, position: int = 0) -> tf.data.Dataset:
        """Batches from `position` (examples consumed before) on: nested dicts of tensors [B, ...], and 'weight', float32 [B].

        The weight is 1, or what the source says, one an example or one for each of its tokens, [B, T]; 0 for the padding of the last batch.

        Raises:
          ValueError: the batch is larger than the data, an example is not of static shape, or what the source finds.
        """
        p = self.params
        num_examples = self._checked_num_examples()
        if position < 0:
            raise ValueError(f'position={position} is negative; it is the number of examples consumed before.')
        total = _ENDLESS if p.num_epochs is None else p.num_epochs * num_examples

        def place(first: tf.Tensor) -> dict[str, Any]:
            positions = first + tf.range(p.batch_size, dtype=tf.int64)
            real = tf.cast(positions < total, tf.float32)
            # Padding repeats the last example: zeros might be no example at all, and give nan.
            index, epoch = order.indices(tf.minimum(positions, total - 1), num_examples, p.seed, p.shuffle)
            return {'example': self.read(index), 'seed': order.example_seeds(index, epoch, p.seed), 'real': real}

        def finish(placed: dict[str, Any]) -> dict[str, Any]:
            example, real = dict(placed['example']), placed['real']
            if 'weight' in example:   # of an example, or of each of its tokens
                weight = tf.cast(example['weight'], tf.float32)
                real = weight * tf.reshape(real, real.shape + [1] * (weight.shape.rank - real.shape.rank))
            example['weight'] = real
            return example

        def of_one(placed: dict[str, Any]) -> dict[str, Any]:
            return finish({**placed, 'example': self.preprocess(self.decode(placed['example']), placed['seed'])})

        calls = p.num_parallel_calls or tf.data.AUTOTUNE
        with one_sentence(type(self).__name__):   # the maps below trace what subclasses say
            dataset = tf.data.Dataset.range(position, total, p.batch_size).map(place, calls, deterministic=True)
            if type(self).decode is Input.decode and type(self).preprocess is Input.preprocess:
                dataset = dataset.map(finish)
                self._check_static(tf.nest.map_structure(lambda t: t.shape[1:], dataset.element_spec))
            else:
                dataset = dataset.unbatch().map(of_one, calls, deterministic=True)
                self._check_static(tf.nest.map_structure(lambda t: t.shape, dataset.element_spec))
                dataset = dataset.batch(p.batch_size, drop_remainder=True)
        return self.fetch_ahead(dataset)

    def fetch_ahead(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """The dataset with Params.prefetch, in a fixed order, and without autotuning: that can overlook, for up to a minute, that an
        iterator is being deleted, and the end of a training would wait for it."""
        options = tf.data.Options()
        options.deterministic = True
        options.autotune.enabled = False
        return (dataset.prefetch(self.params.prefetch) if self.params.prefetch else dataset).with_options(options)

    def batches(self, position: int = 0) -> Batches:
        """The batches of dataset(position), one after the other; what the source finds wrong on the way is a ValueError too."""
        return Batches(self.dataset(position), type(self).__name__)

    def example_name(self, position: int) -> str:
        """What a person finds the example at a position by; empty if only the batch knows."""
        if type(self).dataset is not Input.dataset:
            return ''
        p = self.params
        index, _ = order.indices(tf.constant([position], tf.int64), self.num_examples(), p.seed, p.shuffle)
        return self.name_of(int(index[0]))

    def num_real_examples(self, position: int) -> int:
        """How many examples the mini-batch at a position has; copies of the last one fill it up.

        Raises:
          ValueError: the source makes mini-batches of its own, and does not say it of them.
        """
        p = self.params
        if type(self).dataset is not Input.dataset:
            raise ValueError(f'{type(self).__name__} makes its own mini-batches, and a layer of the '
                             'network must not see the copies that fill up the last one; give it '
                             'num_real_examples(position).')
        if p.num_epochs is None:
            return p.batch_size
        return min(p.batch_size, p.num_epochs * self.num_examples() - position)

    def num_batches(self, position: int = 0) -> int | None:
        """How many batches `dataset(position)` has; None if it has no end."""
        if self.params.num_epochs is None:
            return None
        left = self.params.num_epochs * self.num_examples() - position
        return max(0, -(-left // self.params.batch_size))

    def spec(self) -> dict[str, Any]:
        """The tf.TensorSpec of every entry of a batch; at most the first example is read."""
        return self.dataset().element_spec   # type: ignore[no-any-return]

    def specs(self) -> list[dict[str, Any]]:
        """The spec of every shape that batches may have, the largest first: one, unless a source says otherwise."""
        return [self.spec()]

    def check_keys(self, needed: Iterable[str]) -> None:
        """Raises ValueError unless a batch has all of the entries that a network reads."""
        found = sorted(self.spec())
        for key in needed:
            if key not in found:
                near = difflib.get_close_matches(key, found, 1)
                raise ValueError(f'the network reads {key!r}, and {type(self).__name__} gives {", ".join(found)}; '
                                 f'{f"is it {near[0]!r}?" if near else "rename an entry in preprocess, or read another."}')

    def _checked_num_examples(self) -> int:
        p = self.params
        with one_sentence(type(self).__name__):
            n = self.num_examples()
        if n == 0:
            raise ValueError(f'{type(self).__name__} has no examples; name data that is not empty.')
        if p.num_epochs is None and p.batch_size > n:
            raise ValueError(f'batch_size={p.batch_size} is larger than the {n} examples of {type(self).__name__}, so a batch would hold '
                             f'an example twice; use {n} or less.')
        return n

    def _check_static(self, shapes: dict[str, Any]) -> None:
        for path, shape in flatten(shapes):
            if not shape.is_fully_defined():
                raise ValueError(f'{path} of {type(self).__name__} has shape {shape}, and the network needs a static one; resize, crop '
                                 'or pad it in preprocess.')
