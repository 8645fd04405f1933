"""Planner: makes plans, before anything is built.

`make_plan` takes these steps:

    price             priced_network.py  which layer reads what from which, how long each layer
                                         takes and what cells of them hold
    choose_partition  partition.py       which layers are in which cell
    fitting_partition                    the same under a memory limit
    place_cells       placement.py       which cell is on which device
    arranged          arrangement.py     the order of each device's slots, and what cells keep
"""
from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence

from lingpipe.layers.nested import Nested
from lingpipe.layers.sequential import Sequential
from lingpipe.layers.weight import Weight
from lingpipe.pipeline.planning.arrangement import arranged
from lingpipe.pipeline.planning.fitting_partition import (
    MAX_TRIED,
    Trials,
    fitting_partition,
    why_none_fits,
    why_not_by_hand,
)
from lingpipe.pipeline.planning.partition import (
    Partition,
    choose_partition,
    with_longer_last_cell,
)
from lingpipe.pipeline.planning.pipeline_params import Mode, PipelineParams
from lingpipe.pipeline.planning.placement import place_cells
from lingpipe.pipeline.planning.plan import Plan
from lingpipe.pipeline.planning.priced_network import PricedNetwork, price
from lingpipe.pipeline.planning.schedules import UNSPLIT
from lingpipe.pipeline.planning.shared_threads import MOST_SLOTS, num_shared_threads, shared_step_s

# The modes in which all cells of 'fit' recompute alike.
UNIFORM: tuple[Mode, ...] = ('none', 'cell', 'layer')


def make_plan(network: Sequential, batch_spec: Mapping[str, Nested], params: PipelineParams,
              devices: Sequence[str], is_frozen: Callable[[str], bool] = lambda path: False,
              slot_bytes: Callable[[Weight], int] = lambda weight: 0,
              update_bytes: Callable[[Weight, bool], int] = lambda weight, has_rows: 0) -> Plan:
    """Cuts a network into cells.

    Args:
      network: the layers.
      batch_spec: name -> nested tf.TensorSpec of a whole mini-batch, batch dimension first and
        known.
      params: K, M and the rest.
      devices: [R K] or [R D] tf.device strings, replica after replica; see `place_cells`.
      is_frozen: whether the weight of a path does not train.
      slot_bytes: weight that trains -> bytes that the learner keeps for it: see Learner.slot_bytes.
      update_bytes: (weight that trains, whether its gradient is rows) -> bytes that its update
        needs: see Learner.update_bytes.

    Raises:
      ValueError: M does not divide the batch, more cells than layers, a partition by hand that does
        not add up, layers that do not fit, a value that nobody writes.
    """
    params.validate()
    priced = price(network, batch_spec, params, is_frozen, slot_bytes, update_bytes)
    return plan_priced(priced, devices)


def plan_priced(network: PricedNetwork, devices: Sequence[str]) -> Plan:
    """Cuts a network whose layers are priced already; see `make_plan`."""
    plan = fastest_plan(network, devices)
    if plan is None:
        raise ValueError(_why_none_fits(network, devices))
    return plan


def fastest_plan(network: PricedNetwork, devices: Sequence[str],
                 plan_in_mode: Callable[[Mode], Plan | None] | None = None) -> Plan | None:
    """As `plan_priced`, but None if devices would hold more than their limit.

    Args:
      network, devices: as of `plan_priced`.
      plan_in_mode: gives the plan, if one fits, in which all cells of 'fit' recompute nothing,
        'none', as a whole, 'cell', or by layers, 'layer'. By default these plans are made here.
    """
    for one in _split_and_whole(network):
        plan_of = _plans_of_partitions(one, devices)
        plan = plan_of(choose_partition(one.elements, one.times, one.params))
        if not one.params.layers_per_cell:
            plan = _with_less_repeated(plan, one, plan_of)
            in_mode = plan_in_mode or functools.partial(_plan_in_mode, one, devices)
            plan = _with_fitting_partition(plan, plan_of, in_mode, one.splits)
        plan = _with_best_modes(plan, one)
        if plan.fits:
            return plan
    return None


def _split_and_whole(network: PricedNetwork) -> list[PricedNetwork]:
    """The network as it is, and then, if its schedule splits backwards, with whole ones only."""
    is_split = network.splits and network.params.schedule not in (*UNSPLIT, 'text')
    return [network, *[dataclasses.replace(network, splits=False)] * is_split]


