"""Sequential: layers in order, wired by named values. A pipeline partitions one.

Every layer reads values by name and writes values by name. A name that is written again stands for
the newer value from there on. The inputs of the network (the mini-batch) are values too. So a skip
connection is just a value that is read late:

    layers            reads             writes
    conv              x=image           x
    block1            x                 x, skip
    block2            x                 x
    merge             x, skip           x
    loss              x, label, weight  (nothing)

The pipeline sends skip straight from block1's device to merge's, and label and weight straight from
the mini-batch to the last cell.

A Sequential inside a Sequential shares its parent's names, and the pipeline may cut it anywhere,
unless it `is_unit`. Layers are traced one by one all the same, so that where a network may be cut
changes no bit of a result and no key of a checkpoint.
"""
from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from lingpipe.hyperparams import REQUIRED, field
from lingpipe.layers import cost as cost_lib
from lingpipe.layers.base import Layer
from lingpipe.layers.context import Context
from lingpipe.layers.cost import Cost
from lingpipe.layers.masks import after, is_mask_of_any, mask_of, taken
from lingpipe.layers.nested import Nested, NestedMap
from lingpipe.pricing import price


class Sequential(Layer):
    """Layers in order.

    fprop takes the values that are read before they are written, and returns all that are written.
    """

    mask_rule = 'takes'

    class Params(Layer.Params):
        """The layers, which may be Sequentials themselves."""
        layers: tuple[Layer.Params, ...] = field(REQUIRED, 'The layers, in order; names must '
                                                           'differ (made when empty).')
        is_unit: bool = field(False, 'Whether a pipeline must not cut between its layers. The '
                                     'whole network may always be cut.')

    params: Params

    def __init__(self, params: Params, path: str = ''):
        super().__init__(params, path)
        for i, layer in enumerate(self.params.layers):
            name = self.name_of(layer, i)
            if name in self.children:
                raise ValueError(f'{self.path}: two layers are named {name!r}; names of a '
                                 'Sequential must differ, since they are the keys of checkpoints: '
                                 f'rename layers[{i}].')
            self.add_child(layer, name)

    @staticmethod
    def name_of(layer: Layer.Params, i: int) -> str:
        """The name of the layer number i."""
        return layer.name or f'{type(layer).owner.__name__.lower()}_{i}'

    def elements(self) -> Iterator[Layer]:
        """The layers that run one by one, those of nested Sequentials among them."""
        for unit in self.units():
            yield from unit

    def units(self) -> Iterator[list[Layer]]:
        """The elements in the groups that a partition may separate.

        Most elements are alone. Those of a Sequential that is a unit are together.
        """
        for child in self.children.values():
            if not isinstance(child, Sequential):
                yield [child]
            elif child.params.is_unit:
                yield list(child.elements())
            else:
                yield from child.units()

    def output_names(self) -> tuple[str, ...]:
        """The names of the values that are the network's outputs, if the network says which.

        Here it says nothing, (). A network that was made from another description of itself, which
        has outputs, overrides this. See pipeline/planning/outputs.py.
        """
        return ()

    def takes_masks(self, reads: Mapping[str, str]) -> dict[str, str]:
        """The masks of all that it reads, by their own names, as its layers need them."""
        return {mask_of(name): name for name in reads.values()}

    def reads(self) -> dict[str, str]:
        """The values that are read before one of the layers writes them, by their own names."""
        needed: dict[str, str] = {}
        written: set[str] = set()
        for child in self.children.values():
            needed |= {name: name for name in child.reads().values()
                       if name not in written and not is_mask_of_any(name, written)}
            written |= _written_names(child)
        return needed

    def reads_if_there(self) -> dict[str, str]:
        """The values that a layer reads if there are any, by their own names.

        Those that an earlier layer writes are not among them.
        """
        optional: dict[str, str] = {}
        written: set[str] = set()
        for child in self.children.values():
            optional |= {name: name for name in child.reads_if_there().values()
                         if name not in written}
            written |= _written_names(child)
        needed = self.reads()
        return {name: name for name in optional if name not in needed}

    def written(self, result: dict[str, Nested]) -> dict[str, Nested]:
        """What fprop returned, which has names already."""
        return dict(result)

    def fprop(self, theta: NestedMap, ctx: Context, **values: Nested) -> NestedMap:
        """Returns all values that the layers write, by name; the last one of each name.

        `values` are those that `reads` names.
        """
        names: dict[str, None] = {}
        for name, child in self.children.items():
            new = run(child, theta[name], ctx, values)
            values = after(child, child.reads(), values, new)
            names |= dict.fromkeys(new)
        return _named(values, names)

    def cost(self, **values: Nested) -> Cost:
        """The sum of the layers; its outputs are the specs of all values they write, by name."""
        costs = []
        names: dict[str, None] = {}
        for child in self.children.values():
            cost = price(child, **arguments(child, values))
            new = child.written(cost.outputs)
            values = after(child, child.reads(), values, new)
            names |= dict.fromkeys(new)
            costs.append(cost)
        total = cost_lib.total(costs)
        return Cost(total.flops, total.num_weights, _named(values, names))


