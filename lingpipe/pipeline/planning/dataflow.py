"""Dataflow: which layer makes each named value, which layers read it, and which carry gradients.

Names may be written many times (most layers write 'x'). Here every writing gets an identity of its
own, a Value, so that a cell knows exactly what it must be sent and from where. All of it is known
before anything is traced.
"""
from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import tensorflow as tf

from lingpipe.layers import nested
from lingpipe.layers.base import Layer
from lingpipe.layers.cost import Cost
from lingpipe.layers.masks import after
from lingpipe.layers.nested import Nested
from lingpipe.layers.sequential import Sequential, arguments, check_paths
from lingpipe.layers.weight import Weight
from lingpipe.pricing import Residuals, gradient_rows, price, residuals_of_layer
from lingpipe.process.error_text import blaming, sentence, symbolic_remedy

BATCH = -1  # The maker of the values of the mini-batch.


@dataclasses.dataclass(frozen=True, eq=False)
class Value:
    """One writing of a name. Two of them are equal only if they are the same object.

    Attributes:
      name: as layers call it.
      maker: index of the element that writes it, or BATCH.
      spec: nested tf.TensorSpec for one micro-batch.
      needs_gradient: whether a trainable weight lies before it.
      readers: indices of the elements that read it, ascending.
      follows_frozen: whether a frozen matrix lies before it.
    """
    name: str
    maker: int
    spec: Nested
    needs_gradient: bool
    readers: tuple[int, ...] = ()
    follows_frozen: bool = False

    def __repr__(self) -> str:
        return f'{self.name}@{self.maker}'

    @property
    def specs(self) -> list[tf.TensorSpec]:
        """The leaves of spec."""
        return nested.leaves(self.spec)

    @property
    def carries_gradient(self) -> list[bool]:
        """For every leaf, whether it has a gradient.

        It has one if it is floating or complex and a trainable weight lies before it.
        """
        return [self.needs_gradient and (spec.dtype.is_floating or spec.dtype.is_complex)
                for spec in self.specs]

    @property
    def num_bytes(self) -> int:
        """Bytes of one micro-batch of it."""
        return sum(self.leaf_bytes)

    @functools.cached_property
    def leaf_bytes(self) -> list[int]:
        """Bytes of one micro-batch of every leaf."""
        return [(spec.shape.num_elements() or 0) * spec.dtype.size for spec in self.specs]


@dataclasses.dataclass(frozen=True, eq=False)
class Element:
    """A layer of the network; a partition may separate it from its neighbours of other units.

    Attributes:
      index: its place in the sequence.
      layer: the layer.
      reads: argument of fprop -> Value.
      writes: name -> Value.
      cost: of one micro-batch.
      trained: its weights that gradients update (frozen ones left out), shared ones included.
      gradient_rows: path of a weight of `trained` -> the rows of its gradient in a mini-batch, if
        these are kept for the optimizer (Layer.keeps_gradient_rows).
      has_backward: whether a gradient is asked of it at all.
      unit: which of Sequential.units it belongs to, counted in order; a partition does not cut
        inside one.
    """
    index: int
    layer: Layer
    reads: Mapping[str, Value]
    writes: Mapping[str, Value]
    cost: Cost
    trained: tuple[Weight, ...]
    gradient_rows: Mapping[str, int]
    has_backward: bool
    unit: int

    @functools.cached_property
    def gradient_bytes(self) -> int:
        """Bytes of the gradients of a mini-batch; a row has an index of 8 bytes."""
        total = 0
        for weight in self.trained:
            number_bytes = max(4, weight.dtype.size)
            if weight.path in self.gradient_rows:
                row_bytes = number_bytes * weight.size // weight.shape[0] + 8
                total += self.gradient_rows[weight.path] * row_bytes
            else:
                total += number_bytes * weight.size
        return total


