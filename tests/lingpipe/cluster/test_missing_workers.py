"""Missing workers: a run that may go on without them does, and takes them in when they are back."""
from __future__ import annotations

import pathlib
import re

import numpy as np
import pytest

from lingpipe import trainer
from lingpipe.commands import device_setup
from lingpipe.training import newest_checkpoint
from tests.support.local_workers import Trainer, Worker, checkpoint_of, wait_until, workers

pytestmark = pytest.mark.slow
HELD = '--model=tests.support.held_experiment.Held'
FLAGS = ('--set=task.learner.learning_rate.decay_steps=1000000',   # Every step changes weights.
         '--set=pipeline.num_replicas=2', '--set=pipeline.num_cells=1')


def last_going_on(log: str) -> int:
    """The step after which the run has gone on last."""
    return int(re.findall(r'going on after step (\d+)', log)[-1])


def test_worker_that_stays_away_is_done_without_and_taken_in_when_it_is_back(
        tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with workers(2) as made:
        for worker in made:
            worker.wait()   # On a busy machine, five seconds may be too few.
        one = Trainer(tmp_path / 'log', [w.address for w in made], '--steps=1000000',
                      '--set=train.elastic_after_s=5', '--set=train_input.seconds=0.1', *FLAGS,
                      model=HELD)   # Steps in vain while a worker is away would take time.
        one.wait_for_step(5)
        made[1].stop()
        wait_until(lambda: one.log().count('going on after') == 1)
        one.wait_for_step(last_going_on(one.log()) + 3)

        made[1] = Worker(made[1].address)
        wait_until(lambda: one.log().count('going on after') == 2)
        one.wait_for_step(last_going_on(one.log()) + 3)
        one.process.terminate()
        log = one.end(143)

    assert re.search(
        rf'^warning: worker 1, {made[1].address}, does not answer within 5 s \(.*\); the run '
        rf'goes on without, on {made[0].address}, with num_micro_batches=4 in place of 2, '
        r'num_replicas=1 in place of 2, sum_groups=2 in place of 1$', log, re.MULTILINE), log
    assert re.search(rf'^worker {made[1].address} answers again; the last checkpoint is of step '
                     r'\d+: the trainer starts again from there$', log, re.MULTILINE), log
    assert '\npipeline.num_replicas : 2\n' in (one.logdir / 'params.txt').read_text()

    steps = newest_checkpoint.newest_step(str(one.logdir))
    assert steps is not None
    monkeypatch.setattr(device_setup, 'configure', lambda params: None)
    assert trainer.main(['trainer', HELD, f'--logdir={tmp_path}/whole', '--mode=train',
                         f'--steps={steps}', '--set=train.checkpoint_every_steps=1000000',
                         *FLAGS]) == 0
    found, expected = checkpoint_of(one.logdir, steps), checkpoint_of(tmp_path / 'whole', steps)
    assert found.keys() == expected.keys()
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
