"""Kept tensors: which tensors a cell keeps for its backward, with `recompute=fit`.

Any set of tensors of the forward will do: the backward starts from them and repeats what lies
behind. 'none' and 'cell' are the ends of one scale, between which lie as many sets as there are
subsets of tensors. The best one spends the least time again among those whose bytes a device has.

Checkmate (arXiv 1910.02653) states this as an integer program, which also orders the ops in time
and takes minutes. PyTorch's partitioner takes a minimum cut, which minimises the bytes that are
kept but counts no time. Here it is a minimum cut too, in a graph that has both, and whose price of
a byte is found by bisection (a Lagrange multiplier). It takes milliseconds, and it is exact for
every price:

    available(t)   whether the backward has the tensor t: it is kept, or made again
    repeated(o)    whether the op o runs again

    source -> available(t)              never cut, for what the backward reads
    available(t) -> repeated(op of t)   costs the bytes of t: it is kept
    repeated(o) -> sink                 costs the time of o, and the bytes of what it makes again
    repeated(o) -> available(inputs)    never cut

A tensor that is kept takes its bytes for every live micro-batch; one that is made again takes them
once, while the backward runs. The sets that are best for a price lie on the lower hull of all
(time, bytes). Between the two of them that are next to the limit, layer after layer changes from
the smaller set to the larger as long as the bytes allow it. What remains is less than a layer.

A set is given as names, of layers and of tensors in the trace of a layer by itself. So planning,
which has no variables and traces a layer of each kind once, and the trace of the whole cell agree.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from lingpipe.pipeline.planning.dataflow import Element, Value
from lingpipe.pipeline.planning.minimum_cut import INFINITE, Arc, minimum_cut
from lingpipe.pricing import Made, Recipe, Source

# Times and bytes become integers of about this size, so that cuts are exact.
_SCALE = 1 << 40


@dataclass(frozen=True)
class KeptTensors:
    """What a cell keeps.

    Attributes:
      names: (path of a layer, name of a tensor in the layer's trace).
      held: bytes for a live micro-batch, of these tensors and of the cell's inputs that are read.
      working: bytes of what the backward makes again and then reads.
      repeat_cost: the time of that.
    """
    names: frozenset[tuple[str, str]]
    held: int
    working: int
    repeat_cost: float

    def needed_bytes(self, num_live: int) -> int:
        """The bytes of that many live micro-batches while the backward runs."""
        return num_live * self.held + self.working


@dataclass(frozen=True)
class _Tensor:
    num_bytes: int
    layer: int                  # its place in the cell; -1 for an input of the cell
    op: int = -1                # that makes it
    name: str = ''


@dataclass(frozen=True)
class _Op:
    cost: float
    inputs: tuple[int, ...]     # tensors


@dataclass(frozen=True)
class CellGraph:
    """The forward of a cell, as far as its backward could repeat it.

    Attributes:
      paths: of the layers.
      tensors, ops: in the order in which they can be made.
      needed: the tensors that the backward reads.
      cheapest_sets: (price, live micro-batches) -> the set, for those that were asked for. Graphs
        that are alike but for their paths may share it.
    """
    paths: tuple[str, ...]
    tensors: tuple[_Tensor, ...]
    ops: tuple[_Op, ...]
    needed: tuple[int, ...]
    cheapest_sets: dict[tuple[float, int], frozenset[int]] = field(
        default_factory=dict, compare=False)

    def keeping(self, kept: frozenset[int]) -> KeptTensors:
        """The outcome of keeping exactly these tensors, besides the cell's inputs."""
        if kept not in self._outcomes:
            self._outcomes[kept] = self._keeping(kept)
        return self._outcomes[kept]

    @functools.cached_property
    def _outcomes(self) -> dict[frozenset[int], KeptTensors]:
        """The outcomes of the sets that were asked for."""
        return {}

    def _keeping(self, kept: frozenset[int]) -> KeptTensors:
        held: set[int] = set()
        repeated: set[int] = set()
        seen: set[int] = set()
        to_visit = list(self.needed)
        while to_visit:
            number = to_visit.pop()
            if number in seen:
                continue
            seen.add(number)
            tensor = self.tensors[number]
            if tensor.op < 0 or number in kept:
                held.add(number)
            elif tensor.op not in repeated:
                repeated.add(tensor.op)
                to_visit.extend(self.ops[tensor.op].inputs)
        made_again = {number for number in self.needed if number not in held}
        return KeptTensors(
            names=frozenset((self.paths[self.tensors[number].layer], self.tensors[number].name)
                            for number in held if self.tensors[number].op >= 0),
            held=sum(self.tensors[number].num_bytes for number in held),
            working=sum(self.tensors[number].num_bytes for number in made_again),
            repeat_cost=sum(self.ops[op].cost for op in sorted(repeated)))

    @functools.cached_property
    def all_needed(self) -> frozenset[int]:
        """The tensors that are kept if nothing is to run again."""
        return frozenset(number for number in self.needed if self.tensors[number].op >= 0)

    def cheapest(self, byte_price: float, num_live: int) -> frozenset[int]:
        """The tensors to keep, if a byte costs so much time.

        Args:
          byte_price: in the unit of costs.
          num_live: how many micro-batches are live at once.
        """
        key = byte_price, num_live
        if key not in self.cheapest_sets:
            self.cheapest_sets[key] = self._cheapest(byte_price, num_live)
        return self.cheapest_sets[key]

    def _cheapest(self, byte_price: float, num_live: int) -> frozenset[int]:
        num_tensors, num_ops = len(self.tensors), len(self.ops)
        source, sink = num_tensors + num_ops, num_tensors + num_ops + 1
        most = sum(op.cost for op in self.ops) + byte_price * num_live * sum(
            tensor.num_bytes for tensor in self.tensors)
        unit = _SCALE / most if most else 0.0
        needed = frozenset(self.needed)

        prices = [op.cost for op in self.ops]
        arcs: list[Arc] = [(source, number, INFINITE) for number in self.needed]
        for number, tensor in enumerate(self.tensors):
            price = byte_price * tensor.num_bytes
            head = sink if tensor.op < 0 else num_tensors + tensor.op
            arcs.append((number, head, round(unit * num_live * price)))
            if tensor.op >= 0 and number in needed:
                prices[tensor.op] += price
        for number, op in enumerate(self.ops):
            arcs.append((num_tensors + number, sink, round(unit * prices[number])))
            arcs += [(num_tensors + number, tensor, INFINITE) for tensor in op.inputs]

        available = minimum_cut(sink + 1, arcs, source, sink)
        return frozenset(
            number for number, tensor in enumerate(self.tensors)
            if number in available and tensor.op >= 0 and num_tensors + tensor.op not in available)


@dataclass
class _Builder:
    """Numbers the tensors and ops of the layers of a cell."""
    tensors: list[_Tensor] = field(default_factory=list)
    ops: list[_Op] = field(default_factory=list)
    needed: dict[int, None] = field(default_factory=dict)
    root_of: dict[tuple[Value, int], int | None] = field(default_factory=dict)

    def add(self, place: int, element: Element, recipe: Recipe, forward_cost: float) -> None:
        """Adds the tensors and ops of a layer of the cell."""
        reads, writes = list(element.reads.values()), list(element.writes.values())
        number_of: dict[Source, int | None] = {}

        def number(source: Source) -> int | None:
            if isinstance(source, Made):
                return number_of[source]
            return self._input(reads[source[0]], source[1])

        for i, op in enumerate(recipe.ops):
            inputs = [number(source) for source in op.inputs]
            for j, (name, num_bytes) in enumerate(op.outputs):
                number_of[Made(i, j)] = len(self.tensors)
                self.tensors.append(_Tensor(num_bytes, place, len(self.ops), name))
            self.ops.append(_Op(op.share * forward_cost,
                                tuple(one for one in inputs if one is not None)))
        if element.has_backward:
            numbers = [number(source) for source in recipe.needed]
            self.needed.update((one, None) for one in numbers if one is not None)
        for n, value in enumerate(writes):
            for i in range(len(value.leaf_bytes)):
                source = recipe.outputs.get((n, i))
                self.root_of[value, i] = None if source is None else number(source)

    def _input(self, value: Value, leaf: int) -> int | None:
        """The number of a value's root; None if it is the same in every micro-batch."""
        if (value, leaf) not in self.root_of:
            self.root_of[value, leaf] = len(self.tensors)
            self.tensors.append(_Tensor(value.leaf_bytes[leaf], -1))
        return self.root_of[value, leaf]


def cell_graph(elements: Sequence[Element], recipes: Sequence[Recipe],
               forward_costs: Sequence[float]) -> CellGraph:
    """The graph of a cell of these layers, with what the backward can never repeat left out.

    Args:
      elements: the layers of the cell.
      recipes, forward_costs: of these layers.
    """
    builder = _Builder()
    layers = zip(elements, recipes, forward_costs, strict=True)
    for place, (element, recipe, forward_cost) in enumerate(layers):
        builder.add(place, element, recipe, forward_cost)
    graph = CellGraph(tuple(element.layer.path for element in elements), tuple(builder.tensors),
                      tuple(builder.ops), tuple(builder.needed))
    return _without_unneeded(graph)


def _without_unneeded(graph: CellGraph) -> CellGraph:
    """The same graph without tensors and ops that nothing needed depends on."""
    needed_tensors = set(graph.needed)
    needed_ops: set[int] = set()
    to_visit = list(graph.needed)
    while to_visit:
        number = to_visit.pop()
        op = graph.tensors[number].op
        if op >= 0 and op not in needed_ops:
            needed_ops.add(op)
            new = set(graph.ops[op].inputs) - needed_tensors
            needed_tensors |= new
            to_visit.extend(new)

    tensors, ops = sorted(needed_tensors), sorted(needed_ops)
    new_tensor = {number: i for i, number in enumerate(tensors)}
    new_op = {number: i for i, number in enumerate(ops)}
    return CellGraph(
        graph.paths,
        tuple(_Tensor(tensor.num_bytes, tensor.layer, new_op.get(tensor.op, -1), tensor.name)
              for tensor in map(graph.tensors.__getitem__, tensors)),
        tuple(_Op(graph.ops[op].cost, tuple(new_tensor[one] for one in graph.ops[op].inputs))
              for op in ops),
        tuple(new_tensor[one] for one in graph.needed))


def fewest_repeats(graphs: Sequence[CellGraph], num_live: Sequence[int],
                   fits: Callable[[Sequence[KeptTensors]], bool]) -> list[KeptTensors] | None:
    """What each of some cells keeps so that they fit and spend the least time again.

    Args:
      graphs: of the cells, which share a device or are alone.
      num_live: how many micro-batches of each are live at once.
      fits: whether the device has the bytes for what the cells keep.

    Returns:
      What each cell keeps; None if they do not fit however little they keep.
    """
    chosen = _Choice(graphs, num_live)
    largest = [graph.all_needed for graph in graphs]
    if fits(chosen.outcome(largest)):
        return chosen.outcome(largest)
    smallest = chosen.smallest()
    if not fits(chosen.outcome(smallest)):
        return None

    while True:
        price = chosen.price_between(largest, smallest)
        between = chosen.cheapest(price) if price > 0 else smallest
        if chosen.cost(between, price) >= chosen.cost(smallest, price) * (1 - 1e-9):
            break
        if fits(chosen.outcome(between)):
            smallest = between
        else:
            largest = between
    return chosen.outcome(chosen.filled(smallest, largest, fits))


@dataclass(frozen=True)
class _Choice:
    """Sets of tensors of some cells."""
    graphs: Sequence[CellGraph]
    num_live: Sequence[int]

    def outcome(self, sets: Sequence[frozenset[int]]) -> list[KeptTensors]:
        return [graph.keeping(kept) for graph, kept in zip(self.graphs, sets, strict=True)]

    def cheapest(self, byte_price: float) -> list[frozenset[int]]:
        return [graph.cheapest(byte_price, num_live)
                for graph, num_live in zip(self.graphs, self.num_live, strict=True)]

    def smallest(self) -> list[frozenset[int]]:
        """The sets with the fewest bytes, and the least time among those."""
        repeat_cost = sum(op.cost for graph in self.graphs for op in graph.ops)
        return self.cheapest(repeat_cost or 1.0)

    def bytes_and_cost(self, sets: Sequence[frozenset[int]]) -> tuple[int, float]:
        outcome = self.outcome(sets)
        needed = sum(kept.needed_bytes(num_live)
                     for kept, num_live in zip(outcome, self.num_live, strict=True))
        return needed, sum(kept.repeat_cost for kept in outcome)

    def cost(self, sets: Sequence[frozenset[int]], byte_price: float) -> float:
        num_bytes, repeat_cost = self.bytes_and_cost(sets)
        return repeat_cost + byte_price * num_bytes

    def price_between(self, largest: Sequence[frozenset[int]],
                      smallest: Sequence[frozenset[int]]) -> float:
        """The price of a byte for which both cost the same."""
        (most, fast), (least, slow) = self.bytes_and_cost(largest), self.bytes_and_cost(smallest)
        return (slow - fast) / (most - least) if most > least else 0.0

    def filled(self, smaller: list[frozenset[int]], larger: Sequence[frozenset[int]],
               fits: Callable[[Sequence[KeptTensors]], bool]) -> list[frozenset[int]]:
        """The smaller sets, with those of one layer after the other made the larger ones.

        Only a change that spends less time again, and fits, is made.
        """
        chosen = list(smaller)
        _, least = self.bytes_and_cost(chosen)
        for k, graph in enumerate(self.graphs):
            for place in range(len(graph.paths)):
                swapped = list(chosen)
                swapped[k] = (_outside(graph, chosen[k], place) | _inside(graph, larger[k], place))
                if swapped[k] == chosen[k]:
                    continue
                _, cost = self.bytes_and_cost(swapped)
                if cost < least and fits(self.outcome(swapped)):
                    chosen, least = swapped, cost
        return chosen


def _inside(graph: CellGraph, kept: Iterable[int], place: int) -> frozenset[int]:
    return frozenset(number for number in kept if graph.tensors[number].layer == place)


def _outside(graph: CellGraph, kept: Iterable[int], place: int) -> frozenset[int]:
    return frozenset(number for number in kept if graph.tensors[number].layer != place)
