"""Plan: a network cut into cells on devices, with the schedule and what a step should take.

It is made before anything is built, and `make_plan` takes these steps:

    price             priced_network.py  which layer reads what from which, how long each layer
                                         takes and what cells of them hold
    choose_partition  partition.py       which layers are in which cell
    fitting_partition                    the same under a memory limit
    place_cells       placement.py       which cell is on which device
    order_by_name     ordering.py        the order of each device's slots
"""
from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from lingpipe.layers import cost
from lingpipe.layers.nested import Nested
from lingpipe.layers.sequential import Sequential
from lingpipe.layers.weight import Weight
from lingpipe.pipeline.planning.cell import Cell, bytes_between, edges_of_tasks
from lingpipe.pipeline.planning.dataflow import Element, Value
from lingpipe.pipeline.planning.fitting_modes import Recomputation, fitting_recomputation
from lingpipe.pipeline.planning.fitting_partition import (
    MAX_TRIED,
    Trials,
    fitting_partition,
    refuse_partition_by_hand,
)
from lingpipe.pipeline.planning.forecast import Forecast
from lingpipe.pipeline.planning.layout import layout_of
from lingpipe.pipeline.planning.list_scheduling import Workload
from lingpipe.pipeline.planning.ordering import Limit, order_automatically, order_by_name
from lingpipe.pipeline.planning.partition import (
    Partition,
    choose_partition,
    with_longer_last_cell,
)
from lingpipe.pipeline.planning.peaks import peaks_of_devices
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.pipeline.planning.placement import Place, Placement, place_cells
from lingpipe.pipeline.planning.priced_network import PricedNetwork, price
from lingpipe.pipeline.planning.schedule import Schedule
from lingpipe.pipeline.planning.schedule_text import layout_in
from lingpipe.pipeline.planning.schedules import UNSPLIT, with_backward_cells
from lingpipe.pipeline.planning.shared_threads import (
    BYTES_PER_FLOP,
    BYTES_PER_S,
    MOST_SLOTS,
    num_shared_threads,
    shared_step_s,
)
from lingpipe.pipeline.planning.simulator import Delay, Simulation, simulate
from lingpipe.pipeline.planning.validation import validate


