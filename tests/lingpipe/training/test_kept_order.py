"""Kept order: a run that is resumed sees its examples in the order that it began with."""
from __future__ import annotations

import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.api.start import start
from lingpipe.checkpoint import Checkpointer
from lingpipe.training import registry
from lingpipe.training.kept_order import with_order_of_run
from tests.support.tiny_experiment import Tiny

ROUNDS = 'train_input.shuffle_rounds'


@pytest.mark.parametrize(('line', 'kept'), [('', 4), (f'{ROUNDS} : 4\n', 4),
                                            (f'{ROUNDS} : 16\n', 16)])
@pytest.mark.parametrize('place', ['checkpoint', 'params.txt'])
def test_the_order_is_that_of_the_recorded_params(
        tmp_path: pathlib.Path, line: str, kept: int, place: str) -> None:
    """A text without a line of it is of a time when all orders had 4 rounds."""
    params = registry.get('tests.support.tiny_experiment.Tiny').freeze()
    text = re.sub(f'(?m)^{ROUNDS} : .*\n', line, params.to_text())
    metadata = {'params': text} if place == 'checkpoint' else {}
    Checkpointer(str(tmp_path / 'checkpoints')).save(1, {'w': tf.Variable(1.)}, metadata)
    if place == 'params.txt':
        (tmp_path / 'params.txt').write_text(text)

    resumed = with_order_of_run(params, str(tmp_path))
    assert resumed.train_input.shuffle_rounds == kept
    assert resumed == params.copy().set(**{ROUNDS: kept})


def test_a_new_run_has_the_order_of_its_params(tmp_path: pathlib.Path) -> None:
    params = registry.get('tests.support.tiny_experiment.Tiny').freeze()
    assert with_order_of_run(params, str(tmp_path)).train_input.shuffle_rounds == 16


def test_a_run_that_began_with_the_order_of_before_ends_with_its_weights(
        tmp_path: pathlib.Path) -> None:
    with start(Tiny, logdir=tmp_path / 'whole', set={ROUNDS: 4}) as whole:
        whole.train(steps=6, evaluate=False)
        expected = {path: np.array(value) for path, value in whole.weights.items()}
    with start(Tiny, logdir=tmp_path / 'parts', set={ROUNDS: 4}) as first:
        first.train(steps=3, evaluate=False)
    with start(Tiny, logdir=tmp_path / 'parts') as resumed:
        assert resumed.params.train_input.shuffle_rounds == 4
        resumed.train(steps=3, evaluate=False)
        for path, value in resumed.weights.items():
            np.testing.assert_array_equal(value, expected[path], err_msg=path)
