"""Stream: what is written some positions at a time is what is written at once."""
from __future__ import annotations

import numpy as np

from lingpipe.pipeline.decoding.decoder import Decoder
from lingpipe.pipeline.decoding.sampling import SamplingParams
from lingpipe.pipeline.decoding.sentence_group import SentenceGroup
from tests.lingpipe.pipeline.decoding.test_prefill import END, LIMIT, PROMPTS, START, program


def test_groups_that_are_written_in_parts_have_the_ids_of_groups_that_are_written_at_once() -> None:
    params = SamplingParams(beam_size=1, max_length=LIMIT)
    decoder = Decoder(program(), params, START, END)
    groups = [SentenceGroup({}, [LIMIT] * 2, PROMPTS[:2]), SentenceGroup({}, [9], PROMPTS[2:3])]
    limits = [np.array(group.limits) for group in groups]
    stream, num_written = decoder.stream(groups), []
    while (written := stream.advance(2, limits))[0].is_going or written[1].is_going:
        num_written.append([[len(ids) for ids in group.ids] for group in written])
    assert num_written[0] == [[7, 9], [8]]   # after 5, 7 and 6 ids of prompts
    for group, (ids, _) in zip(written, decoder.decode(groups), strict=True):
        for found, expected in zip(group.best_ids, ids, strict=True):
            np.testing.assert_array_equal(found[:len(expected)], expected[:len(found)])

    ended = decoder.stream(groups).advance(1, [np.zeros(2), np.zeros(1)])
    assert [group.is_going for group in ended] == [False, False]
