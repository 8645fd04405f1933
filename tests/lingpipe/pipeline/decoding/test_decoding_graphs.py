"""Decoding graphs: each is built once, whatever the sizes of the sentence groups."""
from __future__ import annotations

import numpy as np

from lingpipe.layers.base import Layer
from lingpipe.pipeline.decoding.decoder import Decoder
from lingpipe.pipeline.decoding.sampling import SamplingParams
from lingpipe.pipeline.decoding.sentence_group import SentenceGroup
from tests.lingpipe.pipeline.decoding.test_prefill import END, START, program


def test_groups_of_other_sizes_build_no_other_graph(monkeypatch) -> None:
    params = SamplingParams(beam_size=1, max_length=6)
    decoder = Decoder(program(), params, START, END)
    read = np.full([2, 3], 5)
    decoder.stream([SentenceGroup({}, [4, 4], read)]).advance(1, [np.array([4, 4])])

    def fail(self, weights):
        raise AssertionError('a layer is traced again')
    monkeypatch.setattr(Layer, 'theta', fail)
    longer = decoder.stream([SentenceGroup({}, [6] * 3, np.full([3, 5], 4))])
    longer_ids = longer.advance(9, [np.array([6] * 3)])[0].best_ids
    assert [len(ids) for ids in longer_ids] == [6] * 3
