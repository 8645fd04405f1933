"""Experiment Params: options that a run does not read are not passed over in silence."""
from __future__ import annotations

import pytest

from lingpipe.commands.experiment_params import chosen, read_params
from lingpipe.commands.run_options import RunOptions

MODEL = 'tests.support.tiny_experiment.Tiny'


@pytest.mark.parametrize(('mode', 'given', 'told'), [
    ('train_and_eval', {'device_type': 'h100'},
     ['device_type=h100 is not used, since no plan is looked for; add plan=auto, or leave it '
      'out.']),
    ('train', {'may_change_statistics': True},
     ['change_statistics is not used, since no plan is looked for; add plan=auto, or leave it '
      'out.']),
    ('train', {}, []),
    ('inspect', {'device_type': 'h100'}, []),
])
def test_what_only_a_planner_reads_costs_a_warning_without_one(
        mode: str, given: dict[str, object], told: list[str],
        caplog: pytest.LogCaptureFixture) -> None:
    """A run with --device_type=h100 took the plan of its Params, without a word."""
    options = RunOptions(mode=mode, model=MODEL, **given)
    params = read_params(options)
    assert chosen(params, options) is params
    assert [record.getMessage() for record in caplog.records] == told
