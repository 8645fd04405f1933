"""bench_decoder's promise: one JSON object with the speed of decoding and of the naive way."""
from __future__ import annotations

import json
import subprocess
import sys


def test_prints_one_json_object():
    command = [sys.executable, '-m', 'tools.bench_decoder', '--layers=1', '--dim=8', '--vocab_size=20', '--source=3', '--length=4',
               '--num_cells=2', '--num_groups=2', '--group_size=2', '--beam_size=2', '--json']
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert set(found) == {'tokens_per_s', 'first_s', 'naive_tokens_per_s'} and min(found.values()) > 0
