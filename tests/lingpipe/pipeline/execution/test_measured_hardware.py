"""Measured hardware: memory and its speed, of the logical CPUs that share one machine."""
from __future__ import annotations

import math
import os

import pytest

from lingpipe.pipeline.execution import measured_hardware
from lingpipe.pipeline.execution.measured_hardware import free_bytes
from lingpipe.pipeline.planning.hardware import USED_SHARE


@pytest.fixture(autouse=True)
def _small_probes(monkeypatch):
    monkeypatch.setattr(measured_hardware, 'PROBE_BYTES', 2**12)
    monkeypatch.setattr(measured_hardware, 'NUM_PROBES', 1)


@pytest.mark.parametrize('num_devices', [1, 2])
def test_logical_cpus_share_the_memory_and_send_nothing(num_devices):
    found = measured_hardware.measured_hardware([f'CPU:{i}' for i in range(num_devices)])
    memory_bytes = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
    assert found.name == 'this machine (CPU)'
    assert found.device_bytes == pytest.approx(USED_SHARE * memory_bytes / num_devices)
    assert found.link_bytes_per_s == math.inf
    assert 0 < found.memory_bytes_per_s < math.inf


def test_half_of_what_is_free_may_be_taken_to_time_layers():
    assert 0 < free_bytes('CPU:0') <= 0.5 * os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
