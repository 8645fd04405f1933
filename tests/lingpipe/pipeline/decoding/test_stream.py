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
    groups = [SentenceGroup({}, [LIMIT] * 2, PROMPTS[:2]), SentenceGroup({}, [9], PROMPTS[2:])]
    limits = [np.array(group.limits) for group in groups]
    stream, num_written = decoder.stream(groups), []
    while (written := stream.advance(2, limits))[0].is_going or written[1].is_going:
        num_written.append([group.ids.shape[1] for group in written])
    assert num_written[:2] == [[7, 8], [9, 9]]   # after 5 and 6 ids of prompts
    for group, (ids, _) in zip(written, decoder.decode(groups), strict=True):
        np.testing.assert_array_equal(group.best_ids, ids)

    ended = decoder.stream(groups).advance(1, [np.zeros(2), np.zeros(1)])
    assert [group.is_going for group in ended] == [False, False]