@dataclasses.dataclass(frozen=True, eq=False)
class Plan:
    """What will run where in a training step, and what it should take.

    Attributes:
      params: as given.
      partition: which layers are in which cell.
      placement: which cell is on which device.
      schedule: the order of slots on each device of a replica.
      forecast: time and bytes of each cell.
    """
    params: PipelineParams
    partition: Partition
    placement: Placement
    schedule: Schedule
    forecast: Forecast

    @property
    def elements(self) -> tuple[Element, ...]:
        """All layers, wired and priced for one micro-batch."""
        return self.partition.elements

    @property
    def edges(self) -> frozenset[tuple[int, int]]:
        """(maker cell, reader cell) of all values."""
        return self.partition.edges

    @property
    def cells(self) -> tuple[Cell, ...]:
        """[K] the cells of the first replica."""
        return self.replicas[0]

    @functools.cached_property
    def replicas(self) -> tuple[tuple[Cell, ...], ...]:
        """The cells of every replica, those of the first included, [R, K]."""
        return tuple(cells_on(self.partition, devices) for devices in self.placement.devices)

    def peak_bytes(self) -> dict[Place, float]:
        """The most that each device holds at a time, of all cells of all replicas."""
        return peaks_of_devices(self.schedule, self.placement, self.forecast.footprints)

    @property
    def fits(self) -> bool:
        """Whether no device holds more than PipelineParams.device_bytes."""
        limit = self.params.device_bytes
        return limit is None or max(self.peak_bytes().values()) <= limit

    @property
    def is_scarce(self) -> bool:
        """Whether cells that recompute no more than they must have to, or cannot fit even so."""
        is_fitted = [mode == 'fit' for mode in self.params.modes]
        repeats = [mode != 'none' for mode in self.forecast.recomputation.modes]
        must_repeat = map(all, zip(is_fitted, repeats, strict=True))
        return any(must_repeat) or any(is_fitted) and not self.fits

    def simulate_times(self, transfer_s: Delay = 0.0, link_s: Delay = 0.0) -> Simulation:
        """Predicts the time of a step and its bubble; its memory is not asked for.

        Args:
          transfer_s, link_s: as of `simulator.simulate`, in the units of the costs.
        """
        forecast = self.forecast
        return simulate(self.schedule, forecast.forward_costs, forecast.backward_costs,
                        weight_s=forecast.weight_costs, split_s=forecast.split_costs,
                        edges=self.edges,
                        recompute=forecast.repeat_costs, transfer_s=transfer_s, link_s=link_s)

    def simulate(self) -> Simulation:
        """Predicts the time of a step, in the units of the costs, its bubble and its memory.

        Transfers count if PipelineParams.link_bytes_per_s says how fast they are. Devices are those
        of the first replica; their memory is that of all that they hold.
        """
        link_s = link_seconds(self.params, self.cells)
        simulation = self.simulate_times(link_s=link_s)
        peak_bytes = self.peak_bytes()
        places = [self.placement.places[0][slots[0].cell] for slots in self.schedule.devices]
        return dataclasses.replace(simulation,
                                   peak_bytes=tuple(peak_bytes[place] for place in places))

    def rows(self) -> list[dict[str, Any]]:
        """The table of cells: one dict a cell, for programs.

        Of memory, in MB (10^6 bytes): `state_mb` is of weights, gradients and optimizer slots;
        `held_mb_per_micro_batch` of activations between forward and backward, `held_mb` that of all
        micro-batches that are live at once; `recomputed_mb` of what a backward makes again;
        `residual_mb_per_micro_batch` what would be held without recomputation; `peak_mb` the most
        that the cell's device holds at a time, with its other cells if there are any.
        """
        simulation = self.simulate()
        list_of_cell = {slot.cell: i for slot, i in self.schedule.device_of.items()}
        total_cost = sum(self.forecast.step_costs)
        rows = []
        for k, cell in enumerate(self.cells):
            layers = cost.total([element.cost for element in cell.elements])
            footprint = self.forecast.footprints[k]
            first, last = cell.elements[0].layer.path, cell.elements[-1].layer.path
            step_cost = self.forecast.step_costs[k]
            rows.append({
                'cell': k,
                'device': cell.device,
                'num_layers': len(cell.elements),
                'layers': f'{first} .. {last}',
                'gflops_per_micro_batch': layers.flops / 1e9,
                'num_weights': layers.num_weights,
                'state_mb': footprint.fixed / 1e6,
                'held_mb_per_micro_batch': footprint.held / 1e6,
                'held_mb': footprint.held * simulation.peak_live[k] / 1e6,
                'recomputed_mb': footprint.working / 1e6,
                'residual_mb_per_micro_batch': footprint.residual / 1e6,
                'peak_mb': simulation.peak_bytes[list_of_cell[k]] / 1e6,
                'sent_mb_per_micro_batch': sum(value.num_bytes for value in cell.outputs) / 1e6,
                'step_share': step_cost / total_cost if total_cost else 0.0,
            })
        return rows


def link_seconds(params: PipelineParams, cells: Sequence[Cell]) -> Callable[[int, int], float]:
    """Seconds that a micro-batch's values or gradients occupy the link from one cell to another."""
    wire_dtype = tf.bfloat16 if params.wire_dtype == 'bfloat16' else None

    @functools.cache
    def seconds(sender: int, receiver: int) -> float:
        if params.link_bytes_per_s is None:
            return 0.0
        return bytes_between(cells, sender, receiver, wire_dtype) / params.link_bytes_per_s

    return seconds


def cells_on(partition: Partition, devices: Sequence[str],
             fetched: frozenset[Value] = frozenset()) -> tuple[Cell, ...]:
    """[K] the cells of a partition on devices, one a cell; see Cell for what is fetched."""
    return tuple(Cell(k, partition.elements_of(k), device, fetched)
                 for k, device in enumerate(devices))