def wire(network: Sequential, batch_spec: Mapping[str, Nested],
         is_frozen: Callable[[str], bool] = lambda path: False,
         only: Collection[str] | None = None, num_parts: int = 1) -> tuple[Element, ...]:
    """Returns the elements of a network, with the values that they read and write.

    Args:
      network: the layers.
      batch_spec: name -> nested tf.TensorSpec of one micro-batch.
      is_frozen: whether the weight of a path is kept as it is.
      only: the paths of the layers to wire, as if there were no others; None: all of them.
      num_parts: how many micro-batches the replicas split a mini-batch into.

    Raises:
      ValueError: a layer reads what nobody writes, or shares a weight that does not exist or has
        another shape, or two have one path.
    """
    check_paths(network)
    _check_shared_names(network)
    weights_by_path = {weight.path: weight for weight in network.weights()}

    def is_trained(weight: Weight) -> bool:
        owned = owner(weight, weights_by_path)
        return owned.is_trainable and not is_frozen(owned.path)

    values = {name: Value(name, BATCH, spec, needs_gradient=False)
              for name, spec in batch_spec.items()}
    numbered = [(unit, layer) for unit, layers in enumerate(network.units()) for layer in layers
                if only is None or layer.path in only]
    elements = []
    for index, (unit, layer) in enumerate(numbered):
        reads = arguments(layer, values)
        _refuse_text(layer, reads)
        trained = tuple(weight for weight in layer.weights() if is_trained(weight))
        cost = _price(layer, reads)

        needs_gradient = bool(trained) or any(value.needs_gradient for value in reads.values())
        follows_frozen = has_frozen(layer, trained) or any(
            value.follows_frozen for value in reads.values())
        writes = {name: Value(name, index, spec, needs_gradient, follows_frozen=follows_frozen)
                  for name, spec in layer.written(cost.outputs).items()}
        elements.append(Element(index, layer, reads, writes, cost, trained, {}, needs_gradient,
                                unit))
        values = after(layer, layer.reads(), values, writes)
    return tuple(dataclasses.replace(element, gradient_rows=_gradient_rows(element, num_parts))
                 for element in _with_readers(elements))


def has_frozen(layer: Layer, trained: Sequence[Weight]) -> bool:
    """Whether a matrix is frozen. Most vectors that do not train are moving averages."""
    paths = {weight.path for weight in trained}
    return any(len(weight.shape) > 1 and weight.path not in paths for weight in layer.weights())


def num_examples(elements: Sequence[Element]) -> int:
    """How many examples a micro-batch has."""
    first_value = next(iter(elements[0].reads.values()))
    return int(first_value.specs[0].shape[0])


def _with_readers(elements: Sequence[Element]) -> tuple[Element, ...]:
    """The same elements, in which every value knows its readers."""
    readers: dict[Value, list[int]] = {}
    for element in elements:
        for value in element.writes.values():
            readers.setdefault(value, [])
        for value in dict.fromkeys(element.reads.values()):
            readers.setdefault(value, []).append(element.index)
    complete = {value: dataclasses.replace(value, readers=tuple(indices))
                for value, indices in readers.items()}

    def completed(values: Mapping[str, Value]) -> dict[str, Value]:
        return {name: complete[value] for name, value in values.items()}

    return tuple(dataclasses.replace(element, reads=completed(element.reads),
                                     writes=completed(element.writes)) for element in elements)


def _check_shared_names(network: Sequential) -> None:
    """Raises ValueError if a layer is told to share a weight that it does not have."""
    for layer in network.layers():
        for name in layer.params.share:
            if name not in layer.own_weights:
                raise ValueError(
                    f'{layer.path}: share names the weight {name!r}, but {type(layer).__name__} '
                    f'has {", ".join(layer.own_weights) or "none of its own"}; correct the name '
                    'in Params.share.')


def _price(layer: Layer, reads: Mapping[str, Value]) -> Cost:
    try:
        return price(layer, **{argument: value.spec for argument, value in reads.items()})
    except Exception as error:   # A layer is anyone's code.
        specs = ', '.join(
            f'{argument}{"" if value.name == argument else f" = {value.name}"}: '
            f'{nested.map_leaves(lambda spec: (spec.dtype.name, tuple(spec.shape)), value.spec)}'
            for argument, value in reads.items())
        raise ValueError(f'{sentence(error)} (while pricing {layer.path}{specs and f" for {specs}"}'
                         f'{symbolic_remedy(error)})') from error


def check_gradient_rows(elements: Sequence[Element], accumulate: int) -> None:
    """Raises ValueError if rows of gradients would be kept that Keras adds up."""
    path = next((path for element in elements for path in element.gradient_rows), None)
    if path and accumulate > 1:
        raise ValueError(f'the gradients of the rows of {path} are kept apart, but the learner '
                         f'accumulates {accumulate} mini-batches, whose gradients Keras adds up; '
                         'set keeps_gradient_rows=False of the layer.')


def _gradient_rows(element: Element, num_parts: int) -> dict[str, int]:
    if not element.layer.keeps_gradient_rows or not element.trained:
        return {}
    specs = {argument: value.spec for argument, value in element.reads.items()}
    are_read = [name for name, value in element.writes.items() if value.readers]
    rows = gradient_rows(element.layer, specs, [weight.path for weight in element.trained],
                         are_read or list(element.writes))
    return {path: num_parts * num_rows for path, num_rows in rows.items()}


