"""Memory: the bytes that cells and devices hold in a training step. No other file counts them.

The partitioner keeps a limit by these numbers, the simulator follows them through a schedule, and
inspection prints them. A device holds

    fixed     throughout the step: weights; for those that train, a gradient and optimizer slots;
              sums of groups that are set aside; copies of tied weights that another cell owns
    held      for each *live* micro-batch, which is one between a cell's forward and its backward:
              what the backward takes over, residuals or, with recomputation, the cell's inputs
    working   once, while a backward runs: what it recomputes; if an R did that before, from then
              on until the backward ends
    handed    for each micro-batch between its B and its W, where the backward is split: what W
              reads, be it held, recomputed or a gradient that B has made
    received  from a cell's last backward on: the gradients of other replicas and the sums of all

Not counted are the temporaries of single ops, gradients of values on their way between layers,
values that have been sent and not yet been read, and the framework itself.

All numbers are integers, so that sums in any order agree and a limit is kept to the byte. There is
no closed formula for a span of layers: residuals that two of its layers share count once, and what
a span reads depends on where it begins. So a span is grown layer by layer.
"""
from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import tensorflow as tf

    from lingpipe.pipeline.planning.dataflow import Element, Value
    from lingpipe.pipeline.planning.placement import Place, Placement
    from lingpipe.pipeline.planning.schedule import Schedule, Slot
    from lingpipe.pricing import Recipe, Residuals


class Footprint(NamedTuple):
    """The bytes of one cell; see the head of this file.

    `residual` is what it would hold for a micro-batch without recomputation; `gradients` is the
    part of `handed` that B itself makes. Where no input of the cell wants a gradient
    (`gives_gradients` is False), a split backward leaves everything to W.
    """

    fixed: float = 0
    held: float = 0
    working: float = 0
    received: float = 0
    residual: float = 0
    handed: float = 0
    gradients: float = 0
    gives_gradients: bool = True


@dataclass(frozen=True)
class Memory:
    """What any cell of a network would hold.

    Attributes:
      elements: the layers of the network.
      residuals: finds what the backward of each layer takes over. It is slow, and called only when
        bytes are asked for.
      slot_bytes: dtype -> bytes of optimizer slots and averages of one number in a weight that
        trains.
      num_replicas: R.
      is_summed_in_groups: whether sums of gradients are set aside (PipelineParams.sum_groups).
      receives_gradients: whether replicas send each other all gradients at once, as with the
        PipelineParams.replica_reduction 'add'.
    """

    elements: Sequence[Element]
    residuals: Callable[[], Sequence[Residuals]]
    slot_bytes: Callable[[tf.DType], int] = lambda dtype: 0
    num_replicas: int = 1
    is_summed_in_groups: bool = False
    receives_gradients: bool = True

    def of_span(self, span: range, mode: str) -> Footprint:
        """The footprint of a cell of the layers `span`, with that mode of recomputation."""
        known, others = self._grown.setdefault(
            (span.start, mode), ([], self.growing(span.start, mode)))
        while len(known) < len(span):
            known.append(next(others))
        return known[len(span) - 1]

    def growing(self, start: int, mode: str = 'none') -> Iterator[Footprint]:
        """The footprints of cells that begin at layer `start` and hold one layer, two and so on.

        Args:
          start: the first layer of all of them.
          mode: PipelineParams.recompute_of each of them.
        """
        fixed = _Fixed(self)
        activations = _Activations(start, self._leaves)
        for layer in self._layers[start:]:
            fixed.add(layer)
            activations.add(layer)
            held, working = activations.held_and_working(mode)
            yield Footprint(fixed.total, held, working, fixed.received, activations.residual,
                            activations.handed.total, activations.handed.gradient_bytes,
                            activations.handed.gives_gradients)

    @functools.cached_property
    def _grown(self) -> dict[tuple[int, str], tuple[list[Footprint], Iterator[Footprint]]]:
        """(first layer, mode) -> the footprints of cells that were asked for, and those to come."""
        return {}

    @functools.cached_property
    def recipes(self) -> Sequence[Recipe]:
        """How each layer makes what its backward reads."""
        return [residuals.recipe for residuals in self._residuals]

    @functools.cached_property
    def _leaves(self) -> _Leaves:
        return _Leaves(self.elements, self._residuals)

    @functools.cached_property
    def _residuals(self) -> Sequence[Residuals]:
        return self.residuals()

    @functools.cached_property
    def _layers(self) -> list[_Layer]:
        """What each layer adds to a cell: computed once, since thousands of cells may hold it."""
        weights = [weight for element in self.elements for weight in element.layer.weights()]
        shared = {weight.shared_with for weight in weights if weight.shared_with is not None}
        return [_layer(element, residuals, self._leaves, self.slot_bytes, shared)
                for element, residuals in zip(self.elements, self._residuals, strict=True)]


