"""Side files: whatever is found in their place, the run resumes and nothing good is lost."""
from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from absl import logging

from lingpipe import trainer
from lingpipe.checkpoint import Checkpointer, side_files
from lingpipe.commands import device_setup
from lingpipe.training.evaluation_log import EvaluationLog
from tests.support.plain_user import plain_user

FILES = ['params.txt', 'evaluations.jsonl', 'train.log', 'checkpoints/best.json']
DIRECTORIES = ['tensorboard', 'timeline']


def run(logdir, *flags):
    return trainer.main(['trainer', '--model=tests.support.tiny_experiment.Tiny',
                         '--set=pipeline.num_cells=1', f'--logdir={logdir}', *flags])


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
    """The logdir of a run of three steps, evaluated after each.

    The best step is step 1, which is kept only because of best.json.
    """
    logdir = tmp_path_factory.mktemp('trained')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device_setup, 'configure', lambda params: None)
        assert run(logdir, '--steps=3', *FLAGS, '--timeline') == 0
    assert best(logdir)['step'] == 1 and sorted(os.listdir(logdir / 'checkpoints')) == [
        'best.json', 'step-00000001', 'step-00000003']
    return logdir


FLAGS = ('--set=train.keep=1', '--set=train.eval_every_steps=1', '--set=task.best_is_largest=true')


@pytest.fixture
def logdir(trained, tmp_path, monkeypatch):
    """A copy of the trained logdir that a test may damage."""
    monkeypatch.setattr(device_setup, 'configure', lambda params: None)
    return pathlib.Path(shutil.copytree(trained, tmp_path / 'logdir'))


def best(logdir):
    return json.loads((logdir / 'checkpoints' / 'best.json').read_text())


def put_directory(path):
    path.unlink()
    path.mkdir()
    (path / 'inside').write_text('')


DAMAGES = {'truncated': lambda path: path.write_bytes(path.read_bytes()[:-20]),
           'junk': lambda path: path.write_bytes(
               path.read_bytes()[:30] + bytes(range(256)) + b'\n\xff\n' + path.read_bytes()),
           'a directory': put_directory,}


@pytest.mark.parametrize('how', DAMAGES)
def test_a_training_goes_on_whatever_its_files_have_become(logdir, caplog, how):
    """One bad byte in evaluations.jsonl ended every retry before it wrote the last checkpoint."""
    for name in FILES:
        DAMAGES[how](logdir / name)
    assert run(logdir, '--steps=4', *FLAGS) == 0

    # A lost evaluation is made again if it is that of the newest step. The best step is the best
    # of those that are known.
    steps = [line['step']
             for line in map(json.loads, (logdir / 'evaluations.jsonl').read_text().splitlines())]
    assert steps == ([3, 4] if how == 'a directory' else [1, 2, 3, 4])
    assert best(logdir)['step'] == (3 if how == 'a directory' else 1)
    assert Checkpointer(str(logdir / 'checkpoints'), is_writer=False).steps() == [
        best(logdir)['step'], 4]

    log = (logdir / 'train.log').read_bytes().decode(errors='replace')
    said = [record.getMessage() for record in caplog.records]
    assert [line.removeprefix('warning: ')
            for line in log.splitlines() if line.startswith('warning: ')] == said

    repaired = [name for name in FILES
                if any(f'/{name} cannot be used: ' in line or f'/{name} ended within' in line
                       for line in said)]
    assert repaired == [name for name in FILES if name != 'train.log' or how == 'a directory'], said
    assert 'step 4/4' in log


def test_a_training_goes_on_whatever_is_among_its_directories(logdir):
    """A plain file checkpoints/tmp-x ended a run.

    The error asked for a logdir that can be written.
    """
    for name in DIRECTORIES:
        shutil.rmtree(logdir / name)
        (logdir / name).write_text('a file')
    for name in ('tmp-x', 'tmp-step-00000004', 'old-x', 'old-step-00000001', 'step-00000004',
                 'step-00000002'):
        (logdir / 'checkpoints' / name).write_text('a file')
    (logdir / 'checkpoints' / 'tmp-link').symlink_to('/')
    (logdir / 'checkpoints' / 'bad-step-00000003').mkdir()
    (logdir / 'params.txt.new').mkdir()
    data = next((logdir / 'checkpoints' / 'step-00000003').glob('variables.data*'))
    data.write_bytes(data.read_bytes()[:-1])
    assert run(logdir, '--steps=4', '--timeline', *FLAGS) == 0
    log = (logdir / 'train.log').read_text()
    # Only stderr was told.
    assert re.search(r'^warning: checkpoint \S*/step-00000003 is damaged and not used: ', log,
                     re.MULTILINE)
    assert 'going on after step 1' in log and 'cannot be written' not in log
    for name in DIRECTORIES:
        assert (logdir / name).is_dir() and (logdir / f'{name}.bad').read_text() == 'a file'
        assert f'/{name} cannot be used: it is not a directory; it is now {name}.bad' in log
    assert sorted(os.listdir(logdir / 'checkpoints')) == [
        'bad-step-00000003', 'bad-step-00000003-2', 'best.json', 'step-00000001',
        'step-00000002.bad', 'step-00000004', 'step-00000004.bad']


