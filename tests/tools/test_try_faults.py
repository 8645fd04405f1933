"""try_faults: how faults are drawn and made, and what counts as having recovered."""
from __future__ import annotations

import json
import pathlib
import random
import re
import shutil
import subprocess
import sys

import pytest

from lingpipe.tools import try_faults
from lingpipe.tools.faults import files, kinds, network, processes
from lingpipe.tools.faults.disturbed_run import EVERY_STEPS, DisturbedRun, NotRecoveredError, Place
from lingpipe.tools.faults.network import Network
from tests.support.forks import Fork, run_module
from tests.support.local_workers import wait_until

# Does what trainer and workers do that a disturbed run can see: it makes checkpoints, one every
# 10 ms, goes on from the newest, and ends with code 143 after SIGTERM.
PROCESS = '''
import os, re, signal, sys, time
flags = dict(flag[2:].split('=', 1) for flag in sys.argv[1:] if '=' in flag)
signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
if flags['mode'] == 'worker':
    time.sleep(1000)
folder = flags['logdir'] + '/checkpoints'
os.makedirs(folder, exist_ok=True)
if os.path.exists(folder + '/fails'):
    os.remove(folder + '/fails')
    print('trainer: the input is empty; fill it.', file=sys.stderr)
    sys.exit(1)
step = max([int(name[5:]) for name in os.listdir(folder) if name.startswith('step-')], default=0)
while True:
    step += EVERY_STEPS
    os.makedirs(f'{folder}/new', exist_ok=True)
    with open(f'{folder}/new/metadata.json', 'w') as file:
        file.write(str(step))
    os.rename(f'{folder}/new', f'{folder}/step-{step:08d}')
    time.sleep(0.01)
'''.replace('EVERY_STEPS', str(EVERY_STEPS))
COMMAND = (sys.executable, '-c', PROCESS)


@pytest.fixture
def run(tmp_path):
    """A disturbed run of three small processes."""
    (tmp_path / 'run').mkdir()
    made = DisturbedRun(tmp_path / 'run', tmp_path, [],
                        Place(('127.0.0.1:1', '127.0.0.1:2'), (COMMAND,) * 3), limit_s=20.)
    yield made
    made.end()


def test_each_kind_is_drawn_equally_often_and_the_seed_gives_the_order():
    names = [kind.name for kind in kinds.drawn(kinds.KINDS, 33, random.Random(3))]
    assert {names.count(kind.name) for kind in kinds.KINDS} == {2, 3}
    assert names == [kind.name for kind in kinds.drawn(kinds.KINDS, 33, random.Random(3))]
    assert names != [kind.name for kind in kinds.drawn(kinds.KINDS, 33, random.Random(4))]


def test_each_kind_has_a_name_of_its_own_and_a_sentence():
    assert len({kind.name for kind in kinds.KINDS}) == len(kinds.KINDS)
    for kind in kinds.KINDS:
        assert re.fullmatch(r'[A-Z].*[^.]\.', kind.text), kind.name


def process_ids(run):
    return [run.trainer.pid, *(worker.process.pid for worker in run.workers)]


@pytest.mark.parametrize('seed', (0, 1, 4))   # They kill the trainer, a server, a worker.
def test_a_process_that_is_killed_is_started_again(run, seed):
    before = process_ids(run)
    run.wait_for_checkpoint(0)
    processes.kill(run, random.Random(seed))
    while process_ids(run) == before:
        run.wait(0.05)
    changed = [now for now, then in zip(process_ids(run), before, strict=True) if now != then]
    assert len(changed) == 1
    run.wait_for_checkpoint(run.newest())


def test_a_worker_that_is_away_is_not_started_again_before_the_run_has_gone_on(run, monkeypatch):
    wait_for_checkpoint, without = run.wait_for_checkpoint, []

    def waited(after):
        wait_for_checkpoint(after)
        without.extend(worker for worker in run.workers if worker.process.poll() is not None)

    monkeypatch.setattr(run, 'wait_for_checkpoint', waited)
    monkeypatch.setattr(random.Random, 'uniform', lambda chance, low, high: low)
    assert re.fullmatch('worker [01], until 0.0 s after .*', processes.away(run, random.Random(0)))
    assert len(without) == 1
    run.look()
    assert without[0].process.poll() is None


def test_a_trainer_that_is_told_to_stop_is_started_again(run):
    run.wait_for_checkpoint(0)
    assert processes.sigterm(run, random.Random(0)) == 'in the middle; exit code 143'
    run.wait_for_checkpoint(run.newest())


def test_a_trainer_that_ends_with_a_sentence_has_failed_unless_the_sentence_is_expected(run):
    run.wait_for_checkpoint(0)
    marker = run.logdir / 'checkpoints' / 'fails'
    run.kill_trainer()
    marker.touch()
    run.start_trainer()
    with run.expecting('the input is empty'):
        run.wait_for_checkpoint(run.newest())
    assert run.endings == ['trainer: the input is empty; fill it.']

    run.kill_trainer()
    marker.touch()
    run.start_trainer()
    with pytest.raises(NotRecoveredError, match='exit code 1: trainer: the input is empty'):
        run.wait_for_checkpoint(run.newest())


