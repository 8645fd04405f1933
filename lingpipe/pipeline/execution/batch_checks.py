"""Batch checks: whether a mini-batch fits the network, and why a step of it failed."""
from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

from lingpipe.layers import nested
from lingpipe.layers.nested import Nested
from lingpipe.pipeline.execution.bad_ids import BadIdError, find_bad_id
from lingpipe.pipeline.planning.dataflow import Element


def check_batch(batch: Mapping[str, Nested], batch_spec: Mapping[str, Nested]) -> dict[str, Nested]:
    """Returns the values of a mini-batch that batch_spec names.

    Raises:
      ValueError: a value is missing, or has another shape or dtype.
    """
    named = {name: batch[name] for name in batch_spec if name in batch}
    expected = dict(nested.flatten(dict(batch_spec)))
    values = dict(nested.flatten(named))
    if set(values) != set(expected):
        raise ValueError(f'the mini-batch has {", ".join(sorted(values))}, but the network was '
                         f'built for {", ".join(sorted(expected))}.')

    for path, spec in expected.items():
        value = values[path] if hasattr(values[path], 'dtype') else np.asarray(values[path])
        shape, dtype = tuple(np.shape(value)), tf.as_dtype(value.dtype)
        if shape != tuple(spec.shape) or dtype != spec.dtype:
            raise ValueError(
                f'{path!r} of the mini-batch is {dtype.name} {shape}, but the network was built '
                f'for {spec.dtype.name} {tuple(spec.shape)}; all mini-batches must be alike: drop '
                f'or pad the last one.')
    return named


def is_of_spec(batch: Mapping[str, Nested], batch_spec: Mapping[str, Nested]) -> bool:
    """Whether check_batch accepts the mini-batch."""
    try:
        check_batch(batch, batch_spec)
    except ValueError:
        return False
    return True


@contextlib.contextmanager
def explained(elements: Sequence[Element], batch: Mapping[str, Nested]) -> Iterator[None]:
    """A context in which the error of a failed step explains the cause, where it can be found.

    Raises:
      BadIdError: the mini-batch has an id that a layer cannot use.
      ValueError: XLA cannot compile a task.
    """
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        if bad := find_bad_id(elements, batch):
            raise BadIdError(bad.sentence()) from error
        if 'tf2xla conversion failed' not in error.message:
            raise
        refused = re.search(r'unsupported operations when .*: (\w+) \(.*?\{\{node ([^}]*?)\./',
                            error.message)
        first_line = error.message.strip().splitlines()[0][:200]
        what = f'{refused[1]} of {refused[2]}' if refused else f'a task ({first_line})'
        raise ValueError(
            f'XLA cannot compile {what}, and it must compile all layers or none; set '
            f'pipeline.jit_compile=False, or use other ops there.') from error
