"""Logits: those of which an output of a Keras model is the softmax or sigmoid, as Keras finds them.

Keras keeps them in an attribute of the output, or sees the operation that made it. Both are still
there behind a layer that gives back the tensor that it was given, as Identity does, and Dropout in
evaluations.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import keras
import tensorflow as tf

from lingpipe.keras_models.graph import Call, Graph, Value


@dataclasses.dataclass(frozen=True)
class Logits:
    """The logits of outputs.

    Attributes:
      read: output -> the value that holds its logits.
      written: value -> that of its logits, which the layer that writes it writes too.
      in_evaluations: the outputs whose logits Keras sees in evaluations only.
    """
    read: Mapping[str, str]
    written: Mapping[str, str]
    in_evaluations: frozenset[str]


def logits_of(graph: Graph, renamed: Mapping[str, str], outputs: Mapping[str, str]) -> Logits:
    """The logits that Keras finds.

    Args:
      graph: of the model.
      renamed: value of the graph -> its name in the network.
      outputs: output -> the value of the graph that it is.
    """
    makers = {call.writes[0]: call for call in graph.calls() if len(call.writes) == 1}
    read: dict[str, str] = {}
    written: dict[str, str] = {}
    in_evaluations: set[str] = set()
    for output, value in outputs.items():
        while value in makers and _passes(makers[value], training=False):
            if not _passes(makers[value], training=True):
                in_evaluations.add(output)
            value, = makers[value].inputs
        if value not in makers:
            continue
        call, name = makers[value], renamed[value]
        if _has_activation(call):
            read[output] = written[name] = f'{name}.logits'
        elif _is_activation(call):
            value, = call.inputs
            read[output] = renamed.get(value, value)
    return Logits(read, written, frozenset(in_evaluations))


def _has_activation(call: Call) -> bool:
    """Whether a layer ends with a softmax or sigmoid."""
    activations = (keras.activations.softmax, keras.activations.sigmoid)
    return getattr(call.operation, 'activation', None) in activations


def _is_activation(call: Call) -> bool:
    """Whether a layer or operation is a softmax or sigmoid."""
    axis = getattr(call.operation, 'axis', -1)
    has_one_axis = not isinstance(axis, (list, tuple)) or len(axis) == 1
    is_keras_own = type(call.operation).__module__.startswith('keras.')
    is_bare = is_keras_own and type(call.operation).__name__ in ('Softmax', 'Sigmoid')
    return is_bare and has_one_axis and len(call.inputs) == 1


def _passes(call: Call, training: bool) -> bool:
    """Whether a layer or operation without weights gives back the tensor that it is given."""
    arguments = list(call.arguments.values())
    if len(arguments) != 1 or not isinstance(arguments[0], Value):
        return False
    tensor, = call.inputs.values()
    output = call.outputs[0]
    is_alike = (tensor.shape, tensor.dtype) == (output.shape, output.dtype)
    if not is_alike or getattr(call.operation, 'weights', []):
        return False
    named = {'training': training} if isinstance(call.operation, keras.layers.Layer) else {}
    with tf.Graph().as_default(), keras.StatelessScope(collect_losses=True):
        placeholder = tf.compat.v1.placeholder(tensor.dtype, tensor.shape)
        try:
            return call.operation(placeholder, **named) is placeholder
        except Exception:   # A layer is anyone's code, and may want numbers.
            return False
