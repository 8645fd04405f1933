"""Costs of choices: the layers of a subject, wired and timed for the micro-batches of a choice.

They are shared among all choices that have micro-batches of that size.

L layers.
"""
from __future__ import annotations

from collections.abc import Sequence

from lingpipe.pipeline.planning.dataflow import Element
from lingpipe.pipeline.planning.layer_times import LayerTimes, layer_times
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.pipeline.planning.priced_network import wire_parts
from lingpipe.pipeline.planning.search_space import Choice
from lingpipe.pipeline.planning.subject import Subject
from lingpipe.pipeline.planning.update_traffic import (
    UpdateTraffic,
    total_traffic,
    update_traffic,
)


class ChoiceCosts:
    """What the layers of a subject cost in each choice."""

    def __init__(self, subject: Subject):
        self.subject = subject
        self._params_of: dict[tuple[Choice, float | None], PipelineParams] = {}
        self._state_of_layers: list[UpdateTraffic] = []
        self._elements_of: dict[int, tuple[Element, ...]] = {}
        self._seconds_of: dict[int, Sequence[tuple[float, float]]] = {}
        self._times_of: dict[tuple[int, tuple[float, ...], tuple[float, ...]], LayerTimes] = {}
        self._work_of: dict[int, float] = {}
        self._total_state: UpdateTraffic | None = None

    def params_of(self, choice: Choice, limit: float | None) -> PipelineParams:
        """The Params of a choice, with the seconds of its layers.

        Raises:
          ValueError: its values exclude each other.
        """
        key = choice, limit
        if key not in self._params_of:
            self._params_of[key] = self._make_params(choice, limit)
        return self._params_of[key]

    def _make_params(self, choice: Choice, limit: float | None) -> PipelineParams:
        params = self.subject.params.copy()
        if self.subject.seconds_of is not None:
            seconds = self.seconds(choice)
            params.set(
                layer_seconds=tuple(forward + backward for forward, backward in seconds),
                layer_backward_seconds=tuple(backward for _, backward in seconds),
                memory_bytes_per_s=self.subject.hardware.known_memory_bytes_per_s)
        params.set(**choice._asdict(), device_bytes=limit)
        if choice.num_cells != len(params.layers_per_cell):
            params.layers_per_cell = ()
        if params.devices:
            params.devices = tuple(self.subject.devices_for(params))
        return params.validate()

    def is_possible(self, choice: Choice) -> bool:
        """Whether a mini-batch can be split so and the layers can be given the parts."""
        try:
            self.elements(choice)
        except ValueError:
            return False
        return True

    def is_too_big(self, choice: Choice, limit: float | None) -> bool:
        """Whether what the layers train is more than the devices of a replica hold together."""
        num_shares = choice.num_replicas if self.subject.params.shard_slots else 1
        state_bytes = self.total_state(choice).state_bytes_of_share(num_shares)
        return limit is not None and state_bytes > limit * choice.num_cells

    def elements(self, choice: Choice) -> tuple[Element, ...]:
        """The network, wired for the micro-batches of a choice."""
        num_parts = choice.num_parts
        if num_parts not in self._elements_of:
            subject = self.subject
            params = subject.params.copy().set(   # As they are given, since errors name them.
                num_replicas=choice.num_replicas, num_micro_batches=choice.num_micro_batches)
            self._elements_of[num_parts] = wire_parts(
                subject.network, subject.batch_spec, params, subject.is_frozen)
        return self._elements_of[num_parts]

    def times(self, choice: Choice, params: PipelineParams) -> LayerTimes:
        """The times of layers in the micro-batches of a choice, by the seconds of its Params."""
        key = choice.num_parts, params.layer_seconds, params.layer_backward_seconds
        if key not in self._times_of:
            self._times_of[key] = layer_times(self.elements(choice), params)
        return self._times_of[key]

    def seconds(self, choice: Choice) -> Sequence[tuple[float, float]]:
        """[L] forward and backward of each layer, to six digits, so that flags can say them."""
        num_parts = choice.num_parts
        if num_parts not in self._seconds_of:
            elements, seconds_of = self.elements(choice), self.subject.seconds_of
            if seconds_of is None:
                times = self.times(choice, self.subject.params)
                self._seconds_of[num_parts] = list(zip(times.forward, times.backward, strict=True))
            else:
                self._seconds_of[num_parts] = [
                    (_rounded(forward), _rounded(backward))
                    for forward, backward in seconds_of(elements)]
        return self._seconds_of[num_parts]

    def work_s(self, num_parts: int) -> float:
        """Seconds of all forwards and backwards on one device, in so many micro-batches."""
        if num_parts not in self._work_of:
            self._work_of[num_parts] = num_parts * sum(map(sum, self._seconds_of[num_parts]))
        return self._work_of[num_parts]

    def one_device_s(self, state: Sequence[UpdateTraffic]) -> float:
        """Seconds of a step on one device that has all memory, with micro-batches of the best size.

        Its update is that of all layers.
        """
        hardware = self.subject.hardware
        slots_s = min(self.work_s(num_parts) + num_parts * hardware.slot_s
                      for num_parts in self._seconds_of)
        return slots_s + total_traffic(state).update_s(hardware)

    def state(self, choice: Choice) -> list[UpdateTraffic]:
        """[L] what each layer trains; it is the same for all choices."""
        if not self._state_of_layers:
            slot_bytes = self.subject.slot_bytes
            self._state_of_layers = [update_traffic(element, slot_bytes)
                                     for element in self.elements(choice)]
        return self._state_of_layers

    def total_state(self, choice: Choice) -> UpdateTraffic:
        """What all layers train together; it is the same for all choices."""
        if self._total_state is None:
            self._total_state = total_traffic(self.state(choice))
        return self._total_state


def _rounded(seconds: float) -> float:
    return float(f'{seconds:.6g}')
