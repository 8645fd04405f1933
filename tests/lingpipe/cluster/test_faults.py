"""Promises about faults: whatever is lost, the training goes on by itself and ends with the bits of one in which nothing was."""
import os
import pathlib
import re
import signal
import sys
import time

import numpy as np
import pytest

from lingpipe import trainer

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from local_workers import TESTS, TINY, Cable, Trainer, checkpoint_of, wait_until, workers  # noqa: E402

STEPS = 40


@pytest.fixture(scope='module')
def undisturbed(tmp_path_factory):
    """Variables after STEPS in this process."""
    logdir = tmp_path_factory.mktemp('undisturbed')
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(TESTS)
        patch.setattr(trainer, 'configure', lambda params: None)
        assert trainer.main(['trainer', TINY, f'--logdir={logdir}', '--mode=train', f'--steps={STEPS}']) == 0
    return checkpoint_of(logdir, STEPS)


def start(tmp_path, addresses, *flags):
    return Trainer(pathlib.Path(tmp_path, 'log'), addresses, f'--steps={STEPS}', *flags)


def assert_undisturbed(logdir, undisturbed):
    found = checkpoint_of(logdir, STEPS)
    assert found.keys() == undisturbed.keys()
    for name in undisturbed:
        np.testing.assert_array_equal(found[name], undisturbed[name], err_msg=name)


def test_killed_worker_is_waited_for(tmp_path, undisturbed):
    with workers(2) as made:
        one = start(tmp_path, [w.address for w in made])
        one.wait_for_step(5)
        os.kill(made[1].server(), signal.SIGKILL)
        log = one.end()
    assert re.search(rf'worker 1, {made[1].address}, .*; the last checkpoint is of step \d+: the trainer starts again from there', log) or \
        re.search(r'the connection to a worker broke .*; the last checkpoint is of step \d+: the trainer starts again from there', log), log
    assert_undisturbed(one.logdir, undisturbed)


def test_killed_trainer_goes_on_with_workers_that_begin_anew(tmp_path, undisturbed):
    with workers(2) as made:
        one = start(tmp_path, [w.address for w in made])
        one.wait_for_step(5)
        servers = [w.server() for w in made]
        one.kill()
        log = start(tmp_path, [w.address for w in made]).end()
        assert not {w.server() for w in made} & set(servers)   # or they would keep the weights of the first
    assert re.search(r'going on after step \d+', log)
    assert_undisturbed(one.logdir, undisturbed)


def test_hung_worker_is_found_by_the_step_time_limit(tmp_path, undisturbed):
    with workers(2, hangs_after_s=1000.) as made:   # nobody else looks
        one = start(tmp_path, [w.address for w in made], '--set=train.step_timeout_s=3')
        one.wait_for_step(5)
        server = made[0].server()
        os.kill(server, signal.SIGSTOP)
        wait_until(lambda: 'starts again from there' in one.log())
        os.kill(server, signal.SIGKILL)
        log = one.end()
    assert re.search(rf'^(step|the checkpoint of step) \d+ took longer than train\.step_timeout_s=3: worker 0, {made[0].address}, '
                     r'does not answer \(no answer\); the last checkpoint is of step \d+: the trainer starts again from there$', log,
                     re.MULTILINE), log
    assert_undisturbed(one.logdir, undisturbed)


def test_worker_ends_a_server_that_hangs(tmp_path, undisturbed):
    with workers(2) as made:
        one = start(tmp_path, [w.address for w in made])
        one.wait_for_step(5)
        os.kill(made[0].server(), signal.SIGSTOP)
        log = one.end()
    assert 'starts again from there' in log and 'took longer' not in log
    assert_undisturbed(one.logdir, undisturbed)


def test_cut_connection_is_made_again(tmp_path, undisturbed):
    with workers(2) as made:
        cable = Cable(made[0].address)
        one = start(tmp_path, [cable.address, made[1].address])
        one.wait_for_step(5)
        cable.cut()
        time.sleep(1.)
        cable.is_cut = False
        log = one.end()
        cable.close()
    assert 'the trainer starts again from there' in log
    assert_undisturbed(one.logdir, undisturbed)


def test_sigterm_saves_what_workers_hold(tmp_path, undisturbed):
    with workers(2) as made:
        one = start(tmp_path, [w.address for w in made], '--set=train.checkpoint_every_steps=1000')
        one.wait_for_step(5)
        one.process.terminate()
        assert 'SIGTERM: stopped after step' in one.end(143)
        log = start(tmp_path, [w.address for w in made]).end()
    assert re.search(r'going on after step \d+', log)
    assert_undisturbed(one.logdir, undisturbed)


def test_worker_that_never_comes_back_ends_the_wait(tmp_path):
    with workers(2) as made:
        one = start(tmp_path, [w.address for w in made], '--set=train.worker_timeout_s=3')
        one.wait_for_step(5)
        made[0].stop()
        _, err = one.process.communicate(timeout=120)
    assert one.process.returncode == 1
    said = [line for line in err.splitlines() if line.startswith('trainer: ')]   # TensorFlow may say more
    assert said == [f'trainer: worker 0, {made[0].address}, does not answer within 3 s (no connection); start it there with --mode=worker '
                    f'--address={made[0].address}, or correct --devices.']