class _Leaves:
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


class _Layer(NamedTuple):
    """What a layer adds to the bytes of its cell; leaves by their numbers."""

    own_bytes: int                 # weights and slots
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


def _layer(element: Element, kept: Residuals, leaves: _Leaves,
           slot_bytes: Callable[[tf.DType], int], shared: set[str]) -> _Layer:
    """What an element adds; shared are the paths of weights that others share."""
    weights = list(element.layer.weights())
    trained_paths = {weight.path for weight in element.trained}
    trained = [weight for weight in weights if weight.path in trained_paths]
    own = [weight for weight in weights if weight.shared_with is None]
    own_bytes = sum(weight.size * weight.dtype.size for weight in own)
    own_bytes += sum(w.size * slot_bytes(w.dtype) for w in trained if w.shared_with is None)
    gradient_bytes = sum(weight.size * max(4, weight.dtype.size) for weight in trained)

    read_values, written_values = list(element.reads.values()), list(element.writes.values())
    reads = tuple(dict.fromkeys(leaf for value in read_values for leaf in leaves.numbers[value]))
    handed = kept.handed_over

    def read(some: Iterable[tuple[int, int]]) -> tuple[int, ...]:
        return tuple(leaves.numbers[read_values[n]][i] for n, i in sorted(some))

    def written(some: Iterable[tuple[int, int]]) -> tuple[int, ...]:
        return tuple(leaves.numbers[written_values[n]][i] for n, i in sorted(some))

    inputs, outputs = read(kept.inputs), written(kept.outputs)
    own_residual_bytes = kept.inner_bytes + sum(leaves.num_bytes[number] for number in outputs)
    return _Layer(
        own_bytes=own_bytes,
        gradient_bytes=gradient_bytes,
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
        has_backward=element.has_backward)


class _Fixed:
    """The bytes of a cell's weights and of all that goes with them, while it grows."""

    def __init__(self, memory: Memory):
        self._times = 1 + memory.is_summed_in_groups
        r = memory.num_replicas
        self._received_share = 2 * (r - 1) / r if memory.receives_gradients else 0.0
        self._owned: set[str] = set()
        self._copied: dict[str, int] = {}
        self._own_bytes = self._gradient_bytes = 0

    def add(self, layer: _Layer) -> None:
        """Extends the cell by the next layer.

        Its weights, gradients and optimizer slots count, and copies of tied weights.
        """
        self._own_bytes += layer.own_bytes
        self._gradient_bytes += layer.gradient_bytes
        self._owned |= layer.owned
        for path in layer.owned:
            self._copied.pop(path, None)
        for path, size in layer.shared:
            if path not in self._owned:
                self._copied[path] = size

    @property
    def total(self) -> int:
        return self._own_bytes + sum(self._copied.values()) + self._times * self._gradient_bytes

    @property
    def received(self) -> int:
        """Bytes from other replicas.

        Each device sums 1/R of the gradients of the R - 1 other replicas and receives the sums of
        the rest.
        """
        return math.ceil(self._received_share * self._gradient_bytes)


