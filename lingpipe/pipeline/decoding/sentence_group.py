"""Sentence group: sentences that are decoded together."""
from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from lingpipe.layers import nested
from lingpipe.layers.nested import Nested
from lingpipe.pipeline.planning.dataflow import Value


class SentenceGroup(NamedTuple):
    """Sentences that are decoded together.

    Attributes:
      values: name -> [n, ...], what the network reads of a mini-batch besides the target. The
        number of sentences n and the time may have any size.
      limits: [n] int32, the largest number of ids of each result, including the end, at most
        SearchParams.max_length; 0: the sentence is not decoded.
      prompts: [n, P] int32, the first ids of each result; negative behind the end of a shorter
        prompt. Only with SamplingParams; none: there are no prompts.
      chances: [n, max_length] from 0 to 1, what decides at each position where ids are drawn; none:
        they are not.
    """
    values: Mapping[str, Nested]
    limits: Any
    prompts: Any = None
    chances: Any = None


def grouped(sentences: Sequence[int], num_cells: int, group_size: int
            ) -> Iterator[list[list[int]]]:
    """Yields the sentence groups of each call of a decoder.

    A cell reads all its weights for each group and position, which is most of the time that a small
    group takes. One group a cell keeps the cells busy. There are two a cell only where more
    sentences come than have room in these.

    Args:
      sentences: their numbers, in the order in which they are decoded.
      num_cells: K.
      group_size: the most sentences of a group.
    """
    has_more = num_cells > 1 and len(sentences) > num_cells * group_size
    num_groups = 2 * num_cells if has_more else num_cells
    for first in range(0, len(sentences), num_groups * group_size):
        some = sentences[first:first + num_groups * group_size]
        ends = [g * len(some) // num_groups for g in range(num_groups + 1)]
        yield [list(some[start:end]) for start, end in itertools.pairwise(ends)]


def specs_of(inputs: Sequence[Value]) -> list[tf.TensorSpec]:
    """The specs of the tensors of any sentence group, with unknown batch size and time.

    Args:
      inputs: the values of a mini-batch that decoding reads.
    """
    return [*(_any_size(spec) for value in inputs for spec in value.specs),
            tf.TensorSpec([None], tf.int32), tf.TensorSpec([None, None], tf.int32),
            tf.TensorSpec([None, None], tf.float32)]


def tensors_of(group: SentenceGroup, inputs: Sequence[Value], max_length: int) -> list[tf.Tensor]:
    """The tensors of a sentence group: its values, then its limits, prompts and chances.

    Args:
      group: the sentences.
      inputs: the values of a mini-batch that decoding reads.
      max_length: the largest limit that is allowed.

    Raises:
      ValueError: the values of the group are others, or a limit is above max_length.
    """
    names = {value.name for value in inputs}
    if set(group.values) != names:
        raise ValueError(
            f'a group has {", ".join(sorted(group.values)) or "no values"}, but decoding '
            f'reads {", ".join(sorted(names)) or "none"}.')
    largest = int(np.max(group.limits, initial=0))
    if largest > max_length:
        raise ValueError(f'a limit of {largest} ids is above max_length={max_length}; raise '
                         'max_length.')

    tensors = [tf.convert_to_tensor(leaf, spec.dtype) for value in inputs
               for leaf, spec in zip(nested.leaves(group.values[value.name]), value.specs,
                                     strict=True)]
    nothing = np.zeros([len(group.limits), 0])
    others = [(group.limits, tf.int32),
              (nothing if group.prompts is None else group.prompts, tf.int32),
              (nothing if group.chances is None else group.chances, tf.float32)]
    return [*tensors, *(tf.cast(tf.convert_to_tensor(value), dtype) for value, dtype in others)]


def _any_size(spec: tf.TensorSpec) -> tf.TensorSpec:
    """Returns the spec with unknown batch size and time."""
    return tf.TensorSpec([None if i < 2 else n for i, n in enumerate(spec.shape)], spec.dtype)