def _refuse_text(layer: Layer, reads: Mapping[str, Value]) -> None:
    """Raises ValueError if the layer computes with numbers and reads strings."""
    for argument, value in reads.items():
        if not layer.takes_text and any(spec.dtype == tf.string for spec in value.specs):
            raise ValueError(
                f'{layer.path} reads {value.name!r} (its argument {argument!r}), which is of '
                'strings, but computes with numbers; make numbers of them in the input (load, '
                'decode or preprocess), or, if the layer can read strings, set takes_text = True '
                f'in {type(layer).__name__}.')


def owner(weight: Weight, by_path: Mapping[str, Weight]) -> Weight:
    """The weight itself, or the one it shares."""
    if weight.shared_with is None:
        return weight
    if weight.shared_with not in by_path:
        raise ValueError(f'{weight.path} shares {weight.shared_with!r}, which is no weight of this '
                         f'network; there are {", ".join(sorted(by_path)[:20])}.')

    other = by_path[weight.shared_with]
    if other.shape != weight.shape:
        raise ValueError(
            f'{weight.path} of shape {weight.shape} shares {other.path} of shape {other.shape}; '
            'shared weights must have one shape: set transpose_w, or make the dimensions equal.')
    if other.dtype != weight.dtype:
        raise ValueError(
            f'{weight.path} of {weight.dtype.name} shares {other.path} of {other.dtype.name}; '
            'shared weights must have one dtype.')
    if other.shared_with is not None:
        raise ValueError(f'{weight.path} shares {other.path}, which itself shares '
                         f'{other.shared_with}; share that one.')
    return other


# Lines of a layer's Params that say what it is called and connected to, and not what it does.
_OF_WIRING = re.compile(r'(name|reads|writes|share)\b')


@dataclasses.dataclass(frozen=True)
class Kind:
    """What decides what a layer keeps for its backward. It has nothing of the layer's place.

    Attributes:
      element: the first layer of the kind.
    """
    layer_class: type[Layer]
    params: str
    writes: str | tuple[str, ...]
    weights: tuple[Any, ...]
    inputs: tuple[Any, ...]
    trained: tuple[str, ...]
    differentiated: tuple[tuple[bool, ...], ...]
    asked: tuple[tuple[bool, ...], ...]
    element: Element = dataclasses.field(compare=False)


def residuals_of(elements: Sequence[Element]) -> list[Residuals]:
    """Finds what the backward of each layer takes over from its forward.

    Layers of one kind are traced once in the life of the process.
    """
    residuals_of_elements: list[Residuals] = []
    leaves_with_gradient: set[tuple[Value, int]] = set()   # from the layers behind
    for element in reversed(elements):
        residuals = _residuals_of_kind(_kind_of(element, leaves_with_gradient))
        reads = list(element.reads.values())
        leaves_with_gradient |= {(reads[n], i) for n, i in residuals.gradients}
        residuals_of_elements.append(residuals)
    return residuals_of_elements[::-1]


def signature(element: Element) -> Kind:
    """A key that is the same for layers that compute the same function with other weights."""
    return dataclasses.replace(_kind_of(element, set()), asked=())


def _kind_of(element: Element, leaves_with_gradient: set[tuple[Value, int]]) -> Kind:
    """The kind of a layer, given the leaves for which a later layer has a gradient."""
    layer = element.layer
    lines = [line for line in layer.params.to_text().splitlines() if not _OF_WIRING.match(line)]
    writes = layer.params.writes
    return Kind(
        layer_class=type(layer),
        params='\n'.join(lines),
        writes='' if isinstance(writes, str) else tuple(writes),
        weights=tuple((weight.path.removeprefix(layer.path), weight.shape, weight.dtype)
                      for weight in layer.weights()),
        inputs=tuple((argument, *nested.flatten(value.spec))
                     for argument, value in element.reads.items()),
        trained=tuple(weight.path.removeprefix(layer.path) for weight in element.trained),
        differentiated=tuple(tuple(value.carries_gradient) for value in element.reads.values()),
        asked=tuple(tuple((value, i) in leaves_with_gradient for i in range(len(value.leaf_bytes)))
                    for value in element.writes.values()),
        element=element)


@functools.lru_cache(maxsize=10_000)
def _residuals_of_kind(kind: Kind) -> Residuals:
    element = kind.element
    with blaming(element.layer.path):
        return residuals_of_layer(
            element.layer,
            inputs={argument: value.spec for argument, value in element.reads.items()},
            trained=[weight.path for weight in element.trained],
            differentiated=lambda leaf: kind.differentiated[leaf[0]][leaf[1]],
            asked=lambda leaf: kind.asked[leaf[0]][leaf[1]])
