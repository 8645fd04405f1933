"""Sequential: layers in order, wired by named values; the network that a pipeline partitions is one.

Every layer reads values by name and writes values by name; a name written again stands for the newer value from there
on. The inputs of the network (the mini-batch) are values too. So a skip connection is a value read late, and nothing else:

    layers            reads             writes
    conv              x=image           x
    block1            x                 x, skip
    block2            x                 x
    merge             x, skip           x          the pipeline sends skip straight from block1's device to merge's
    loss              x, label, weight  (nothing)  label and weight go straight from the mini-batch to the last cell

A Sequential inside a Sequential shares its parent's names, and the pipeline may cut it anywhere, unless it `is_unit`. Layers are traced
one by one all the same, so that where a network may be cut changes no bit of a result and no key of a checkpoint.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lingpipe.hyperparams import REQUIRED, field
from lingpipe.layers import cost as cost_lib
from lingpipe.layers.base import Layer
from lingpipe.layers.cost import Cost
from lingpipe.layers.masks import after, is_mask_of_any, mask_of, taken
from lingpipe.layers.nested import NestedMap
from lingpipe.pricing import price


class Sequential(Layer):
    """Layers in order; fprop takes the values that are read before they are written and returns all that are written."""

    class Params(Layer.Params):
        """The layers, which may be Sequentials themselves."""
        layers: tuple[Layer.Params, ...] = field(REQUIRED, 'The layers, in order; names must differ (made when empty).')
        is_unit: bool = field(False, 'Whether a pipeline must not cut between its layers. The whole network may always be cut.')

    def __init__(self, params: Any, path: str = ''):
        super().__init__(params, path)
        for i, layer in enumerate(self.params.layers):
            name = layer.name or f'{type(layer).owner.__name__.lower()}_{i}'
            if name in self.children:
                raise ValueError(f'{self.path}: two layers are named {name!r}; names of a Sequential must differ, since they '
                                 f'are the keys of checkpoints: rename layers[{i}].')
            self.add_child(layer, name)

    def elements(self) -> Iterator[Layer]:
        """The layers that run one by one: nested Sequentials are opened."""
        for unit in self.units():
            yield from unit

    def units(self) -> Iterator[list[Layer]]:
        """The elements in the groups that a partition may separate: most alone, those of a Sequential that is a unit together."""
        for child in self.children.values():
            if not isinstance(child, Sequential):
                yield [child]
            elif child.params.is_unit:
                yield list(child.elements())
            else:
                yield from child.units()

    mask_rule = 'takes'

    def takes_masks(self, reads: Mapping[str, str]) -> dict[str, str]:
        """The masks of all that it reads, by their own names, as its layers need them."""
        return {mask_of(name): name for name in reads.values()}

    def reads(self) -> dict[str, str]:
        """The values that are read before one of the layers writes them, each by its own name."""
        needed: dict[str, str] = {}
        written: set[str] = set()
        for child in self.children.values():
            needed.update({name: name for name in child.reads().values() if name not in written and not is_mask_of_any(name, written)})
            written |= _written_names(child)
        return needed

    def reads_if_there(self) -> dict[str, str]:
        """The values that a layer reads if there are any, each by its own name, where none of the layers before writes them."""
        optional: dict[str, str] = {}
        written: set[str] = set()
        for child in self.children.values():
            optional.update({name: name for name in child.reads_if_there().values() if name not in written})
            written |= _written_names(child)
        needed = self.reads()
        return {name: name for name in optional if name not in needed}

    def written(self, result: dict[str, Any]) -> dict[str, Any]:
        """What fprop returned: it has names already."""
        return dict(result)

    def fprop(self, theta: NestedMap, ctx: Any, **values: Any) -> NestedMap:
        """All values that the layers write, by name, the last writing of each; `values` are those that `reads` names."""
        names: dict[str, None] = {}
        for name, child in self.children.items():
            new = run(child, theta[name], ctx, values)
            values = after(child, child.reads(), values, new)
            names.update(dict.fromkeys(new))
        return _named(values, names)

    def cost(self, **values: Any) -> Cost:
        """The sum of the layers; its outputs are the specs of all values they write, by name."""
        costs = []
        names: dict[str, None] = {}
        for child in self.children.values():
            cost = price(child, **arguments(child, values))
            new = child.written(cost.outputs)
            values = after(child, child.reads(), values, new)
            names.update(dict.fromkeys(new))
            costs.append(cost)
        summed = cost_lib.total(costs)
        return Cost(summed.flops, summed.num_weights, _named(values, names))


class Repeat(Sequential):
    """The same layer `times` over, each with weights of its own: layers of a Transformer, cells of an AmoebaNet."""

    class Params(Sequential.Params):
        """The layer, and how often; `layers` is made from them."""
        layers: tuple[Layer.Params, ...] = field((), 'Made from body and times; leave empty.')
        body: Layer.Params = field(REQUIRED, 'The layer to repeat.')
        times: int = field(REQUIRED, 'How often.', least=1, most=10_000)

    def __init__(self, params: Any, path: str = ''):
        p = params.copy()
        if p.layers:
            raise ValueError('Repeat.layers is made from body and times; leave it empty.')
        p.layers = tuple(p.body.copy().set(name=f'{p.body.name or "layer"}_{i}') for i in range(p.times))
        super().__init__(p, path)


def arguments(layer: Layer, values: dict[str, Any]) -> dict[str, Any]:
    """What the layer's fprop takes, from the named values; masks are given to layers that take them (masks.py).

    Raises:
      ValueError: a value is not there, or the layer would leave a mask out.
    """
    reads = layer.reads()
    for argument, name in reads.items():
        if name not in values:
            raise ValueError(f'{layer.path} reads {name!r} (its argument {argument!r}), which no layer before it writes and the '
                             f'mini-batch does not have; there are: {", ".join(sorted(values)) or "none"}.')
    optional = {argument: name for argument, name in layer.reads_if_there().items() if name in values}
    found = {**reads, **optional}
    return {argument: values[name] for argument, name in {**found, **taken(layer, found, values)}.items()}


def run(layer: Layer, theta: NestedMap, ctx: Any, values: dict[str, Any]) -> dict[str, Any]:
    """Runs one layer on named values and returns the values it writes."""
    return layer.written(layer.fprop(theta, ctx, **arguments(layer, values)))


def _named(values: Mapping[str, Any], names: Iterable[str]) -> NestedMap:
    """The values of these names, with their masks."""
    return NestedMap({name: values[name] for written in names for name in (written, mask_of(written)) if name in values})


def _written_names(layer: Layer) -> set[str]:
    if isinstance(layer, Sequential):
        return set().union(*[_written_names(child) for child in layer.children.values()])
    writes = layer.params.writes
    return {writes} if isinstance(writes, str) else set(writes.values())
