"""Plan: a network cut into cells on devices, with the schedule, priced and predicted before anything is built."""
from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import tensorflow as tf

from lingpipe import cluster
from lingpipe.hyperparams import Params, field
from lingpipe.layers import cost as cost_lib
from lingpipe.layers import nested
from lingpipe.layers.sequential import Sequential
from lingpipe.pipeline.planning import partitioner
from lingpipe.pipeline.planning.cell import Cell, edges_of_tasks
from lingpipe.pipeline.planning.dataflow import Element, residuals_of, wire
from lingpipe.pipeline.planning.memory import Footprint, Memory, most_live, peaks
from lingpipe.pipeline.planning.memory_limit import Needs
from lingpipe.pipeline.planning.schedules import Schedule, make_schedule
from lingpipe.pipeline.planning.shared_devices import together
from lingpipe.pipeline.planning.simulator import Simulation, durations, simulate
from lingpipe.pipeline.planning.validation import validate


class PipelineParams(Params):
    """How a network is run on devices.

    num_micro_batches, num_replicas, sum_groups, cross_replica_batch_norm and wire_dtype change what is learned.
    jit_compile, use_graph_optimizer and replica_reduction change the last bits of results. Everything else,
    such as the number of cells, the schedule and recomputation, changes nothing on CPUs; no GPU has run it yet.
    """
    num_cells: int = field(1, 'K: how many cells the layers are cut into, one a device.',
                           least=1, most=cluster.MAX_DEVICES)
    num_micro_batches: int = field(1, 'M: how many micro-batches a mini-batch is split into, in each replica.',
                                   least=1, most=10_000)
    num_replicas: int = field(1, 'R: pipelines that run side by side, each on its part of the mini-batch, with weights that stay equal to '
                                 'the last bit. R M must divide the size of a mini-batch.',
                              least=1, most=cluster.MAX_DEVICES)
    cross_replica_batch_norm: bool = field(False, 'BatchNorm takes its moments over the micro-batches of the same index of all '
                                                  'replicas, as if they were one; else each replica by itself.')
    sum_groups: int = field(1, 'Micro-batches are summed in so many groups, and then the groups: the result, to the last bit, of as many '
                               'replicas. For one replica that accumulates no mini-batches; takes 4 bytes more a weight.',
                            least=1)
    replica_reduction: Literal['add', 'ring', 'nccl'] = field(
        'add', "Who sums the gradients of replicas: plain additions in the order of replicas; TensorFlow's ring of collectives, in an "
               "order that depends on the devices; NCCL, on GPUs only (written, but not yet run: there was no GPU).")
    schedule: Literal['gpipe', '1f1b'] = field('1f1b', 'Order of the tasks on each device; see pipeline/planning/schedules.py.')
    recompute: Literal['none', 'cell', 'layer'] = field(
        'cell', 'What runs again in the backward pass: nothing; the cell; the cell, and then every layer in turn. Less memory, more time.')
    partition: Literal['bottleneck', 'variance'] = field('bottleneck', 'What the partitioner minimises: the slowest cell, or the variance.')
    layers_per_cell: tuple[int, ...] = field((), 'A partition by hand: how many layers each cell has. Empty: the partitioner decides.',
                                             least=1)
    layer_seconds: tuple[float, ...] = field((), 'Measured seconds of each layer (lingpipe.tools.show_partition --measure prints '
                                                 'them), used as costs in place of FLOPs.', least=0)
    layer_backward_seconds: tuple[float, ...] = field((), 'How many of layer_seconds are those of the backward (--measure prints them '
                                                          'too). Empty: two thirds.', least=0)
    device_bytes: float | None = field(None, 'Memory limit of a device, in bytes: no device is given cells that are predicted to hold '
                                             'more. See pipeline/planning/memory.py for what is counted.', above=0)
    devices: tuple[str, ...] = field((), 'tf.device strings, one a cell, replica after replica. Empty: the GPUs, or else the logical CPU '
                                         'devices.')
    cells_per_gpu: int = field(1, 'How many cells `devices` may put on one GPU; --devices=2*gpu sets it to 2.',
                               least=1)
    wire_dtype: Literal['as_is', 'bfloat16'] = field('as_is', "What float32 values and gradients are sent to other devices as; with "
                                                              "'bfloat16' half the bytes, and results that depend on where cells end.")
    jit_compile: bool = field(False, 'XLA compiles every task, once for every shape; on TPUs it always does. What it fuses depends on '
                                     'where cells end, and so do the last bits of results.')
    use_graph_optimizer: bool = field(False, "TensorFlow's Grappler rewrites graphs for speed; its rewrites depend on where cells end, so "
                                             'that with it results differ in the last bits between partitions.')

    def check(self) -> None:
        """Raises ValueError for a partition or devices of another length than the numbers say, or that are one GPU."""
        if self.num_micro_batches % self.sum_groups:
            raise ValueError(f'sum_groups={self.sum_groups} does not divide num_micro_batches={self.num_micro_batches}; use '
                             f'{_divisors(self.num_micro_batches)}.')
        if self.num_devices > cluster.MAX_DEVICES:
            raise ValueError(f'num_cells={self.num_cells} and num_replicas={self.num_replicas} need {self.num_devices} devices; use at '
                             f'most {cluster.MAX_DEVICES} of both together.')
        if self.sum_groups > 1 and self.num_replicas > 1:
            raise ValueError(f'sum_groups={self.sum_groups} and num_replicas={self.num_replicas}; replicas are groups already: set one of '
                             f'the two to 1.')
        if self.layers_per_cell and len(self.layers_per_cell) != self.num_cells:
            raise ValueError(f'layers_per_cell={list(self.layers_per_cell)} names {len(self.layers_per_cell)} cells, but num_cells='
                             f'{self.num_cells}; make them equal, or leave layers_per_cell empty.')
        if self.layer_backward_seconds and len(self.layer_backward_seconds) != len(self.layer_seconds):
            raise ValueError(f'layer_backward_seconds has {len(self.layer_backward_seconds)} numbers, but layer_seconds has '
                             f'{len(self.layer_seconds)}; give one a layer to both, or leave layer_backward_seconds empty.')
        for i, (both, backward) in enumerate(zip(self.layer_seconds, self.layer_backward_seconds, strict=False)):
            if backward > both:
                raise ValueError(f'layer_backward_seconds[{i}]={backward} is more than layer_seconds[{i}]={both}, of which it is a part; '
                                 f'measure again.')
        if self.devices and len(self.devices) != self.num_devices:
            of_replicas = f' and num_replicas={self.num_replicas}; name one for each cell of each replica.'
            raise ValueError(f'devices names {len(self.devices)} devices, but num_cells={self.num_cells}'
                             f'{of_replicas if self.num_replicas > 1 else "; name one for each cell."}')
        places = [cluster.place(device) for device in self.devices]
        for device, at in zip(self.devices, places, strict=True):
            if at[3] >= cluster.MAX_DEVICES:
                raise ValueError(f'devices names {device}; no process has so many devices: use numbers below {cluster.MAX_DEVICES}.')
            if at[2] == 'GPU' and places.count(at) > self.cells_per_gpu:
                cells = [i for i, other in enumerate(places) if other == at]
                raise ValueError(f'devices puts {len(cells)} cells on {device}, {cells}; name another GPU, or set cells_per_gpu='
                                 f'{len(cells)} if that is meant.')

    @property
    def num_devices(self) -> int:
        """R K."""
        return self.num_replicas * self.num_cells


