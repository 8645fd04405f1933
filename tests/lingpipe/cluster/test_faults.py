"""Faults: whatever is lost, the run resumes by itself and ends with the bits of a quiet one."""
import json
import os
import pathlib
import re
import signal
import time

import numpy as np
import pytest

from lingpipe import trainer
from lingpipe.commands import device_setup
from lingpipe.training import logdir_lock
from lingpipe.training.evaluation_log import EvaluationLog
from tests.support.held_experiment import hold, let_go
from tests.support.local_workers import (
    TINY,
    Cable,
    Trainer,
    Worker,
    checkpoint_of,
    wait_until,
    workers,
)

pytestmark = pytest.mark.slow
STEPS = 12
HELD = '--model=tests.support.held_experiment.Held'


@pytest.fixture(scope='module')
def undisturbed(tmp_path_factory):
    """The variables after STEPS steps in this process."""
    logdir = tmp_path_factory.mktemp('undisturbed')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device_setup, 'configure', lambda params: None)
        assert trainer.main(['trainer', HELD, f'--logdir={logdir}', '--mode=train',
                             f'--steps={STEPS}']) == 0
    return checkpoint_of(logdir, STEPS)


def start(tmp_path, addresses, *flags):
    """Starts a training of STEPS steps that waits near its end until it is let go."""
    marker = pathlib.Path(tmp_path, 'marker')
    held = f'--set=train_input.marker={marker}', f'--set=train_input.held_after={STEPS - 2}'
    return Trainer(pathlib.Path(tmp_path, 'log'), addresses, f'--steps={STEPS}', *held, *flags,
                   model=HELD)


def let_training_go(tmp_path):
    """Lets go what `start` has started and will start, once it is disturbed."""
    let_go(pathlib.Path(tmp_path, 'marker'))


def hold_training(tmp_path):
    """Lets what `start` will start wait again."""
    hold(pathlib.Path(tmp_path, 'marker'))


def wait_for_start(one, number):
    """Waits until the trainer has gone on so often, and for a step after that."""
    wait_until(lambda: one.log().count('going on after step') >= number)
    last = int(re.findall(r'going on after step (\d+)', one.log())[-1])
    one.wait_for_step(min(last + 1, STEPS - 2))


def assert_undisturbed(logdir, undisturbed):
    found = checkpoint_of(logdir, STEPS)
    assert found.keys() == undisturbed.keys()
    for name in undisturbed:
        np.testing.assert_array_equal(found[name], undisturbed[name], err_msg=name)


def test_workers_that_are_killed_hang_or_are_cut_off_are_waited_for(tmp_path, undisturbed):
    """One run has all three faults, one after the other, each soon after it has gone on."""
    with workers(2) as made:
        cable = Cable(made[0].address)
        one = start(tmp_path, [cable.address, made[1].address])
        one.wait_for_step(3)
        os.kill(made[1].server(), signal.SIGKILL)
        wait_until(lambda: 'starts again from there' in one.log())
        with pytest.raises(
                OSError, match=rf'is in use by process {one.process.pid} on '), logdir_lock.hold(
                str(one.logdir)):
            pass

        wait_for_start(one, 1)
        os.kill(made[1].server(), signal.SIGSTOP)   # The process above it finds that it hangs.
        wait_for_start(one, 2)
        cable.cut()
        let_training_go(tmp_path)
        time.sleep(1.)
        cable.is_cut = False
        log = one.end()
        cable.close()

    assert re.search(rf'worker 1, {made[1].address}, .*; the last checkpoint is of step \d+: the '
                     rf'trainer starts again from there',
                     log) or re.search(r'the connection to a worker broke .*; the last checkpoint '
                                       r'is of step \d+: the trainer starts again from there',
                                       log), log
    assert log.count('going on after step') >= 3 and 'took longer' not in log
    assert log.count('predicted bubble') == 1   # The forecast is not made and shown again.
    assert_undisturbed(one.logdir, undisturbed)


def test_a_run_goes_on_whether_its_trainer_is_stopped_or_killed_or_stopped_while_it_waits(
        tmp_path, undisturbed):
    with workers(2) as made:
        addresses = [w.address for w in made]
        one = start(tmp_path, addresses, '--set=train.checkpoint_every_steps=1000')
        one.wait_for_step(3)
        one.process.terminate()
        let_training_go(tmp_path)
        assert 'SIGTERM: stopped after step' in one.end(143)   # The workers had all weights.

        hold_training(tmp_path)
        one = start(tmp_path, addresses)
        wait_for_start(one, 1)
        servers = [w.server() for w in made]
        one.kill()

        one = start(tmp_path, addresses)
        wait_for_start(one, 2)
        # A server that was not replaced would keep the weights of the trainer before.
        assert not {w.server() for w in made} & set(servers)
        made[1].stop()   # Nobody starts it again.
        let_training_go(tmp_path)
        wait_until(lambda: 'starts again from there' in one.log())
        one.process.terminate()
        log = one.end(143)
        assert re.search(
            r'^SIGTERM: stopped; (it was waiting for workers|.*); the last checkpoint is of step '
            r'\d+, and no newer one can be written: the same command goes on from there$',
            log, re.MULTILINE), log

        made[1] = Worker(made[1].address)
        log = start(tmp_path, addresses).end()
    assert log.count('going on after step') == 3
    assert_undisturbed(one.logdir, undisturbed)