class Repeat(Sequential):
    """The same layer `times` over, each with weights of its own: the layers of a Transformer."""

    class Params(Sequential.Params):
        """The layer, and how often; `layers` is made from them."""
        layers: tuple[Layer.Params, ...] = field((), 'Made from body and times; leave empty.')
        body: Layer.Params = field(REQUIRED, 'The layer to repeat.')
        times: int = field(REQUIRED, 'How often.', least=1, most=10_000)

    params: Params

    def __init__(self, params: Params, path: str = ''):
        p = params.copy()
        if p.layers:
            raise ValueError('Repeat.layers is made from body and times; leave it empty.')
        name = p.body.name or 'layer'
        p.layers = tuple(p.body.copy().set(name=f'{name}_{i}') for i in range(p.times))
        super().__init__(p, path)


def check_paths(network: Layer) -> None:
    """Raises ValueError if two layers or two weights below a layer have one path.

    Names with a slash can do that: a layer 'a/b' beside a Sequential 'a' that has a layer 'b'.
    """
    paths_by_kind = {'layers': [layer.path for layer in network.layers()],
                     'weights': [weight.path for weight in network.weights()]}
    for kind, paths in paths_by_kind.items():
        path, count = next(iter(collections.Counter(paths).most_common(1)), ('', 0))
        if count > 1:
            raise ValueError(f'{count} {kind} have the path {path!r}, but a path belongs to one, '
                             'since it is the key of checkpoints and of seeds; give them names '
                             'without a slash that differ.')


SequentialParams = TypeVar('SequentialParams', bound=Sequential.Params)


def with_layers(params: SequentialParams, layers: Sequence[Layer.Params]) -> SequentialParams:
    """Returns a copy of the Params of a Sequential that has the layers its other fields describe.

    Raises:
      ValueError: the Params have layers already.
    """
    if params.layers:
        raise ValueError(f'{type(params).__qualname__}.layers is made from the other fields; leave '
                         'it empty.')
    return params.copy().set(layers=tuple(layers))


def arguments(layer: Layer, values: Mapping[str, Nested]) -> dict[str, Nested]:
    """Returns the arguments of the layer's fprop, taken from the named values.

    Masks are given to layers that take them (masks.py).

    Raises:
      ValueError: a value does not exist, or the layer would ignore a mask.
    """
    reads = layer.reads()
    for argument, name in reads.items():
        if name not in values:
            raise ValueError(f'{layer.path} reads {name!r} (its argument {argument!r}), which no '
                             'layer before it writes and the mini-batch does not have; there are: '
                             f'{", ".join(sorted(values)) or "none"}.')
    optional = {argument: name for argument, name in layer.reads_if_there().items()
                if name in values}
    reads_and_optional = {**reads, **optional}
    masks = taken(layer, reads_and_optional, values)
    return {argument: values[name] for argument, name in {**reads_and_optional, **masks}.items()}


def run(layer: Layer, theta: NestedMap, ctx: Context,
        values: Mapping[str, Nested]) -> dict[str, Nested]:
    """Runs one layer on named values and returns the values it writes."""
    return layer.written(layer.fprop(theta, ctx, **arguments(layer, values)))


def _named(values: Mapping[str, Nested], names: Iterable[str]) -> NestedMap:
    """The values of these names, with their masks."""
    with_masks = [name for written in names for name in (written, mask_of(written))]
    return NestedMap({name: values[name] for name in with_masks if name in values})


def _written_names(layer: Layer) -> set[str]:
    """The names of the values that a layer writes, without masks."""
    if isinstance(layer, Sequential):
        return set().union(*[_written_names(child) for child in layer.children.values()])
    writes = layer.params.writes
    return {writes} if isinstance(writes, str) else set(writes.values())