@dataclasses.dataclass(eq=False)
class Plan:
    """What will run where, and what it should take.

    Attributes:
      params: as given.
      elements: all layers, wired and priced for one micro-batch.
      cells: spans of elements on devices, of the first replica.
      replicas: the cells of every replica, those of the first included.
      edges: (maker cell, reader cell) of all values.
      schedule: the training schedule.
      micro_batch_spec: name -> nested TensorSpec of a micro-batch.
      memory: what its layers hold, in any cell.
    """
    params: PipelineParams
    elements: list[Element]
    cells: list[Cell]
    replicas: list[list[Cell]]
    edges: frozenset[tuple[int, int]]
    schedule: Schedule
    micro_batch_spec: dict[str, Any]
    memory: Memory

    def forward_cost(self, k: int) -> float:
        """Relative time of F(k, m)."""
        return sum(_seconds(e, self.params)[0] for e in self.cells[k].elements)

    def backward_cost(self, k: int) -> float:
        """Relative time of B(k, m) without the cell's recomputation; where each layer runs once more for itself, that is included."""
        return sum(_seconds(e, self.params)[1] for e in self.cells[k].elements)

    @functools.cached_property
    def footprints(self) -> list[Footprint]:
        """[K] the bytes of each cell; layers are traced for it when it is first asked for."""
        return [self.memory.of_span(range(cell.elements[0].index, cell.elements[-1].index + 1)) for cell in self.cells]

    def weight_bytes(self, k: int) -> float:
        """Bytes of weights, gradients and slots of cell k."""
        return self.footprints[k].fixed

    def held_bytes(self, k: int) -> float:
        """Bytes that cell k holds for one micro-batch between forward and backward."""
        return self.footprints[k].held

    def working_bytes(self, k: int) -> float:
        """Bytes of activations that a running backward of cell k makes again, once, whatever the number of micro-batches."""
        return self.footprints[k].working

    def peak_bytes(self) -> dict[tuple[str, int, str, int], float]:
        """The most that each device (as `cluster.place` gives it) holds at a time, of all cells of all replicas."""
        return _peak_bytes(self.schedule, self.replicas, self.footprints)

    def simulate(self) -> Simulation:
        """Predicts step time (in units of the costs), bubble, and memory: of the first replica's devices, all that they hold."""
        k = range(len(self.cells))
        found = simulate(self.schedule, [self.forward_cost(i) for i in k], [self.backward_cost(i) for i in k], edges=self.edges,
                         recompute=self.params.recompute != 'none')
        peak_bytes = self.peak_bytes()
        places = [cluster.place(self.cells[tasks[0].cell].device) for tasks in self.schedule.devices]
        return dataclasses.replace(found, peak_bytes=tuple(peak_bytes[place] for place in places))

    def step_cost(self, k: int) -> float:
        """Relative time of a device's work for one micro-batch: forward, backward and, but for the last cell, recomputation."""
        repeats = self.params.recompute != 'none' and k < len(self.cells) - 1 and self.cells[k].has_backward
        return self.forward_cost(k) * (1 + repeats) + self.backward_cost(k)

    @property
    def balance(self) -> float:
        """Mean cost of a cell / the largest; 1 is perfect."""
        costs = [self.step_cost(k) for k in range(len(self.cells))]
        return sum(costs) / len(costs) / max(costs) if max(costs) > 0 else 1.0

    def rows(self) -> list[dict[str, Any]]:
        """The table of cells: one dict a cell, for programs.

        Of memory, in MB (10^6 bytes): `state_mb` is of weights, gradients and slots; `held_mb_per_micro_batch` of activations between
        forward and backward, `held_mb` that of all micro-batches that are live at once; `recomputed_mb` of what a backward makes again;
        `residual_mb_per_micro_batch` what would be held without recomputation; `peak_mb` the most that the cell's device holds at a time,
        with its other cells if there are any.
        """
        simulation, home_of = self.simulate(), {task.cell: home for task, home in self.schedule.device_of.items()}
        busy = [self.step_cost(k) for k in range(len(self.cells))]
        rows = []
        for k, cell in enumerate(self.cells):
            cost = cost_lib.total([e.cost for e in cell.elements])
            rows.append({'cell': k, 'device': cell.device, 'num_layers': len(cell.elements),
                         'layers': f'{cell.elements[0].layer.path} .. {cell.elements[-1].layer.path}',
                         'gflops_per_micro_batch': cost.flops / 1e9, 'num_weights': cost.num_weights,
                         'state_mb': self.weight_bytes(k) / 1e6, 'held_mb_per_micro_batch': self.held_bytes(k) / 1e6,
                         'held_mb': self.held_bytes(k) * simulation.peak_live[k] / 1e6, 'recomputed_mb': self.working_bytes(k) / 1e6,
                         'residual_mb_per_micro_batch': self.footprints[k].residual / 1e6,
                         'peak_mb': simulation.peak_bytes[home_of[k]] / 1e6,
                         'sent_mb_per_micro_batch': sum(v.num_bytes for v in cell.outputs) / 1e6,
                         'step_share': busy[k] / sum(busy) if sum(busy) else 0.0})
        return rows


