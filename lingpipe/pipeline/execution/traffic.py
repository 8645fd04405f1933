"""Traffic: the bytes that a step sends from device to device.

A value is sent once to every device that has readers of it. Its gradient travels back along the
chain of cells that read it, from the last one to the maker, and each cell adds its own part. Shared
weights, the sums of replicas and the mini-batch itself are sent between devices as well.
"""
from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence

import tensorflow as tf

from lingpipe import cluster
from lingpipe.pipeline.execution.accumulators import Accumulators
from lingpipe.pipeline.execution.compiled_task import CompiledTask
from lingpipe.pipeline.execution.reading_hosts import reading_hosts, source_of
from lingpipe.pipeline.planning.cell import Cell, bytes_sent
from lingpipe.pipeline.planning.dataflow import BATCH, Value
from lingpipe.pipeline.planning.plan import Plan
from lingpipe.pipeline.planning.slot_shares import replica_of_weights, slots_of


@dataclasses.dataclass(frozen=True)
class Traffic:
    """The bytes that one step sends from device to device, in all replicas together.

    Scalars are not counted.

    Attributes:
      batch: parts of the mini-batch, from the device that splits it to the devices that read them.
        With PipelineParams.read_on_workers, these devices are of one worker.
      values: what cells write and other cells read.
      gradients: of these values.
      shared_weights: weights that are sent to cells that share another cell's.
      shared_gradients: of these weights, sent to the owner.
      norms: the squares of each cell's gradients, one number per weight, which the first device
        adds up.
      sums: what replicas add up after their tasks: gradients, and what layers emitted.
      updated_weights: what replicas that share out the slots send each other after the update.
      gathered: what layers exchange with other replicas inside the tasks, as BatchNorm does.
      fetched: values that the caller asked for, sent to the device that splits the mini-batch.
    """
    batch: float = 0.0
    values: float = 0.0
    gradients: float = 0.0
    shared_weights: float = 0.0
    shared_gradients: float = 0.0
    norms: float = 0.0
    sums: float = 0.0
    updated_weights: float = 0.0
    gathered: float = 0.0
    fetched: float = 0.0

    @property
    def total(self) -> float:
        """The sum of all kinds."""
        return float(sum(dataclasses.astuple(self)))

    def __add__(self, other: Traffic) -> Traffic:
        """The sum, kind by kind."""
        return Traffic(*[a + b for a, b in zip(
            dataclasses.astuple(self), dataclasses.astuple(other), strict=True)])


def step_traffic(plan: Plan, accumulators: Sequence[Sequence[Accumulators]],
                 calls: Iterable[tuple[CompiledTask, int]],
                 wire_dtype: tf.DType | None) -> Traffic:
    """All that a training step sends between devices.

    Args:
      plan: for mini-batches of the step's shape.
      accumulators: [R][K].
      calls: the compiled tasks of all replicas, each with the number of its calls.
      wire_dtype: as in forward_traffic.
    """
    m = plan.params.num_micro_batches
    traffic = norms_traffic(plan.cells) + replicas_traffic(
        plan.replicas, accumulators, plan.params.replica_reduction, calls)
    hosts = reading_hosts(plan.replicas) if plan.params.read_on_workers else ()
    updates_in = _replica_of_weights(plan)
    for r, (cells, sums) in enumerate(zip(plan.replicas, accumulators, strict=True)):
        elsewhere = {path for path, replica in updates_in.items() if r not in (0, replica)}
        traffic += forward_traffic(cells, m, cluster.HOME, wire_dtype, hosts=hosts)
        traffic += backward_traffic(cells, m, wire_dtype)
        traffic += update_traffic(cells, sums, elsewhere)
    return traffic + handed_round_traffic(plan)


def forward_traffic(cells: Sequence[Cell], num_micro_batches: int, home: str,
                    wire_dtype: tf.DType | None = None,
                    fetched: Iterable[Value] = (), hosts: Collection[str] = ()) -> Traffic:
    """What the forward tasks of one replica send.

    Args:
      cells: [K].
      num_micro_batches: M.
      home: the device that splits the mini-batch.
      wire_dtype: the dtype in which float32 values are sent to other cells; None: float32.
      fetched: values of cells that the caller asked for.
      hosts: those that make the mini-batch themselves; see batch_source.py.
    """
    readers: dict[Value, list[str]] = {}
    shared: dict[str, tuple[int, list[str]]] = {}
    for cell in cells:
        for value in cell.inputs:
            readers.setdefault(value, []).append(cell.device)
        for weight in (weight for element in cell.elements for weight in element.layer.weights()):
            if weight.shared_with is not None:
                shared.setdefault(
                    weight.shared_with, (bytes_sent(tf.TensorSpec(weight.shape, weight.dtype)), [])
                )[1].append(cell.device)

    owner = _owners(cells)
    makers = {value: cell.device for cell in cells for value in cell.outputs}
    m = num_micro_batches
    return Traffic(
        batch=m * sum(value.num_bytes * _num_sent(devices, hosts, home)
                      for value, devices in readers.items() if value.maker == BATCH),
        values=m * sum(bytes_sent(spec, wire_dtype) * _num_others(makers[value], devices)
                       for value, devices in readers.items() if value.maker != BATCH
                       for spec in value.specs),
        shared_weights=sum(size * _num_others(owner[path], devices)
                           for path, (size, devices) in shared.items()),
        fetched=m * sum(value.num_bytes * (
            _num_others(makers[value], [home, *readers.get(value, ())]) -
            _num_others(makers[value], readers.get(value, ()))) for value in fetched))


