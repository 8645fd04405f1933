"""Decoding cell: its steps read weights on its own device alone, and cast none of them."""
from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from lingpipe import layers
from lingpipe.layers.base import Layer
from lingpipe.pipeline.decoding import decoding_cell
from lingpipe.pipeline.decoding.decoder import Decoder
from lingpipe.pipeline.decoding.sentence_group import SentenceGroup
from tests.lingpipe.pipeline.decoding.test_decoder import (
    BEAM,
    END,
    LIMIT,
    START,
    D,
    S,
    V,
    make_program,
    network,
    sentences,
)


def test_weights_stay_on_the_devices_of_their_cells():
    decoder = Decoder(make_program(network(), 3), BEAM, START, END)
    decoder.decode([SentenceGroup({'source': sentences()}, [LIMIT] * 6)])
    num_read = 0
    for cell in decoder.cells:   # A step reads on the device that calls it.
        for function in cell.step._list_all_concrete_functions():
            assert all(tensor.device.endswith(cell.device) for tensor in function.captured_inputs)
            num_read += len(function.captured_inputs)
    assert num_read > 30


def test_weights_are_cast_once_and_not_at_every_position(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step cast all its weights, so that bfloat16 wrote one text at 0.4 of float32's speed."""
    program = make_program(network(dtype='bfloat16', is_tied=True), 2, seed=3)
    group = SentenceGroup({'source': sentences()}, [LIMIT] * 6)
    results, num_casts = [], []
    for casts_each_time in (False, True):
        if casts_each_time:
            monkeypatch.setattr(decoding_cell, 'narrow_weights', lambda *args: {})
        decoder = Decoder(program, BEAM, START, END)
        results.append(decoder.decode([group])[0])
        num_casts.append(sum(
            op.type == 'Cast' and op.outputs[0].dtype == tf.bfloat16
            and op.inputs[0].op.type in ('ReadVariableOp', 'Placeholder')
            and op.inputs[0].shape.is_fully_defined()
            for cell in decoder.cells for function in cell.step._list_all_concrete_functions()
            for op in function.graph.get_operations()))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    np.testing.assert_array_equal(results[0][1], results[1][1])
    assert num_casts[0] == 0 and num_casts[1] > 5


class Shifted(Layer):
    """Adds a product of the features of each sentence, [b, S], to all of its positions."""

    is_positionwise = True

    def __init__(self, params, path=''):
        super().__init__(params, path)
        self.add_weight('w', [S, D])

    def fprop(self, theta, ctx, x, features):
        return x + tf.matmul(tf.cast(features, x.dtype), tf.cast(theta.w, x.dtype))[:, tf.newaxis]


def test_values_have_any_shape_and_groups_share_the_weights(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """In bfloat16, features [b, S] were an error, and each group held weights of its own."""
    model = layers.Sequential.Params(name='model', layers=(
        layers.Embedding.Params(name='ids', vocab_size=V, dim=D, dtype='bfloat16',
                                reads={'ids': 'target'}),
        Shifted.Params(name='shifted', reads={'features': 'source'}),
        layers.Logits.Params(name='softmax', input_dim=D, vocab_size=V, writes='logits'),
        layers.CrossEntropyLoss.Params(name='loss', reads={'x': 'logits', 'labels': 'label'})))
    decoder = Decoder(make_program(model.instantiate('model'), 2), BEAM, START, END)
    given_weights, cells = decoding_cell.DecodingCell.given_weights, []
    monkeypatch.setattr(decoding_cell.DecodingCell, 'given_weights',
                        lambda cell: [cells.append(cell), given_weights(cell)][1])
    whole = decoder.decode([SentenceGroup({'source': sentences()}, [LIMIT] * 6)])[0][0]
    assert cells == decoder.cells
    parts = decoder.decode([SentenceGroup({'source': some}, [LIMIT] * 3)
                            for some in np.split(sentences(), 2)])
    assert cells == 2 * decoder.cells
    np.testing.assert_array_equal(np.concatenate([ids for ids, _ in parts]), whole)
