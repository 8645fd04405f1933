"""Step forecast: what a step of a plan should take, part by part.

The simulator plays the slots. What comes before and after them is added here:

    slots      all devices run their slots, with free links
    links      how much later the slots end, since values and gradients are on their way
    overhead   TensorFlow starts the slots of a device
    replicas   they exchange their gradients
    update     the device that trains most reads and writes weights, gradients and slots
    input      the program waits for the mini-batch
"""
from __future__ import annotations

import dataclasses
import functools
import math

from lingpipe.pipeline.planning.breakdown import StepTimes, UpdateSpan
from lingpipe.pipeline.planning.hardware import Hardware
from lingpipe.pipeline.planning.links import Links
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.pipeline.planning.plan import Plan
from lingpipe.pipeline.planning.simulator import Simulation
from lingpipe.pipeline.planning.update_traffic import total_traffic


@dataclasses.dataclass(frozen=True, eq=False)
class StepForecast:
    """What a step should take, in seconds if the costs of the plan are seconds.

    Attributes:
      plan: of the step.
      simulation: of the slots, with links.
      overhead_s: see the head of this file.
      replicas_s: likewise.
      update_of_device: device -> what its update takes; devices as those of the schedule.
      input_s: likewise; 0, as inputs are read ahead.
    """
    plan: Plan
    simulation: Simulation
    overhead_s: float
    replicas_s: float
    update_of_device: dict[int, float]
    input_s: float = 0.0

    @property
    def slots_s(self) -> float:
        """Seconds until the last slot has ended, links included."""
        return self.simulation.timeline.step_s

    @property
    def update_s(self) -> float:
        """Seconds of the update on the device that takes longest."""
        return max(self.update_of_device.values())

    @property
    def step_s(self) -> float:
        """Seconds of one update."""
        return self.slots_s + self.overhead_s + self.replicas_s + self.update_s + self.input_s

    @functools.cached_property
    def links_s(self) -> float:
        """How much later the slots end than with free links."""
        return self.slots_s - self.plan.simulate_times().step_s

    @property
    def parts(self) -> dict[str, float]:
        """All parts, which add up to the step."""
        return {'slots': self.slots_s - self.links_s, 'links': self.links_s,
                'overhead': self.overhead_s, 'replicas': self.replicas_s,
                'update': self.update_s, 'input': self.input_s}

    @property
    def bubble_share(self) -> float:
        """How much of the time of its devices they wait, 0 to 1."""
        busy_s = self.simulation.busy_share * self.slots_s
        return 1 - (busy_s + self.update_s) / self.step_s

    def times(self) -> StepTimes:
        """The forecast as the times of a step, to be broken down beside measured ones."""
        timeline = self.simulation.timeline
        tasks_end = timeline.start_s + timeline.step_s
        sums_end = tasks_end + self.replicas_s
        updates = {device: [UpdateSpan('sums', (tasks_end, sums_end), tasks_end, tasks_end),
                            UpdateSpan('update', (sums_end, sums_end + seconds), sums_end,
                                       sums_end)]
                   for device, seconds in self.update_of_device.items()}
        return StepTimes(timeline, updates=updates, call_s=self.step_s - self.input_s,
                         input_s=self.input_s)


def forecast_step(plan: Plan, hardware: Hardware | None = None) -> StepForecast:
    """Forecasts a step.

    Args:
      plan: its costs are seconds, unless the hardware takes no time for anything else.
      hardware: what the devices and links can do; None: what the Params of the plan say of them.
    """
    hardware = hardware_of(plan.params) if hardware is None else hardware
    links = Links(plan, hardware)
    simulation = plan.simulate_times(hardware.latency_s, links.occupied_s)
    of_cells = [plan.forecast.memory.traffic_of(span) for span in plan.partition.spans]

    # Replicas may share devices.
    update_at = {place: total_traffic(of_cells[k] for k in cells).update_s(hardware)
                 for place, cells in plan.placement.cells_of_place.items()}
    update_of_device = {
        device: max(update_at[places[slots[0].cell]] for places in plan.placement.places)
        for device, slots in enumerate(plan.schedule.devices)}
    # A replica that sends its share of the weights sends half of what gradients of that size take.
    exchanged = [traffic.gradient_bytes + traffic.weight_bytes / 2 * plan.params.shard_slots
                 for traffic in of_cells]
    return StepForecast(
        plan, simulation,
        overhead_s=max(map(len, plan.schedule.devices)) * hardware.slot_s,
        replicas_s=links.exchange_s(exchanged),
        update_of_device=update_of_device)


def hardware_of(params: PipelineParams) -> Hardware:
    """What Params say of devices and links; nothing takes time if the costs are not seconds."""
    if not params.layer_seconds:
        return Hardware('any', slot_s=0.0, weight_s=0.0)
    link_bytes_per_s = params.link_bytes_per_s or math.inf
    return Hardware('these devices', link_bytes_per_s=link_bytes_per_s,
                    network_bytes_per_s=link_bytes_per_s,
                    memory_bytes_per_s=params.memory_bytes_per_s or math.inf)