def _with_fitting_partition(plan: Plan, plan_of: Callable[[Partition], Plan],
                            plan_in_mode: Callable[[Mode], Plan | None], splits: bool) -> Plan:
    """The plan, or one whose partition allows to recompute less, or to keep the limit at all."""
    candidates, params = [plan], plan.params
    if plan.is_scarce:
        uniform = [other for other in map(plan_in_mode, UNIFORM) if other is not None]
        candidates += [*(plan_of(other.partition) for other in uniform), *uniform]
    fitting = [candidate for candidate in candidates if candidate.fits]
    if fitting:
        return plan_of(_fastest(fitting).partition)
    if params.device_bytes is None:
        return plan
    trials = Trials(peak_bytes=lambda partition: plan_of(partition).peak_bytes(),
                    step_s=lambda partition: plan_of(partition).simulate_times().step_s)
    partition = fitting_partition(plan.forecast, plan.placement, params, params.device_bytes,
                                  trials, splits)
    return plan if partition is None else plan_of(partition)


def _with_best_modes(plan: Plan, network: PricedNetwork) -> Plan:
    """The fastest plan of the partition that keeps the limit, or else the plan itself.

    Cells of 'fit' mostly do better than cells that all recompute in one way. These plans see to it
    that they never do worse.
    """
    if not plan.is_scarce:
        return plan
    fitting = [plan] if plan.fits else []
    for mode in UNIFORM:
        other = arranged(_in_mode(network, mode), plan.placement, plan.partition)
        if other.fits:
            fitting.append(dataclasses.replace(other, params=plan.params))
    return _fastest(fitting) if fitting else plan


def _fastest(plans: Sequence[Plan]) -> Plan:
    if len(plans) == 1:
        return plans[0]
    return min(plans, key=lambda plan: plan.simulate_times().step_s)


def _plans_of_partitions(network: PricedNetwork,
                         devices: Sequence[str]) -> Callable[[Partition], Plan]:
    """A function of a partition: its plan, made once."""
    placement = place_cells(devices, network.params.num_replicas, network.params.layout)

    @functools.lru_cache(maxsize=MAX_TRIED)
    def plan_of(partition: Partition) -> Plan:
        return arranged(network, placement, partition)

    return plan_of


def _plan_in_mode(network: PricedNetwork, devices: Sequence[str], mode: Mode) -> Plan | None:
    """The plan that fits if the cells of 'fit' all recompute nothing, as a whole, or by layers."""
    return fastest_plan(_in_mode(network, mode), devices)


def _in_mode(network: PricedNetwork, mode: Mode) -> PricedNetwork:
    """The network if the cells of 'fit' all recompute in one way."""
    modes = tuple(mode if one == 'fit' else one for one in network.params.modes)
    return dataclasses.replace(network, params=network.params.copy().set(recompute=modes))


def _why_none_fits(network: PricedNetwork, devices: Sequence[str]) -> str:
    """The sentence of the error if no plan fits."""
    network = _split_and_whole(network)[-1]
    params, plan_of = network.params, _plans_of_partitions(network, devices)
    plan = plan_of(choose_partition(network.elements, network.times, params))
    assert params.device_bytes is not None, 'without a limit, every plan fits'
    if params.layers_per_cell:
        return why_not_by_hand(params.layers_per_cell, plan.peak_bytes(), plan.placement,
                               params.device_bytes)
    plan = _with_less_repeated(plan, network, plan_of)
    return why_none_fits(plan.forecast, plan.peak_bytes(), plan.placement, params,
                         params.device_bytes, network.splits)


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


def plan_like(plan: Plan, network: Sequential, batch_spec: Mapping[str, Nested],
              is_frozen: Callable[[str], bool] = lambda path: False) -> Plan:
    """The plan with the same partition and placement for mini-batches of another shape.

    Args:
      plan: of the same network.
      network, batch_spec, is_frozen: as of `make_plan`.

    Raises:
      ValueError: M does not divide the batch, or a device would hold more than its limit.
    """
    memory = plan.forecast.memory
    network_of_batch = price(network, batch_spec, plan.params, is_frozen, memory.slot_bytes,
                             memory.update_bytes)
    partition = dataclasses.replace(plan.partition, elements=network_of_batch.elements)
    for one in _split_and_whole(network_of_batch):
        other = _with_best_modes(arranged(one, plan.placement, partition), one)
        if other.fits:
            return other
    limit = plan.params.device_bytes
    assert limit is not None, 'without a limit, every plan fits'
    raise ValueError(why_not_by_hand(partition.layers_per_cell, other.peak_bytes(),
                                     plan.placement, limit))