def make_plan(network: Sequential, batch_spec: dict[str, Any], params: PipelineParams, devices: Sequence[str],
              is_frozen: Callable[[str], bool] = lambda path: False,
              slot_bytes: Callable[[tf.DType], int] = lambda dtype: 0) -> Plan:
    """Cuts a network into cells.

    Args:
      network: the layers.
      batch_spec: name -> nested tf.TensorSpec of a whole mini-batch, batch dimension first and known.
      params: K, M and the rest.
      devices: [R K] tf.device strings, replica after replica.
      is_frozen: whether the weight of a path does not train.
      slot_bytes: dtype -> bytes that the learner keeps for one number in a weight that trains: see Learner.slot_bytes.

    Raises:
      ValueError: M does not divide the batch, more cells than layers, a partition by hand that does not add up, layers
        that do not fit, a value that nobody writes.
    """
    params.validate()
    _check_whole(network, params)
    check_state(network, params.num_micro_batches * params.num_replicas)
    micro_spec = split_spec(batch_spec, params.num_micro_batches, params.num_replicas)
    elements = wire(network, micro_spec, is_frozen)
    if params.layer_seconds and len(params.layer_seconds) != len(elements):
        raise ValueError(f'layer_seconds has {len(params.layer_seconds)} numbers, but the network has {len(elements)} layers; '
                         f'measure again.')
    memory = Memory(elements, functools.partial(residuals_of, elements), params.recompute, slot_bytes, params.num_replicas,
                    params.sum_groups > 1, params.replica_reduction == 'add')
    plan_of = functools.partial(_plan_of, elements, params, devices, micro_spec, memory)
    plan = plan_of(_spans(elements, params))
    if params.device_bytes is None or max(plan.peak_bytes().values()) <= params.device_bytes:
        return plan
    return _plan_within(params.device_bytes, plan, plan_of)


