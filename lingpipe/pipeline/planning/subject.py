"""Subject: what is planned, a network with its mini-batches, its Params and the devices."""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from lingpipe.layers.nested import Nested
from lingpipe.layers.sequential import Sequential
from lingpipe.layers.weight import Weight
from lingpipe.pipeline.planning.dataflow import Element
from lingpipe.pipeline.planning.hardware import Hardware
from lingpipe.pipeline.planning.pipeline_params import PipelineParams

# [L] seconds of each layer's forward and backward for one micro-batch.
SecondsOf = Callable[[Sequence[Element]], Sequence[tuple[float, float]]]


@dataclasses.dataclass(frozen=True)
class Subject:
    """What is planned.

    Attributes:
      network: the layers.
      batch_spec: name -> nested tf.TensorSpec of a whole mini-batch.
      params: the experiment's; what a Choice names is replaced.
      devices: tf.device strings; a plan takes the first of them.
      hardware: what they can do. Its device_bytes limit a plan unless `params` have a limit.
      seconds_of: how long the layers take; None: as long as the costs of `params` say, in any unit.
      is_frozen, slot_bytes, update_bytes: as of `make_plan`.
    """
    network: Sequential
    batch_spec: Mapping[str, Nested]
    params: PipelineParams
    devices: Sequence[str]
    hardware: Hardware
    seconds_of: SecondsOf | None
    is_frozen: Callable[[str], bool] = lambda path: False
    slot_bytes: Callable[[Weight], int] = lambda weight: 0
    update_bytes: Callable[[Weight, bool], int] = lambda weight, has_rows: 0

    @property
    def limit(self) -> float | None:
        """The most bytes that a device may hold."""
        own = self.params.device_bytes
        return self.hardware.device_bytes if own is None else own

    def devices_for(self, params: PipelineParams) -> Sequence[str]:
        """Those that a run with these Params takes: one a cell, or one a device if they are few."""
        num_cells = params.num_replicas * params.num_cells
        has_one_each = len(self.devices) >= num_cells
        return self.devices[:num_cells if has_one_each else params.num_devices]