def test_workers_serve_the_trainer_that_came_last_and_the_one_before_says_which(
        tmp_path, undisturbed):
    """Two trainers took the workers from each other until both gave up.

    They said '10 starts have not come further'.
    """
    with workers(2) as made:
        addresses = [w.address for w in made]
        before = Trainer(tmp_path / 'before', addresses, '--steps=1000000',
                         '--set=train_input.seconds=0.1', model=HELD)
        before.wait_for_step(3)
        let_training_go(tmp_path)
        one = start(tmp_path, addresses)
        _, err = before.process.communicate(timeout=400)
        one.end()
    assert before.process.returncode == 1
    assert re.search(rf'^trainer: worker [01], 127\.0\.0\.1:\d+, was taken by process '
                     rf'{one.process.pid} on \S+ since [\d: -]+, '
                     rf'--logdir={re.escape(str(one.logdir))}; wait for the end of that one or '
                     rf'stop it, or name other workers in '
                     r'--devices: the same command goes on from the last checkpoint\.$',
                     err, re.MULTILINE), err
    assert_undisturbed(one.logdir, undisturbed)


def test_hung_worker_is_found_by_the_step_time_limit(tmp_path, undisturbed):
    with workers(2, hangs_after_s=1000.) as made:   # Nothing else looks.
        one = start(tmp_path, [w.address for w in made], '--set=train.step_timeout_s=3')
        one.wait_for_step(3)
        server = made[0].server()
        os.kill(server, signal.SIGSTOP)
        let_training_go(tmp_path)
        wait_until(lambda: 'starts again from there' in one.log())
        os.kill(server, signal.SIGKILL)
        log = one.end()
    assert re.search(rf'^(step|the checkpoint of step) \d+ took longer than '
                     rf'train\.step_timeout_s=3: worker 0, {made[0].address}, '
                     r'does not answer \(no answer\); the last checkpoint is of step \d+: the '
                     r'trainer starts again from there$',
                     log, re.MULTILINE), log
    assert_undisturbed(one.logdir, undisturbed)


@pytest.fixture(scope='module')
def given_up(tmp_path_factory):
    """A trainer that gave up waiting for a worker which nobody started again.

    Also gives the worker that is left and the one that was lost.
    """
    with workers(2) as (left, lost):
        for worker in (left, lost):
            worker.wait()   # On a busy machine, three seconds may be too few.
        folder = tmp_path_factory.mktemp('given_up')
        one = start(folder, [left.address, lost.address], '--set=train.worker_timeout_s=3')
        one.wait_for_step(3)
        lost.stop()
        let_training_go(folder)
        one.end(1)
        yield left, lost, one


def test_worker_that_never_comes_back_ends_the_wait(given_up):
    _, lost, one = given_up
    _, err = one.process.communicate()
    # TensorFlow may say more.
    said = [line for line in err.splitlines() if line.startswith('trainer: ')]
    assert said == [
        f'trainer: worker 1, {lost.address}, does not answer within 3 s (no connection); start it '
        f'there with --mode=worker --address={lost.address}, or correct --devices.']


def test_training_goes_on_with_the_worker_that_is_left(given_up, undisturbed):
    left, _, one = given_up
    log = start(one.logdir.parent, [left.address], '--set=pipeline.num_cells=1').end()
    assert re.search(r'going on after step \d+', log)
    assert_undisturbed(one.logdir, undisturbed)


# Signals while a worker is lost.

def test_sigterm_while_a_step_waits_for_a_hung_worker_is_not_forgotten(tmp_path):
    with workers(2, hangs_after_s=1000.) as made:   # Nothing else looks.
        one = start(tmp_path, [w.address for w in made], '--set=train.checkpoint_every_steps=1000')
        one.wait_for_step(3)
        os.kill(made[0].server(), signal.SIGSTOP)
        one.process.terminate()
        let_training_go(tmp_path)
        log = one.end(143)
    assert re.search(rf'^SIGTERM: stopped; .*: worker 0, {made[0].address}, does not answer \(no '
                     rf'answer\); there is no checkpoint yet, and '
                     r'no newer one can be written: the same command goes on from there$',
                     log, re.MULTILINE), log


