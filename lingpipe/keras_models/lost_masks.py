"""Lost masks: those that Keras takes away from a value that a MultiHeadAttention has read.

Keras keeps the mask in an attribute of the tensor. MultiHeadAttention deletes it from its query,
value and key, also for what reads the same tensor after it. Layers of one tensor that take a mask
lose none, since the graph of a model has it among their arguments. But another attention, and the
loss, look at the attribute. Here each of them reads the mask.
"""
from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TypeAlias

import keras
from keras.src.layers.merging.base_merge import Merge

from lingpipe.keras_models.graph import Call, Graph, Value

Cause: TypeAlias = tuple[str, str]
"""The value whose mask is lost, and what the attention that takes it away writes."""


def readers_of_lost_masks(graph: Graph) -> dict[str, Cause]:
    """What a layer writes -> why it lacks a mask in Keras; so for the outputs of the model.

    Only layers whose results differ for it are there. An output lacks the mask that its loss reads.
    """
    calls = list(graph.calls())
    passed_on: dict[str, Cause] = {}   # What lacks a mask, since a layer before it was given none.
    readers: dict[str, Cause] = {}
    for call in calls:
        causes = {value: cause for value in call.inputs
                  if (cause := passed_on.get(value) or _cause(value, call, calls))}
        if not causes:
            continue
        cause = next(iter(causes.values()))
        if _reads_attributes(call, list(causes)):
            readers[call.writes[0]] = cause
        is_lost = isinstance(call.operation, Merge) or next(iter(call.inputs)) in causes
        if is_lost and 'mask' not in call.arguments and any(map(_has_mask, call.outputs)):
            passed_on |= dict.fromkeys(call.writes, cause)
    for output in graph.outputs:
        cause_of_output = passed_on.get(output) or _cause(output, None, calls)
        if cause_of_output:
            readers.setdefault(output, cause_of_output)
    return readers


def _cause(value: str, reader: Call | None, calls: Sequence[Call]) -> Cause | None:
    """Why a call, or a loss, that reads a value gets no mask with it; None if it gets it."""
    for attention in calls:
        if (attention is not reader and value in _taken(attention)
                and not (reader and _comes_before(reader, attention, calls))):
            return value, attention.writes[0]
    return None


def _taken(call: Call) -> list[str]:
    """The values from which a call takes the mask: none, if it is no attention."""
    operation = call.operation
    if not isinstance(operation, keras.layers.MultiHeadAttention):
        return []
    return [value for value, tensor in call.inputs.items()   # Of another dtype, it reads a copy.
            if _has_mask(tensor) and tensor.dtype == operation.compute_dtype]


def _reads_attributes(call: Call, values: Sequence[str]) -> bool:
    """Whether a call looks for the mask of one of the values at the tensor, as query_mask."""
    parameters = inspect.signature(call.operation.call).parameters
    return any(isinstance(argument, Value) and argument.name in values
               and f'{name}_mask' in parameters and f'{name}_mask' not in call.arguments
               for name, argument in call.arguments.items())


def _comes_before(call: Call, other: Call, calls: Sequence[Call]) -> bool:
    """Whether another call needs what a call writes."""
    makers = {value: one for one in calls for value in one.writes}
    seen: set[str] = set()
    stack = list(other.inputs)
    while stack:
        value = stack.pop()
        if value in call.writes:
            return True
        if value in makers and value not in seen:
            seen.add(value)
            stack += makers[value].inputs
    return False


def _has_mask(tensor: keras.KerasTensor) -> bool:
    return getattr(tensor, '_keras_mask', None) is not None