class _Activations:
    """The bytes of a cell's values and residuals of one micro-batch, while it grows."""

    def __init__(self, start: int, leaves: _Leaves):
        self._start, self._leaves = start, leaves
        self._inputs: set[int] = set()
        self._kept: set[int] = set()
        self._repeated: set[int] = set()
        self._has_backward = False
        self._input_bytes = 0       # of the values that the cell reads
        self._kept_input_bytes = 0  # of those of them that are residuals
        self._kept_bytes = 0        # of the other residuals
        self._repeated_bytes = 0    # of the cell's own values that recomputing its layers reads
        self._layer_bytes = 0       # the most of those and of a layer's own residuals together
        self._handed = _Handed(start, leaves)

    def add(self, layer: _Layer) -> None:
        """Extends the cell by the next layer.

        The values that it reads count, and the residuals that its backward takes over.
        """
        start, makers, num_bytes = self._start, self._leaves.makers, self._leaves.num_bytes
        for leaf in layer.reads:
            if makers[leaf] < start and leaf not in self._inputs:
                self._inputs.add(leaf)
                self._input_bytes += num_bytes[leaf]
        if not layer.has_backward:
            return

        self._has_backward = True
        self._kept_bytes += layer.inner_bytes
        for leaf in layer.residuals:
            root = self._root(leaf)
            if root not in self._kept:
                self._kept.add(root)
                if makers[root] < start:
                    self._kept_input_bytes += num_bytes[root]
                else:
                    self._kept_bytes += num_bytes[root]

        for leaf in layer.repeats:
            root = self._root(leaf)
            if makers[root] >= start and root not in self._repeated:
                self._repeated.add(root)
                self._repeated_bytes += num_bytes[root]
        self._layer_bytes = max(self._layer_bytes, self._repeated_bytes + layer.repeated_bytes)
        self._handed.add(layer, self._root)

    @property
    def residual(self) -> int:
        return self._kept_bytes + self._kept_input_bytes

    @property
    def handed(self) -> _Handed:
        """What W reads if the backward is split."""
        return self._handed

    def held_and_working(self, mode: str) -> tuple[int, int]:
        if not self._has_backward:
            return self._input_bytes, 0
        if mode == 'none':
            return self.residual, 0
        return self._input_bytes, self._kept_bytes if mode == 'cell' else self._layer_bytes

    def _root(self, leaf: int) -> int:
        """The leaf whose memory this one shares, as far as the cell has both."""
        while leaf in self._leaves.viewed and self._leaves.makers[leaf] >= self._start:
            leaf = self._leaves.viewed[leaf]
        return leaf


class _Handed:
    """The bytes that W reads of one micro-batch, while a cell grows."""

    def __init__(self, start: int, leaves: _Leaves):
        self._start, self._leaves = start, leaves
        self._residuals: set[int] = set()
        self._seeds: set[int] = set()             # leaves whose gradients are read
        self._same_gradient: dict[int, int] = {}  # leaf -> another one with the same gradient
        self.residual_bytes = 0
        self.gradient_bytes = 0
        self.gives_gradients = False              # to earlier cells

    @property
    def total(self) -> int:
        return self.residual_bytes + self.gradient_bytes

    def add(self, layer: _Layer, root_of: Callable[[int], int]) -> None:
        """Extends the cell by the next layer, which has a backward."""
        leaves = self._leaves
        self.gives_gradients |= any(leaves.makers[leaf] < self._start
                                    for leaf in layer.gradients_out)
        self.residual_bytes += layer.handed_inner_bytes
        self.gradient_bytes += layer.handed_gradient_bytes
        for root in map(root_of, layer.handed):
            if root not in self._residuals:
                self._residuals.add(root)
                self.residual_bytes += leaves.num_bytes[root]

        for leaf, passed in layer.passed_on.items():
            if leaves.num_readers[leaf] == 1:     # Of several readers, gradients are summed.
                self._same_gradient[leaf] = passed
                if leaf in self._seeds:
                    self._seeds.remove(leaf)
                    self.gradient_bytes -= leaves.num_bytes[leaf]
                    self._add_seed(passed)
        for leaf in layer.seeds:
            self._add_seed(leaf)

    def _add_seed(self, leaf: int) -> None:
        while leaf in self._same_gradient:
            leaf = self._same_gradient[leaf]
        if leaf not in self._seeds:
            self._seeds.add(leaf)
            self.gradient_bytes += self._leaves.num_bytes[leaf]


