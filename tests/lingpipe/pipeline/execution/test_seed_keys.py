"""Seed keys: equal to those of eager calls, each captured once, on the machine of its cell."""
from __future__ import annotations

import pytest
import tensorflow as tf

from lingpipe.layers.context import seed_key
from lingpipe.pipeline.execution.seed_keys import SeedKeys, eager_key


def test_a_key_is_captured_once_and_has_the_value_of_an_eager_call():
    graph = tf.__internal__.FuncGraph('cell')
    keys = SeedKeys(graph, experiment_seed=5, device='/device:CPU:0')
    with graph.as_default():
        inside = keys.of('model/dropout', 'mask')
        assert keys.of('model/dropout', 'mask') is inside
        assert keys.of('model/other', 'mask') is not inside
    assert len(graph.captures) == 2
    captured = keys.captured['model/dropout', 'mask']
    assert captured.numpy() == seed_key(5, 'model/dropout', 'mask')
    assert captured.numpy() != keys.captured['model/other', 'mask'].numpy()


@pytest.mark.parametrize('device', ['/device:CPU:1', '/job:localhost/task:0/device:CPU:1'])
def test_a_key_is_on_the_device_of_its_cell(device):
    assert eager_key(5, 'model/dropout', 'mask', device).device.endswith('CPU:1')


def test_a_key_of_a_gpu_is_on_its_host():
    assert eager_key(5, 'model/dropout', 'mask', '/device:GPU:3').device.endswith('CPU:0')
