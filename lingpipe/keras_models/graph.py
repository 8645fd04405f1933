"""The graph of a Keras model: the calls of its layers, in an order in which they can run.

A call is a node of Keras' graph. A layer that is called twice has two, and so a nested model that
is called twice has its calls twice. The order is that in which the outputs ask for what they need,
so that a branch is finished before the next one begins, and few values wait at a cut.

Keras has no public name for the node that made a tensor.
"""
from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import keras
from keras.src.models.functional import Functional

from lingpipe.keras_models.names import differing, stable_names
from lingpipe.wording.values import show

Tensor: TypeAlias = tuple[keras.Operation, int, int]
"""A symbolic tensor: the operation that made it, the number of the call, and of the output."""


@dataclasses.dataclass(frozen=True)
class Value:
    """A name in place of a tensor, among the arguments of a call."""
    name: str


@dataclasses.dataclass(frozen=True)
class Call:
    """One call of one layer or operation.

    Attributes:
      name: of the layer, and for its second call and later ones another one.
      operation: the Keras layer or operation.
      arguments: name of an argument of call -> a nested structure, with Value for tensors.
      inputs: value -> the symbolic tensor that it is for the call.
      writes: the names of the outputs.
      outputs: the symbolic outputs.
    """
    name: str
    operation: keras.Operation
    arguments: Mapping[str, Any]
    inputs: Mapping[str, keras.KerasTensor]
    writes: tuple[str, ...]
    outputs: tuple[keras.KerasTensor, ...]


@dataclasses.dataclass(frozen=True)
class Graph:
    """The calls of a model.

    Attributes:
      name: of the model, among those that it is nested in.
      members: its calls and its nested models, in an order in which they can run.
      outputs: the values that are its outputs.
    """
    name: str
    members: tuple[Call | Graph, ...]
    outputs: tuple[str, ...]

    def calls(self) -> Iterator[Call]:
        """All calls, those of nested models among them."""
        for member in self.members:
            if isinstance(member, Graph):
                yield from member.calls()
            else:
                yield member


def functional(model: keras.Model) -> keras.Model | None:
    """The model whose graph is that of a Keras model; None if it has no known graph."""
    if isinstance(model, keras.Sequential):
        has_own_call = type(model).call is not keras.Sequential.call
        model = model._functional if model.built and not has_own_call else None
    is_functional = isinstance(model, Functional) and type(model).call is Functional.call
    return model if is_functional else None


def graph_of(model: keras.Model, name: str, inputs: Sequence[str], prefix: str = '') -> Graph:
    """The graph of a model for which `functional` gives one.

    Args:
      model: it.
      name: of the model.
      inputs: the names of the values that are its inputs, in its order.
      prefix: of the names of values that its layers write.
    """
    inner = functional(model)
    assert inner is not None
    _check_frozen(model)
    values: dict[Tensor, str] = {_tensor(tensor): given
                                 for tensor, given in zip(inner.inputs, inputs, strict=True)}
    nodes = _in_order(inner.outputs, set(values))
    operations: list[keras.Operation] = []
    for node in nodes:
        if not any(node.operation is known for known in operations):
            operations.append(node.operation)
    names = stable_names(operations)

    members: list[Call | Graph] = []
    used: list[str] = []
    for node in nodes:
        own = names[next(i for i, one in enumerate(operations) if one is node.operation)]
        used.append(differing(own, used))
        member = _member(node, used[-1], values, prefix)
        members.append(member)
        written = member.outputs if isinstance(member, Graph) else member.writes
        values |= {_tensor(tensor): value
                   for tensor, value in zip(node.outputs, written, strict=True)}
    return Graph(name, tuple(members), tuple(values[_tensor(one)] for one in inner.outputs))


def _member(node: Any, name: str, values: Mapping[Tensor, str], prefix: str) -> Call | Graph:
    """What a node is: a call, or the graph of a nested model."""
    args, kwargs = node.arguments.convert(
        lambda one: Value(values[_tensor(one)]) if isinstance(one, keras.KerasTensor) else one)
    if functional(node.operation) is not None:
        given = _given_to_model(node.operation, _structure(name, node.operation, args, kwargs))
        return graph_of(node.operation, name, [value.name for value in given], f'{prefix}{name}/')

    bound = _bound(node.operation, args, kwargs)
    inputs = {values[_tensor(tensor)]: tensor for tensor in node.arguments.keras_tensors}
    path = differing(f'{prefix}{name}', list(values.values()))   # An input may be called so.
    several = len(node.outputs) > 1
    writes = tuple(f'{path}.{i}' if several else path for i in range(len(node.outputs)))
    return Call(name, node.operation, bound, inputs, writes, tuple(node.outputs))


