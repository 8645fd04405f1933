"""Site: where a run takes place: its devices, and the watchdog that looks after its workers."""
from __future__ import annotations

import dataclasses

import tensorflow as tf

from lingpipe.cluster.client import is_on_worker
from lingpipe.cluster.returned import ReturnedWorkers
from lingpipe.cluster.watchdog import Watchdog
from lingpipe.pipeline.planning.pipeline_params import PipelineParams


@dataclasses.dataclass(frozen=True)
class Site:
    """Where a run takes place. The default is this process, on the devices that the Params name.

    Attributes:
      devices: one tf.device string a cell; () if the Params name them, or leave it to the machine.
      watchdog: is told what the run does; None if there are no workers.
      pipeline: what the devices run if workers are missing; None: as the experiment's Params say.
      returned: looks whether the missing workers answer again; None if the run does not take any
        in.
    """
    devices: tuple[str, ...] = ()
    watchdog: Watchdog | None = None
    pipeline: PipelineParams | None = None
    returned: ReturnedWorkers | None = None

    def begin(self, what: str, is_bounded: bool = False) -> None:
        """Tells the watchdog, if there is one, what the run does now; see Watchdog.begin."""
        if self.watchdog:
            self.watchdog.begin(what, is_bounded)

    def name_of(self, device: str) -> str:
        """Returns the name of a tf.device string, for people; for a worker's, with its address."""
        connection = self.watchdog.connection if self.watchdog else None
        if connection is None or not is_on_worker(device):
            return device
        spec = tf.DeviceSpec.from_string(device)
        return (f'worker {spec.task}, {connection.workers[spec.task or 0].address} '
                f'({spec.device_type}:{spec.device_index})')


THIS_PROCESS = Site()
