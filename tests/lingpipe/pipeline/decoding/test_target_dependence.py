"""Target dependence: what runs for every position, what runs once, and what never runs."""
from __future__ import annotations

import pytest
import tensorflow as tf

from lingpipe.layers import Sequential
from lingpipe.pipeline.decoding.target_dependence import TargetDependence
from lingpipe.pipeline.planning.dataflow import Element, wire
from tests.lingpipe.pipeline.decoding import test_decoder


def elements_of(network: Sequential) -> tuple[Element, ...]:
    spec = {name: tf.TensorSpec([2, test_decoder.S], tf.int32)
            for name in ('source', 'target', 'label')} | {'weight': tf.TensorSpec([2, 5])}
    return wire(network, {name: one for name, one in spec.items() if name in network.reads()})


def names(elements: list[Element]) -> list[str]:
    return [element.layer.path.removeprefix('model/') for element in elements]


def test_the_encoder_runs_once_and_the_loss_never():
    network = TargetDependence(elements_of(test_decoder.network()), 'target')
    assert names(network.before) == [
        'source', 'mask', 'source_position', 'encoder', 'encoder_norm']
    assert names(network.stepped) == [
        'target', 'target_position', 'dropout', 'decoder_0', 'decoder_1', 'norm', 'softmax']
    assert (network.target.name, network.candidates.name) == ('target', 'logits')


def test_attention_prepares_what_it_keeps_of_the_memory():
    network = TargetDependence(elements_of(test_decoder.network()), 'target')
    layer = next(one for one in network.stepped if one.layer.path == 'model/decoder_0')
    assert list(network.moving_reads(layer)) == ['x']
    assert {value.name for value in network.fixed_reads(layer)} == {'encoded', 'mask'}


def test_a_network_without_target_or_without_candidates_is_refused():
    elements = elements_of(test_decoder.network())
    with pytest.raises(ValueError, match=r"the network reads no 'taget', so that there is nothing "
                                         r'to decode; name the value of the ids so far'):
        TargetDependence(elements, 'taget')
    silent = [one for one in elements if not one.layer.gives_candidates]
    with pytest.raises(ValueError, match=r"no layer that depends on 'target' gives candidates"):
        TargetDependence(silent, 'target')
