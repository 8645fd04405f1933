"""In bench_link, a step over emulated links takes as long as the simulator says."""
from __future__ import annotations

import json

import pytest

from tests.support.forks import Fork, run_module


def test_a_slow_link_sets_the_pace():
    """A step waits for the transfers of 2 cells and 4 micro-batches, 50 ms each.

    The last value arrives after 201 ms, and its gradient 50 ms after its backward.
    """
    process = Fork(run_module, 'lingpipe.tools.bench_link',
                   '--num_cells=2', '--num_micro_batches=4', '--device_ms=1,2', '--transfer_kb=4',
                   '--links_mb_s=inf,0.08192', '--steps=2', '--json')
    out, err = process.communicate()
    assert process.returncode == 0, err
    fast, slow = json.loads(out)['links']
    assert (fast['link_mb_s'], fast['transfer_ms'], fast['simulated_ms']) == (None, 0, 15)
    assert (slow['transfer_ms'] == pytest.approx(50)
            and slow['simulated_ms'] == pytest.approx(1 + 4 * 50 + 3 + 50 + 2))
    assert slow['step_ms'] >= slow['simulated_ms'] and fast['step_ms'] < slow['step_ms']
