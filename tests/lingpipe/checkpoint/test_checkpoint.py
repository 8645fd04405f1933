"""Checkpoints are whole or do not exist, and damaged ones are passed over.

Errors name the keys, and nothing good is deleted.
"""
from __future__ import annotations

import concurrent.futures
import hashlib
import itertools
import json
import os
import re
import resource
import shutil
import threading
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.checkpoint import Checkpointer, files, initialize
from lingpipe.checkpoint.copier import Copier
from lingpipe.checkpoint.facts import kinds_of
from lingpipe.checkpoint.worker_files import WorkerError, WorkerFiles
from tests.support.forks import Fork, environment
from tests.support.local_workers import wait_until
from tests.support.plain_user import plain_user


def make_variables(value: float = 0.) -> dict[str, tf.Variable]:
    """Returns weights and a count, on three devices."""
    value = float(value)
    with tf.device('CPU:0'):
        kernel = tf.Variable(tf.fill([2, 3], value))
    with tf.device('CPU:1'):
        bias = tf.Variable(tf.fill([300], value))
    with tf.device('CPU:2'):
        count = tf.Variable(int(value), dtype=tf.int64)
    return {'model/block.1/kernel': kernel, 'model/block.1/bias': bias,
            'optimizer/model/iterations': count}


def values_of(variables: dict[str, tf.Variable]) -> set[float]:
    return {float(x) for v in variables.values() for x in np.ravel(v.numpy())}


def saved(directory: Path, *steps: int, keep: int = 9) -> Checkpointer:
    """A checkpointer that has saved the value 1. at step 1, and so on."""
    checkpointer = Checkpointer(str(directory), keep)
    for step in steps:
        checkpointer.save(step, make_variables(step), {'position': 10 * step})
    return checkpointer


def data_file(directory: Path, step: int, pattern: str) -> Path:
    return next(directory.glob(f'step-{step:08d}/{pattern}'))


# Saving and restoring.

def test_what_is_saved_is_restored_on_any_device(tmp_path):
    checkpointer = saved(tmp_path, 7)
    variables = make_variables()
    assert checkpointer.restore(variables) == {'position': 70, 'step': 7}
    assert values_of(variables) == {7.}
    assert variables['model/block.1/bias'].device.endswith('CPU:1')


def test_variables_may_move_to_other_devices(tmp_path):
    checkpointer = saved(tmp_path, 7)
    with tf.device('CPU:3'):
        variables = {key: tf.Variable(tf.zeros_like(v)) for key, v in make_variables().items()}
    checkpointer.restore(variables)
    assert values_of(variables) == {7.}


def test_the_newest_is_restored(tmp_path):
    checkpointer = saved(tmp_path, 100_000_000, 9, 10)
    variables = make_variables()
    assert checkpointer.restore(variables) == {'position': 1_000_000_000, 'step': 100_000_000}


def test_another_step_may_be_asked_for(tmp_path):
    checkpointer = saved(tmp_path, 1, 2)
    assert checkpointer.restore(make_variables(), step=1) == {'position': 10, 'step': 1}
    with pytest.raises(ValueError, match='has no checkpoint of step 3; it has 1, 2'):
        checkpointer.restore(make_variables(), step=3)


def test_without_checkpoints_there_is_nothing_to_restore(tmp_path):
    assert Checkpointer(str(tmp_path / 'new')).restore(make_variables()) is None
    assert Checkpointer(str(tmp_path / 'none'), is_writer=False).restore(make_variables()) is None
    assert not (tmp_path / 'none').exists()


def test_bfloat16_and_scalars_are_kept(tmp_path):
    variables = {'a': tf.Variable(tf.constant([1.5, -2.], tf.bfloat16)), 'b': tf.Variable(True)}
    checkpointer = Checkpointer(str(tmp_path))
    checkpointer.save(1, variables)
    variables['a'].assign([0., 0.])
    variables['b'].assign(False)
    checkpointer.restore(variables)
    assert variables['a'].numpy().tolist() == [1.5, -2.]
    assert variables['b'].numpy()


def test_a_network_without_weights_has_checkpoints_too(tmp_path):
    """TensorFlow does not join the files of no variables."""
    Checkpointer(str(tmp_path)).save(3, {}, {'position': 30})
    assert Checkpointer(str(tmp_path)).restore({}) == {'position': 30, 'step': 3}


def test_the_same_step_saved_again_is_replaced(tmp_path):
    checkpointer = saved(tmp_path, 5)
    checkpointer.save(5, make_variables(6.), {})
    variables = make_variables()
    checkpointer.restore(variables)
    assert values_of(variables) == {6.}
    assert sorted(os.listdir(tmp_path)) == ['step-00000005']


