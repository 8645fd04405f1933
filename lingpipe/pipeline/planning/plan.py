"""Plan: a network cut into cells on devices, with the schedule and what a step should take.

planner.py makes plans.
"""
from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from lingpipe.layers import cost
from lingpipe.pipeline.planning.cell import Cell, bytes_between
from lingpipe.pipeline.planning.dataflow import Element, Value
from lingpipe.pipeline.planning.forecast import Forecast
from lingpipe.pipeline.planning.partition import Partition
from lingpipe.pipeline.planning.peaks import peaks_of_devices
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.pipeline.planning.placement import Place, Placement
from lingpipe.pipeline.planning.schedule import Schedule
from lingpipe.pipeline.planning.simulator import Delay, Simulation, simulate
from lingpipe.pipeline.planning.waiting_values import most_waiting
from lingpipe.wording.counts import counted


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
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

    def temporary_bytes(self) -> dict[Place, float]:
        """The most that each device needs besides, while a layer runs; see memory.py."""
        temporaries: dict[Place, float] = {}
        for places in self.placement.places:
            for place in dict.fromkeys(places):
                of_replica = max(num_bytes for num_bytes, other
                                 in zip(self._temporaries_of_cells, places, strict=True)
                                 if other == place)
                temporaries[place] = temporaries.get(place, 0.0) + of_replica
        return temporaries

    def waiting_bytes(self) -> dict[Place, float]:
        """The most bytes that have been sent to each device at a time and are not yet read."""
        spans = self.simulate_times(link_s=link_seconds(self.params, self.cells)).spans
        waiting: dict[Place, float] = {}
        for cells, places in zip(self.replicas, self.placement.places, strict=True):
            of_replica = most_waiting(
                cells, places, self.schedule, spans, self.forecast.memory,
                self.forecast.recomputation.modes, _wire_dtype(self.params))
            for place, num_bytes in of_replica.items():
                waiting[place] = waiting.get(place, 0.0) + num_bytes
        return waiting

    @functools.cached_property
    def _temporaries_of_cells(self) -> list[int]:
        """[K] the most that a layer of each cell needs besides while it runs."""
        of_layers = self.forecast.memory.temporary_bytes
        return [max(of_layers[layer] for layer in span) for span in self.partition.spans]

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

    def __repr__(self) -> str:
        layers = ', '.join(str(len(cell.elements)) for cell in self.cells)
        replicas = f'{len(self.replicas)} replicas, ' if len(self.replicas) > 1 else ''
        return (f'Plan({replicas}cells of {layers} layers, schedule {self.schedule.name}, '
                f'{counted(self.schedule.num_micro_batches, "micro-batch")})')

    def rows(self) -> list[dict[str, Any]]:
        """The table of cells: one dict a cell, for programs.

        Of memory, in MB (10^6 bytes): `state_mb` is of weights, gradients and optimizer slots;
        `held_mb_per_micro_batch` of activations between forward and backward, `held_mb` that of all
        micro-batches that are live at once; `recomputed_mb` of what a backward makes again;
        `residual_mb_per_micro_batch` what would be held without recomputation; `temporary_mb` what
        a layer of the cell needs besides while it runs; `peak_mb` the most that the cell's device
        holds at a time, with its other cells if there are any, and without temporaries.
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
                'temporary_mb': self._temporaries_of_cells[k] / 1e6,
                'peak_mb': simulation.peak_bytes[list_of_cell[k]] / 1e6,
                'sent_mb_per_micro_batch': sum(value.num_bytes for value in cell.outputs) / 1e6,
                'step_share': step_cost / total_cost if total_cost else 0.0,
            })
        return rows


def link_seconds(params: PipelineParams, cells: Sequence[Cell]) -> Callable[[int, int], float]:
    """Seconds that a micro-batch's values or gradients occupy the link from one cell to another."""
    wire_dtype = _wire_dtype(params)

    @functools.cache
    def seconds(sender: int, receiver: int) -> float:
        if params.link_bytes_per_s is None:
            return 0.0
        return bytes_between(cells, sender, receiver, wire_dtype) / params.link_bytes_per_s

    return seconds


def _wire_dtype(params: PipelineParams) -> tf.DType | None:
    """The dtype in which float32 values are sent to other devices, if it is another one."""
    return tf.bfloat16 if params.wire_dtype == 'bfloat16' else None


def cells_on(partition: Partition, devices: Sequence[str],
             fetched: frozenset[Value] = frozenset()) -> tuple[Cell, ...]:
    """[K] the cells of a partition on devices, one a cell; see Cell for what is fetched."""
    return tuple(Cell(k, partition.elements_of(k), device, fetched)
                 for k, device in enumerate(devices))