def _plan_of(elements: list[Element], params: PipelineParams, devices: Sequence[str], micro_batch_spec: dict[str, Any],
             memory: Memory, spans: Sequence[range]) -> Plan:
    """The plan whose cells are these spans."""
    replicas = [[Cell(k, [elements[i] for i in span], devices[r * len(spans) + k]) for k, span in enumerate(spans)]
                for r in range(params.num_replicas)]
    cells = replicas[0]
    cell_of = {i: k for k, span in enumerate(spans) for i in span}
    edges = frozenset((cell_of[v.maker], cell_of[r]) for e in elements for v in e.writes.values() for r in v.readers
                      if cell_of[v.maker] != cell_of[r])
    backward = [k for k, cell in enumerate(cells) if cell.has_backward]
    schedule = make_schedule(params.schedule, params.num_cells, params.num_micro_batches, {*backward, params.num_cells - 1})
    plan = Plan(params, elements, cells, replicas, edges, schedule, micro_batch_spec, memory)

    k = range(len(cells))
    duration_of = durations(schedule, [plan.forward_cost(i) for i in k], [plan.backward_cost(i) for i in k], params.recompute != 'none')

    def excess_bytes(schedule: Schedule) -> float:
        """How much too many bytes the fullest device holds; 0 without a limit."""
        if params.device_bytes is None:
            return 0.0
        return max(0.0, max(_peak_bytes(schedule, replicas, plan.footprints).values()) - params.device_bytes)

    plan.schedule = together(schedule, [cluster.place(cell.device) for cell in cells], duration_of, edges_of_tasks(cells), excess_bytes)
    validate(plan.schedule, edges)
    return plan