def _bound(operation: keras.Operation, args: Sequence[Any],
           kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name, without `training`.

    Keras gives every layer of a model the `training` of the whole call, whatever the layer was
    given when the model was made; see Functional.call.
    """
    signature = inspect.signature(operation.call)
    arguments = dict(signature.bind(*args, **kwargs).arguments)
    arguments.pop('training', None)
    return {name: value for name, value in arguments.items()
            if not (name == 'mask' and value is None)}


def _structure(name: str, model: keras.Model, args: Sequence[Any],
               kwargs: Mapping[str, Any]) -> Any:
    """The tensors that a nested model is called with.

    Raises:
      ValueError: it is given more than these.
    """
    arguments = inspect.signature(model.call).bind(*args, **kwargs).arguments
    structure, *_ = arguments.values()
    others = [key for key, value in list(arguments.items())[1:]
              if key != 'training' and any(part is not None for part in keras.tree.flatten(value))]
    if others:
        whose = ', as Keras does by itself where its input has one' if others[0] == 'mask' else ''
        remedy = ('make the mask within it, as by an Embedding' if others[0] == 'mask'
                  else 'leave it out')
        raise ValueError(f'the nested model {name!r} is called with {others[0]}{whose}, which its '
                         f'layers would not get here; {remedy}, or call its layers one by one.')
    return structure


def _check_frozen(model: keras.Model) -> None:
    """Raises ValueError for a frozen model that has a layer which is not frozen."""
    trained = [weight.path for weight in model.weights if weight.trainable]
    if not model.trainable and trained:
        raise ValueError(f'the Keras model {model.name!r} has trainable=False, but its weight '
                         f'{trained[0]} is not frozen, and Keras trains neither; set trainable of '
                         'the model, and then of its layers, as you mean it.')


def keys_of(structure: Mapping[str, Any], tensors: Sequence[keras.KerasTensor]) -> list[str]:
    """The key of each of the tensors of a model in the dict that it takes or gives.

    Raises:
      ValueError: the dict holds more than tensors.
    """
    left = dict(structure)
    keys: list[str] = []
    for tensor in tensors:
        key = next((key for key, value in left.items() if value is tensor), None)
        if key is None:
            raise ValueError(f'the Keras model has the inputs or outputs {show(dict(structure))}; '
                             'give a list, or a dict with one tensor for each name.')
        del left[key]
        keys.append(key)
    return keys


def _given_to_model(model: keras.Model, structure: Any) -> list[Value]:
    """What a nested model is given, in the order of its inputs."""
    inner = functional(model)
    assert inner is not None
    if isinstance(structure, dict):
        names = (keys_of(inner.input, inner.inputs) if isinstance(inner.input, dict)
                 else [tensor.name for tensor in inner.inputs])
        if set(names) <= set(structure):
            return [structure[name] for name in names]
    return list(keras.tree.flatten(structure))


def _in_order(outputs: Sequence[Any], known: set[Tensor]) -> list[Any]:
    """The nodes that make the outputs from known tensors, each after those that it needs."""
    ordered: list[Any] = []
    done: set[tuple[Any, int]] = set()
    stack = [(tensor, False) for tensor in reversed(outputs)]
    while stack:
        tensor, is_ready = stack.pop()
        operation, call, _ = _tensor(tensor)
        if _tensor(tensor) in known or (operation, call) in done:
            continue
        node = operation._inbound_nodes[call]
        if is_ready:
            done.add((operation, call))
            ordered.append(node)
            continue
        stack.append((tensor, True))
        stack += [(one, False) for one in reversed(node.arguments.keras_tensors)]
    return ordered


def _tensor(tensor: Any) -> Tensor:
    history = tensor._keras_history
    return history.operation, history.node_index, history.tensor_index
