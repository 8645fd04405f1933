"""The logdir's promises.

No run resumes as another one, and no file beside the checkpoints ends a run or hides which run it
belongs to.
"""
from __future__ import annotations

import os

import pytest
import tensorflow as tf

from lingpipe.checkpoint import Checkpointer
from lingpipe.training import logdir, registry, resumption
from lingpipe.training.lost_checkpoints import warn_of_lost_checkpoints
from tests.support.plain_user import plain_user


def make_params(**overrides):
    return registry.get('tests.support.tiny_experiment.Tiny').set(**overrides)


def save(directory, step, params=None):
    metadata = {'params': params.to_text()} if params else {}
    Checkpointer(str(directory / 'checkpoints')).save(step, {'w': tf.Variable(1.)}, metadata)


# What params.txt may be: bytes, None for no file, or 'directory'.
DAMAGED = {'absent': None, 'empty': b'', 'junk': bytes(range(256)) * 9, 'null': b'\0' * 99,
           'a number': b'5', 'a directory': 'directory'}


def put(path, content):
    if content == 'directory':
        path.mkdir()
        (path / 'inside').write_text('')
    elif content is not None:
        path.write_bytes(content)


@pytest.mark.parametrize('what', [*DAMAGED, 'truncated', 'of another experiment'])
def test_checkpoint_tells_whose_it_is_whatever_params_txt_says(tmp_path, caplog, what):
    params = make_params()
    contents = {**DAMAGED, 'truncated': params.to_text()[:500].encode(),
                'of another experiment': make_params(seed=3).to_text().encode()}
    save(tmp_path, 1, params)
    put(tmp_path / 'params.txt', contents[what])

    with pytest.raises(ValueError,
                       match=rf'^cannot resume training in {tmp_path}: it holds a run whose seed '
                             r'\(was 0, is 4\) differ; '):
        logdir.claim(str(tmp_path), make_params(seed=4))
    assert not caplog.records

    logdir.claim(str(tmp_path), params)
    assert (tmp_path / 'params.txt').read_text() == params.to_text()
    is_set_aside = what not in ('absent', 'empty')
    assert [record.getMessage() for record in caplog.records] == [
        f'{tmp_path}/params.txt cannot be used: it is damaged, or tells of another experiment than '
        f'the checkpoints; it is now '
        'params.txt.bad'] * is_set_aside
    assert (tmp_path / 'params.txt.bad').exists() == is_set_aside


def test_what_may_change_is_written_anew_and_nothing_is_set_aside(tmp_path, caplog):
    save(tmp_path, 1, make_params())
    logdir.claim(str(tmp_path), make_params())
    longer = make_params(**{'train.num_steps': 99})
    logdir.claim(str(tmp_path), longer)
    assert (tmp_path / 'params.txt').read_text() == longer.to_text()
    assert sorted(os.listdir(tmp_path)) == ['checkpoints', 'params.txt'] and not caplog.records


@pytest.mark.parametrize('content', ['junk', 'a directory', 'a number'])
def test_damaged_params_txt_is_refused_if_nothing_else_tells_whose_it_is(tmp_path, content):
    """Checkpoints of an older lingpipe do not say which run they belong to."""
    save(tmp_path, 1)
    put(tmp_path / 'params.txt', DAMAGED[content])
    with pytest.raises(ValueError, match=rf'^{tmp_path}/params.txt cannot be read: .*; if it is '
                                         rf'the same experiment, move that file away, '
                                         'or else choose another logdir'):
        logdir.claim(str(tmp_path), make_params())
    assert sorted(os.listdir(tmp_path)) == ['checkpoints', 'params.txt']


def test_params_txt_that_may_not_be_read_is_not_set_aside():
    params = make_params()
    with plain_user() as folder:
        save(folder, 1, params)
        (folder / 'params.txt').write_text(params.to_text())
        (folder / 'params.txt').chmod(0)
        with pytest.raises(OSError, match=rf'^{folder}/params.txt cannot be read: Permission '
                                          'denied; it may be whole, so nothing is changed: '):
            logdir.claim(str(folder), params)
        assert sorted(os.listdir(folder)) == ['checkpoints', 'params.txt']


