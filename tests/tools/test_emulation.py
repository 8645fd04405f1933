"""Emulation: cells that sleep for the seconds of a real network's layers."""
from __future__ import annotations

import json

import pytest
import tensorflow as tf

from lingpipe.pipeline.planning.hardware import SLOT_S, WEIGHT_S
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.tools import emulation, stacks
from tests.support.forks import Fork, run_module

NETWORK = stacks.transformer(3, 8, 2)   # and the loss
SPEC = {name: tf.TensorSpec(value.shape, value.dtype)
        for name, value in stacks.transformer_batch(4, 2, 8).items()}
SECONDS = [[0.001, 0.002], [0.003, 0.004], [0.005, 0.007], [0.0, 0.0]]


def params_with_seconds(tmp_path, seconds, **params):
    """Returns Params with seconds that a file has."""
    path = tmp_path / 'seconds.json'
    path.write_text(json.dumps({'layer_seconds': seconds, 'memory_bytes_per_s': 1e9}))
    return emulation.with_layer_seconds(str(path), NETWORK, SPEC, PipelineParams(**params))


def test_seconds_of_layers_are_read_from_a_file(tmp_path):
    params = params_with_seconds(tmp_path, SECONDS)
    assert params.layer_seconds == pytest.approx((0.003, 0.007, 0.012, 0.0))
    assert params.layer_backward_seconds == (0.002, 0.004, 0.007, 0.0)


@pytest.mark.usefixtures('few_rounds')
def test_layers_are_timed_if_there_is_no_file(tmp_path):
    path = tmp_path / 'new.json'
    params = emulation.with_layer_seconds(str(path), NETWORK, SPEC, PipelineParams())
    measured = json.loads(path.read_text())
    seconds = measured['layer_seconds']
    assert params.memory_bytes_per_s == measured['memory_bytes_per_s'] > 0
    assert params.layer_backward_seconds == tuple(backward for _, backward in seconds)
    assert len(seconds) == 4 and all(amount >= 0 for layer in seconds for amount in layer)


def test_a_file_of_another_network_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r'has the seconds of 3 layers, but the network has 4; '
                                         r'name another file, or none that exists to measure\.'):
        params_with_seconds(tmp_path, SECONDS[:3])


def test_a_cell_sleeps_for_all_of_its_layers(tmp_path):
    params = params_with_seconds(tmp_path, SECONDS, num_cells=2)
    network, sleeping = emulation.sleeping_cells(NETWORK, SPEC, params, scale=2.0)
    times_ms = [(layer.forward_ms, layer.backward_ms) for layer in network.layers[:-1]]
    assert times_ms == [pytest.approx((8.0, 12.0)), pytest.approx((10.0, 14.0))]
    assert sleeping.layers_per_cell == (1, 2)   # The loss is in the last cell too.
    assert sleeping.layer_seconds == pytest.approx((0.020, 0.024, 0.0))


def test_bench_pipeline_prints_the_parts_of_an_emulated_step(tmp_path):
    params_with_seconds(tmp_path, SECONDS)
    flags = ('--layers=3 --dim=8 --heads=2 --seq=2 --batch=4 --num_micro_batches=2 --steps=1 '
             '--no_baseline --json --emulate --breakdown').split()
    process = Fork(run_module, 'lingpipe.tools.bench_pipeline', *flags,
                   f'--layer_seconds={tmp_path}/seconds.json',
                   f'--breakdown_png={tmp_path}/parts.png')
    out, err = process.communicate()
    assert process.returncode == 0, err

    found = json.loads(out)
    breakdown = found['breakdown']
    assert found['one_device_step_ms'] == pytest.approx(2 * 22.0)
    for parts in breakdown['devices']:
        assert sum(parts.values()) == pytest.approx(breakdown['step_s'])
    slots_s = 0.004 + 2 * 0.012 + 0.006
    assert breakdown['predicted']['planned']['step_s'] == pytest.approx(
        slots_s + 4 * SLOT_S + WEIGHT_S, rel=1e-5)   # F and B of two micro-batches; one weight
    assert (tmp_path / 'parts.png').read_bytes().startswith(b'\x89PNG')


def test_a_device_that_goes_straight_on_makes_up_for_waking_late(monkeypatch):
    """Every sleep lasts 1 ms too long; the clock stands still but for sleeps."""
    now_s = 100.0
    slept_s = []

    def sleep(seconds):
        nonlocal now_s
        slept_s.append(seconds)
        now_s += seconds + 0.001

    monkeypatch.setattr(stacks.time, 'perf_counter', lambda: now_s)
    monkeypatch.setattr(stacks.time, 'sleep', sleep)
    device = stacks.Sleeper()
    device.sleep(0.010)
    device.sleep(0.010)
    now_s += 0.005   # It waits for another device.
    device.sleep(0.010)
    assert slept_s == pytest.approx([0.010 - stacks.CALL_S, 0.009 - stacks.CALL_S,
                                     0.010 - stacks.CALL_S])


def test_cells_that_share_an_emulated_device_know_it():
    network = stacks.sleeping([(1.0, 2.0)] * 4, layout=(0, 1, 1, 0))
    assert [layer.device for layer in network.layers[:-1]] == [0, 1, 1, 0]