def make_plan(network: Sequential, batch_spec: Mapping[str, Nested], params: PipelineParams,
              devices: Sequence[str], is_frozen: Callable[[str], bool] = lambda path: False,
              slot_bytes: Callable[[Weight], int] = lambda weight: 0) -> Plan:
    """Cuts a network into cells.

    Args:
      network: the layers.
      batch_spec: name -> nested tf.TensorSpec of a whole mini-batch, batch dimension first and
        known.
      params: K, M and the rest.
      devices: [R K] or [R D] tf.device strings, replica after replica; see `place_cells`.
      is_frozen: whether the weight of a path does not train.
      slot_bytes: weight that trains -> bytes that the learner keeps for it: see Learner.slot_bytes.

    Raises:
      ValueError: M does not divide the batch, more cells than layers, a partition by hand that does
        not add up, layers that do not fit, a value that nobody writes.
    """
    params.validate()
    priced = price(network, batch_spec, params, is_frozen, slot_bytes)
    return plan_priced(priced, devices)


def plan_priced(network: PricedNetwork, devices: Sequence[str]) -> Plan:
    """Cuts a network whose layers are priced already; see `make_plan`."""
    params = network.params
    placement = place_cells(devices, params.num_replicas, params.layout)

    @functools.lru_cache(maxsize=MAX_TRIED)
    def plan_of(partition: Partition) -> Plan:
        return _arranged(network, placement, partition)

    plan = plan_of(choose_partition(network.elements, network.times, params))
    if params.layers_per_cell:
        if params.device_bytes is not None and not plan.fits:
            refuse_partition_by_hand(params.layers_per_cell, plan.peak_bytes(), placement,
                                     params.device_bytes)
        return plan

    plan = _with_less_repeated(plan, network, plan_of)
    candidates = [plan]
    if plan.is_scarce:
        uniform = list(_plans_of_modes(network, devices))
        candidates += [*(plan_of(other.partition) for other in uniform), *uniform]
    fitting = [candidate for candidate in candidates if candidate.fits]
    if not fitting and params.device_bytes is not None:
        trials = Trials(peak_bytes=lambda partition: plan_of(partition).peak_bytes(),
                        step_s=lambda partition: plan_of(partition).simulate_times().step_s)
        partition = fitting_partition(plan.forecast, placement, params, params.device_bytes, trials)
        fitting = [plan_of(partition)]
    return min(fitting, key=lambda plan: plan.simulate_times().step_s)


def _with_less_repeated(plan: Plan, network: PricedNetwork,
                        plan_of: Callable[[Partition], Plan]) -> Plan:
    """The plan whose last cell is longer, if that is faster on devices that share threads.

    The partitioner makes the slowest cell as fast as possible. Where devices have several cells and
    share threads, what counts is rather how much there is to do, and the last cell repeats nothing.
    """
    params = network.params
    num_threads = num_shared_threads(params, plan.placement)
    has_one_each = len(plan.schedule.devices) == params.num_cells
    repeats = any(plan.forecast.repeat_costs) and len(plan.schedule.device_of) <= MOST_SLOTS
    if num_threads is None or has_one_each or not repeats:
        return plan

    def duration_of(plan: Plan) -> float:
        return shared_step_s(plan.schedule, plan.forecast.cell_times, plan.edges, num_threads)

    for partition in with_longer_last_cell(plan.partition, network.times, params):
        longer = plan_of(partition)
        if plan.fits and not longer.fits or duration_of(longer) > duration_of(plan):
            break
        plan = longer
    return plan


def _plans_of_modes(network: PricedNetwork, devices: Sequence[str]) -> Iterator[Plan]:
    """The plans that fit if the cells of 'fit' all recompute as a whole, or by layers.

    In the same partition cells with 'fit' mostly do better, and these plans see to it that they
    never do worse.
    """
    params = network.params
    for mode in ('cell', 'layer'):
        modes = tuple(mode if one == 'fit' else one for one in params.modes)
        other = dataclasses.replace(network, params=params.copy().set(recompute=modes))
        with contextlib.suppress(ValueError):
            yield dataclasses.replace(plan_priced(other, devices), params=params)


def plan_like(plan: Plan, network: Sequential, batch_spec: Mapping[str, Nested],
              is_frozen: Callable[[str], bool] = lambda path: False) -> Plan:
    """The plan with the same partition and placement for mini-batches of another shape.

    Args:
      plan: of the same network.
      network, batch_spec, is_frozen: as of `make_plan`.

    Raises:
      ValueError: M does not divide the batch, or a device would hold more than its limit.
    """
    network_of_batch = price(network, batch_spec, plan.params, is_frozen,
                             plan.forecast.memory.slot_bytes)
    partition = dataclasses.replace(plan.partition, elements=network_of_batch.elements)
    other = _arranged(network_of_batch, plan.placement, partition)
    limit = plan.params.device_bytes
    if limit is not None and not other.fits:
        refuse_partition_by_hand(partition.layers_per_cell, other.peak_bytes(), plan.placement,
                                 limit)
    return other


