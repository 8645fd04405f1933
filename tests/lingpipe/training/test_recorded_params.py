"""What the checkpoints of a run say of it."""
from __future__ import annotations

import pathlib

import tensorflow as tf

from lingpipe.checkpoint import Checkpointer
from lingpipe.training.recorded_params import origin_of_weights
from tests.support.tiny_experiment import Tiny


def run_from(directory: str, logdir: pathlib.Path) -> str:
    """Makes a logdir whose run took its weights from a directory; returns its checkpoint."""
    params = Tiny.params()
    params.initialize_from.directory = directory
    checkpointer = Checkpointer(str(logdir / 'checkpoints'))
    return checkpointer.save(1, {'w': tf.Variable(1.)}, {'params': params.to_text()})


def test_weights_began_where_the_first_of_the_runs_took_them(tmp_path: pathlib.Path) -> None:
    """An export lost its tokenizer if the run began with a checkpoint of one before it."""
    run_from('folder of another program', tmp_path / 'first')
    checkpoint = run_from(str(tmp_path / 'first'), tmp_path / 'second')
    for directory in (checkpoint, str(tmp_path / 'second'), str(tmp_path / 'second/checkpoints')):
        assert origin_of_weights(directory) == 'folder of another program'


def test_weights_that_no_file_gave_began_in_the_first_run(tmp_path: pathlib.Path) -> None:
    checkpoint = run_from('', tmp_path / 'first')
    assert origin_of_weights(checkpoint) == checkpoint
    assert origin_of_weights('') == ''


def test_runs_that_took_their_weights_from_each_other_have_an_end(tmp_path: pathlib.Path) -> None:
    """A logdir may be used again once its run was moved away."""
    run_from(str(tmp_path / 'second'), tmp_path / 'first')
    run_from(str(tmp_path / 'first'), tmp_path / 'second')
    assert origin_of_weights(str(tmp_path / 'first')) == str(tmp_path / 'first')
