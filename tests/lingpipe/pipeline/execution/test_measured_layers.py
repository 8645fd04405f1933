"""Measured layers: which layers are timed, and which are told from others."""
from __future__ import annotations

import pytest
import tensorflow as tf

from lingpipe.pipeline.execution import measured_layers
from lingpipe.pipeline.execution.measured_layers import MIN_RUNS, MeasuredLayers
from lingpipe.pipeline.planning.dataflow import num_examples, wire
from tests.support.planned_chains import dense, made

PLENTY = 1e9


@pytest.fixture
def timed(monkeypatch):
    """The layers of each call that times some; a layer takes a second for each example."""
    calls = []

    def layer_seconds(elements, devices, repeats, budget_s):
        calls.append([element.layer.path for element in elements])
        size = float(num_examples(elements))
        return [(size, 2 * size)] * len(elements)

    monkeypatch.setattr(measured_layers, 'layer_seconds', layer_seconds)
    return calls


def elements(num_examples: int):
    """Four products, of which b and c are alike, and a loss."""
    network = made(dense('a', 8, 8, reads={'x': 'image'}), dense('b', 8, 8), dense('c', 8, 8),
                   dense('d', 8, 4))
    return wire(network, {'image': tf.TensorSpec([num_examples, 8]),
                          'labels': tf.TensorSpec([num_examples], tf.int32),
                          'weight': tf.TensorSpec([num_examples])})


def test_layers_that_are_alike_are_timed_once(timed):
    passes = MeasuredLayers(['CPU:0'], PLENTY, PLENTY)(elements(4))
    assert timed == [['model/a', 'model/b', 'model/d', 'model/loss']]
    assert passes == [(4., 8.)] * 5


def test_a_size_is_timed_once(timed):
    layers = MeasuredLayers(['CPU:0'], PLENTY, PLENTY)
    assert layers(elements(4)) == layers(elements(4))
    assert len(timed) == 1


def test_what_does_not_fit_together_is_timed_in_groups(timed):
    MeasuredLayers(['CPU:0'], PLENTY, free_bytes=1.)(elements(4))
    assert all(len(group) == 1 for group in timed) and len(timed) > 1


def test_a_size_that_takes_too_long_lies_on_the_line_through_two_smaller_ones(timed):
    told = []
    layers = MeasuredLayers(['CPU:0'], MIN_RUNS * 50., PLENTY, told.append)
    for size in (2, 4, 64):
        passes = layers(elements(size))
    assert len(timed) == 2 and told == [2, 4]
    assert passes == [(64., 128.)] * 5
