"""Renewal: makes again, on workers that have restarted, what was there before.

When a process connects to its workers again, TensorFlow forgets all tensors that were on them, but
not the functions that it has traced, which takes half the time of a start. On workers, functions
capture the handles of variables and the keys of random numbers. Each of these gets a successor on
the same device, which takes its place in all functions.

Python's garbage collector knows all variables and functions. The obvious way is a list to which
everyone adds what they make. But tf.function keeps functions of its own, and alike_cells.py copies
some; and to the new worker, a handle that is forgotten may stand for another value.
"""
from __future__ import annotations

import functools
import gc
import uuid
from collections.abc import Iterable, Sequence
from typing import TypeVar

import tensorflow as tf

from lingpipe.cluster.client import done_after, is_on_worker
from lingpipe.pipeline.execution.seed_keys import eager_key, origin_of
from lingpipe.process.graph_lifetime import wrap_function

_T = TypeVar('_T')


class NotRenewableError(Exception):
    """What was on workers cannot be made again, so that a new process must start from scratch."""


def renew(saved: Iterable[tf.Variable]) -> None:
    """Makes successors of everything that was on workers; call it after connecting to them again.

    Args:
      saved: the variables of a checkpoint, which must be restored next. Until then, those on
        workers have no value, and reading them fails. All other variables on workers become zeros,
        as accumulators are between two steps.

    Raises:
      NotRenewableError: there was something else on a worker. The process cannot use its functions
        any more.
    """
    gc.collect()   # Functions of a step that has failed need no successors.
    saved_handles = {variable.handle.ref() for variable in saved}
    successors = {}   # reference of a tensor -> the tensor in its place
    sums = []
    for variable in _all_of(tf.Variable):
        before = variable.handle
        if _was_on_worker(before):
            if variable.dtype == tf.variant:
                raise NotRenewableError('a copy for a checkpoint is still on a worker')
            variable._handle = successors[before.ref()] = _successor(variable)
            if before.ref() not in saved_handles:
                sums.append(variable)

    for function in _all_of(tf.types.experimental.ConcreteFunction):
        captured = [tensor.ref() for tensor in function.captured_inputs]
        lost = {one for one in captured if _was_on_worker(one.deref())}
        for one in lost - successors.keys():
            successors[one] = _successor_of_key(one.deref())
        if lost:
            function.set_external_captures([successors.get(one, one.deref()) for one in captured])
    _set_to_zero(sums)   # Last, by a function that captures successors.


def _all_of(kind: type[_T]) -> list[_T]:
    """All objects of a kind that this process has."""
    objects = gc.get_objects()
    kinds = {one for one in set(map(type, objects)) if issubclass(one, kind)}
    return [one for one in objects if type(one) in kinds]


def _was_on_worker(tensor: tf.Tensor) -> bool:
    is_eager = isinstance(tensor, tf.__internal__.EagerTensor)   # Others are of graphs.
    return is_eager and is_on_worker(tensor.device)


def _successor(variable: tf.Variable) -> tf.Tensor:
    """Makes a variable without a value on the same device; returns its handle.

    tf.Variable would take 2 ms, and one without a name would be read as an empty tensor.
    """
    before = variable.handle
    with tf.device(variable.device):
        handle = tf.raw_ops.VarHandleOp(
            dtype=variable.dtype, shape=variable.shape, shared_name=uuid.uuid4().hex)
    handle._handle_data = before._handle_data   # It tells a graph that captures it the shape.
    return handle


def _set_to_zero(variables: Sequence[tf.Variable]) -> None:
    """Assigns zeros, by a graph: single ops might come after those of the next step."""
    @functools.cache   # Variables share them until they are written.
    def zeros(device: str, shape: tuple[int, ...], dtype: tf.DType) -> tf.Tensor:
        with tf.device(device):
            return tf.zeros(shape, dtype)

    def body() -> tf.Tensor:
        assigned = []
        for variable in variables:
            value = zeros(variable.device, tuple(variable.shape), variable.dtype)
            with tf.device(variable.device):
                assigned.append(
                    tf.raw_ops.AssignVariableOp(resource=variable.handle, value=value))
        return done_after(*assigned)

    wrap_function(body, [])()


def _successor_of_key(key: tf.Tensor) -> tf.Tensor:
    """Makes a key of random numbers once more."""
    origin = origin_of(key)
    if origin is None:
        raise NotRenewableError(f'a function captures {key.dtype.name} {key.shape} on a worker')
    return eager_key(*origin)
