"""The lock of a logdir: one trainer at a time, which says who it is, and no lock for the dead."""
from __future__ import annotations

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from lingpipe import trainer
from lingpipe.training import logdir_lock
from tests.support.plain_user import plain_user

SINCE = r'process {} on \S+ since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d'


def hold_for_long(logdir, connection):
    """Holds the lock, in another process."""
    with logdir_lock.hold(logdir):
        connection.send(True)
        time.sleep(600)


@pytest.fixture
def holder(tmp_path):
    """Starts a process that holds the lock of tmp_path."""
    context = multiprocessing.get_context('fork')
    here, there = context.Pipe()
    process = context.Process(target=hold_for_long, args=(str(tmp_path), there), daemon=True)
    process.start()
    assert here.recv()
    yield process
    process.kill()
    process.join()


def test_second_owner_learns_who_the_first_is(tmp_path, holder):
    message = (rf'^{re.escape(str(tmp_path))} is in use by {SINCE.format(holder.pid)}, and only '
               rf'one trainer at a time can write there; '
               r'wait for that one or stop it, or choose another logdir\.$')
    with pytest.raises(OSError, match=message), logdir_lock.hold(str(tmp_path)):
        pass
    assert holder.is_alive()


@pytest.mark.parametrize('number', [signal.SIGKILL, signal.SIGTERM])
def test_dead_owner_keeps_nothing(tmp_path, holder, number):
    os.kill(holder.pid, number)
    with logdir_lock.hold(str(tmp_path)):
        assert re.fullmatch(SINCE.format(os.getpid()), (tmp_path / 'lock').read_text().strip())


def test_trainer_does_not_touch_a_logdir_that_is_in_use(tmp_path, holder, capsys):
    unfinished = tmp_path / 'checkpoints' / 'tmp-step-00000004'
    unfinished.mkdir(parents=True)
    before = sorted(tmp_path.rglob('*'))
    assert trainer.main(['trainer', '--model=tests.support.tiny_experiment.Tiny',
                         f'--logdir={tmp_path}']) == 1
    assert re.match(rf'trainer: .* is in use by {SINCE.format(holder.pid)}, ',
                    capsys.readouterr().err)
    assert sorted(tmp_path.rglob('*')) == before


def test_lock_that_was_let_go_can_be_had_again(tmp_path):
    for _ in range(2):
        with logdir_lock.hold(str(tmp_path / 'logs')):
            pass


def test_process_that_starts_itself_again_keeps_its_lock_and_its_name(tmp_path):
    """Another process also tries to take the lock between the two programs of this process."""
    code = ('import sys\n'
            'from lingpipe.process import environment\n'
            'from lingpipe.training import logdir_lock\n'
            'with logdir_lock.hold(sys.argv[1]) as held:\n'
            '    print(open(sys.argv[1] + "/lock").read().strip(), flush=True)\n'
            '    input()\n'
            '    if len(sys.argv) == 2:\n'
            '        held.keep()\n'
            '        environment.start_program([sys.executable, *sys.orig_argv[1:], "again"])\n')
    with subprocess.Popen([sys.executable, '-c', code, str(tmp_path)], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        name = process.stdout.readline()
        print(file=process.stdin, flush=True)
        in_use = pytest.raises(OSError, match=f'is in use by {SINCE.format(process.pid)}')
        with in_use, logdir_lock.hold(str(tmp_path)):   # It tries for two seconds.
            pass
        assert process.stdout.readline() == name
        print(file=process.stdin, flush=True)
    with logdir_lock.hold(str(tmp_path)):
        pass


def test_file_system_without_locks_costs_a_line(tmp_path, monkeypatch, caplog):
    def refuse(*_):
        raise OSError(37, 'No locks available')
    monkeypatch.setattr('fcntl.flock', refuse)
    with logdir_lock.hold(str(tmp_path)):
        pass
    assert [record.getMessage() for record in caplog.records] == [
        f'{tmp_path}/lock cannot be locked (No locks available): nothing keeps another trainer '
        f'from writing there.']


def test_a_lock_that_may_only_be_read_keeps_others_away(caplog):
    """As the lock of another user, which counted as one that cannot be taken at all."""
    with plain_user() as folder:
        (folder / 'lock').write_text('process 7')
        (folder / 'lock').chmod(0o444)
        in_use = pytest.raises(OSError, match='is in use by process 7, and only one trainer')
        with logdir_lock.hold(str(folder)), in_use, logdir_lock.hold(str(folder)):
            pass
    assert not caplog.records


def test_whether_a_lock_is_held_is_not_known_if_it_may_not_be_read():
    with plain_user() as folder:
        (folder / 'lock').touch(0)
        with pytest.raises(OSError, match=f'^{folder}/lock cannot be read: Permission denied; '):
            logdir_lock.is_held(str(folder))


def test_a_lock_that_cannot_be_looked_at_is_not_lost():
    """It was taken once more, in vain since this process has it, and the run ended."""
    with plain_user() as folder, logdir_lock.hold(str(folder / 'log')) as lock:
        folder.chmod(0)
        assert not lock.is_lost()


def test_a_logdir_that_was_removed_is_made_again(tmp_path, caplog):
    logdir = tmp_path / 'log'
    with logdir_lock.hold(str(logdir)) as lock:
        assert not lock.is_lost()
        logdir.rename(tmp_path / 'moved')
        assert lock.is_lost()
        lock.take_again()
        assert f'{logdir} was removed or moved while this run wrote there; it was' in caplog.text
        assert logdir_lock.is_held(str(logdir)) and not lock.is_lost()
    assert not logdir_lock.is_held(str(logdir))


def test_a_lock_that_was_copied_is_taken_again(tmp_path, caplog):
    """As by a tool that copies a logdir and puts the copy in its place."""
    with logdir_lock.hold(str(tmp_path)) as lock:
        (tmp_path / 'copy').write_text((tmp_path / 'lock').read_text())
        (tmp_path / 'copy').rename(tmp_path / 'lock')
        assert lock.is_lost()
        lock.take_again()
        assert 'was removed or replaced; it is taken again' in caplog.text
        assert logdir_lock.is_held(str(tmp_path)) and not lock.is_lost()


def test_a_logdir_that_another_run_has_made_again_is_not_touched(tmp_path):
    """Both wrote checkpoints there, and a run went on from those of the other one."""
    logdir = tmp_path / 'log'
    context = multiprocessing.get_context('fork')
    here, there = context.Pipe()
    with logdir_lock.hold(str(logdir)) as lock:
        logdir.rename(tmp_path / 'moved')
        other = context.Process(target=hold_for_long, args=(str(logdir), there), daemon=True)
        other.start()
        assert here.recv() and lock.is_lost()
        with pytest.raises(ValueError, match=f'^the lock of this run in {logdir} was removed or '
                                             f'replaced, and now {logdir} is in use by '):
            lock.take_again()
        other.kill()
        other.join()


def test_directory_in_the_place_of_the_lock_is_set_aside(tmp_path, caplog):
    (tmp_path / 'lock').mkdir()
    with logdir_lock.hold(str(tmp_path)) as held:
        assert held.number is not None
    assert ('lock cannot be used: it is a directory; it is now lock.bad'
            in caplog.records[0].getMessage())