def _check_whole(network: Sequential, params: PipelineParams) -> None:
    """Raises ValueError if a layer that needs the whole mini-batch would see only a part of it."""
    num_parts = params.num_micro_batches * params.num_replicas
    for layer in network.layers() if num_parts > 1 else ():
        if layer.needs_whole_batch:
            raise ValueError(f'{layer.path}: {type(layer).__name__} needs the whole mini-batch, since its result for an example depends on '
                             f'the others, but with num_micro_batches={params.num_micro_batches} and num_replicas={params.num_replicas} '
                             f'it would see one of {num_parts} parts at a time; set both to 1, or use a loss that is a sum over examples.')


def check_state(network: Sequential, num_parts: int) -> None:
    """Raises ValueError if a layer has state that cannot be merged over the parts of the examples of an update."""
    for layer in network.layers() if num_parts > 1 else ():
        if layer.unmerged_state:
            raise ValueError(
                f'{layer.path}: what becomes of {", ".join(layer.unmerged_state)} depends on the examples, and nobody knows '
                f'how to merge it over the {num_parts} parts of them that an update has; set num_micro_batches, num_replicas '
                f'and accumulate to 1 or, in a KerasLayer with moving averages of means, averages_state=True.')


def _peak_bytes(schedule: Schedule, replicas: Sequence[Sequence[Cell]], footprints: Sequence[Footprint],
                ) -> dict[tuple[str, int, str, int], float]:
    found: dict[tuple[str, int, str, int], float] = {}
    for cells in replicas:
        places = [cluster.place(cell.device) for cell in cells]
        for place in dict.fromkeys(places):
            cells_there = [k for k, other in enumerate(places) if other == place]
            found[place] = found.get(place, 0.0) + sum(peaks(schedule, footprints, cells_there))
    return found


# Partitions.

MAX_TRIED = 2_000  # partitions of cells that share devices


