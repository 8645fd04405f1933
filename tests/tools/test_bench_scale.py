"""bench_scale's promise: seconds and memory of every size it is asked for."""
from __future__ import annotations

import json

import pytest

from tools import bench_scale


def test_measures_each_size(capsys):
    bench_scale.main(['--sizes=2x4', '--steps=1', '--json'])
    row, = json.loads(capsys.readouterr().out)['sizes']
    assert (row['num_cells'], row['num_micro_batches'], row['num_tasks']) == (2, 4, 12)
    assert min(row['build_cpu_s'], row['first_step_cpu_s'], row['step_cpu_s'], row['memory_mb']) > 0


def test_refuses_what_cannot_be():
    with pytest.raises(SystemExit, match=r'bench_scale: --sizes=8x32,16 is not a list of KxM'):
        bench_scale.main(['--sizes=8x32,16'])
