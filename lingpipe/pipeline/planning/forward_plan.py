"""Forward plan: what will run where in an evaluation or a prediction, which have no backward."""
from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence

from lingpipe.layers import nested
from lingpipe.layers.nested import Nested
from lingpipe.layers.sequential import Sequential
from lingpipe.pipeline.planning.cell import Cell
from lingpipe.pipeline.planning.dataflow import Element, Value, wire
from lingpipe.pipeline.planning.micro_batches import check_state, check_whole, split_spec
from lingpipe.pipeline.planning.outputs import layers_before, output_names, output_values
from lingpipe.pipeline.planning.partition import Partition, schedule_for
from lingpipe.pipeline.planning.plan import Plan, cells_on
from lingpipe.pipeline.planning.schedule import Schedule, check_sizes
from lingpipe.wording.values import nearest


@dataclasses.dataclass(frozen=True, eq=False)
class ForwardPlan:
    """The partition of a training plan, on the devices of one replica, forward only.

    Attributes:
      partition: wired for the micro-batches of the evaluation. A prediction leaves out layers that
        it does not need, and cells that consist of these.
      devices: [K] tf.device strings.
      schedule: forwards alone, a list for each cell.
      fetched: name -> the value that is asked for, which its cell gives out as if it were read.
    """
    partition: Partition
    devices: tuple[str, ...]
    schedule: Schedule
    fetched: Mapping[str, Value]

    @property
    def elements(self) -> tuple[Element, ...]:
        """All layers, wired and priced for one micro-batch."""
        return self.partition.elements

    @property
    def num_micro_batches(self) -> int:
        """M."""
        return self.schedule.num_micro_batches

    def with_micro_batches(self, num_micro_batches: int) -> ForwardPlan:
        """The same plan for another number of micro-batches of the same size."""
        return dataclasses.replace(
            self, schedule=schedule_for(self.partition, 'forward', num_micro_batches))

    def on(self, devices: Sequence[str]) -> ForwardPlan:
        """The same plan on the devices of another replica, [K]."""
        return dataclasses.replace(self, devices=tuple(devices))

    @functools.cached_property
    def cells(self) -> tuple[Cell, ...]:
        """[K]."""
        return cells_on(self.partition, self.devices, frozenset(self.fetched.values()))


def make_forward_plan(plan: Plan, network: Sequential, batch_spec: Mapping[str, Nested],
                      num_micro_batches: int = 0, fetch: Sequence[str] = ()) -> ForwardPlan:
    """Plans an evaluation on the devices of the first replica of a network in training.

    Args:
      plan: of training.
      network: the one that it cuts.
      batch_spec: name -> nested tf.TensorSpec of a mini-batch; its size may differ from training's.
      num_micro_batches: default: as many as training has in all replicas, R M, so that results do
        not depend on R; if these do not divide the batch, M (of one of sum_groups); or else 1.
      fetch: names of values to give for every example (the last value of that name).

    Raises:
      ValueError: the network cannot run on such mini-batches, or does not write what is fetched.
    """
    num_parts = num_micro_batches or _default_num_parts(plan, batch_spec)
    check_sizes(plan.partition.num_cells, num_parts)
    check_whole(network, num_parts, num_replicas=1)
    check_state(network, num_parts)
    elements = wire(network, split_spec(batch_spec, num_parts))

    partition = dataclasses.replace(plan.partition, elements=elements)
    return ForwardPlan(partition, plan.placement.devices[0],
                       schedule_for(partition, 'forward', num_parts), _fetched(elements, fetch))


def make_prediction_plan(plan: Plan, network: Sequential, batch_spec: Mapping[str, Nested],
                         num_micro_batches: int, outputs: Sequence[str]) -> ForwardPlan:
    """Plans a prediction: as an evaluation, but only the layers that the outputs need.

    Args:
      plan: of training.
      network: the one that it cuts.
      batch_spec: name -> nested tf.TensorSpec of a mini-batch. What the layers do not read, such
        as labels, may be missing.
      num_micro_batches: 0: as many as training has in all replicas, R M, so that results do
        not depend on R; if these do not divide the batch, M (of one of sum_groups); or else 1.
      outputs: names of values; none: see output_names.

    Raises:
      ValueError: the network cannot run on such mini-batches, or there are no such outputs.
    """
    num_parts = num_micro_batches or _default_num_parts(plan, batch_spec)
    check_sizes(plan.partition.num_cells, num_parts)
    names = output_names(network, plan.partition.elements, outputs)
    last_values = output_values(plan.partition.elements, names)
    needed = layers_before(plan.partition.elements, list(last_values.values()))
    paths = {element.layer.path for element in needed}
    elements = wire(network, split_spec(batch_spec, num_parts), only=paths)

    spans, devices, start = [], [], 0
    for span, device in zip(plan.partition.spans, plan.placement.devices[0], strict=True):
        size = sum(element.index in span for element in needed)
        if size:
            spans.append(range(start, start + size))
            devices.append(device)
            start += size

    partition = Partition(elements, tuple(spans))
    return ForwardPlan(partition, tuple(devices), schedule_for(partition, 'forward', num_parts),
                       output_values(elements, names))


def _default_num_parts(plan: Plan, batch_spec: Mapping[str, Nested]) -> int:
    size = nested.leaves(batch_spec)[0].shape[0]
    p = plan.params
    # A group of sums stands for a replica: see training/fewer_devices.py.
    numbers = (p.num_replicas * p.num_micro_batches, p.num_micro_batches // p.sum_groups)
    return next((number for number in numbers if size and size % number == 0), 1)


def _fetched(elements: Sequence[Element], fetch: Sequence[str]) -> dict[str, Value]:
    """The last value of each name.

    Raises:
      ValueError: no layer writes one of them.
    """
    written = {name: value for element in elements for name, value in element.writes.items()}
    for name in fetch:
        if name not in written:
            hint = nearest(name, sorted(written), 'there are')
            raise ValueError(
                f'no layer writes {name!r}; {hint}{"" if hint.endswith("?") else "."}')
    return {name: value for name, value in written.items() if name in fetch}