def test_a_run_whose_classes_are_not_here_is_of_another_experiment(tmp_path):
    save(tmp_path, 1)
    own = 'tests.support.tiny_experiment:Pairs'
    text = make_params().to_text()
    (tmp_path / 'params.txt').write_text(text.replace(f'train_input : {own}',
                                                      'train_input : strange:Rows'))
    with pytest.raises(ValueError, match=rf'^{tmp_path} holds a run of another experiment, whose '
                                         rf'train_input is strange:Rows, and not {own}; choose '
                                         'another logdir or, '):
        logdir.claim(str(tmp_path), make_params())


def test_checkpoints_that_nobody_knows_anything_of_cost_a_warning(tmp_path, caplog):
    save(tmp_path, 1)
    logdir.claim(str(tmp_path), make_params())
    assert [record.getMessage() for record in caplog.records] == [
        f'neither params.txt nor a checkpoint in {tmp_path} tells whose experiment is there; it '
        f'goes on as this one']
    with pytest.raises(ValueError, match=r'seed \(was 0, is 4\) differ'):
        logdir.claim(str(tmp_path), make_params(seed=4))


def test_other_cuts_cost_a_warning_where_they_change_the_results(tmp_path, caplog):
    params = registry.get('tests.support.tiny_experiment.Tiny').set(
        **{'pipeline.wire_dtype': 'bfloat16'})
    (tmp_path / 'params.txt').write_text(params.to_text())
    Checkpointer(str(tmp_path / 'checkpoints')).save(
        1, {'weights/w': tf.Variable(1.)}, {'params': params.to_text()})
    logdir.claim(str(tmp_path), params.copy().set(**{'train.num_steps': 3}))
    assert not caplog.text
    logdir.claim(str(tmp_path), params.copy().set(**{'pipeline.num_cells': 1}))
    assert ('with pipeline.wire_dtype=bfloat16, results depend on where the network is cut and on '
            'what else the plan says, and pipeline.num_cells (was 2, is 1) differ') in caplog.text
    for path, value in [('schedule', 'gpipe'), ('recompute', 'none'), ('partition', 'variance'),
                        ('devices', ('/device:CPU:0', '/device:CPU:0'))]:
        caplog.clear()
        before = params.copy().set(**{'pipeline.devices': ('/device:CPU:0', '/device:CPU:1')})
        resumption.warn_of_plan(before, before.copy().set(**{f'pipeline.{path}': value}))
        assert path in caplog.text
    caplog.clear()
    other_machines = params.copy().set(**{'pipeline.devices': ('/device:CPU:1', '/device:CPU:2')})
    resumption.warn_of_plan(before, other_machines)
    assert not caplog.text


def test_lost_checkpoints_cost_a_warning(tmp_path, caplog):
    warn_of_lost_checkpoints(str(tmp_path))
    (tmp_path / 'train.log').write_text('a new run\nstep 1/100  loss 2\n')
    warn_of_lost_checkpoints(str(tmp_path))
    assert not caplog.text
    (tmp_path / 'train.log').write_bytes(b'step 1/100  loss 2\nstep 70/100\n\xff\n')
    warn_of_lost_checkpoints(str(tmp_path))
    assert 'has no checkpoint, but its train.log tells of 70 steps: a new run begins' in caplog.text


@pytest.mark.parametrize('content', ['junk', 'a directory'])
def test_new_training_begins_whatever_params_txt_is(tmp_path, content):
    put(tmp_path / 'params.txt', DAMAGED[content])
    put(tmp_path / 'params.txt.new', 'directory')
    logdir.claim(str(tmp_path), make_params())
    assert (tmp_path / 'params.txt').read_text() == make_params().to_text()
