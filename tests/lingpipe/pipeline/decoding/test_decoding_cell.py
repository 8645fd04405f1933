"""Decoding cell: its steps read weights on its own device alone, and cast none of them."""
from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.pipeline.decoding import decoding_cell
from lingpipe.pipeline.decoding.decoder import Decoder
from lingpipe.pipeline.decoding.sentence_group import SentenceGroup
from tests.lingpipe.pipeline.decoding.test_decoder import (
    BEAM,
    END,
    LIMIT,
    START,
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
            monkeypatch.setattr(decoding_cell, 'narrow_casts', lambda *args: [])
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
