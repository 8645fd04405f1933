"""DatasetInput: any tf.data.Dataset, as a function makes it.

Its elements come as they are: a dict, a tuple whose elements get names, or one tensor. Batches of a
static size and weights are added here. The order is the dataset's own, so it must be the same each
time the function is called: shuffle with a seed.

A run that is resumed must go on where it was. If the function has an argument `position`, it is
given the number of examples that were consumed before, and makes a dataset that begins there, over
all epochs. Otherwise that many examples are made and skipped, which takes as long as making them
did; the log says so. With resume='saved_iterator', tf.data saves its own state with every
checkpoint instead (saved_iterators.py).
"""
from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Literal

import tensorflow as tf
from absl import logging

from lingpipe.hyperparams import field
from lingpipe.input.base import Input
from lingpipe.input.dataset import check_static, traceable
from lingpipe.input.elements import NAMES, named
from lingpipe.input.errors import one_sentence
from lingpipe.input.given import GivenParams
from lingpipe.input.unseeded import shuffles_without_seed
from lingpipe.layers import nested
from lingpipe.layers.nested import Nested
from lingpipe.wording.counts import counted

Element = dict[str, Nested]


class DatasetInput(Input):
    """The examples of a tf.data.Dataset. Subclasses override `make`; `of` takes a function."""

    class Params(Input.Params):
        """How the elements of the dataset become examples."""
        shuffle: bool = field(False, 'The order is that of the dataset: shuffle there, with a '
                                     'seed.')
        names: tuple[str, ...] = field(
            NAMES, 'The names of the elements of a tuple, in order. A dict needs none: as in '
                   'Keras, a dict in the place of x names its values, and one in the place of '
                   'labels names outputs.')
        is_batched: bool = field(
            False, 'Whether the elements are batches, of which batch_size makes others.')
        resume: Literal['skip', 'saved_iterator'] = field(
            'skip', 'How a resumed run comes to where it was, if the function has no argument '
                    '`position`: by making the examples before again, or by the state of tf.data, '
                    'which is saved with every checkpoint and holds all that its shuffle buffers '
                    'hold.')

        def check(self) -> None:
            """Raises ValueError if the input should shuffle."""
            if self.shuffle:
                raise ValueError('shuffle=True, but a DatasetInput keeps the order of its dataset; '
                                 'call dataset.shuffle(buffer_size, seed=0) in the function')

    params: Params

    @staticmethod
    def of(make: Callable[..., tf.data.Dataset], *, batch_size: int,
           **params: Any) -> GivenDataset.Params:
        """Params of an input of what a function makes.

        Args:
          make: returns a tf.data.Dataset; perhaps with an argument `position`, see the top of this
            file.
          batch_size: examples in a mini-batch.
          **params: further fields of DatasetInput.Params; an evaluation has num_epochs=1.
        """
        if not callable(make):
            raise ValueError(f'make is {type(make).__name__}, but must be a function that returns '
                             'a tf.data.Dataset; write lambda: dataset.')
        contents = f'{getattr(make, "__module__", "")}.{getattr(make, "__qualname__", "function")}'
        return GivenDataset.Params(batch_size=batch_size, contents=contents, **params).giving(make)

    def make(self) -> tf.data.Dataset:
        """Returns the dataset of one epoch, or from `position` on over all epochs.

        A subclass that can begin anywhere has the argument `position`.
        """
        raise NotImplementedError(f'{type(self).__name__} has no make')

    def num_examples(self) -> int:
        """The examples of one epoch. They are counted, once, if the dataset does not say."""
        return self._num_examples

    def dataset(self, position: int = 0) -> tf.data.Dataset:
        """The batches from `position` on; see Input.dataset."""
        p = self.params
        name = type(self).__name__
        if position < 0:
            raise ValueError(f'position={position} is negative; it is the number of examples '
                             'consumed before.')
        with one_sentence(name):
            begins_there = self._can_begin_anywhere
            examples = self._examples(*([position] if begins_there else []))
            self._check_single(examples)
            if not begins_there:
                examples = self._skipped(examples, position)
            if p.num_epochs and examples.cardinality() == tf.data.INFINITE_CARDINALITY:
                raise ValueError(f'num_epochs={p.num_epochs}, but the dataset has no end; leave '
                                 'its repeat out.')
            self._check_dense(examples)
            check_static(tf.nest.map_structure(lambda spec: spec.shape, examples.element_spec),
                         name, 'in the dataset (padded_batch, with padded_shapes)')
            batches = examples.batch(p.batch_size, drop_remainder=p.num_epochs is None)
            batches = batches.map(traceable(self._filled_up))
        return self.fetch_ahead(batches)

    def num_real_examples(self, position: int) -> int:
        """How many examples the mini-batch at a position has, without copies that fill it up."""
        p = self.params
        if p.num_epochs is None:
            return p.batch_size
        return min(p.batch_size, p.num_epochs * self.num_examples() - position)

    @property
    def saves_iterator(self) -> bool:
        """Whether Params ask for it, and the function cannot begin at a position."""
        return self.params.resume == 'saved_iterator' and not self._can_begin_anywhere

    @property
    def _can_begin_anywhere(self) -> bool:
        return 'position' in inspect.signature(self._maker).parameters

    @property
    def _maker(self) -> Callable[..., tf.data.Dataset]:
        """The function that makes the dataset."""
        return self.make

    def _skipped(self, one_epoch: tf.data.Dataset, position: int) -> tf.data.Dataset:
        """The examples of all epochs from a position on; those before are made again."""
        p, name = self.params, type(self).__name__
        if position:
            logging.warning(
                '%s resumes by making %d examples again and skipping them; a function with an '
                "argument `position`, or resume='saved_iterator', would begin there at once",
                name, position)
        if one_epoch.cardinality() == 0:
            raise ValueError(f'{name} has no examples; give it data.')
        if p.num_epochs == 1:
            return one_epoch.skip(position)
        self._check_enough(int(one_epoch.cardinality()))
        self._warn_of_order()
        return one_epoch.repeat(p.num_epochs).skip(position)

    def _warn_of_order(self) -> None:
        """Warns if each start sees the examples in another order."""
        if shuffles_without_seed(self._examples):
            consequence = '' if self.saves_iterator else (
                ', and a resumed run repeats some examples and leaves out others')
            logging.warning('the dataset of %s shuffles without a seed, as list_files does by '
                            'itself: each start sees another order, so that no result can be '
                            'reproduced%s; give it a seed', type(self).__name__, consequence)

    def _check_enough(self, number: int) -> None:
        """Raises ValueError if the examples of one epoch, where known, do not fill a batch."""
        p = self.params
        if p.num_epochs is None and 0 <= number < p.batch_size:
            raise ValueError(f'batch_size={p.batch_size} is larger than the '
                             f'{counted(number, "example")} of {type(self).__name__}, so a batch '
                             f'would hold an example twice; use {number} or less, call repeat in '
                             'the function, or set is_batched=True if these are batches.')

    def _check_dense(self, examples: tf.data.Dataset) -> None:
        """Raises ValueError if a value is a sparse tensor or the like."""
        for path, spec in nested.flatten(examples.element_spec):
            if not isinstance(spec, tf.TensorSpec):
                kind = type(spec).__name__.removesuffix('Spec')
                raise ValueError(f'{path!r} of {type(self).__name__} is a {kind}, and a network '
                                 'takes dense tensors, or dicts of them; for a SparseTensor, call '
                                 'tf.sparse.to_dense in a map of the dataset, and for a '
                                 'RaggedTensor its to_tensor, with a fixed shape.')

    def _check_single(self, examples: tf.data.Dataset) -> None:
        """Raises ValueError for examples that must be batches, and warns of those that may be."""
        shapes = [spec.shape for spec in tf.nest.flatten(examples.element_spec)]
        sizes = {shape[0] if shape.rank else 0 for shape in shapes}
        if len(shapes) < 2 or len(sizes) != 1 or self.params.is_batched:
            return
        size, = sizes
        if size is None:
            raise ValueError(f'all values of {type(self).__name__} begin with a dimension of any '
                             'size: if they are batches, set is_batched=True; if they are single '
                             'examples, pad or crop them, since the network needs a static shape.')
        if size == self.params.batch_size:
            logging.warning(
                '%s: all values of an example begin with a dimension of %d, which is batch_size: '
                'if the dataset makes batches, set is_batched=True', type(self).__name__, size)

    def _examples(self, *position: int) -> tf.data.Dataset:
        """The dataset with dicts of single examples as elements."""
        dataset = self._maker(*position)
        if not isinstance(dataset, tf.data.Dataset):
            raise ValueError(f'{self._maker.__qualname__} returns {type(dataset).__name__}, but '
                             'must return a tf.data.Dataset.')
        if self.params.is_batched:
            dataset = dataset.unbatch()
        return dataset.map(traceable(self._named))

    def _named(self, *element: Nested) -> Element:
        """One element of the dataset as a dict.

        Raises:
          ValueError: a tuple has more elements than there are names, or another tuple in it.
        """
        if len(element) == 1 and isinstance(element[0], dict):
            return dict(element[0])
        if any(isinstance(part, tuple) for part in element):
            raise ValueError('an element of the dataset has a tuple in a tuple, whose values have '
                             "no names; name them, as dataset.map(lambda x, y: {'a': x[0], 'b': "
                             "x[1], 'labels': y}), where labels of several outputs are labels_u "
                             'of the output u.')
        names = self.params.names
        if len(element) > len(names):
            raise ValueError(f'the elements of the dataset have {counted(len(element), "part")}, '
                             f'and there are names for {len(names)} ({", ".join(names)}); set '
                             'names.')
        return named(element, names)

    def _filled_up(self, batch: Element) -> Element:
        """A batch of the static size, with weights; copies of the last example have weight 0."""
        batch_size = self.params.batch_size
        size = tf.shape(tf.nest.flatten(batch)[0])[0]
        rows = tf.minimum(tf.range(batch_size), size - 1)
        full: Element = tf.nest.map_structure(lambda tensor: tf.gather(tensor, rows), batch)
        is_real = tf.cast(tf.range(batch_size) < size, tf.float32)
        weight = tf.cast(full.get('weight', tf.ones([batch_size])), tf.float32)
        return {**full, 'weight': weight * tf.reshape(
            is_real, [batch_size] + [1] * (weight.shape.rank - 1))}

    @functools.cached_property
    def _num_examples(self) -> int:
        with one_sentence(type(self).__name__):
            examples = self._examples(*([0] if self._can_begin_anywhere else []))
            cardinality = int(examples.cardinality())
            if cardinality == tf.data.INFINITE_CARDINALITY:
                raise ValueError(f'the dataset of {type(self).__name__} has no end, so that its '
                                 'examples cannot be counted; leave its repeat out.')
            if cardinality == tf.data.UNKNOWN_CARDINALITY:
                counted = examples.reduce(tf.constant(0, tf.int64), lambda count, _: count + 1)
                cardinality = int(counted)
            # A function that can begin anywhere makes all epochs.
            return cardinality // (self.params.num_epochs or 1 if self._can_begin_anywhere else 1)


class GivenDataset(DatasetInput):
    """What the function makes that DatasetInput.of was given."""

    class Params(GivenParams, DatasetInput.Params):
        """The function."""

    params: Params

    @property
    def _maker(self) -> Callable[..., tf.data.Dataset]:
        maker: Callable[..., tf.data.Dataset] = self.params.given
        return maker
