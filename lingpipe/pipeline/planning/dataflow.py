"""Dataflow: which layer makes each named value, which layers read it, and which values carry gradients.

Names may be written many times (most layers write 'x'); here every writing gets an identity of its own, a Value, so
that a cell knows exactly what it must be sent and from where. All of it is known before anything is traced.
"""
from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from lingpipe.layers import nested
from lingpipe.layers.base import Layer, Weight
from lingpipe.layers.cost import Cost
from lingpipe.layers.masks import after
from lingpipe.layers.sequential import Sequential, arguments
from lingpipe.pricing import Residuals, price, residuals_of_layer
from lingpipe.process.error_text import blaming, sentence

BATCH = -1  # The maker of the values of the mini-batch.


@dataclasses.dataclass(eq=False)
class Value:
    """One writing of a name.

    Attributes:
      name: as layers call it.
      maker: index of the element that writes it, or BATCH.
      spec: nested tf.TensorSpec for one micro-batch.
      needs_gradient: whether a trainable weight lies before it.
      readers: indices of the elements that read it, ascending.
    """
    name: str
    maker: int
    spec: Any
    needs_gradient: bool
    readers: list[int] = dataclasses.field(default_factory=list)

    def __repr__(self) -> str:
        return f'{self.name}@{self.maker}'

    @property
    def specs(self) -> list[tf.TensorSpec]:
        """The leaves of spec."""
        return nested.leaves(self.spec)

    @property
    def carries_gradient(self) -> list[bool]:
        """For every leaf, whether it carries a gradient: floating or complex, and a trainable weight before it."""
        return [self.needs_gradient and (spec.dtype.is_floating or spec.dtype.is_complex) for spec in self.specs]

    @property
    def num_bytes(self) -> int:
        """Bytes of one micro-batch of it."""
        return sum(self.leaf_bytes)

    @functools.cached_property
    def leaf_bytes(self) -> list[int]:
        """Bytes of one micro-batch of every leaf."""
        return [(spec.shape.num_elements() or 0) * spec.dtype.size for spec in self.specs]


@dataclasses.dataclass(eq=False)
class Element:
    """A layer of the network; a partition may separate it from its neighbours of other units.

    Attributes:
      index: its place in the sequence.
      layer: the layer.
      reads: argument of fprop -> Value.
      writes: name -> Value.
      cost: of one micro-batch.
      trained: its weights that gradients update (frozen ones left out), shared ones included.
      has_backward: whether a gradient is asked of it at all.
      unit: which of Sequential.units it belongs to, counted in order; a partition does not cut inside one.
    """
    index: int
    layer: Layer
    reads: dict[str, Value]
    writes: dict[str, Value]
    cost: Cost
    trained: list[Weight]
    has_backward: bool
    unit: int


# Lines of a layer's Params that say what it is called and connected to, and not what it does.
_OF_WIRING = re.compile(r'(name|reads|writes|share)\b')


@dataclasses.dataclass(frozen=True)
class _Kind:
    """What decides what a layer keeps for its backward."""
    layer_class: type[Layer]
    params: str
    writes: str | tuple[str, ...]
    weights: tuple[Any, ...]
    inputs: tuple[Any, ...]
    trained: tuple[str, ...]
    differentiated: tuple[tuple[bool, ...], ...]
    asked: tuple[tuple[bool, ...], ...]
    element: Element = dataclasses.field(compare=False)   # the first one


def residuals_of(elements: Sequence[Element]) -> list[Residuals]:
    """What the backward of each layer takes over from its forward. Layers of one kind are traced once, in the life of the process."""
    found: list[Residuals] = []
    given: set[tuple[Value, int]] = set()   # the leaves for which a later layer has a gradient
    for element in reversed(elements):
        layer, reads = element.layer, list(element.reads.values())
        lines = [line for line in layer.params.to_text().splitlines() if not _OF_WIRING.match(line)]
        writes = layer.params.writes
        residuals = _residuals_of_kind(_Kind(
            type(layer), '\n'.join(lines), '' if isinstance(writes, str) else tuple(writes),
            tuple((w.path.removeprefix(layer.path), w.shape, w.dtype) for w in layer.weights()),
            tuple((argument, *nested.flatten(value.spec)) for argument, value in element.reads.items()),
            tuple(w.path.removeprefix(layer.path) for w in element.trained),
            tuple(tuple(value.carries_gradient) for value in reads),
            tuple(tuple((value, i) in given for i in range(len(value.leaf_bytes))) for value in element.writes.values()),
            element))
        given |= {(reads[n], i) for n, i in residuals.gradients}
        found.append(residuals)
    return found[::-1]