def _arranged(network: PricedNetwork, placement: Placement, partition: Partition) -> Plan:
    """The plan of a partition."""
    limit = network.params.device_bytes

    def fitted(plan: Plan) -> Recomputation:
        return fitting_recomputation(network.params.modes, partition, network.memory, plan.schedule,
                                     placement, limit, network.graph_of)

    free = Recomputation(tuple('none' if mode == 'fit' else mode for mode in network.params.modes))
    if limit is None or 'fit' not in network.params.modes:
        return _ordered_plan(network, placement, partition, free, limit)

    # What cells keep depends on the order of their slots, and that may depend on what they keep.
    plan = _ordered_plan(network, placement, partition, free, None)
    for _ in range(2):
        if not plan.fits:
            plan = _ordered_plan(network, placement, partition, fitted(plan), limit)
    return plan


def _ordered_plan(network: PricedNetwork, placement: Placement, partition: Partition,
                  recomputation: Recomputation, limit: float | None) -> Plan:
    """The plan of a partition whose cells recompute in a given way."""
    params = network.params
    num_threads = num_shared_threads(params, placement)
    is_split = params.schedule not in UNSPLIT
    forecast = Forecast(partition, network.times, network.memory, recomputation,
                        _split_bytes_per_s(params, num_threads) if is_split else None)

    cells = cells_on(partition, placement.devices[0])
    edges = edges_of_tasks(cells) | partition.edges
    work = Workload(layout_of(placement.places[0]), params.num_micro_batches,
                    partition.backward_cells, frozenset(edges), forecast.cell_times,
                    link_seconds(params, cells), num_threads)
    limit_of_devices = None if limit is None else _limit(limit, placement, forecast)
    schedule = _ordered(params, work, limit_of_devices)
    validate(schedule, edges)
    return Plan(params, partition, placement, schedule, forecast)


def _split_bytes_per_s(params: PipelineParams, num_threads: int | None) -> float | None:
    """How many bytes B hands to W for a unit of the costs; None: for nothing."""
    if num_threads is None or params.memory_bytes_per_s is not None:
        return params.memory_bytes_per_s
    return BYTES_PER_S if params.layer_seconds else BYTES_PER_FLOP


def _ordered(params: PipelineParams, work: Workload, limit: Limit | None) -> Schedule:
    """The slots of each device of a replica, as the Params want them."""
    if params.schedule == 'auto':
        return order_automatically(work, limit)
    if params.schedule != 'text':
        return order_by_name(params.schedule, work, limit)

    schedule = with_backward_cells(params.given_schedule, work.backward_cells)
    if layout_of(layout_in(schedule)) != work.homes:
        raise ValueError(
            f'the schedule that is given has its cells on devices {list(layout_in(schedule))}, but '
            f'`devices` puts them on {list(work.homes)}; name one device for each row.')
    return schedule


def _limit(device_bytes: float, placement: Placement, forecast: Forecast) -> Limit:
    """What the devices of a replica may hold, each besides what other replicas hold there."""
    footprints = forecast.footprints

    def excess_of(schedule: Schedule) -> float:
        """How many bytes too many the fullest device holds."""
        peak_bytes = peaks_of_devices(schedule, placement, footprints)
        return max(0.0, max(peak_bytes.values()) - device_bytes)

    room = []
    for place in dict.fromkeys(placement.places[0]):
        cells = placement.cells_of_place[place]
        num_replicas_here = sum(place in places for places in placement.places)
        working = max(footprints[k].working for k in cells)
        fixed = sum(footprints[k].fixed for k in cells)
        room.append((device_bytes - fixed) / num_replicas_here - working)
    held = [footprint.held for footprint in footprints]
    handed = [footprint.handed if footprint.gives_gradients else footprint.held
              for footprint in footprints]
    return Limit(held, handed, room, excess_of)
