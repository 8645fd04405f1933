"""Links: how long a plan's values and gradients occupy the links between its devices."""
from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from lingpipe import cluster
from lingpipe.pipeline.planning.cell import bytes_between
from lingpipe.pipeline.planning.hardware import Hardware
from lingpipe.pipeline.planning.placement import Place
from lingpipe.pipeline.planning.plan import Plan


class Links:
    """The links between the devices of a plan."""

    def __init__(self, plan: Plan, hardware: Hardware):
        self._plan, self._hardware = plan, hardware
        self._wire_dtype = tf.bfloat16 if plan.params.wire_dtype == 'bfloat16' else None
        self._occupied_s: dict[tuple[int, int], float] = {}

    def occupied_s(self, sender: int, receiver: int) -> float:
        """Seconds that a micro-batch's values or gradients occupy the link between two cells."""
        pair = sender, receiver
        if pair not in self._occupied_s:
            devices = self._plan.placement.devices[0]
            num_bytes = bytes_between(self._plan.cells, *pair, self._wire_dtype)
            self._occupied_s[pair] = num_bytes / self._bytes_per_s(
                devices[sender], devices[receiver])
        return self._occupied_s[pair]

    def exchange_s(self, gradient_bytes: Sequence[float]) -> float:
        """Seconds in which replicas add up gradients: each sends and receives 2 (R - 1) / R.

        Args:
          gradient_bytes: [K].
        """
        placement = self._plan.placement
        share = sent_share(len(placement.devices))
        sending_s: dict[Place, float] = {}
        for r, devices in enumerate(placement.devices):
            next_devices = placement.devices[(r + 1) % len(placement.devices)]
            for k, num_bytes in enumerate(gradient_bytes):
                seconds = share * num_bytes / self._bytes_per_s(devices[k], next_devices[k])
                place = placement.places[r][k]
                sending_s[place] = sending_s.get(place, 0.0) + seconds
        return max(sending_s.values())

    def _bytes_per_s(self, device: str, other: str) -> float:
        is_one_host = cluster.place(device)[:2] == cluster.place(other)[:2]
        hardware = self._hardware
        return hardware.link_bytes_per_s if is_one_host else hardware.network_bytes_per_s


def sent_share(num_replicas: int) -> float:
    """How often a replica sends its gradients, and sums, if each adds up a part."""
    return 2 * (num_replicas - 1) / num_replicas
