"""Readers: a process makes the mini-batches of an input that it gets as text."""
from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.input import ArrayInput, DatasetInput, Input
from lingpipe.input.fingerprint import difference, fingerprint
from lingpipe.input.readers import FINGERPRINT, READ, SHAPE, Reader, answer
from lingpipe.input.unread_batch import UnreadBatch, check_sendable
from tests.support.tiny_experiment import Pairs

PAIRS = Pairs.Params(batch_size=4, num_examples=7)


class TwoShapes(DatasetInput):
    """Its mini-batches have two lengths in turn, and the last of three another one."""

    def dataset(self, position: int = 0) -> tf.data.Dataset:
        def batches() -> Any:
            for number in range(position // 2, 3):
                yield {'x': np.zeros([2, (6, 3, 5)[number]], np.float32)}
        return tf.data.Dataset.from_generator(
            batches, output_signature={'x': tf.TensorSpec([2, None])})

    def specs(self) -> list[dict[str, Any]]:
        return [{'x': tf.TensorSpec([2, length])} for length in (6, 3)]


class Counted(DatasetInput):
    """The numbers from 0 to 8."""

    def make(self) -> tf.data.Dataset:
        return tf.data.Dataset.range(9)


def asked(what: bytes, params: Input.Params, position: int) -> Any:
    return json.loads(answer(what, params.to_text().encode(), np.int64(position)))


def test_mini_batches_come_from_any_position_in_any_order():
    source, reader = PAIRS.instantiate(), Reader(PAIRS.to_text())
    for position in (8, 12, 12, 16, 0, 8):   # 12 and 0 follow nothing, 8 skips one.
        expected = next(source.batches(position))
        found = reader.batch(position)
        for name in expected:
            np.testing.assert_array_equal(found[name], expected[name])
        *arrays, wait_s = answer(READ, PAIRS.to_text().encode(), np.int64(position),
                                 np.array([b'y', b'weight'], object))
        np.testing.assert_array_equal(arrays[0], expected['y'])
        assert len(arrays) == 2 and wait_s >= 0


@pytest.mark.parametrize(('numbers', 'begun'), [
    ((0, 1, 2, 3), [(0, 1)]),
    ((0, 4, 8, 12, 16, 0, 4, 8, 0, 4), [(0, 1), (8, 4), (0, 4), (0, 4)]),   # one of 4 replicas
    ((2, 5, 8, 11, 12, 13, 14), [(2, 1), (8, 3), (12, 1)]),
    ((0, 1, 4, 5, 8, 9, 12, 13), [(0, 1)]),                                 # two of 4
    ((0, 4, 8, 16, 22, 1), [(0, 1), (8, 4), (22, 2), (1, 2)])])
def test_a_reader_that_is_asked_for_each_nth_makes_no_others(numbers, begun, monkeypatch):
    reader, calls = Reader(PAIRS.to_text()), []
    made = reader.source.batches
    monkeypatch.setattr(reader.source, 'batches',
                        lambda *which: calls.append(which) or made(*which))
    for number in numbers:
        expected = next(made(4 * number))
        for name, found in reader.batch(4 * number).items():
            np.testing.assert_array_equal(found, expected[name])
    assert [(position // 4, stride) for position, stride in calls] == begun


def test_an_input_that_makes_its_own_dataset_is_read_on_and_not_begun_again(monkeypatch):
    reader, calls = Reader(Counted.Params(batch_size=2, num_epochs=1).to_text()), []
    made = reader.source.batches
    monkeypatch.setattr(reader.source, 'batches',
                        lambda *which: calls.append(which) or made(*which))
    found = [reader.batch(position)['x'].numpy().tolist() for position in (0, 4, 8)]
    assert found == [[0, 1], [4, 5], [8, 8]]
    assert calls == [(0, 1)]


def test_an_input_that_ends_is_one_sentence():
    params = PAIRS.copy().set(num_epochs=1)
    why = 'Pairs ends before position 8; let it repeat (num_epochs=none), or train fewer steps.'
    with pytest.raises(ValueError, match=f'^{re.escape(why)}$'):
        answer(READ, params.to_text().encode(), np.int64(8), np.array([b'x'], object))
    assert asked(SHAPE, params, 8) == {'problem': why}


def test_a_text_imports_no_module_of_strangers():
    text = PAIRS.to_text().replace('tests.support.tiny_experiment', 'antigravity')
    assert text != PAIRS.to_text()
    reply = json.loads(answer(SHAPE, text.encode(), np.int64(0)))
    assert 'antigravity:Pairs is in a module that nothing here has imported' in reply['problem']


def test_the_shape_of_a_mini_batch_is_one_of_the_inputs_specs():
    params = TwoShapes.Params(batch_size=2)
    assert [asked(SHAPE, params, position) for position in (0, 2)] == [{'reply': 0}, {'reply': 1}]
    assert asked(SHAPE, params, 4)['problem'].startswith(
        'the mini-batch at position 4 of TwoShapes has none of the shapes of its specs()')


# Fingerprints.

def test_the_same_mini_batch_has_the_same_fingerprint_and_others_have_not():
    source = PAIRS.instantiate()
    batch, other = (next(source.batches(position)) for position in (0, 4))
    own = fingerprint(source, batch)
    assert difference(own, asked(FINGERPRINT, PAIRS, 0)['reply']) == ''
    assert difference(own, fingerprint(source, other)) == "'x' of the same mini-batch differs"
    longer = PAIRS.copy().set(num_examples=8)
    assert (difference(own, asked(FINGERPRINT, longer, 0)['reply'])
            == 'it has 8 examples there, and 7 in the trainer')


@pytest.mark.parametrize(('value', 'like', 'unlike'), [
    (np.float32([1., -1.]), np.float32([1.0001, -1.]), np.float32([1.01, -1.])),
    (np.float32([np.nan, 1.]), np.float32([np.nan, 1.]), np.float32([1., 1.])),
    (np.zeros(2, np.float32), np.zeros(2, np.float32), np.ones(2, np.float32)),
    (np.int32([1, 2]), np.int32([1, 2]), np.int32([2, 1])),
    (np.int32([1, 2]), np.int32([1, 2]), np.int64([1, 2])),
    (np.array(['a', 'b'], 'S'), np.array(['a', 'b'], 'S'), np.array(['a', 'c'], 'S'))])
def test_last_bits_of_real_numbers_do_not_count(value, like, unlike):
    source = PAIRS.instantiate()
    own, same, other = (fingerprint(source, {'x': one}) for one in (value, like, unlike))
    assert difference(own, json.loads(json.dumps(same))) == ''
    assert difference(own, other) == "'x' of the same mini-batch differs"


# What can be sent.

def test_an_unread_batch_is_made_here_only_if_somebody_looks():
    made = []

    class Watched(Pairs):
        def batches(self, position: int = 0) -> Any:
            made.append(position)
            return super().batches(position)

    batch = UnreadBatch(Watched.Params(batch_size=4).instantiate(), 8)
    assert made == []
    assert set(batch) == {'x', 'y', 'weight'} and len(batch['x']) == 4
    assert made == [8]


@pytest.mark.parametrize(('params', 'why'), [
    (ArrayInput.of({'x': np.zeros([9, 2])}, batch_size=2),
     r'GivenArrays, whose object \(x float32\[9, 2\] \w+\) only this process has, .*; write a '
     r'class of Input that finds its data itself'),
    (Counted.Params(batch_size=2, resume='saved_iterator'),
     r"Counted with resume='saved_iterator', .*; set resume='skip', give its function an "
     r'argument `position`')])
def test_an_input_that_workers_cannot_make_is_refused(params, why):
    with pytest.raises(ValueError, match=rf'^train_input is {why}, or set '
                                         r'pipeline\.read_on_workers=False\.$'):
        check_sendable(params.instantiate())


def test_a_class_that_workers_cannot_import_is_refused():
    class InFunction(Pairs):
        """A class that no other process has."""

    with pytest.raises(ValueError, match=r'^train_input is InFunction, a class that workers cannot '
                                         r'import, .*; define it at the top of a module of its '):
        check_sendable(InFunction.Params(batch_size=4).instantiate())
    check_sendable(PAIRS.instantiate())
