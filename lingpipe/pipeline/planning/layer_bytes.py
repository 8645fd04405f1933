"""Layer bytes: what each layer adds to the bytes of its cell, and the leaves of all values."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from lingpipe.pipeline.planning.slot_shares import SlotBytes, slots_of

if TYPE_CHECKING:
    from lingpipe.layers.weight import Weight
    from lingpipe.pipeline.planning.dataflow import Element, Value
    from lingpipe.pricing import Residuals


class Leaves:
    """The leaves of all values, numbered.

    Attributes:
      numbers: value -> the numbers of its leaves.
      num_bytes, makers, num_readers: by number, bytes, the layer that makes it, and how many read
        it.
      viewed: the number of a leaf -> that of the one whose memory it shares.
    """

    def __init__(self, elements: Sequence[Element], residuals: Sequence[Residuals]):
        self.numbers: dict[Value, range] = {}
        self.num_bytes: list[int] = []
        self.makers: list[int] = []
        self.num_readers: list[int] = []
        for value in (value for e in elements for value in (*e.reads.values(), *e.writes.values())):
            if value not in self.numbers:
                first = len(self.makers)
                self.numbers[value] = range(first, first + len(value.leaf_bytes))
                self.num_bytes += value.leaf_bytes
                self.makers += [value.maker] * len(value.leaf_bytes)
                self.num_readers += [len(value.readers)] * len(value.leaf_bytes)
        self.viewed: dict[int, int] = {}
        for element, of_element in zip(elements, residuals, strict=True):
            reads, writes = list(element.reads.values()), list(element.writes.values())
            values = {'reads': reads, 'writes': writes}
            for (n, i), (side, (other, j)) in of_element.views.items():
                self.viewed[self.numbers[writes[n]][i]] = self.numbers[values[side][other]][j]


class LayerBytes(NamedTuple):
    """What a layer adds to the bytes of its cell; leaves by their numbers."""

    own_bytes: int                 # weights, also those in a narrower dtype, and slots
    gradient_bytes: int
    owned: frozenset[str]          # paths of weights that others share
    shared: tuple[tuple[str, int], ...]  # paths and bytes of the weights of others
    reads: tuple[int, ...]         # all that it reads
    repeats: tuple[int, ...]       # those of them that it needs to run once more for its backward
    residuals: tuple[int, ...]     # inputs and outputs that its backward reads
    inner_bytes: int               # residuals that are neither
    handed: tuple[int, ...]        # inputs and outputs that the gradients of its weights need
    handed_inner_bytes: int        # residuals that are neither
    seeds: tuple[int, ...]         # outputs whose gradients they need
    handed_gradient_bytes: int     # other gradients that they need
    passed_on: dict[int, int]      # inputs -> the outputs whose gradients they get unchanged
    gradients_out: tuple[int, ...]  # inputs that get a gradient
    repeated_bytes: int            # residuals that are no inputs
    has_backward: bool
    slots: tuple[SlotBytes, ...] = ()  # the part of own_bytes that replicas can share out
    update_bytes: int = 0          # temporaries of the update, which treats one weight at a time


def layer_bytes(element: Element, kept: Residuals, leaves: Leaves,
                slot_bytes: Callable[[Weight], int], update_bytes: Callable[[Weight, bool], int],
                shared: set[str]) -> LayerBytes:
    """What an element adds; shared are the paths of weights that others share."""
    weights = list(element.layer.weights())
    own = [weight for weight in weights if weight.shared_with is None]
    own_bytes = sum(weight.size * weight.dtype.size for weight in own)
    slots = slots_of(element, slot_bytes)
    own_bytes += sum(one.slot_bytes for one in slots)
    own_bytes += kept.cast_bytes

    read_values, written_values = list(element.reads.values()), list(element.writes.values())
    reads = tuple(dict.fromkeys(leaf for value in read_values for leaf in leaves.numbers[value]))
    handed = kept.handed_over

    def read(some: Iterable[tuple[int, int]]) -> tuple[int, ...]:
        return tuple(leaves.numbers[read_values[n]][i] for n, i in sorted(some))

    def written(some: Iterable[tuple[int, int]]) -> tuple[int, ...]:
        return tuple(leaves.numbers[written_values[n]][i] for n, i in sorted(some))

    inputs, outputs = read(kept.inputs), written(kept.outputs)
    own_residual_bytes = kept.inner_bytes + sum(leaves.num_bytes[number] for number in outputs)
    return LayerBytes(
        own_bytes=own_bytes,
        gradient_bytes=element.gradient_bytes,
        owned=frozenset(weight.path for weight in own if weight.path in shared),
        shared=tuple((weight.shared_with, weight.size * weight.dtype.size)
                     for weight in weights if weight.shared_with is not None),
        reads=reads,
        repeats=reads if own_residual_bytes else inputs,
        residuals=(*inputs, *outputs),
        inner_bytes=kept.inner_bytes,
        handed=(*read(handed.inputs), *written(handed.outputs)),
        handed_inner_bytes=handed.inner_bytes,
        seeds=written(handed.seeds),
        handed_gradient_bytes=handed.gradient_bytes,
        passed_on={number: passed for leaf, other in handed.passed_on.items()
                   for number, passed in zip(read([leaf]), written([other]), strict=True)},
        gradients_out=read(kept.gradients),
        repeated_bytes=own_residual_bytes,
        has_backward=element.has_backward,
        slots=slots,
        update_bytes=max((update_bytes(weight, weight.path in element.gradient_rows)
                          for weight in element.trained if weight.shared_with is None), default=0))