def backward_traffic(cells: Sequence[Cell], num_micro_batches: int,
                     wire_dtype: tf.DType | None) -> Traffic:
    """The gradients that the backward tasks of one replica send; arguments as above."""
    total = 0
    for value in (value for cell in cells for value in cell.outputs):
        chain = [cell.device for cell in cells if value in cell.outputs or value in cell.inputs]
        num_sent = sum(_num_others(a, [b]) for a, b in itertools.pairwise(chain))
        total += num_sent * sum(
            bytes_sent(spec, wire_dtype)
            for spec, carries in zip(value.specs, value.carries_gradient, strict=True) if carries)
    return Traffic(gradients=num_micro_batches * total)


def update_traffic(cells: Sequence[Cell], accumulators: Sequence[Accumulators],
                   elsewhere: Collection[str] = ()) -> Traffic:
    """What the update of one replica sends, except for the norms.

    Args:
      cells, accumulators: [K].
      elsewhere: the weights whose gradients only other replicas need. The first replica needs all,
        for the norm.
    """
    owner = _owners(cells)
    return Traffic(shared_gradients=sum(
        sum(map(bytes_sent, sums.of_gradient(weight.path)))
        * _num_others(cell.device, [owner[weight.shared_with]])
        for cell, sums in zip(cells, accumulators, strict=True)
        for element in cell.elements for weight in element.trained
        if weight.shared_with is not None and weight.shared_with not in elsewhere))


def handed_round_traffic(plan: Plan) -> Traffic:
    """The weights that replicas which share out the slots send each other."""
    replica_of = _replica_of_weights(plan)
    if not replica_of:
        return Traffic()
    slot_bytes = plan.forecast.memory.slot_bytes
    total = 0
    for k, cell in enumerate(plan.cells):
        devices = [cells[k].device for cells in plan.replicas]
        for weight in (one for element in cell.elements for one in slots_of(element, slot_bytes)):
            total += weight.weight_bytes * _num_others(devices[replica_of[weight.path]], devices)
    return Traffic(updated_weights=total)


def _replica_of_weights(plan: Plan) -> Mapping[str, int]:
    """Path of a weight -> the replica that updates it, if replicas share out the slots."""
    num_replicas = len(plan.replicas)
    if not plan.params.shard_slots or num_replicas == 1:
        return {}
    return replica_of_weights(plan.cells, plan.forecast.memory.slot_bytes, num_replicas)


def norms_traffic(cells: Sequence[Cell]) -> Traffic:
    """What the cells send to the first device for the norm of the gradients."""
    owned = [(cell.device, weight) for cell in cells for element in cell.elements
             for weight in element.trained if not weight.shared_with]
    return Traffic(norms=tf.float64.size * sum(
        _num_others(device, [cells[0].device]) for device, _ in owned))


def replicas_traffic(replicas: Sequence[Sequence[Cell]],
                     accumulators: Sequence[Sequence[Accumulators]], reduction: str,
                     calls: Iterable[tuple[CompiledTask, int]]) -> Traffic:
    """What replicas send to each other.

    Args:
      replicas: [R][K] cells.
      accumulators: [R][K].
      reduction: PipelineParams.replica_reduction.
      calls: the compiled tasks of all replicas, each with the number of its calls.
    """
    if len(replicas) == 1:
        return Traffic()

    sums = gathered = 0.0
    for cells, same in zip(zip(*replicas, strict=True), zip(*accumulators, strict=True),
                           strict=True):
        devices = [cell.device for cell in cells]
        num_together = 0 if reduction == 'add' else len(same[0].gradients)
        for i, variable in enumerate(same[0].variables()):
            if i < num_together:
                sums += len(devices) * collective_bytes(bytes_sent(variable), len(devices))
            else:
                adder = devices[i % len(devices)]
                sums += bytes_sent(variable) * (
                    sum(_num_others(device, [adder]) for device in devices) +
                    _num_others(adder, devices))

    for task, num_calls in calls:
        sizes = [bytes_sent(op.inputs[0]) for op in task.function.graph.get_operations()
                 if op.type == 'CollectiveReduceV2']
        gathered += num_calls * sum(collective_bytes(size, len(replicas)) for size in sizes)
    return Traffic(sums=sums, gathered=gathered)


def collective_bytes(size: float, num_devices: int) -> float:
    """What each device sends when a ring of devices adds up tensors of `size` bytes.

    The tensor is cut into as many parts as there are devices. A device sends all parts but one
    while they are summed, and again all but one while the sums are passed on.
    """
    return 2 * size * (num_devices - 1) / num_devices


def _owners(cells: Sequence[Cell]) -> dict[str, str]:
    """Path of a weight -> the device of the cell whose layer has it."""
    return {weight.path: cell.device for cell in cells for element in cell.elements
            for weight in element.layer.weights()}


def _num_sent(devices: Iterable[str], hosts: Collection[str], home: str) -> int:
    """How often a part of the mini-batch is sent to the devices that read it."""
    pairs = {(cluster.place(source_of(device, hosts, home)), cluster.place(device))
             for device in devices}
    return sum(source != reader for source, reader in pairs)


def _num_others(maker: str, readers: Iterable[str]) -> int:
    """The number of devices, other than the maker's, that have readers."""
    return len({cluster.place(device) for device in readers} - {cluster.place(maker)})