def test_an_evaluation_is_printed_where_no_file_can_be_written(logdir, capsys, caplog, monkeypatch):
    def refused(path):
        raise PermissionError(13, 'Permission denied')
    monkeypatch.setattr(side_files, 'make_directory', refused)
    assert run(logdir, '--mode=eval', '--set=task.model.layers[4].name=error',
               '--set=task.learner.clip_norm=1') == 0
    assert capsys.readouterr().out.startswith('step 3 on test: loss ')
    assert [record.getMessage() for record in caplog.records] == [
        f"the checkpoints in {logdir}/checkpoints are of a network whose task.model.layers[4].name "
        f"(was 'loss', is 'error') differ; this "
        'one takes their weights all the same',
        'the files of the evaluation of test cannot be written: Permission denied']


# The parts.

@pytest.mark.parametrize('line',
                         ['5', 'null', '[]', '"a"', '{}', '{"step": 1}',
                          '{"step": true, "input": "a"}', '{"step": 1, "input": 2}',
                          '{"step": 1.5, "input": "a"}', '{"step": 1, "input": "a", "loss": "low"}',
                          '\x00', '\ud800', '{"step": 1, "input": "a", "loss": null}'])
def test_a_line_that_is_no_evaluation_is_set_aside_and_the_others_stay(tmp_path, caplog, line):
    log = EvaluationLog(str(tmp_path))
    log.add(1, 'a', {'loss': 2.})
    with open(tmp_path / 'evaluations.jsonl', 'ab') as file:
        file.write(line.encode('utf-8', 'surrogatepass') + b'\n')
    log.add(2, 'a', {'loss': float('nan')})
    content = (tmp_path / 'evaluations.jsonl').read_bytes()
    assert [found['step'] for found in log.read()] == [1, 2]
    log.repair()
    assert (tmp_path / 'evaluations.jsonl').read_text() == (
        '{"step": 1, "input": "a", "loss": 2.0}\n'
        '{"step": 2, "input": "a", "loss": NaN}\n')
    assert (tmp_path / 'evaluations.jsonl.bad').read_bytes() == content
    assert [record.getMessage() for record in caplog.records] == [
        f'{tmp_path}/evaluations.jsonl cannot be used: line 2 is no evaluation; the others are '
        f'kept; it is now evaluations.jsonl.bad']


@pytest.mark.parametrize('content',
                         ['', '5', 'null', '{}', '{"step": 1, "value": NaN}',
                          '{"step": "1", "value": 1}', '{"step": Infinity, "value": 1}',
                          '{"step": 1, "value": "1"}', '[' * 100_000])
def test_a_mark_of_the_best_that_is_none_is_set_aside(tmp_path, caplog, content):
    (tmp_path / 'best.json').write_text(content)
    checkpointer = Checkpointer(str(tmp_path))
    assert checkpointer.best() is None
    assert os.listdir(tmp_path) == ['best.json.bad']
    assert caplog.records[0].getMessage().endswith(
        'best.json cannot be used: it does not name the best checkpoint; it is now best.json.bad')


def test_a_file_in_the_place_of_the_checkpoints_is_set_aside(tmp_path):
    (tmp_path / 'checkpoints').write_text('a file')
    assert Checkpointer(str(tmp_path / 'checkpoints')).steps() == []
    assert ((tmp_path / 'checkpoints').is_dir()
            and (tmp_path / 'checkpoints.bad').read_text() == 'a file')


def test_what_is_set_aside_replaces_nothing(tmp_path, caplog):
    for content in 'abc':
        (tmp_path / 'file').write_text(content)
        side_files.set_aside(str(tmp_path / 'file'), 'it is a test')
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        'file.bad': 'a', 'file.bad-2': 'b', 'file.bad-3': 'c'}
    side_files.set_aside(str(tmp_path / 'none'), 'it is a test')
    assert caplog.records[-1].getMessage() == (f'{tmp_path}/none cannot be used: it is a test; nor '
                                               f'can it be renamed: No such file or '
                                               'directory')


def test_devices_are_left_where_they_are(tmp_path):
    side_files.make_way_for_file('/dev/null')
    with pytest.raises(FileExistsError):
        side_files.make_directory('/dev/null')
    os.mkfifo(tmp_path / 'pipe')   # Whoever opens a pipe for writing waits for a reader.
    (tmp_path / 'link').symlink_to('/nowhere/file')
    (tmp_path / 'later').symlink_to(tmp_path / 'not yet')
    for name in ('pipe', 'link', 'later'):
        side_files.make_way_for_file(str(tmp_path / name))
    assert (sorted(os.listdir(tmp_path)) == ['later', 'link.bad', 'pipe.bad']
            and os.path.exists('/dev/null'))


def test_a_link_to_a_place_that_may_not_be_entered_is_not_set_aside():
    with plain_user() as folder:
        (folder / 'closed' / 'inside').mkdir(parents=True)
        (folder / 'train.log').symlink_to(folder / 'closed' / 'inside' / 'train.log')
        (folder / 'closed').chmod(0)
        with pytest.raises(OSError, match='closed/inside cannot be read: Permission denied; '):
            side_files.make_way_for_file(str(folder / 'train.log'))
        assert (folder / 'train.log').is_symlink()


def test_runs_in_two_threads_keep_their_warnings_apart(tmp_path):
    """Each log had the warnings of both."""
    both = threading.Barrier(2, timeout=60.)

    def warn(name):
        with side_files.warnings_into(str(tmp_path / name)):
            both.wait()
            logging.warning('one of %s', name)
            both.wait()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(warn, ['a', 'b']))
    assert [(tmp_path / name).read_text() for name in 'ab'] == ['warning: one of a\n',
                                                               'warning: one of b\n']