def test_a_run_that_makes_no_checkpoint_has_not_recovered(tmp_path):
    idle = (sys.executable, '-c', 'import time; time.sleep(100)')
    made = DisturbedRun(tmp_path, tmp_path, [],
                        Place(('127.0.0.1:1', '127.0.0.1:2'), (idle,) * 3), limit_s=0.2)
    try:
        with pytest.raises(NotRecoveredError, match='there is no checkpoint of a later step than '
                                                    '10 within 0.2 s'):
            made.wait_for_checkpoint(0)
    finally:
        made.end()


def texts(run):
    return {path: path.read_bytes() for path in run.logdir.rglob('*') if path.is_file()}


@pytest.mark.parametrize('fault, num_changed', [
    (files.flip, 1), (files.truncate, 1), (files.swap, 2), (files.delete, 1)])
def test_files_are_damaged_while_no_trainer_runs(run, fault, num_changed):
    run.wait_for_checkpoint(EVERY_STEPS)
    run.kill_trainer()
    run.start_trainer = lambda: None   # so that nothing is written afterwards
    before = texts(run)
    fault(run, random.Random(0))
    after = texts(run)
    assert sum(before[path] != after.get(path) for path in before) == num_changed
    assert run.trainer.poll() is not None


@pytest.mark.parametrize('seed', range(4))
def test_of_two_checkpoints_none_is_swapped_since_none_would_be_whole(run, seed):
    """A swap that came first left the trainer nothing to go on from, and was called a failure."""
    run.wait_for_checkpoint(0)
    run.kill_trainer()
    run.start_trainer = lambda: None
    for path in sorted(run.logdir.glob('checkpoints/step-*'))[2:]:
        shutil.rmtree(path)
    before = texts(run)
    assert files.swap(run, random.Random(seed)) == 'nothing: there are fewer than three checkpoints'
    assert texts(run) == before


SAY_WHEN = '''
import socket, sys, time
mine = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
mine.bind(('', 5000))
for line in sys.stdin:
    host, limit_s = line.split()
    mine.settimeout(float(limit_s))
    start_s = time.monotonic()
    mine.sendto(b'x', (host, 5000))
    try:
        mine.recv(10)
        print(time.monotonic() - start_s, flush=True)
    except OSError:
        print('lost', flush=True)
'''
ECHO = '''
import socket
mine = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
mine.bind(('', 5000))
print('there', flush=True)
while True:
    mine.sendto(*mine.recvfrom(10))
'''


@pytest.mark.skipif(bool(network.missing()), reason='namespaces need root')
def test_packets_of_a_link_are_late_or_lost():
    made = Network(2, seed=0)
    try:
        echo, asking = (subprocess.Popen([*made.prefix(i), sys.executable, '-c', program],
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                        for i, program in enumerate((ECHO, SAY_WHEN)))
        assert echo.stdout.readline() == 'there\n'

        def answer(limit_s: float = 30.) -> str:
            asking.stdin.write(f'{made.host(0)} {limit_s}\n')
            asking.stdin.flush()
            return asking.stdout.readline().strip()

        assert answer() != 'lost'
        made.links[0].delay_s = 0.1
        assert float(answer()) >= 0.2
        made.links[0].is_cut = True
        assert answer(0.3) == 'lost'
        made.links[0] = network.Link(loss=1.)
        assert answer(0.3) == 'lost'
        made.links[0] = network.Link()
        assert answer() != 'lost'
        for process in (echo, asking):
            process.kill()
            process.communicate()
    finally:
        made.close()
    assert subprocess.run(['ip', 'netns', 'list'], capture_output=True,
                          text=True).stdout.count(made.prefix(0)[1].rpartition('/')[2]) == 0


def test_the_list_says_what_is_missing(capsys, monkeypatch):
    monkeypatch.setattr('os.geteuid', lambda: 1000)
    try_faults.main(['--list', '--json'])
    rows = {row['name']: row for row in json.loads(capsys.readouterr().out)['kinds']}
    assert rows['full_disk']['missing'] == 'only root can mount a small file system'
    assert rows['kill'] == {'name': 'kill', 'text': 'Kills a process with SIGKILL.', 'missing': ''}


def test_a_logdir_that_is_in_use_is_refused(tmp_path, capsys):
    pathlib.Path(tmp_path, 'file').touch()
    with pytest.raises(SystemExit) as ended:
        try_faults.main([f'--logdir={tmp_path}'])
    assert ended.value.code == 2
    assert 'is not empty; name a new folder' in capsys.readouterr().err


@pytest.mark.skipif(bool(network.missing()), reason='namespaces and mounts need root')
def test_sigterm_leaves_no_namespace_and_no_mount(tmp_path):
    process = Fork(run_module, 'lingpipe.tools.try_faults', f'--logdir={tmp_path}',
                   '--kinds=cut,full_disk')
    namespaces, mounts = f'lingpipe-{process.pid}-', f' {tmp_path}/disk '

    def left() -> bool:
        listed = subprocess.run(['ip', 'netns', 'list'], capture_output=True, text=True, check=True)
        return namespaces in listed.stdout or mounts in pathlib.Path('/proc/mounts').read_text()

    wait_until(lambda: pathlib.Path(tmp_path, 'disk', 'run').exists(), 120.)
    assert left()
    process.terminate()
    _, err = process.communicate(60.)
    assert process.returncode == 143, err
    assert not left()