def _plan_within(limit: float, fullest: Plan, plan_of: Callable[[Sequence[range]], Plan]) -> Plan:
    """The best plan whose devices hold no more than `limit` bytes; `fullest` holds more.

    Raises:
      ValueError: none was found.
    """
    params, elements = fullest.params, fullest.elements
    peak = max(fullest.peak_bytes().values())
    if params.layers_per_cell:
        place = max(fullest.peak_bytes(), key=lambda place: fullest.peak_bytes()[place])
        device = next(cell.device for cells in fullest.replicas for cell in cells if cluster.place(cell.device) == place)
        raise ValueError(f'layers_per_cell={list(params.layers_per_cell)} needs {peak:,.0f} bytes on {device}, which is more than '
                         f'device_bytes={limit:,.0f}; leave layers_per_cell empty, use recomputation, smaller micro-batches or larger '
                         f'devices.')
    starts = _starts_of_units(elements)
    every_cell = make_schedule(params.schedule, params.num_cells, params.num_micro_batches)
    needs = Needs(fullest.memory, starts, most_live(every_cell), limit)
    costs, fused_costs = _costs_of_units(elements, params)

    hosted: dict[Any, list[int]] = {}
    for cells in fullest.replicas:
        for cell in cells:
            hosted.setdefault(cluster.place(cell.device), []).append(cell.index)
    is_exact = all(len(set(there)) == 1 for there in hosted.values())
    num_partitions = math.comb(needs.num_units - 1, params.num_cells - 1)
    if is_exact or num_partitions > MAX_TRIED:
        # A device of several cells gives each a part of its memory. Those of one index, in several replicas, need equal parts; where
        # different cells share a device, equal parts are tried, and then parts in proportion to what the cells of `fullest` hold.
        live = most_live(every_cell)
        weights = [f.fixed + n * f.held + f.working for f, n in zip(fullest.footprints, live, strict=True)]
        for parts in ([1.0] * params.num_cells, weights)[:1 if is_exact else 2]:
            share = [limit * min(parts[k] / sum(parts[j] for j in there) for there in hosted.values() if k in there)
                     for k in range(params.num_cells)]
            stops = functools.cache(lambda k, start, share=share: needs.stops(k, start, share[k]))
            units = partitioner.partition_among(costs, params.num_cells, stops, rule=params.partition,
                                                fused_costs=fused_costs if params.partition == 'bottleneck' else None)
            if units is not None and max((plan := plan_of(_opened(units, starts))).peak_bytes().values()) <= limit:
                return plan
        if not is_exact:
            descended = _descended(fullest, plan_of, starts, limit)
            if descended is not None:
                return descended
    else:
        fitting = [plan for units in _all_partitions(needs.num_units, params.num_cells)
                   if max((plan := plan_of(_opened(units, starts))).peak_bytes().values()) <= limit]
        if fitting:
            return min(fitting, key=lambda plan: plan.simulate().step_s)

    needs = Needs(fullest.memory, starts, most_live(every_cell), peak)
    alone, unit = needs.largest_unit()
    if alone > limit:
        raise ValueError(f'{elements[starts[unit]].layer.path} alone needs {alone:,.0f} bytes, which is more than device_bytes='
                         f'{limit:,.0f}; a layer cannot be cut: split it in two, use smaller micro-batches or larger devices.')
    found = f'the best needs {needs.least():,.0f} bytes on a device'
    if len(hosted) < params.num_devices:
        found = f'{params.num_devices} cells share {len(hosted)} devices'
    raise ValueError(f'no partition of {len(elements)} layers into {params.num_cells} cells was found that fits device_bytes={limit:,.0f}: '
                     f'{found}; use more cells, recomputation, smaller micro-batches or larger devices.')


