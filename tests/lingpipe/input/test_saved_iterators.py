"""Saved iterators: a dataset goes on from its own state, or is skipped if that cannot be saved."""
from __future__ import annotations

import os
import pathlib
import re
import zlib
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.api.start import start
from lingpipe.input import DatasetInput
from lingpipe.input.base import Input
from lingpipe.input.saved_iterators import SavedIterators
from lingpipe.training.experiment import Experiment
from tests.support.tiny_experiment import Tiny


def shuffled() -> tf.data.Dataset:
    numbers = tf.data.Dataset.range(7).shuffle(5, seed=1)
    return numbers.map(lambda n: {'x': tf.cast(n, tf.float32)})


def by_python() -> tf.data.Dataset:
    numbers = tf.data.Dataset.range(7)
    return numbers.map(lambda n: {'x': tf.ensure_shape(
        tf.numpy_function(np.float32, [n], tf.float32), [])})


def source(make: Any, **params: Any) -> Input:
    made: Input = DatasetInput.of(make, batch_size=2, resume='saved_iterator',
                                  **params).instantiate()
    return made


def numbers(batches: Any, how_many: int) -> list[Any]:
    return [next(batches)['x'].numpy().tolist() for _ in range(how_many)]


def test_a_dataset_goes_on_from_its_saved_iterator(
        tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    saved = SavedIterators(source(shuffled), str(tmp_path))
    batches = saved.batches(0)
    for _ in range(3):
        numbers(batches, 2)
        saved.save()   # after 4, 8 and 12 examples
    wanted = numbers(batches, 5)   # over the end of an epoch
    assert {int(path.partition('-')[0]) for path in os.listdir(tmp_path)} == {8, 12}

    assert numbers(SavedIterators(source(shuffled), str(tmp_path)).batches(12), 5) == wanted
    assert 'skipping' not in caplog.text
    other = source(shuffled, prefetch=3)   # whose state it is not
    assert numbers(SavedIterators(other, str(tmp_path)).batches(12), 5) == wanted
    assert 'resumes by making 12 examples again and skipping them' in caplog.text


def test_an_iterator_that_was_saved_before_there_was_a_field_shuffle_rounds_is_found(
        tmp_path: pathlib.Path) -> None:
    """The order is the dataset's own."""
    saved = SavedIterators(source(shuffled), str(tmp_path))
    numbers(saved.batches(0), 2)
    saved.save()
    text = re.sub('shuffle_rounds : .*\n', '', source(shuffled).params.to_text())
    assert f'4-{zlib.crc32(text.encode()):08x}.index' in os.listdir(tmp_path)


def test_a_run_that_goes_on_from_an_older_checkpoint_keeps_its_iterators(
        tmp_path: pathlib.Path) -> None:
    """Those of the newer checkpoints, which are gone, were kept in place of its own."""
    saved = SavedIterators(source(shuffled), str(tmp_path))
    for position, batches_between in ((0, 4), (2, 2)):   # iterators of 8, 16; then of 6, 10
        batches = saved.batches(position)
        for _ in range(2):
            numbers(batches, batches_between)
            saved.save()
    assert {int(path.partition('-')[0]) for path in os.listdir(tmp_path)} == {6, 10}


def test_what_cannot_be_saved_is_skipped(
        tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    saved = SavedIterators(source(by_python), str(tmp_path))
    batches = saved.batches(0)
    numbers(batches, 2)
    saved.save()
    assert 'cannot be saved (PyFunc is stateful), so that a resumed run makes the' in caplog.text
    wanted = numbers(batches, 2)
    assert numbers(SavedIterators(source(by_python), str(tmp_path)).batches(4), 2) == wanted
    assert 'resumes by making 4 examples again and skipping them' in caplog.text


def test_files_that_are_not_whole_are_told_of_and_not_used(
        tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    saved = SavedIterators(source(shuffled), str(tmp_path))
    batches = saved.batches(0)
    numbers(batches, 2)
    saved.save()
    for path in tmp_path.glob('*.data*'):
        path.write_bytes(b'')
    wanted = numbers(batches, 2)
    assert numbers(SavedIterators(source(shuffled), str(tmp_path)).batches(4), 2) == wanted
    assert 'cannot be used' in caplog.text


def test_a_resumed_run_has_the_bits_of_one_that_was_not_stopped(
        tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    x = np.random.default_rng(0).standard_normal((40, 4)).astype(np.float32)

    def pairs() -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices({'x': x, 'y': np.tanh(x)}).shuffle(20, seed=3)

    def experiment(num_cells: int) -> Experiment.Params:
        train_input = DatasetInput.of(pairs, batch_size=8, resume='saved_iterator')
        params = Tiny.params().set(train_input=train_input, eval_inputs={})
        return params.set(**{'pipeline.num_cells': num_cells})

    with start(experiment(1), logdir=tmp_path / 'whole') as run:
        run.train(steps=6)
        wanted = dict(run.weights)
    with start(experiment(2), logdir=tmp_path / 'parts') as run:
        run.train(steps=4)
        run.train(steps=2)   # It begins with the files of the logdir, as another process would.
        for path, value in run.weights.items():
            np.testing.assert_array_equal(value, wanted[path], err_msg=path)
    assert 'skipping' not in caplog.text
