"""bench_decoder prints one JSON object with the speed of decoding and of the naive way."""
from __future__ import annotations

import json

from tests.support.forks import Fork, run_module


def test_prints_one_json_object():
    process = Fork(run_module, 'lingpipe.tools.bench_decoder', '--layers=1', '--dim=8',
                   '--vocab_size=20', '--source=3', '--length=4', '--num_cells=2', '--num_groups=2',
                   '--group_size=2', '--beam_size=2', '--json')
    out, err = process.communicate()
    assert process.returncode == 0, err
    found = json.loads(out)
    assert (set(found) == {'tokens_per_s', 'first_s', 'naive_tokens_per_s'}
            and min(found.values()) > 0)
