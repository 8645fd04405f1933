"""Decoding cell: its steps read weights on its own device alone."""
from __future__ import annotations

from lingpipe.pipeline.decoding.decoder import Decoder
from lingpipe.pipeline.decoding.sentence_group import SentenceGroup
from tests.lingpipe.pipeline.decoding import test_decoder
from tests.lingpipe.pipeline.decoding.test_decoder import BEAM, END, LIMIT, START


def test_weights_stay_on_the_devices_of_their_cells():
    decoder = Decoder(test_decoder.make_program(test_decoder.network(), 3), BEAM, START, END)
    decoder.decode([SentenceGroup({'source': test_decoder.sentences()}, [LIMIT] * 6)])
    num_read = 0
    for cell in decoder.cells:   # A step reads on the device that calls it.
        for function in cell.step._list_all_concrete_functions():
            assert all(tensor.device.endswith(cell.device) for tensor in function.captured_inputs)
            num_read += len(function.captured_inputs)
    assert num_read > 30