@functools.lru_cache(maxsize=10_000)
def _residuals_of_kind(kind: _Kind) -> Residuals:
    element = kind.element
    with blaming(element.layer.path):
        return residuals_of_layer(element.layer, {argument: value.spec for argument, value in element.reads.items()},
                                  [w.path for w in element.trained], lambda leaf: kind.differentiated[leaf[0]][leaf[1]],
                                  lambda leaf: kind.asked[leaf[0]][leaf[1]])


def wire(network: Sequential, batch_spec: dict[str, Any], is_frozen: Callable[[str], bool] = lambda path: False) -> list[Element]:
    """The elements of a network, wired.

    Args:
      network: the layers.
      batch_spec: name -> nested tf.TensorSpec of one micro-batch.
      is_frozen: whether the weight of a path is kept as it is.

    Raises:
      ValueError: a layer reads what nobody writes, or shares a weight that does not exist or has another shape.
    """
    values = {name: Value(name, BATCH, spec, needs_gradient=False) for name, spec in batch_spec.items()}
    by_path = {weight.path: weight for weight in network.weights()}
    elements = []
    for layer in network.layers():
        for name in layer.params.share:
            if name not in layer.own_weights:
                raise ValueError(f'{layer.path}: share names the weight {name!r}, but {type(layer).__name__} has '
                                 f'{", ".join(layer.own_weights) or "none of its own"}; correct the name in Params.share.')
    numbered = [(unit, layer) for unit, layers in enumerate(network.units()) for layer in layers]
    for index, (unit, layer) in enumerate(numbered):
        reads = arguments(layer, values)
        _refuse_text(layer, reads)
        trained = [w for w in layer.weights() if owner(w, by_path).is_trainable and not is_frozen(owner(w, by_path).path)]
        try:
            cost = price(layer, **{argument: value.spec for argument, value in reads.items()})
        except Exception as e:   # A layer is anyone's code.
            given = ', '.join(f'{a}: {nested.map_leaves(lambda s: (s.dtype.name, tuple(s.shape)), v.spec)}' for a, v in reads.items())
            raise ValueError(f'{sentence(e)} (while pricing {layer.path} for {given})') from e
        needs_gradient = bool(trained) or any(value.needs_gradient for value in reads.values())
        for value in set(reads.values()):
            value.readers.append(index)
        writes = {name: Value(name, index, spec, needs_gradient) for name, spec in layer.written(cost.outputs).items()}
        values = after(layer, layer.reads(), values, writes)
        elements.append(Element(index, layer, reads, writes, cost, trained, needs_gradient, unit))
    return elements


def _refuse_text(layer: Layer, reads: dict[str, Value]) -> None:
    for argument, value in reads.items():
        if not layer.takes_text and any(spec.dtype == tf.string for spec in value.specs):
            raise ValueError(f'{layer.path} reads {value.name!r} (its argument {argument!r}), which is of strings, but computes with '
                             'numbers; make numbers of them in the input (load, decode or preprocess), or, if the layer can read '
                             f'strings, set takes_text = True in {type(layer).__name__}.')


def owner(weight: Weight, by_path: dict[str, Weight]) -> Weight:
    """The weight itself, or the one it shares."""
    if weight.shared_with is None:
        return weight
    if weight.shared_with not in by_path:
        raise ValueError(f'{weight.path} shares {weight.shared_with!r}, which is no weight of this network; there are '
                         f'{", ".join(sorted(by_path)[:20])}.')
    other = by_path[weight.shared_with]
    if other.shape != weight.shape:
        raise ValueError(f'{weight.path} of shape {weight.shape} shares {other.path} of shape {other.shape}; shared weights must '
                         f'have one shape: set transpose_w, or make the dimensions equal.')
    if other.dtype != weight.dtype:
        raise ValueError(f'{weight.path} of {weight.dtype.name} shares {other.path} of {other.dtype.name}; shared weights must '
                         f'have one dtype.')
    if other.shared_with is not None:
        raise ValueError(f'{weight.path} shares {other.path}, which itself shares {other.shared_with}; share that one.')
    return other
