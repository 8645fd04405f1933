"""Dataset: the steps of which an Input composes its tf.data.Dataset."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from lingpipe.input.example_source import ExampleSource
from lingpipe.input.unseeded import warn_of_random_ops
from lingpipe.layers.nested import Nested, flatten

_UNCONVERTED = ('lingpipe.input.', 'lingpipe.tasks.')   # packages whose code AutoGraph need not see


def traceable(function: Callable[..., Any],
              source: type[ExampleSource] | None = None) -> Callable[..., Any]:
    """The function, which AutoGraph converts only if it calls methods from other packages.

    Those may use `if` and `for` on tensors, and random numbers that differ at each start, of which
    it then warns. lingpipe's inputs and those of its tasks do not, and the first conversion in a
    process takes a third of a second.

    Args:
      function: what tf.data is to trace.
      source: whose methods it calls; none: nobody's.
    """
    methods = (source.read, source.decode, source.preprocess) if source else ()
    if source and any(not method.__module__.startswith(_UNCONVERTED) for method in methods):
        name = source.__name__

        def watched(*args: Any) -> Any:
            result = function(*args)
            warn_of_random_ops(name)
            return result

        return watched
    unconverted: Callable[..., Any] = tf.autograph.experimental.do_not_convert(function)
    return unconverted


def with_weight(read: dict[str, Nested]) -> dict[str, Nested]:
    """The example or examples with their weight, which is 0 for padding.

    Raises:
      ValueError: the example has no names.
    """
    if not isinstance(read['example'], Mapping):
        raise ValueError(f'an example is {type(read["example"]).__name__}, but must be a dict of '
                         'tensors by name; return one from read, decode and preprocess.')
    example, weight = dict(read['example']), read['is_real']
    if 'weight' in example:  # One for the example, or for each of its tokens.
        own_weight = tf.cast(example['weight'], tf.float32)
        ones = [1] * (own_weight.shape.rank - weight.shape.rank)
        weight = own_weight * tf.reshape(weight, weight.shape + ones)
    example['weight'] = weight
    return example


def fetched_ahead(dataset: tf.data.Dataset, num_batches: int) -> tf.data.Dataset:
    """The dataset with batches that are made ahead, in a fixed order and without autotuning.

    Autotuning can overlook for up to a minute that an iterator is being deleted, and the end of a
    run would wait for it.
    """
    options = tf.data.Options()
    options.deterministic = True
    options.autotune.enabled = False
    if num_batches:
        dataset = dataset.prefetch(num_batches)
    return dataset.with_options(options)


def as_written(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """The dataset, without the rewriting of its graph by tf.data.

    For that, tf.data copies all arrays that the functions of its maps read, and keeps the copies.
    Where examples are preprocessed one by one, it gains from that, as it joins map and batch: an
    example takes about 6 us less.
    """
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    return dataset.with_options(options)


def check_static(shapes: dict[str, Nested], source: str, place: str = 'in preprocess') -> None:
    """Raises ValueError for a shape that is not static.

    Args:
      shapes: by path.
      source: the name of the Input.
      place: where its author may change that.
    """
    for path, shape in flatten(shapes):
        if not shape.is_fully_defined():
            raise ValueError(f'{path} of {source} has shape {shape}, and the network needs a '
                             f'static one; resize, crop or pad it {place}, or state there by '
                             'tf.ensure_shape what Python code gives.')
