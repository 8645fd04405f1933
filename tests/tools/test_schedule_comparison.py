"""Schedules take turns, so that the ratio of their steps is not that of a machine that drifts."""
from __future__ import annotations

import json

import pytest

from lingpipe.tools.schedule_comparison import median_interval, text
from tests.support.forks import Fork, run_module


def test_every_schedule_and_the_base_take_part_in_every_round():
    process = Fork(run_module, 'lingpipe.tools.bench_pipeline', '--device_ms=1,2', '--num_cells=2',
                   '--num_micro_batches=4', '--rounds=6', '--compare=gpipe,zb_v', '--json')
    out, err = process.communicate()
    assert process.returncode == 0, err

    comparison = json.loads(out)
    rows = {row['schedule']: row for row in comparison['schedules']}
    assert (comparison['base'], comparison['rounds']) == ('1f1b', 6)
    assert list(rows) == ['1f1b', 'control', 'gpipe', 'zb_v']
    assert rows['1f1b']['ratio'] == 1.0
    for row in rows.values():
        low, high = row['ratio_interval']
        assert low <= row['ratio'] <= high and row['step_ms'] > 0
    assert 'zb_v' in text(comparison)


@pytest.mark.parametrize('num, ranks', [(1, (0, 0)), (5, (0, 4)), (40, (13, 26)), (100, (40, 59))])
def test_the_interval_of_a_median_is_that_of_the_sign_test(num, ranks):
    assert median_interval(list(range(num))) == ranks