def test_the_metadata_file_says_what_is_in_it(tmp_path):
    saved(tmp_path, 5)
    facts = json.loads((tmp_path / 'step-00000005' / 'metadata.json').read_text())
    assert facts.pop('checksum') > 0
    files = {path.name: {'bytes': path.stat().st_size}
             for path in (tmp_path / 'step-00000005').glob('variables.*')}
    files['variables.index']['sha256'] = hashlib.sha256(
        (tmp_path / 'step-00000005' / 'variables.index').read_bytes()).hexdigest()
    assert len(files) == 2 and facts.pop('files') == files
    assert facts.pop('keys_by_file') == {'variables.data-00000-of-00001': [*make_variables()]}
    assert facts == {'format': 1, 'step': 5, 'metadata': {'position': 50},
                     'variables': {'model/block.1/kernel': {'shape': [2, 3], 'dtype': 'float32'},
                                   'model/block.1/bias': {'shape': [300], 'dtype': 'float32'},
                                   'optimizer/model/iterations': {'shape': [], 'dtype': 'int64'}}}


# Damage.

DAMAGES = ['flip data', 'cut data', 'flip index', 'cut index', 'no data', 'no index', 'no metadata',
           'flip metadata', 'cut metadata']


def damage(directory: Path, step: int, how: str) -> None:
    what, part = how.split()
    path = data_file(
        directory, step,
        {'data': 'variables.data*', 'index': 'variables.index', 'metadata': 'metadata.json'}[part])
    content = bytearray(path.read_bytes())
    if what == 'no':
        path.unlink()
    elif what == 'cut':
        path.write_bytes(content[:len(content) // 2])
    else:
        at = content.index(b'50') if part == 'metadata' else len(content) // 2
        content[at] ^= 1
        path.write_bytes(content)


@pytest.mark.parametrize('how', DAMAGES)
def test_a_damaged_newest_is_reported_in_one_line_and_passed_over(tmp_path, caplog, how):
    checkpointer = saved(tmp_path, 4, 5)
    damage(tmp_path, 5, how)
    variables = make_variables()
    with caplog.at_level('WARNING'):
        assert checkpointer.restore(variables) == {'position': 40, 'step': 4}
    assert values_of(variables) == {4.}
    lines = [record.getMessage() for record in caplog.records]
    assert lines[1:] == []
    assert re.match(r'checkpoint .*/step-00000005 is damaged and not used: .', lines[0])
    assert '\n' not in lines[0]


ANOTHER = ('is not the file that was written with metadata.json, but of another checkpoint or a '
           'part of a copy')


@pytest.mark.parametrize('pattern, why', [
    ('variables.*', ANOTHER),
    ('variables.index', ANOTHER),
    ('variables.data-00000-of-00003', 'Checksum does not match'),
    ('variables.data-00001-of-00003', 'Checksum does not match'),
    ('variables.data-00002-of-00003', 'Checksum does not match'),
    ('metadata.json', 'metadata.json is of step 4, so the files may be of two steps'),
    ('*', 'metadata.json is of step 4')])
def test_files_of_two_steps_are_no_checkpoint(tmp_path, caplog, monkeypatch, pattern, why):
    """Variables of step 203 that a partial copy had put into step 210 were restored as step 210."""
    monkeypatch.setattr('lingpipe.checkpoint.parts.CHUNK_BYTES', (0, 20))
    checkpointer = saved(tmp_path, 4, 5)
    for path in tmp_path.glob(f'step-00000004/{pattern}'):
        shutil.copy(path, tmp_path / 'step-00000005')
    variables = make_variables()
    with caplog.at_level('WARNING'):
        assert checkpointer.restore(variables) == {'position': 40, 'step': 4}
    assert values_of(variables) == {4.}
    assert [why in record.getMessage() for record in caplog.records] == [True]
    report = initialize(ours := make_variables(), str(tmp_path), [('(.*)', r'\1')])
    assert report.source == checkpointer.path(4) and values_of(ours) == {4.}


@pytest.mark.parametrize('change',
                         [lambda data: data + b'0', lambda data: data[:-1], lambda data: b''])
def test_a_file_of_another_length_is_seen_before_anything_is_assigned(tmp_path, change):
    checkpointer = saved(tmp_path, 5)
    path = data_file(tmp_path, 5, 'variables.data*')
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ValueError, match=f'step-00000005: variables.data-00000-of-00001 {ANOTHER}'):
        checkpointer.restore(variables := make_variables(9.))
    assert values_of(variables) == {9.}


def as_an_older_lingpipe_wrote_it(directory: Path, step: int) -> None:
    path = data_file(directory, step, 'metadata.json')
    facts = json.loads(path.read_text())
    del facts['files'], facts['checksum']
    text = json.dumps(facts, sort_keys=True)
    path.write_text(f'{text[:-1]}, "checksum": {zlib.crc32(text.encode())}}}')


def test_a_checkpoint_that_does_not_know_its_files_is_restored_and_says_so(tmp_path, caplog):
    checkpointer = saved(tmp_path, 4, 5)
    as_an_older_lingpipe_wrote_it(tmp_path, 5)
    with caplog.at_level('WARNING'):
        assert checkpointer.restore(make_variables()) == {'position': 50, 'step': 5}
    assert [record.getMessage() for record in caplog.records] == [
        f'checkpoint {tmp_path}/step-00000005 was written by an older lingpipe, which did not note '
        f'which files belong together; its '
        'tensors had the right checksums']
    damage(tmp_path, 5, 'flip data')
    assert checkpointer.restore(make_variables()) == {'position': 40, 'step': 4}


def test_what_is_refused_by_its_metadata_changes_nothing(tmp_path):
    checkpointer = saved(tmp_path, 4, 5)

    def check(metadata):
        raise ValueError(f'not from {metadata["position"]}')
    with pytest.raises(ValueError, match='^not from 50$'):
        checkpointer.restore(variables := make_variables(9.), check=check)
    assert values_of(variables) == {9.}


def test_a_lost_file_is_told_with_what_was_in_it_and_with_what_is_whole(tmp_path, monkeypatch):
    monkeypatch.setattr('lingpipe.checkpoint.parts.CHUNK_BYTES', (0, 20))
    checkpointer = saved(tmp_path, 4, 5)
    data_file(tmp_path, 5, 'variables.data-00001*').unlink()
    with pytest.raises(ValueError, match=re.escape(
            'variables.data-00001-of-00003, which belongs to it, cannot be read: No such file or '
            'directory; it has model/block.1/bias. The newest whole checkpoint is that of step 4: '
            'name that one.')):
        checkpointer.restore(make_variables(), 5)
    assert checkpointer.restore(make_variables()) == {'position': 40, 'step': 4}


# What cannot be read, and may be whole.

UNREADABLE = ['step-00000005/variables.data-00000-of-00001', 'step-00000005/variables.index',
              'step-00000005/metadata.json', 'step-00000005', 'best.json']


@pytest.mark.parametrize('name', UNREADABLE)
def test_what_may_not_be_read_is_neither_damaged_nor_missing(name):
    """Root had trained on with umask 077.

    The checkpoints of root were renamed to bad-step-..., and the run went on from an older one.
    """
    with plain_user() as folder:
        saved(folder, 4, 5).mark_best(5, 1.)
        before = sorted(os.listdir(folder))
        (folder / name).chmod(0)
        with pytest.raises(OSError, match=rf'^{folder}.* cannot be read: Permission denied; it may '
                                          'be whole, so nothing is changed: let this process read '
                                          r'it and start again, or move .* away to go on without '
                                          r'it\.$'):
            Checkpointer(str(folder)).restore(make_variables())
        (folder / name).chmod(0o700)
        assert sorted(os.listdir(folder)) == before
        variables = make_variables()
        Checkpointer(str(folder)).restore(variables)
        assert values_of(variables) == {5.}


@pytest.mark.parametrize('mode', [0, 0o600])   # 0o600: its names may be listed
def test_a_directory_that_may_not_be_entered_is_not_empty(mode):
    with plain_user() as folder:
        saved(folder, 4)
        folder.chmod(mode)
        with pytest.raises(OSError, match=' cannot be read: Permission denied; '):
            Checkpointer(str(folder), is_writer=False).steps()


def test_too_many_open_files_are_no_damage(tmp_path):
    checkpointer = saved(tmp_path, 4, 5)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        with pytest.raises(OSError, match='cannot be read: Too many open files; '):
            checkpointer.restore(make_variables())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


class BlindWorkers(WorkerFiles):
    """A worker that finds metadata.json, and may not read the other files."""

    def hosts_that_read(self, path, hosts):
        return {'0': 'CPU:0'}

    def restore(self, host, prefix, names, variables, dtypes):
        raise WorkerError('worker 0: Permission denied')


def test_what_a_worker_may_not_read_the_trainer_reads(tmp_path, caplog):
    """The checkpoint counted as damaged."""
    path = saved(tmp_path, 5).path(5)
    variables = make_variables()
    pairs = [(variable, key) for key, variable in variables.items()]
    files.assign(path, kinds_of(variables), pairs, BlindWorkers())
    assert values_of(variables) == {5.}
    assert [record.getMessage() for record in caplog.records] == [
        f'{path} cannot be read on worker 0: Permission denied; the trainer reads it']


def test_if_the_best_is_not_known_no_checkpoint_is_removed(caplog):
    with plain_user() as folder:
        checkpointer = saved(folder, 1, 2, keep=1)
        checkpointer.mark_best(2, 1.)
        (folder / 'best.json').chmod(0)
        checkpointer.save(3, make_variables(), {})
        assert checkpointer.steps() == [2, 3]
    assert 'no checkpoint is removed, since the best is not known: ' in caplog.text


def test_a_link_to_a_place_that_may_not_be_entered_stays():
    with plain_user() as folder:
        saved(folder / 'closed' / 'checkpoints', 4)
        (folder / 'link').symlink_to(folder / 'closed' / 'checkpoints')
        (folder / 'closed').chmod(0)
        with pytest.raises(OSError, match='Permission denied'):
            Checkpointer(str(folder / 'link'))
        assert (folder / 'link').is_symlink()


def test_if_all_are_damaged_it_says_so(tmp_path):
    checkpointer = saved(tmp_path, 4, 5)
    damage(tmp_path, 4, 'cut data')
    damage(tmp_path, 5, 'no metadata')
    with pytest.raises(
            ValueError,
            match='of 2 checkpoints, none can be read; .* choose another logdir to start anew'):
        checkpointer.restore(make_variables())


def test_a_damaged_newest_does_not_push_out_good_ones(tmp_path):
    """The damaged step 5 counted as the newest.

    With keep=1, saving step 4 would have deleted steps 3 and 4.
    """
    checkpointer = saved(tmp_path, 3, 5, keep=2)
    damage(tmp_path, 5, 'cut data')
    checkpointer = Checkpointer(str(tmp_path), keep=1)
    checkpointer.restore(make_variables())
    checkpointer.save(4, make_variables(4.))
    assert checkpointer.steps() == [4]
    assert sorted(os.listdir(tmp_path)) == ['bad-step-00000005', 'step-00000004']


# Keys.

def test_other_keys_and_shapes_are_named(tmp_path):
    checkpointer = saved(tmp_path, 1)
    variables = make_variables()
    variables['model/head/kernel'] = variables.pop('model/block.1/bias')
    variables['model/block.1/kernel'] = tf.Variable(tf.zeros([2, 4]))
    with pytest.raises(ValueError, match=re.escape(
        'does not fit: it lacks model/head/kernel; the experiment lacks model/block.1/bias; '
        'model/block.1/kernel is float32[2, 3] in it and float32[2, 4] here. A checkpoint restores '
        'only into the network and the learner that wrote it')):
        checkpointer.restore(variables)


def test_of_many_other_shapes_three_are_named(tmp_path):
    """Another vocabulary changes the shapes of its tables and of all their slots."""
    def tables(num_ids):
        return {f'{key}/w': tf.Variable(tf.zeros([num_ids, 1]))
                for key in ('slots/a', 'slots/b', 'slots/c', 'weights/a', 'weights/b')}

    Checkpointer(str(tmp_path)).save(1, tables(4))
    with pytest.raises(ValueError, match=re.escape(
            'weights/a/w is float32[4, 1] in it and float32[5, 1] here; weights/b/w is float32[4, '
            '1] in it and float32[5, 1] here; slots/a/w is float32[4, 1] in it and float32[5, 1] '
            'here; 2 more have other shapes or dtypes. A checkpoint restores')):
        Checkpointer(str(tmp_path)).restore(tables(5))


def test_a_checkpoint_that_does_not_fit_changes_nothing(tmp_path):
    checkpointer = saved(tmp_path, 1)
    variables = make_variables(9.)
    variables['more'] = tf.Variable(9.)
    with pytest.raises(ValueError, match='it lacks more'):
        checkpointer.restore(variables)
    assert values_of(variables) == {9.}


def test_a_newer_format_is_refused_and_not_called_damaged(tmp_path):
    checkpointer = saved(tmp_path, 1)
    path = data_file(tmp_path, 1, 'metadata.json')
    path.write_text(path.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(ValueError,
                       match='has format 2, and this lingpipe reads up to 1; use a newer one'):
        checkpointer.restore(make_variables())


# Keeping.

def test_the_last_ones_and_the_best_are_kept(tmp_path):
    checkpointer = saved(tmp_path, 1, keep=2)
    for step, value in ((1, 0.5), (2, 0.9), (3, 0.7), (4, 0.9), (5, float('nan'))):
        checkpointer.save(step, make_variables(step))
        assert checkpointer.mark_best(step, value) == (step <= 2)
    assert checkpointer.steps() == [2, 4, 5]
    assert Checkpointer(str(tmp_path)).best() == (2, 0.9)


def test_several_may_mark_the_best_at_one_time(tmp_path):
    """Two watches removed each other's file, and the worse of two marks could stay."""
    saved(tmp_path, *range(1, 5))
    start = threading.Barrier(4)

    def mark(step: int) -> None:
        """Marks one step by better and better values, as a watch that evaluates it."""
        checkpointer = Checkpointer(str(tmp_path), keep=9)
        start.wait()
        for value in range(step, 100, 4):
            checkpointer.mark_best(step, value)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(mark, range(1, 5)))
    assert Checkpointer(str(tmp_path), keep=9).best() == (3, 99.)


def test_the_best_may_be_the_lowest(tmp_path):
    checkpointer = saved(tmp_path, 1, 2, 3)
    assert [checkpointer.mark_best(step, value, higher_is_better=False)
            for step, value in ((1, 3.), (2, 2.), (3, 4.))] == [True, True, False]
    assert checkpointer.best() == (2, 2.)


@pytest.mark.parametrize('step, is_said', [(1, True), (4, False)])
def test_only_a_checkpoint_that_was_there_is_called_gone(tmp_path, caplog, step, is_said):
    """The log advised to keep more checkpoints where none could be written."""
    assert not saved(tmp_path, 1, 2, 3, keep=1).mark_best(step, 0.5)
    expected = (f'step {step} has the best value, 0.5, but its checkpoint is gone; keep more of '
                'them')
    assert [record.getMessage() for record in caplog.records] == [expected] * is_said


def test_a_step_that_is_gone_cannot_be_the_best(tmp_path):
    checkpointer = saved(tmp_path, 1, 2, keep=1)
    assert not checkpointer.mark_best(1, 5.)
    assert checkpointer.best() is None


def test_an_earlier_step_that_was_just_saved_is_kept(tmp_path):
    checkpointer = saved(tmp_path, 8, 9, keep=1)
    checkpointer.save(4, make_variables())
    assert checkpointer.steps() == [4, 9]


# Kills and disks.

def test_leftovers_of_a_kill_are_removed_at_the_start(tmp_path):
    saved(tmp_path, 1)
    (tmp_path / 'tmp-step-00000002').mkdir()
    (tmp_path / 'tmp-step-00000002' / 'variables.index').write_text('half')
    # The trainer was killed between the two renames of a replacement.
    (tmp_path / 'step-00000001').rename(tmp_path / 'old-step-00000001')
    assert Checkpointer(str(tmp_path)).steps() == [1]
    assert os.listdir(tmp_path) == ['step-00000001']


def test_a_reader_leaves_the_directory_alone(tmp_path):
    saved(tmp_path, 1)
    (tmp_path / 'tmp-step-00000002').mkdir()
    assert Checkpointer(str(tmp_path), is_writer=False).restore(make_variables()) == {
        'position': 10, 'step': 1}
    assert (tmp_path / 'tmp-step-00000002').exists()


def save_for_ever(directory: str) -> None:
    """Saves 4 MB again and again, and prints the step of each checkpoint that is whole."""
    checkpointer, variable = Checkpointer(directory), tf.Variable(tf.zeros([1 << 20]))
    for step in itertools.count(1):
        variable.assign(tf.fill([1 << 20], float(step)))
        checkpointer.save(step, {'w': variable})
        print(step, flush=True)


def test_a_kill_in_the_middle_of_saving_leaves_a_whole_checkpoint(tmp_path):
    process = Fork(save_for_ever, str(tmp_path / 'checkpoints'), env=environment())
    reader = Checkpointer(str(tmp_path / 'checkpoints'), is_writer=False)
    wait_until(lambda: max(reader.steps(), default=0) >= 5)
    time.sleep(0.005)
    process.kill()
    printed, _ = process.communicate()
    last = int(printed.split()[-1])

    variable = tf.Variable(tf.zeros([1 << 20]))
    restored = reader.restore({'w': variable})
    assert restored is not None and restored['step'] in (last, last + 1)
    assert set(variable.numpy().tolist()) == {float(restored['step'])}


def test_a_full_disk_is_one_clear_error_and_loses_nothing(tmp_path):
    checkpointer = saved(tmp_path, 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # No file may be longer than 1000 bytes.
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OSError, match=r'the checkpoint of step 2 cannot be written to .*; that '
                                          r'of step 1 is still whole\. Make room'):
            checkpointer.save(2, make_variables(2.))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.listdir(tmp_path) == ['step-00000001']
    checkpointer.save(2, make_variables(2.))
    assert checkpointer.restore(make_variables()) == {'step': 2}


def test_a_directory_that_cannot_be_written_is_one_clear_error(tmp_path):
    (tmp_path / 'file').write_text('')
    with pytest.raises(OSError, match='checkpoints cannot be kept in .*/file/checkpoints: .*; '
                                      'choose a logdir that can be written'):
        Checkpointer(str(tmp_path / 'file' / 'checkpoints'))


def test_metadata_that_is_not_json_is_refused(tmp_path):
    with pytest.raises(ValueError, match='metadata of step 1 cannot be saved as JSON: .*; use '
                                         'numbers, texts, lists and dicts'):
        Checkpointer(str(tmp_path)).save(1, make_variables(), {'position': tf.constant(1)})


def test_keeping_none_is_refused(tmp_path):
    with pytest.raises(ValueError, match='keep=0 would keep no checkpoint; use 1 or more'):
        Checkpointer(str(tmp_path), keep=0)


# Taking weights from another experiment.

@pytest.mark.parametrize('below', ['', 'checkpoints', 'checkpoints/step-00000003'])
def test_weights_are_taken_by_rules(tmp_path, below):
    saved(tmp_path / 'checkpoints', 3)
    ours = {'net/a/kernel': tf.Variable(tf.zeros([2, 3])),
            'net/a/bias': tf.Variable(tf.zeros([4])),
            'net/head/kernel': tf.Variable(tf.zeros([2, 3])),
            'net/b/kernel': tf.Variable(tf.zeros([2, 3])),
            'step': tf.Variable(0, dtype=tf.int64)}
    report = initialize(ours, str(tmp_path / below),
                        [(r'net/head/.*', None), (r'net/a/(\w+)', r'model/block.1/\1'),
                         (r'net/b/kernel', 'model/b/kernel')])
    assert report.taken == {'net/a/kernel': 'model/block.1/kernel'}
    assert report.not_taken == {
        'net/a/bias': 'its shape is [4], and [300] there', 'net/head/kernel': 'by a rule',
        'net/b/kernel': 'there is no model/b/kernel', 'step': 'no rule for it'}
    assert report.text().splitlines()[0] == f'1 of 5 variables is taken from {report.source}.'
    assert '  taken      net/a/kernel from model/block.1/kernel' in report.text().splitlines()
    assert values_of({'': ours['net/a/kernel']}) == {3.}
    assert values_of({'': ours['net/head/kernel']}) == {0.}


def test_a_weight_that_was_frozen_is_taken_where_others_have_averages(tmp_path):
    there = {key: tf.Variable(tf.fill([2], value)) for key, value in
             {'weights/a': 1., 'weights/b': 2., 'ema/b': 3.}.items()}
    Checkpointer(str(tmp_path)).save(1, there)
    ours = {key: tf.Variable(tf.zeros([2])) for key in ('weights/a', 'weights/b')}
    report = initialize(ours, str(tmp_path), [('weights/(.*)', r'ema/\1')])
    assert report.taken == {'weights/a': 'weights/a', 'weights/b': 'ema/b'}
    Checkpointer(str(tmp_path)).save(2, {'weights/a': there['weights/a']})
    with pytest.raises(ValueError, match='nothing could be taken from'):   # Nothing has averages.
        initialize(ours, str(tmp_path), [('weights/(.*)', r'ema/\1')])


def test_an_adapter_is_the_same_one_in_the_averages(tmp_path):
    there = {key: tf.Variable(tf.fill([2], 1.)) for key in (
        'weights/a', 'weights/a_adapter/b', 'ema/a_adapter/b')}
    Checkpointer(str(tmp_path)).save(1, there)
    averages = [('weights/(.*)', r'ema/\1')]
    ours = {key: tf.Variable(tf.zeros([2])) for key in ('weights/a', 'weights/a_adapter/b')}
    assert initialize(ours, str(tmp_path), averages).taken == {
        'weights/a': 'weights/a', 'weights/a_adapter/b': 'ema/a_adapter/b'}
    with pytest.raises(ValueError, match=' has ema/a_adapter/b, without which its weights'):
        initialize({'weights/a': ours['weights/a']}, str(tmp_path), averages)


def test_an_adapter_of_a_tied_weight_belongs_to_the_weight_that_it_is_tied_to(tmp_path):
    """It was left behind without a word, since a tied weight is not saved by its own path."""
    there = {key: tf.Variable(tf.fill([2], 1.)) for key in ('weights/a', 'weights/b_adapter/b')}
    Checkpointer(str(tmp_path)).save(1, there, {'tied_adapters': {'b': 'a'}})
    ours = {key: tf.Variable(tf.zeros([2])) for key in there}
    everything = [('weights/(.*)', r'weights/\1')]
    assert initialize(ours, str(tmp_path), everything).taken.keys() == there.keys()
    left_out = [('weights/b_adapter/b', None), *everything]
    assert initialize(ours, str(tmp_path), left_out).taken.keys() == {'weights/a'}
    with pytest.raises(ValueError, match=' has weights/b_adapter/b, without which its weights'):
        initialize({'weights/a': ours['weights/a']}, str(tmp_path), everything)


def test_a_step_that_is_not_there_is_told_with_those_that_are(tmp_path):
    saved(tmp_path, 1, 2)
    with pytest.raises(ValueError, match='has no checkpoint of step 7; there are: 1, 2.'):
        initialize(make_variables(), str(tmp_path), [('(.*)', r'\1')], checkpoint='7')
    one = str(tmp_path / 'step-00000001')
    with pytest.raises(ValueError, match='is one checkpoint already, and checkpoint=2 names'):
        initialize(make_variables(), one, [('(.*)', r'\1')], checkpoint='2')


def test_a_damaged_newest_is_not_taken_from(tmp_path):
    saved(tmp_path, 1, 2)
    damage(tmp_path, 2, 'no metadata')
    ours = make_variables()
    initialize(ours, str(tmp_path), [('(.*)', r'\1')])
    assert values_of(ours) == {1.}


@pytest.mark.parametrize(('rules', 'sentence'), [
    ([('net/.*', 'x')],
     "the rule 'net/.*' matches none of 3 variables; they look like model/block.1/kernel"),
    ([('model/.*', None)], 'nothing could be taken from '),
])
def test_rules_without_effect_are_refused(tmp_path, rules, sentence):
    saved(tmp_path, 1)
    with pytest.raises(ValueError, match=re.escape(sentence)):
        initialize(make_variables(), str(tmp_path), rules)


def test_a_source_may_be_refused_before_anything_is_taken(tmp_path):
    saved(tmp_path, 1)
    seen, ours = [], make_variables()

    def check(metadata, keys):
        seen.append((metadata, list(keys)))
        raise ValueError('of another vocabulary')

    with pytest.raises(ValueError, match='of another vocabulary'):
        initialize(ours, str(tmp_path), [('(.*kernel)', r'\1')], check)
    assert seen == [({'position': 10}, ['model/block.1/kernel'])]
    assert values_of(ours) == {0.}


def test_a_source_without_checkpoints_is_refused(tmp_path):
    with pytest.raises(ValueError, match='has no checkpoint that can be read; name a logdir, its '
                                         'checkpoints or one step-'):
        initialize(make_variables(), str(tmp_path), [('.*', 'x')])


# In the background.

def test_what_is_begun_has_the_values_of_that_moment(tmp_path):
    checkpointer, variables = Checkpointer(str(tmp_path)), make_variables(1.)
    checkpointer.begin(1, variables, {'position': 10})
    for variable in variables.values():
        variable.assign_add(tf.ones_like(variable))   # Optimizers also assign in place.
    checkpointer.wait()
    restored = make_variables()
    assert checkpointer.restore(restored) == {'position': 10, 'step': 1}
    assert values_of(restored) == {1.} and values_of(variables) == {2.}


def test_error_of_the_background_is_raised_once_by_the_next_look(tmp_path, monkeypatch):
    checkpointer = saved(tmp_path, 1)

    def full(*args):
        raise OSError(28, 'No space left on device')
    with monkeypatch.context() as patch:
        patch.setattr('lingpipe.checkpoint.files.write', full)
        checkpointer.begin(2, make_variables(2.))
        with pytest.raises(OSError, match=r'the checkpoint of step 2 cannot be written to .*No '
                                          r'space left on device; that of step 1 is'):
            checkpointer.wait()
    checkpointer.check()
    checkpointer.begin(3, make_variables(3.))
    checkpointer.wait()
    assert checkpointer.steps() == [1, 3]


def test_large_networks_are_written_a_few_variables_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr('lingpipe.checkpoint.parts.CHUNK_BYTES', (0, 20))
    checkpointer = saved(tmp_path, 1)
    assert len(list(tmp_path.glob('step-00000001/variables.data-*'))) == 3
    assert checkpointer.restore(variables := make_variables()) and values_of(variables) == {1.}


def test_writer_rests_before_each_part(tmp_path, monkeypatch):
    monkeypatch.setattr('lingpipe.checkpoint.parts.CHUNK_BYTES', (0, 20))
    rests = []

    def rest(self, num_left):
        rests.append((num_left, len(list(tmp_path.glob('tmp-*/parts/*.index')))))
    monkeypatch.setattr('lingpipe.checkpoint.pacing.Pacing.rest', rest)
    saved(tmp_path, 1)
    # The last two rests come before parts are joined, and before they are put on the disk.
    assert rests == [(5, 0), (4, 1), (3, 2), (2, 3), (1, 0)]


def test_writer_rests_until_somebody_waits_for_it(tmp_path, monkeypatch):
    monkeypatch.setattr('lingpipe.checkpoint.pacing.RESTS', 1e9)
    checkpointer = Checkpointer(str(tmp_path))
    checkpointer.begin(1, make_variables(1.))
    deadline_s = time.monotonic() + 60.
    while not list(tmp_path.glob('tmp-step-00000001')):
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    time.sleep(0.1)
    checkpointer.check()
    assert checkpointer.steps() == [] and not list(tmp_path.glob('tmp-step-00000001/*'))
    checkpointer.wait()
    assert checkpointer.restore(variables := make_variables()) and values_of(variables) == {1.}


def test_rests_are_shorter_where_the_next_checkpoint_would_have_to_wait(tmp_path, monkeypatch):
    monkeypatch.setattr('lingpipe.checkpoint.parts.CHUNK_BYTES', (0, 20))
    monkeypatch.setattr('lingpipe.checkpoint.pacing.RESTS', 1e9)
    checkpointer = Checkpointer(str(tmp_path))
    checkpointer.check()   # This comes after the first step.
    # This is soon after the check. As far as one can know, the next checkpoint also comes soon.
    checkpointer.begin(1, make_variables(1.))
    deadline_s = time.monotonic() + 60.
    while checkpointer.steps() != [1]:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
        checkpointer.check()


def test_what_copies_variables_is_traced_once(tmp_path, monkeypatch):
    checkpointer, variables = Checkpointer(str(tmp_path)), make_variables(1.)
    checkpointer.prepare(variables)
    with monkeypatch.context() as patch:
        patch.setattr(tf.compat.v1, 'wrap_function', None)
        checkpointer.begin(1, dict(variables))
        checkpointer.begin(2, variables)
    checkpointer.begin(3, make_variables(3.))   # These are other variables.
    checkpointer.wait()
    assert checkpointer.restore(variables) and values_of(variables) == {3.}


# False: as on devices with a memory of their own.
@pytest.mark.parametrize('has_packed_handles', [True, False])
def test_copies_are_those_of_every_device_and_dtype(monkeypatch, has_packed_handles):
    if not has_packed_handles:
        monkeypatch.setattr('lingpipe.checkpoint.copier.is_in_host_memory', lambda device: False)
    values = {'bfloat16': [1.5, 2.], 'int64': 2 ** 60, 'bool': [True], 'float32': np.zeros([2, 0]),
              'string': ['one', ''], 'uint8': [[3]]}
    variables = {}
    for i, (dtype, value) in enumerate(values.items()):
        with tf.device(f'CPU:{i % 3}'):
            variables[dtype] = tf.Variable(tf.constant(value, dtype))
    take = Copier(variables).copy()
    variables['int64'].assign_add(1)
    for dtype, value in values.items():
        found = take(dtype)
        assert found.dtype == dtype and np.array_equal(found, tf.constant(value, dtype))


@pytest.mark.parametrize('name', ['lr=[0.1]', 'a\\b', 'all*', 'what?'])
def test_a_directory_may_have_any_name(tmp_path: Path, name: str) -> None:
    """TensorFlow took it for a pattern, and good checkpoints for damaged ones."""
    checkpointer = saved(tmp_path / name, 1, 2)
    variables = make_variables()
    assert checkpointer.restore(variables) == {'position': 20, 'step': 2}
    assert values_of(variables) == {2.}
    initialize(variables, str(tmp_path / name / 'step-00000001'), (('(.*)', r'\1'),))
    assert values_of(variables) == {1.}


def test_ctrl_c_within_tensorflow_is_no_damage(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint before was taken instead, and the signal was lost."""
    def interrupted(path: str) -> None:
        raise RuntimeError('pybind11::error_already_set: MISMATCH of original and normalized '
                           'active exception types: ORIGINAL NotFoundError REPLACED BY '
                           'KeyboardInterrupt: <EMPTY MESSAGE>')

    checkpointer = saved(tmp_path, 1, 2)
    monkeypatch.setattr(tf.train, 'load_checkpoint', interrupted)
    with pytest.raises(KeyboardInterrupt):
        checkpointer.restore(make_variables())
