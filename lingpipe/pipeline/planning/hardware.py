"""Hardware: what devices and the links between them can do, by name for those not at hand.

Seconds of layers that nobody has timed are estimated here: a layer takes as long as its arithmetic,
or as the bytes that it moves, whichever is longer (the roofline model of Williams, Waterman and
Patterson, 2009). Real kernels reach about half of the peaks that vendors print.
"""
from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Iterable, Sequence

from lingpipe.pipeline.planning.backward_share import backward_share
from lingpipe.pipeline.planning.dataflow import Element

ATTAINED_SHARE = 0.5

USED_SHARE = 0.9   # of a device's memory; the rest is for what memory.py does not count

SLOT_S = 25e-6   # measured: docs/benchmarks.md, "Overhead"

# Measured: with 979 small weights, SGD takes 10 to 13 us a weight for the norm and the update, on a
# CPU.
WEIGHT_S = 10e-6


@dataclasses.dataclass(frozen=True)
class Hardware:
    """Devices of one type.

    Attributes:
      name: what people call it.
      device_bytes: the memory that a plan may use; None: nobody knows.
      flops_per_s: what a device attains in float32.
      half_flops_per_s: the same in bfloat16 or float16.
      memory_bytes_per_s: to and from the memory of a device.
      link_bytes_per_s: from one device of a machine to another.
      network_bytes_per_s: from a device to one of another machine.
      latency_s: until the first byte arrives.
      slot_s: what it costs to call a slot, whatever it computes.
      weight_s: what it costs to update a weight, whatever its size.
    """
    name: str
    device_bytes: float | None = None
    flops_per_s: float = 1.0
    half_flops_per_s: float = 1.0
    memory_bytes_per_s: float = math.inf
    link_bytes_per_s: float = math.inf
    network_bytes_per_s: float = math.inf
    latency_s: float = 0.0
    slot_s: float = SLOT_S
    weight_s: float = WEIGHT_S

    @property
    def known_memory_bytes_per_s(self) -> float | None:
        """As PipelineParams.memory_bytes_per_s: None if it takes no time."""
        return self.memory_bytes_per_s if math.isfinite(self.memory_bytes_per_s) else None

    def layer_seconds(self, elements: Sequence[Element]) -> list[tuple[float, float]]:
        """[L] the estimated seconds of each layer's forward and backward for one micro-batch."""
        return [self._passes(element) for element in elements]

    def _passes(self, element: Element) -> tuple[float, float]:
        outputs = [spec for value in element.writes.values() for spec in value.specs]
        is_half = any(spec.dtype.is_floating and spec.dtype.size == 2 for spec in outputs)
        rate = self.half_flops_per_s if is_half else self.flops_per_s
        values = {*element.reads.values(), *element.writes.values()}
        weight_bytes = sum(w.size * w.dtype.size for w in element.layer.weights())
        moved_bytes = sum(value.num_bytes for value in values) + weight_bytes

        forward = max(element.cost.flops / rate, moved_bytes / self.memory_bytes_per_s)
        # The gradients of the inputs, and those of all weights, take a forward each.
        share = backward_share(element)
        num_backwards = (1 + bool(element.trained or share < 1)) * share * element.has_backward
        return forward, num_backwards * forward


def _gpu(name: str, gigabytes: float, tflops: float, half_tflops: float, memory_gb_s: float,
         link_gb_s: float, network_gb_s: float) -> Hardware:
    """A device type by its data sheet, in the sheet's units; GB/s are one way."""
    return Hardware(
        name,
        device_bytes=USED_SHARE * gigabytes * 1e9,
        flops_per_s=ATTAINED_SHARE * tflops * 1e12,
        half_flops_per_s=ATTAINED_SHARE * half_tflops * 1e12,
        memory_bytes_per_s=ATTAINED_SHARE * memory_gb_s * 1e9,
        link_bytes_per_s=ATTAINED_SHARE * link_gb_s * 1e9,
        network_bytes_per_s=ATTAINED_SHARE * network_gb_s * 1e9,
        latency_s=20e-6)


# Peaks without sparsity, from NVIDIA's data sheets: Tesla P100 PCIe (2016), Tesla V100 SXM2 (2018),
# A100 80GB SXM (2021), H100 SXM (2023), H200 SXM (2024). From the A100 on, TensorFlow multiplies
# float32 matrices in TF32. Links are half of what the sheets add up for both ways: PCIe 3 x16 for
# the P100, NVLink for the others. Networks are those of the vendor's servers (DGX-1, DGX A100, DGX
# H100 and H200), for each device: 100, 200 and 400 Gbit/s.
DEVICE_TYPES = {
    hardware.name: hardware for hardware in (
        #           GB  TFLOP/s       bf16   GB/s  link  network
        _gpu('p100', 16, 9.3, 18.7, 732, 16, 12.5),
        _gpu('v100', 32, 15.7, 125, 900, 150, 12.5),
        _gpu('a100', 80, 156, 312, 2039, 300, 25),
        _gpu('h100', 80, 495, 989, 3350, 450, 50),
        _gpu('h200', 141, 495, 989, 4800, 450, 50),
    )}


def device_type(name: str) -> Hardware:
    """The devices of that name.

    Raises:
      ValueError: nobody has described them here.
    """
    if name.lower() in DEVICE_TYPES:
        return DEVICE_TYPES[name.lower()]
    near = difflib.get_close_matches(name.lower(), DEVICE_TYPES, n=2, cutoff=0.5)
    hint = f'did you mean {" or ".join(near)}? Use' if near else 'use'
    raise ValueError(f'--device_type={name} is unknown; {hint} one of {_listed(DEVICE_TYPES)}, or '
                     'leave it out to measure this machine.')


def _listed(names: Iterable[str]) -> str:
    return ', '.join(names)
