"""Forecast: the time and the bytes that each cell of a partition takes."""
from __future__ import annotations

import dataclasses
import functools

from lingpipe.pipeline.planning.cell_times import CellTimes, cell_times
from lingpipe.pipeline.planning.fitting_modes import Recomputation
from lingpipe.pipeline.planning.layer_times import LayerTimes
from lingpipe.pipeline.planning.memory import Footprint, Memory
from lingpipe.pipeline.planning.partition import Partition


@dataclasses.dataclass(frozen=True, eq=False)
class Forecast:
    """What cells take, whatever the schedule and the devices.

    Attributes:
      partition: the cells.
      times: of all layers.
      memory: what its layers hold, in any cell.
      recomputation: what runs again in the backward of each cell.
      memory_bytes_per_s: of a device; None: to split a backward costs nothing.
    """
    partition: Partition
    times: LayerTimes
    memory: Memory
    recomputation: Recomputation
    memory_bytes_per_s: float | None = None

    @functools.cached_property
    def forward_costs(self) -> list[float]:
        """[K] relative time of F(k, m)."""
        return [sum(self.times.forward[layer] for layer in span)
                for span in self.partition.spans]

    @functools.cached_property
    def backward_costs(self) -> list[float]:
        """[K] relative time of B(k, m) without the cell's recomputation.

        Where each layer runs once more for itself, that is included. The recomputation of a cell
        then needs no forward of its last layer, which is taken off here; the last cell has no
        recomputation.
        """
        return [sum(self.times.backward[layer] for layer in span) + repeated for span, repeated in
                zip(self.partition.spans, self.layer_repeat_costs, strict=True)]

    @functools.cached_property
    def repeat_costs(self) -> list[float]:
        """[K] relative time of the cell's recomputation for one micro-batch."""
        last, kept = self.partition.num_cells - 1, self.recomputation.kept
        costs = []
        for k, mode in enumerate(self.recomputation.modes):
            is_repeated = mode in ('cell', 'layer') and k < last and self.partition.has_backward(k)
            of_cell = self.forward_costs[k] * is_repeated
            costs.append(kept[k].repeat_cost if k in kept else of_cell)
        return costs

    @functools.cached_property
    def weight_costs(self) -> list[float]:
        """[K] the part of the backward that W takes where it is split.

        That is all of it in a cell that passes no gradient on: its B has nothing to give.
        """
        costs = []
        for k, span in enumerate(self.partition.spans):
            backward = self.backward_costs[k]
            cost = sum(self.times.weight[layer] for layer in span)
            costs.append(min(backward, cost) if self.partition.passes_gradient_on(k) else backward)
        return costs

    @functools.cached_property
    def cell_times(self) -> CellTimes:
        """The times of all slots."""
        return cell_times(self.forward_costs, self.backward_costs, self.weight_costs,
                          self.repeat_costs, self.split_costs)

    @functools.cached_property
    def split_costs(self) -> list[float]:
        """[K] what it costs to split a backward: what B hands over to W is written and read."""
        if self.memory_bytes_per_s is None:
            return [0.0] * self.partition.num_cells
        return [2 * footprint.handed / self.memory_bytes_per_s * footprint.gives_gradients
                for footprint in self.footprints]

    @functools.cached_property
    def layer_repeat_costs(self) -> list[float]:
        """[K] the part of the backward in which layers run once more, each for itself."""
        repeated, last = self.times.repeated, self.partition.num_cells - 1
        modes = self.recomputation.modes
        return [(sum(repeated[layer] for layer in span) - repeated[span[-1]] * (k < last))
                * (modes[k] == 'layer') for k, span in enumerate(self.partition.spans)]

    @functools.cached_property
    def step_costs(self) -> list[float]:
        """[K] relative time of a device's work for one micro-batch.

        That is forward, backward and recomputation.
        """
        return [forward + backward + repeated for forward, backward, repeated in
                zip(self.forward_costs, self.backward_costs, self.repeat_costs, strict=True)]

    @property
    def balance(self) -> float:
        """Mean cost of a cell / the largest; 1 is perfect."""
        costs = self.step_costs
        return sum(costs) / len(costs) / max(costs) if max(costs) > 0 else 1.0

    @functools.cached_property
    def footprints(self) -> list[Footprint]:
        """[K] the bytes of each cell; layers are traced for it when it is first asked for."""
        return self.recomputation.footprints(self.memory, self.partition)
