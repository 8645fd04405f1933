"""Micro-batches: the shapes of one part of a mini-batch, and which networks can be given parts."""
from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from lingpipe.layers import nested
from lingpipe.layers.nested import Nested
from lingpipe.layers.sequential import Sequential
from lingpipe.wording.counts import counted


def split_spec(batch_spec: Mapping[str, Nested], num_micro_batches: int,
               num_replicas: int = 1) -> dict[str, Nested]:
    """Returns the spec of one micro-batch, given that of a mini-batch.

    Raises:
      ValueError: R M does not divide the batch, or there is no one batch size.
    """
    size = _batch_size(batch_spec)
    if size % num_replicas:
        raise ValueError(
            f'num_replicas={num_replicas} does not divide the batch of {counted(size, "example")}; '
            f'use {divisors(size)}, or change train_input.batch_size.')

    part = size // num_replicas
    if part % num_micro_batches:
        whose = f'the batch of {counted(size, "example")}'
        if num_replicas > 1:
            whose = f'the {counted(part, "example")} of each of {counted(num_replicas, "replica")}'
        raise ValueError(
            f'num_micro_batches={num_micro_batches} does not divide {whose}; use {divisors(part)}, '
            'or change train_input.batch_size.')

    def part_of(spec: tf.TensorSpec) -> tf.TensorSpec:
        return tf.TensorSpec([part // num_micro_batches, *spec.shape[1:]], spec.dtype)

    return {name: nested.map_leaves(part_of, spec) for name, spec in batch_spec.items()}


def _batch_size(batch_spec: Mapping[str, Nested]) -> int:
    """Returns the number of examples; raises ValueError unless all tensors have the same."""
    sizes = {}
    for path, spec in nested.flatten(batch_spec):
        if spec.shape.rank in (None, 0) or spec.shape[0] is None:
            raise ValueError(f'{path!r} of the mini-batch has shape {spec.shape}; the first '
                             'dimension must be the batch size, a number.')
        sizes[path] = int(spec.shape[0])
    if len(set(sizes.values())) > 1:
        raise ValueError(f'the tensors of a mini-batch have different first dimensions, {sizes}; '
                         'all must be the batch size.')
    size = next(iter(sizes.values()))
    if not size:
        raise ValueError('the mini-batch has 0 examples; give it 1 or more.')
    return size


def check_whole(network: Sequential, num_micro_batches: int, num_replicas: int) -> None:
    """Raises ValueError if a layer needs the whole mini-batch and would see only a part of it."""
    num_parts = num_micro_batches * num_replicas
    for layer in network.layers() if num_parts > 1 else ():
        if layer.needs_whole_batch:
            raise ValueError(
                f'{layer.path}: {type(layer).__name__} needs the whole mini-batch, since its '
                'result for an example depends on the others, but with '
                f'num_micro_batches={num_micro_batches} and num_replicas={num_replicas} it would '
                f'see one of {num_parts} parts at a time; set both to 1, or '
                f'{layer.whole_batch_remedy}.')


def check_state(network: Sequential, num_parts: int) -> None:
    """Raises ValueError if a layer has state that cannot be merged over the parts of an update."""
    for layer in network.layers() if num_parts > 1 else ():
        if layer.unmerged_state:
            raise ValueError(
                f'{layer.path}: what becomes of {", ".join(layer.unmerged_state)} depends on the '
                f'examples, and lingpipe cannot merge it over the {num_parts} micro-batches of an '
                'update; set num_micro_batches, num_replicas and accumulate to 1 or, '
                'in a KerasLayer with moving averages of means, averages_state=True.')


def divisors(size: int) -> str:
    """The numbers that divide `size`, as words: '1, 2 or 4'."""
    *most, last = [str(divisor) for divisor in range(1, size + 1) if size % divisor == 0]
    return f'{", ".join(most)} or {last}' if most else last
