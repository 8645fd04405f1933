"""bench_scale prints the seconds and the memory of every size that it is asked for."""
from __future__ import annotations

import json
import subprocess

from lingpipe.tools import bench_scale
from tests.support import forks


def test_measures_each_size(capsys, monkeypatch):
    monkeypatch.setattr(subprocess, 'run', forks.run)
    bench_scale.main(['--sizes=2x4', '--steps=1', '--json'])
    row, = json.loads(capsys.readouterr().out)['sizes']
    assert (row['num_cells'], row['num_micro_batches'], row['num_tasks']) == (2, 4, 12)
    assert min(row['build_cpu_s'], row['first_step_cpu_s'], row['step_cpu_s'], row['memory_mb']) > 0