def peaks(schedule: Schedule, footprints: Sequence[Footprint],
          cells: Sequence[int] | None = None) -> list[float]:
    """The most bytes that the cells of each list of a schedule hold together at any time.

    A micro-batch is live in a cell from the start of its F to the end of its B. In the last cell,
    whose B is F too, it is live from the start of that, and in a cell without backward while its
    only slot runs. What an R makes again stays until the B ends, and what a split B hands over
    until the W ends. Slots of a list run one by one, so their order is all that matters.

    Args:
      schedule: any valid schedule.
      footprints: [K].
      cells: only these count; all by default.

    Returns:
      Bytes, for each list of schedule.devices.
    """
    counted = set(range(schedule.num_cells) if cells is None else cells)
    changes: dict[tuple[str, int], _Change] = {}   # (compiled task, cell) -> that of its slots
    peaks_of_places = []
    for device, listed in enumerate(schedule.devices):
        cells_of_list = schedule.cells_of_lists[device]
        if counted.isdisjoint(cells_of_list):
            peaks_of_places.append(0.0)
            continue
        slots = listed if counted >= cells_of_list else [
            slot for slot in listed if slot[1] in counted]
        last = {slot.cell: i for i, slot in enumerate(slots)}
        peak = live = received = 0.0
        for i, slot in enumerate(slots):
            task = schedule.task_kind(slot), slot[1]
            if task not in changes:
                changes[task] = _change(slot, schedule, footprints[slot.cell])
            before, during, after = changes[task]
            live += before
            peak = max(peak, live + during + received)
            live += after
            if i == last[slot[1]]:
                received += footprints[slot[1]].received
        peaks_of_places.append(sum(footprints[k].fixed for k in last) + max(peak, received))
    return peaks_of_places


class _Change(NamedTuple):
    """The bytes that a slot takes when it begins, takes besides while it runs, and gives back."""
    before: float
    during: float
    after: float


def _change(slot: Slot, schedule: Schedule, footprint: Footprint) -> _Change:
    before = footprint.held * _begins(slot, schedule)
    if slot.kind == 'R':
        return _Change(footprint.working, 0, 0)
    if slot.kind == 'F':
        return _Change(before, 0, -footprint.held * (slot.cell not in schedule.backward_cells))

    is_last = slot.cell == schedule.num_cells - 1
    working = 0 if schedule.is_recomputed_early(slot) else footprint.working
    live = footprint.held + footprint.working - working
    handed = footprint.handed
    if not footprint.gives_gradients:   # B leaves all to W, but the last cell's runs the forward.
        handed = footprint.residual if is_last else live

    if slot.kind == 'W':
        works_here = not footprint.gives_gradients and not is_last
        return _Change(0, working if works_here else 0, -handed)
    if not schedule.is_split(slot):
        return _Change(before, working, -live)
    if footprint.gives_gradients:
        return _Change(before, working + footprint.gradients, handed - live)
    return _Change(before, working if is_last else 0, handed - live)


def peaks_of_devices(schedule: Schedule, placement: Placement, footprints: Sequence[Footprint],
                     counted: Collection[Place] | None = None) -> dict[Place, float]:
    """The most bytes that each device holds at any time, of all cells of all replicas.

    Args:
      schedule: of each replica.
      placement: which cell is on which device.
      footprints: [K].
      counted: only these devices; all by default.
    """
    bytes_at: dict[Place, float] = {}
    for places in placement.places:
        for place in dict.fromkeys(places):
            if counted is not None and place not in counted:
                continue
            cells = [k for k, other in enumerate(places) if other == place]
            of_replica = sum(peaks(schedule, footprints, cells))
            bytes_at[place] = bytes_at.get(place, 0.0) + of_replica
    return bytes_at


def most_live(schedule: Schedule) -> list[int]:
    """[K] the most micro-batches of each cell that are live at once."""
    live, most = [0] * schedule.num_cells, [0] * schedule.num_cells
    for slots in schedule.devices:
        for slot in slots:
            live[slot.cell] += _begins(slot, schedule)
            most[slot.cell] = max(most[slot.cell], live[slot.cell])
            live[slot.cell] -= _ends(slot, schedule)
    return most


def _begins(slot: Slot, schedule: Schedule) -> bool:
    return schedule.runs_forward(slot)


def _ends(slot: Slot, schedule: Schedule) -> bool:
    return schedule.adds_gradients(slot) or slot.cell not in schedule.backward_cells