# Evaluation and decoding.

def lose_worker_at(marker, one, worker):
    """Kills a worker's server once the trainer has made `marker`, and lets go what that holds."""
    one.wait_for_file(marker)
    os.kill(worker.server(), signal.SIGKILL)
    let_go(marker)


@pytest.fixture(scope='module')
def evaluated(tmp_path_factory):
    """The logdir of an undisturbed run of HELD in this process, with its evaluation."""
    logdir = tmp_path_factory.mktemp('evaluated')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device_setup, 'configure', lambda params: None)
        assert trainer.main(['trainer', HELD, f'--logdir={logdir}', '--steps=4']) == 0
    return logdir


def test_worker_lost_in_an_evaluation_of_a_training(tmp_path, evaluated):
    marker = tmp_path / 'evaluating'
    with workers(2) as made:
        one = Trainer(tmp_path / 'log', [w.address for w in made], '--steps=4',
                      f'--set=eval_inputs.test.marker={marker}', model=HELD, mode='train_and_eval')
        lose_worker_at(marker, one, made[1])
        log = one.end()
    assert 'the last checkpoint is of step 4: the trainer starts again from there' in log
    assert 'going on after step 4' in log
    # The marker is a value of the eval input, so its digest differs.
    assert EvaluationLog(str(one.logdir)).read() == EvaluationLog(str(evaluated)).read() != []


def test_worker_lost_in_mode_eval(evaluated, tmp_path):
    marker = tmp_path / 'evaluating'
    before = (evaluated / 'train.log').read_text()
    with workers(2) as made:
        one = Trainer(evaluated, [w.address for w in made],
                      f'--set=eval_inputs.test.marker={marker}', model=HELD, mode='eval')
        lose_worker_at(marker, one, made[0])
        out, err = one.process.communicate(timeout=400)
    assert one.process.returncode == 0, err
    assert 'the last checkpoint is of step 4: the trainer starts again from there' in err
    line = json.loads((evaluated / 'evaluations.jsonl').read_text())
    assert out == f'step 4 on test: loss {line["loss"]:.4g}  error {line["error"]:.4g}\n'
    assert (evaluated / 'train.log').read_text() == before


def test_worker_lost_in_mode_decode_that_reads_standard_input(evaluated, tmp_path, monkeypatch):
    marker = tmp_path / 'decoding'
    lines = ''.join(f'{number}\n' for number in range(40))
    with workers(2) as made:
        one = Trainer(evaluated, [w.address for w in made], f'--set=task.marker={marker}',
                      model=HELD, mode='decode', stdin=lines)
        lose_worker_at(marker, one, made[0])
        out, err = one.process.communicate(timeout=400)
    assert one.process.returncode == 0, err
    assert 'the trainer starts again from there' in err

    (tmp_path / 'in').write_text(lines)   # This run is undisturbed, in this process.
    monkeypatch.setattr(device_setup, 'configure', lambda params: None)
    files = [f'--decode_input={tmp_path}/in', f'--decode_output={tmp_path}/out']
    assert trainer.main(['trainer', HELD, f'--logdir={evaluated}', '--mode=decode', *files]) == 0
    assert out == (tmp_path / 'out').read_text() and out.count('\n') == 40


# Replicas.

REPLICAS = ('--steps=12', '--mode=train', '--set=pipeline.num_replicas=2',
            '--set=train.check_replicas_every_steps=6')


@pytest.fixture(scope='module')
def replicas_here(tmp_path_factory):
    """The variables of two replicas after 12 steps in this process."""
    logdir = tmp_path_factory.mktemp('whole')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device_setup, 'configure', lambda params: None)
        assert trainer.main(['trainer', TINY, f'--logdir={logdir}', *REPLICAS]) == 0
    return checkpoint_of(logdir, 12)


@pytest.mark.parametrize('num_workers, devices', [(2, 'cpu:2'), (4, '')])
def test_replicas_on_workers_have_the_bits_of_one_process(
        tmp_path, replicas_here, num_workers, devices):
    with workers(num_workers, devices) as made:
        one = Trainer(tmp_path / 'log', [w.address for w in made], *REPLICAS,
                      f'--set=pipeline.read_on_workers={"true" if devices else "false"}')
        if devices:
            one.wait_for_step(3)
            os.kill(made[1].server(), signal.SIGKILL)   # It runs all of replica 1.
        log = one.end()
    assert ('starts again from there' in log) == bool(devices)
    assert_undisturbed(one.logdir, replicas_here)
