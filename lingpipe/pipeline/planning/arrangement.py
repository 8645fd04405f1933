"""Arrangement: the plan of one partition, with the order of slots and what its cells keep."""
from __future__ import annotations

from lingpipe.pipeline.planning.cell import edges_of_tasks
from lingpipe.pipeline.planning.fitting_modes import Recomputation, fitting_recomputation
from lingpipe.pipeline.planning.forecast import Forecast
from lingpipe.pipeline.planning.layout import layout_of
from lingpipe.pipeline.planning.list_scheduling import Workload
from lingpipe.pipeline.planning.ordering import (
    Limit,
    order_automatically,
    order_by_name,
    order_whole,
)
from lingpipe.pipeline.planning.partition import Partition
from lingpipe.pipeline.planning.peaks import peaks_of_devices
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.pipeline.planning.placement import Placement
from lingpipe.pipeline.planning.plan import Plan, cells_on, link_seconds
from lingpipe.pipeline.planning.priced_network import PricedNetwork
from lingpipe.pipeline.planning.schedule import Schedule
from lingpipe.pipeline.planning.schedule_text import layout_in
from lingpipe.pipeline.planning.schedules import UNSPLIT, with_backward_cells
from lingpipe.pipeline.planning.shared_threads import (
    BYTES_PER_FLOP,
    BYTES_PER_S,
    num_shared_threads,
)
from lingpipe.pipeline.planning.step_forecast import hardware_of
from lingpipe.pipeline.planning.validation import validate


def arranged(network: PricedNetwork, placement: Placement, partition: Partition) -> Plan:
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
                    link_seconds(params, cells), num_threads, hardware_of(params).slot_s)
    limit_of_devices = None if limit is None else _limit(limit, placement, forecast)
    schedule = _ordered(network, work, limit_of_devices)
    validate(schedule, edges)
    return Plan(params, partition, placement, schedule, forecast)


def _split_bytes_per_s(params: PipelineParams, num_threads: int | None) -> float | None:
    """How many bytes B hands to W for a unit of the costs; None: for nothing."""
    if num_threads is None or params.memory_bytes_per_s is not None:
        return params.memory_bytes_per_s
    return BYTES_PER_S if params.layer_seconds else BYTES_PER_FLOP


def _ordered(network: PricedNetwork, work: Workload, limit: Limit | None) -> Schedule:
    """The slots of each device of a replica, as the Params want them."""
    params = network.params
    if limit is not None and not network.splits:
        return order_whole(params.schedule, work, limit)
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
