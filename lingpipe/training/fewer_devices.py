"""Fewer devices: the pipeline that an experiment runs on a part of its devices, with equal results.

Results do not depend on where layers are cut, unless resumption.why_plan_matters names a reason; in
that case the number of cells stays. R replicas of M micro-batches give the same bits as one
pipeline of R M micro-batches that sums them in R groups. So the planner may choose fewer cells, or
one replica in place of R. Everything else that results depend on stays: the mini-batch, and the
examples of each micro-batch. The modes of recomputation may change with the cells.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from lingpipe.pipeline.planning.layout import num_devices_for
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.pipeline.planning.plan import Plan
from lingpipe.pipeline.planning.planner import plan_priced
from lingpipe.pipeline.planning.priced_network import price
from lingpipe.training import resumption
from lingpipe.training.experiment import Experiment


def pipeline_on(experiment: Experiment, devices: Sequence[str]) -> PipelineParams:
    """The pipeline that runs on these devices: the experiment's own, or else a smaller one.

    Args:
      experiment: whose own pipeline is taken if the devices are enough for it.
      devices: one tf.device string for every cell that there is room for, as --devices names them.

    Returns:
      The pipeline of one replica or that of all replicas, whichever has the faster plan, with as
      many cells as the devices and their memory allow.

    Raises:
      ValueError: there are no devices, no plan fits them, or every plan that fits would change the
        results.
    """
    own = experiment.params.pipeline
    if own.num_devices <= len(devices):
        return own
    if own.schedule == 'text':
        raise ValueError('schedule=text is written for one number of cells')
    if not devices:
        raise ValueError('no device is left')
    reasons = resumption.why_plan_matters(own)
    if reasons and own.device_bytes is not None:
        raise ValueError(f'with {reasons}, results depend on the cuts, which device_bytes may move')

    plans: list[Plan] = []
    why_none = ''
    for pipeline in _of_fewer_replicas(own, experiment.params.task.learner.accumulate):
        if reasons:
            pipeline = pipeline.copy().set(num_cells=own.num_cells)
        try:
            plan = _plan_of_most_cells(experiment, pipeline, devices)
        except ValueError as error:
            why_none = str(error)
            continue
        if reasons and plan.params.num_cells < own.num_cells:
            why_none = f'with {reasons}, fewer cells would give other results'
        else:
            plans.append(plan)
    if not plans:
        raise ValueError(why_none)
    return min(plans, key=lambda plan: plan.simulate().step_s).params


def _of_fewer_replicas(own: PipelineParams, accumulate: int) -> Iterator[PipelineParams]:
    """The pipelines that learn the same, with as many cells in all as `own` has.

    Args:
      own: the experiment's.
      accumulate: how many mini-batches an update has. The sums of more than one are not grouped.
    """
    yield own
    is_grouped = own.replica_reduction == 'add' and not own.cross_replica_batch_norm
    if own.num_replicas > 1 and is_grouped and accumulate == 1:
        yield own.copy().set(
            num_cells=own.num_replicas * own.num_cells, num_replicas=1,
            num_micro_batches=own.num_replicas * own.num_micro_batches,
            sum_groups=own.num_replicas)


def _plan_of_most_cells(experiment: Experiment, pipeline: PipelineParams,
                        devices: Sequence[str]) -> Plan:
    """The plan with the most cells that fits, and no more than `pipeline` has.

    Raises:
      ValueError: none fits.
    """
    network, learner = experiment.task.network, experiment.task.learner
    num_units = len(list(network.units()))
    numbers = [number for number in range(min(pipeline.num_cells, num_units), 0, -1)
               if _num_devices(pipeline, number, len(devices)) <= len(devices)]
    if not numbers:
        raise ValueError(f'{pipeline.num_replicas} replicas need as many devices, and '
                         f'{len(devices)} are left')
    # Prices are those of a micro-batch, whatever the cells.
    priced = price(network, experiment.train_input.spec(),
                   _with_cells(pipeline, numbers[0], devices), learner.is_frozen,
                   learner.slot_bytes, learner.update_bytes)
    errors: list[ValueError] = []
    for number in numbers:
        params = _with_cells(pipeline, number, devices)
        try:
            params.validate()
            return plan_priced(dataclasses.replace(priced, params=params), params.devices)
        except ValueError as error:
            errors.append(error)
    raise errors[0]


def _num_devices(pipeline: PipelineParams, num_cells: int, num_named: int) -> int:
    """How many of the devices that are named so many cells use in all replicas."""
    one_each = pipeline.num_replicas * num_cells
    per_replica = num_devices_for(pipeline.schedule, num_cells, pipeline.cells_per_device)
    return one_each if one_each <= num_named else pipeline.num_replicas * per_replica


def _with_cells(pipeline: PipelineParams, num_cells: int, devices: Sequence[str]) -> PipelineParams:
    """The pipeline in so many cells, cut where the partitioner likes, on the first devices."""
    used = tuple(devices[:_num_devices(pipeline, num_cells, len(devices))])
    smaller = pipeline.copy().set(num_cells=num_cells, devices=used,
                                  cells_per_gpu=max(map(used.count, used)))
    if len(pipeline.layers_per_cell) != num_cells:
        smaller.set(layers_per_cell=())
    if pipeline.device_bytes is not None:   # A device with more layers may have to repeat more.
        smaller.set(recompute='fit')
    elif isinstance(pipeline.recompute, tuple) and len(pipeline.recompute) != num_cells:
        smaller.set(recompute='cell')
    return smaller