def _descended(fullest: Plan, plan_of: Callable[[Sequence[range]], Plan], starts: Sequence[int], limit: float) -> Plan | None:
    """Moves the cuts of a plan, one at a time and ever less far, as long as its fullest devices hold less; None if that does not do."""
    ends = [cell.elements[-1].index + 1 for cell in fullest.cells]
    cuts = [0, *(starts.index(end) for end in ends)]
    peaks_so_far = sorted(fullest.peak_bytes().values(), reverse=True)
    step = max(1, (len(starts) - 1) // (2 * len(ends)))
    while step:
        is_better = False
        for i, move in itertools.product(range(1, len(cuts) - 1), (-step, step)):
            moved = [*cuts[:i], cuts[i] + move, *cuts[i + 1:]]
            if not moved[i - 1] < moved[i] < moved[i + 1]:
                continue
            plan = plan_of(_opened([range(a, b) for a, b in itertools.pairwise(moved)], starts))
            found = sorted(plan.peak_bytes().values(), reverse=True)
            if found[0] <= limit:
                return plan
            if found < peaks_so_far:
                peaks_so_far, cuts, is_better = found, moved, True
        if not is_better:
            step //= 2
    return None


def _all_partitions(num_units: int, num_cells: int) -> Iterator[list[range]]:
    for cuts in itertools.combinations(range(1, num_units), num_cells - 1):
        yield [range(a, b) for a, b in itertools.pairwise((0, *cuts, num_units))]


def _starts_of_units(elements: Sequence[Element]) -> list[int]:
    """Where the units begin, and the number of layers."""
    return [i for i, e in enumerate(elements) if i == 0 or e.unit != elements[i - 1].unit] + [len(elements)]


def _opened(units: Sequence[range], starts: Sequence[int]) -> list[range]:
    """Spans of units as spans of layers."""
    return [range(starts[span.start], starts[span.stop]) for span in units]


def _seconds(element: Element, params: PipelineParams) -> tuple[float, float]:
    """Relative time of a layer's forward and backward for one micro-batch: measured, or FLOPs at one FLOP/s.

    With recompute='layer' the backward begins with the layer's forward, besides that of its cell.
    """
    i = element.index
    forward, backward = element.cost.flops, 2 * element.cost.flops
    if params.layer_seconds:
        both = params.layer_seconds[i]
        backward = params.layer_backward_seconds[i] if params.layer_backward_seconds else both * 2 / 3
        forward = both - backward if element.has_backward else both
    return forward, (backward + forward * (params.recompute == 'layer')) * element.has_backward


def _costs_of_units(elements: Sequence[Element], params: PipelineParams) -> tuple[list[float], list[float]]:
    """What every unit costs in a cell, and what in the last cell, whose forward is not repeated."""
    starts = _starts_of_units(elements)
    seconds = [_seconds(e, params) for e in elements]
    repeats = params.recompute != 'none'
    fused = [forward + backward for forward, backward in seconds]
    costs = [both + forward * (repeats and e.has_backward) for both, (forward, _), e in zip(fused, seconds, elements, strict=True)]
    return [sum(costs[a:b]) for a, b in itertools.pairwise(starts)], [sum(fused[a:b]) for a, b in itertools.pairwise(starts)]


def split_spec(batch_spec: dict[str, Any], num_micro_batches: int, num_replicas: int = 1) -> dict[str, Any]:
    """The spec of one micro-batch from that of a mini-batch; a batch that R M does not divide is a ValueError."""
    sizes = {}
    for path, spec in nested.flatten(batch_spec):
        if spec.shape.rank in (None, 0) or spec.shape[0] is None:
            raise ValueError(f'{path!r} of the mini-batch has shape {spec.shape}; the first dimension must be the batch size, a number.')
        sizes[path] = spec.shape[0]
    if len(set(sizes.values())) > 1:
        raise ValueError(f'the tensors of a mini-batch have different first dimensions, {sizes}; all must be the batch size.')
    size, m = next(iter(sizes.values())), num_micro_batches
    if not size:
        raise ValueError('the mini-batch has 0 examples; give it 1 or more.')
    if size % num_replicas:
        raise ValueError(f'num_replicas={num_replicas} does not divide the batch of {size} examples; use {_divisors(size)}, '
                         f'or change train_input.batch_size.')
    if size // num_replicas % m:
        part = size // num_replicas
        whose = f'the {part} examples of each of {num_replicas} replicas' if num_replicas > 1 else f'the batch of {size} examples'
        raise ValueError(f'num_micro_batches={m} does not divide {whose}; use {_divisors(part)}, or change train_input.batch_size.')
    return nested.map_leaves(lambda spec: tf.TensorSpec([size // (m * num_replicas), *spec.shape[1:]], spec.dtype), batch_spec)


def _divisors(size: int) -> str:
    """'1, 2 or 4'."""
    *most, last = [str(d) for d in range(1, size + 1) if size % d == 0]
    return f'{", ".join(most)} or {last}' if most else last


def _spans(elements: list[Element], params: PipelineParams) -> Sequence[range]:
    """The partition by hand, or the best where memory does not matter."""
    if params.layers_per_cell:
        counts = params.layers_per_cell
        if sum(counts) != len(elements) or min(counts) < 1:
            raise ValueError(f'layers_per_cell={list(counts)} adds up to {sum(counts)}, but the network has {len(elements)} layers; '
                             f'every cell needs at least one, and together they must hold all.')
        starts = [sum(counts[:k]) for k in range(len(counts) + 1)]
        return [range(a, b) for a, b in zip(starts[:-1], starts[1:], strict=True)]
    costs, fused_costs = _costs_of_units(elements, params)
    if params.recompute != 'none' and params.partition == 'bottleneck':
        units = partitioner.partition_fused(costs, fused_costs, params.num_cells)
    else:
        units = partitioner.partition(costs, params.num_cells, rule=params.partition)
    return _opened(units, _starts_of_units(elements))
