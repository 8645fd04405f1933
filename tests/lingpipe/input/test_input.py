"""The input: batches from any position are those of an uninterrupted run.

Evaluation sees each example once, and errors say what to do.
"""
from __future__ import annotations

import itertools
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from lingpipe.hyperparams import field
from lingpipe.input import ArrayInput, Feature, Input, InputMeter, RecordInput, TFDSInput, datasets
from lingpipe.input.first_batch import check_keys, example_name, nonfinite
from lingpipe.input.order import indices
from lingpipe.input.records import masked_crc32c
from tests.support.calls import num_calls


class Numbers(ArrayInput):
    """Example i has x = i and y = [i, -i]."""

    class Params(ArrayInput.Params):
        num_examples: int = field(10, 'Number of examples.')

    params: Params

    def load(self) -> dict[str, np.ndarray]:
        x = np.arange(self.params.num_examples)
        return {'x': x, 'y': np.stack([x, -x], 1).astype(np.float32)}


class Noisy(Numbers):
    def preprocess(self, example: dict[str, Any], seed: tf.Tensor) -> dict[str, Any]:
        return {'x': example['x'], 'noise': tf.random.stateless_uniform([], seed)}


def numbers(source: type[Input] = Numbers, **values: Any) -> Input:
    return source.Params(**values).instantiate()


def batches_of(source: Input, num_batches: int | None = None, position: int = 0,
               key: str = 'x') -> list[list[Any]]:
    taken = source.dataset(position).take(-1 if num_batches is None else num_batches)
    return [batch[key].numpy().tolist() for batch in taken]


# Positions.

@pytest.mark.parametrize('source', [Numbers, Noisy])
def test_nothing_autotunes_and_so_holds_up_the_end_of_a_training(source):
    options = numbers(source, batch_size=4).dataset().options()
    assert options.autotune.enabled is False and options.deterministic


@pytest.mark.parametrize(('source', 'is_rewritten'), [(Numbers, False), (Noisy, None)])
def test_arrays_are_not_copied_to_rewrite_a_graph_that_gains_nothing(source, is_rewritten):
    """tf.data held all arrays a second time. None leaves it to tf.data."""
    options = numbers(source, batch_size=4).dataset().options()
    assert options.experimental_optimization.apply_default_optimizations is is_rewritten


def test_the_order_of_a_seed_never_changes():
    """These literals must not be edited: a resume with another lingpipe must see the same order."""
    assert batches_of(numbers(batch_size=5, shuffle_rounds=4), 4) == [
        [7, 9, 5, 2, 4], [1, 6, 8, 0, 3], [9, 2, 1, 3, 5], [0, 4, 6, 8, 7]]
    assert batches_of(numbers(batch_size=5), 4) == [
        [3, 6, 5, 2, 8], [4, 9, 1, 7, 0], [3, 2, 5, 0, 8], [6, 9, 4, 1, 7]]


@pytest.mark.parametrize('position', [4, 8, 12, 40])
@pytest.mark.parametrize('source', [Numbers, Noisy])
def test_a_resume_gives_the_batches_of_an_uninterrupted_run(source, position):
    key = 'noise' if source is Noisy else 'x'
    whole = batches_of(numbers(source, batch_size=4), 20, key=key)
    assert (batches_of(numbers(source, batch_size=4), 10, position, key)[:20 - position // 4]
            == whole[position // 4:][:10])


def test_a_resume_may_change_the_size_of_batches():
    whole = sum(batches_of(numbers(batch_size=4), 10), [])
    assert sum(batches_of(numbers(batch_size=3), 5, position=12), []) == whole[12:27]


class OwnDataset(Noisy):
    def dataset(self, position: int = 0) -> tf.data.Dataset:
        return super().dataset(position)


@pytest.mark.parametrize('num_epochs, position', [(None, 0), (None, 6), (1, 3), (3, 0), (3, 6)])
@pytest.mark.parametrize('source', [Noisy, OwnDataset])
def test_each_nth_batch_is_the_same_as_among_all(source, num_epochs, position):
    source = numbers(source, batch_size=3, num_epochs=num_epochs)

    def noise(batches, most):
        return [batch['noise'].numpy() for batch in itertools.islice(batches, most)]

    every = noise(source.batches(position), 12)
    for stride in (2, 7):
        each_nth = noise(source.batches(position, stride), -(-12 // stride))
        np.testing.assert_equal(each_nth, every[::stride])


def test_every_epoch_holds_every_example_once_in_another_order():
    stream = sum(batches_of(numbers(batch_size=4), 10), [])
    epochs = [stream[i:i + 10] for i in range(0, 40, 10)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(10))] * 4
    assert len({tuple(epoch) for epoch in epochs}) == 4


@pytest.mark.parametrize('rounds', [4, 16])
@pytest.mark.parametrize('number', [1, 2, 65_536, 65_537, 65_538, 262_145])
def test_an_epoch_of_any_length_is_a_permutation(number, rounds):
    index, epoch = indices(tf.range(number, 3 * number, dtype=tf.int64), number, 3, True, rounds)
    assert epoch.numpy().tolist() == [1] * number + [2] * number
    for one in np.split(index.numpy(), 2):
        np.testing.assert_array_equal(np.sort(one), np.arange(number))


@pytest.mark.parametrize('rounds', [4, 16])
def test_no_order_comes_again_after_256_epochs(rounds):
    """Not even the first 5 of 200 examples do."""
    firsts = 200 * tf.range(1024, dtype=tf.int64)[:, tf.newaxis] + tf.range(5, dtype=tf.int64)
    index, _ = indices(tf.reshape(firsts, [-1]), 200, 0, True, rounds)
    assert len(np.unique(index.numpy().reshape(1024, 5), axis=0)) == 1024


@pytest.mark.parametrize('number', [10_000, 60_000, 65_536])
def test_examples_meet_again_in_the_next_epoch_as_often_as_by_chance(number):
    """With 4 rounds, two of 60,000 that shared a mini-batch met again 128 times as often."""
    batch_size, num_batches = 100, number // 100
    source = numbers(batch_size=batch_size, num_examples=number)
    index, _ = indices(tf.range(2 * number, dtype=tf.int64), number, source.params.seed, True,
                       source.params.shuffle_rounds)
    batch_of_place = np.arange(number) // batch_size
    batches = np.empty([2, number], np.int64)   # of each example, in either epoch
    for epoch, examples in enumerate(index.numpy().reshape(2, number)):
        batches[epoch, examples] = batch_of_place
    is_full = (batches < num_batches).all(0)
    _, together = np.unique(batches[0, is_full] * (num_batches + 1) + batches[1, is_full],
                            return_counts=True)
    num_pairs = (together * (together - 1)).sum()
    expected = num_batches * batch_size * (batch_size - 1) ** 2 / (number - 1)
    assert 0.9 < num_pairs / expected < 1.1


def test_another_seed_is_another_order():
    assert batches_of(numbers(batch_size=10), 1) != batches_of(numbers(batch_size=10, seed=1), 1)


def test_without_shuffling_epochs_follow_without_a_gap():
    assert batches_of(numbers(batch_size=4, shuffle=False), 5) == [
        [0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1], [2, 3, 4, 5], [6, 7, 8, 9]]


def test_a_position_of_a_long_training_is_as_good_as_the_first():
    def work(position: int) -> int:
        return num_calls(lambda: batches_of(numbers(batch_size=4), 1, position=position))
    work(1)   # Some things are imported and resolved at first use.
    assert work(10**12) < 2 * work(1)


def test_training_has_weights_of_one():
    assert batches_of(numbers(batch_size=4), 3, key='weight') == [[1., 1., 1., 1.]] * 3


# Evaluation.

def test_evaluation_is_one_pass_in_order_and_pads_the_last_batch():
    source = numbers(batch_size=4, shuffle=False, num_epochs=1)
    assert batches_of(source) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 9, 9]]
    assert batches_of(source, key='weight') == [[1., 1., 1., 1.], [1., 1., 1., 1.],
                                                [1., 1., 0., 0.]]
    assert source.num_batches() == 3
    assert numbers(batch_size=4).num_batches() is None
    assert [source.num_real_examples(position) for position in (0, 4, 8)] == [4, 4, 2]
    assert numbers(batch_size=4).num_real_examples(8) == 4


def test_evaluation_of_less_than_a_batch_is_one_padded_batch():
    source = numbers(batch_size=16, shuffle=False, num_epochs=1, num_examples=2)
    assert batches_of(source, key='weight') == [[1., 1.] + [0.] * 14]


def test_after_the_last_position_there_is_nothing():
    source = numbers(batch_size=4, num_epochs=2)
    assert batches_of(source, position=20) == []
    assert source.num_batches(20) == 0
    assert source.num_batches(19) == 1


def test_weights_of_the_data_are_kept_and_padding_weighs_nothing():
    class Weighted(Numbers):
        def load(self) -> dict[str, np.ndarray]:
            return {'x': np.arange(3), 'weight': np.array([0.5, 0.25, 2.])}

    source = numbers(Weighted, batch_size=2, shuffle=False, num_epochs=1)
    assert batches_of(source, key='weight') == [[0.5, 0.25], [2., 0.]]


@pytest.mark.parametrize('has_preprocess', [False, True])
def test_weights_of_tokens_are_kept_and_padding_weighs_nothing(has_preprocess):
    """An example's weight multiplies along the batch.

    For 2 examples with 2 tokens each, it once multiplied along the tokens.
    """
    class Weighted(Numbers):
        def load(self) -> dict[str, np.ndarray]:
            return {'x': np.arange(3), 'weight': np.array([[1., 1.], [1., 0.], [1., 0.5]])}

    class Copied(Weighted):
        def preprocess(self, example: dict[str, Any], seed: tf.Tensor) -> dict[str, Any]:
            return dict(example)

    source = numbers(Copied if has_preprocess else Weighted, batch_size=2, shuffle=False,
                     num_epochs=1)
    assert source.spec()['weight'] == tf.TensorSpec([2, 2])
    assert batches_of(source, key='weight') == [[[1., 1.], [1., 0.]], [[1., 0.5], [0., 0.]]]


# Batches.

def test_the_spec_is_that_of_a_batch():
    spec = numbers(batch_size=4).spec()
    assert spec == {'x': tf.TensorSpec([4], tf.int64), 'y': tf.TensorSpec([4, 2]),
                    'weight': tf.TensorSpec([4])}
    batch = next(iter(numbers(batch_size=4).dataset()))
    assert all(spec[key].is_compatible_with(value) for key, value in batch.items())


def test_random_numbers_depend_on_the_epoch_and_the_example_alone():
    def noise(batch_size: int, shuffle: bool) -> dict[tuple[int, int], float]:
        source = numbers(Noisy, batch_size=batch_size, shuffle=shuffle)
        stream = list(itertools.islice(((int(x), float(n)) for batch in source.dataset() for x, n in
                                        zip(batch['x'], batch['noise'], strict=True)), 20))
        return {(i // 10, x): n for i, (x, n) in enumerate(stream)}

    assert noise(4, True) == noise(10, False)
    assert len(set(noise(4, True).values())) == 20


class Drawing(Numbers):
    """Its random numbers are those that the field names."""

    class Params(Numbers.Params):
        draws: str = field('', 'What draws the numbers.')

    params: Params

    def preprocess(self, example: dict[str, Any], seed: tf.Tensor) -> dict[str, Any]:
        return {**example, 'y': DRAWS[self.params.draws](example['y'], seed)}


GENERATOR = tf.random.Generator.from_seed(0)
DROPOUT = keras.layers.Dropout(0.5, seed=0)


def seeded_noise(y: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    noise = tf.numpy_function(
        lambda s: np.random.default_rng(s).normal(size=2), [seed], tf.float64)
    return y + tf.cast(tf.ensure_shape(noise, [2]), tf.float32)


DRAWS = {
    'tf.random': lambda y, seed: y + tf.random.normal([2]),
    'branch': lambda y, seed: tf.cond(y[0] > 3, lambda: y + tf.random.uniform([2]), lambda: y),
    'generator': lambda y, seed: y + GENERATOR.normal([2]),
    'keras': lambda y, seed: DROPOUT(y, training=True),
    'stateless': lambda y, seed: y + tf.random.stateless_normal([2], seed),
    'numpy': seeded_noise}


@pytest.mark.parametrize('draws, op', [
    ('tf.random', 'RandomStandardNormal'), ('branch', 'RandomUniform'),
    ('generator', 'RngReadAndSkip'), ('keras', 'AssignVariableOp'), ('stateless', None),
    ('numpy', None)])
def test_random_numbers_with_a_state_cost_a_warning(draws, op, caplog):
    """A resumed run saw other examples than the uninterrupted one, and nobody was told."""
    numbers(Drawing, batch_size=4, draws=draws).spec()
    told = [f'Drawing makes the stateful op {op}: each start sees other examples, so that no '
            'result can be reproduced, and a resumed run is not the uninterrupted one; draw '
            'random numbers in preprocess by tf.random.stateless_* or '
            'tf.image.stateless_random_*, with the seed that it is given']
    messages = [record.getMessage() for record in caplog.records]
    assert [text for text in messages if 'Drawing' in text] == (told if op else [])


def test_keys_that_are_missing_are_named():
    with pytest.raises(ValueError,
                       match="the network reads 'yy', and Numbers gives weight, x, y; is it 'y'?"):
        check_keys(numbers(batch_size=4), ['x', 'yy'])
    check_keys(numbers(batch_size=4), ['x', 'weight'])


@pytest.mark.parametrize('key, is_told', [('weights', True), ('sample_weights', True),
                                          ('height', False), ('note', False)])
def test_weights_of_a_wrong_name_cost_a_warning(key, is_told, caplog):
    """A loss that read no `weights` counted all examples alike, without a word."""
    source = ArrayInput.of({'x': np.ones([8, 2]), key: np.ones(8)}, batch_size=4).instantiate()
    check_keys(source, ['x', 'weight'])
    told = (f"GivenArrays gives '{key}', which nothing reads; if it says what examples count, call "
            "it 'weight'.")
    assert [record.getMessage() for record in caplog.records] == [told] * is_told
    check_keys(source, ['x', key])
    assert len(caplog.records) == is_told


def test_nested_examples_stay_nested():
    class Nested(Numbers):
        def preprocess(self, example: dict[str, Any], seed: tf.Tensor) -> dict[str, Any]:
            return {'a': {'b': example['x']}, 'c': example['y']}

    assert numbers(Nested, batch_size=2).spec() == {'a': {'b': tf.TensorSpec([2], tf.int64)},
                                                    'c': tf.TensorSpec([2, 2]),
                                                    'weight': tf.TensorSpec([2])}


# Mistakes.

def test_a_batch_larger_than_the_data_is_refused_in_training():
    with pytest.raises(
            ValueError,
            match='batch_size=11 is larger than the 10 examples of Numbers.*; use 10 or less'):
        numbers(batch_size=11).dataset()


def test_arrays_of_unequal_length_are_refused():
    class Unequal(ArrayInput):
        def load(self) -> dict[str, np.ndarray]:
            return {'image': np.zeros([3, 2]), 'label': np.zeros([4])}

    with pytest.raises(
            ValueError,
            match='the arrays of Unequal have different lengths: image 3, label 4; give one row'):
        numbers(Unequal, batch_size=1).dataset()


def test_no_examples_are_refused():
    with pytest.raises(ValueError, match='Numbers has no examples; name data that is not empty'):
        numbers(batch_size=1, num_examples=0).dataset()


def test_python_that_is_given_a_symbolic_tensor_is_told_what_to_use():
    class Sliced(Numbers):
        def read(self, index: tf.Tensor) -> dict[str, Any]:
            return {'x': np.arange(10)[index]}

    with pytest.raises(ValueError, match=r'^Sliced cannot be read: its code raises .*; its methods '
                                         r'are traced, so use .* into tf\.numpy_function\.$'):
        numbers(Sliced, batch_size=2).spec()


def test_examples_without_a_static_shape_are_refused():
    class Growing(Numbers):
        def preprocess(self, example: dict[str, Any], seed: tf.Tensor) -> dict[str, Any]:
            return {'x': tf.range(example['x'])}

    with pytest.raises(ValueError, match=re.escape(
        'x of Growing has shape (None,), and the network needs a static one; resize, crop or pad '
        'it in preprocess, or state there by tf.ensure_shape what Python code gives.')):
        numbers(Growing, batch_size=2).dataset()


@pytest.mark.parametrize('result', [None, (1., 2.)])
def test_a_preprocess_that_returns_no_dict_is_refused(result):
    """A forgotten return was: 'NoneType' object is not iterable."""
    class Forgetful(Numbers):
        def preprocess(self, example: dict[str, Any], seed: tf.Tensor) -> Any:
            return result

    with pytest.raises(ValueError, match=f'an example is {type(result).__name__}, but must be a '
                                         'dict of tensors by name; return one from read, decode'):
        numbers(Forgetful, batch_size=2).dataset()


@pytest.mark.parametrize(('values', 'sentence'), [
    ({'batch_size': 0}, 'batch_size=0 is below 1'),
    ({'batch_size': 1, 'num_epochs': 0}, 'num_epochs=0 is below 1'),
    ({}, 'batch_size: REQUIRED and not set'),
])
def test_params_that_make_no_sense_are_refused(values, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        numbers(**values)


def test_a_negative_position_is_refused():
    with pytest.raises(ValueError, match='position=-4 is negative'):
        numbers(batch_size=4).dataset(-4)


# Record files.

def write_records(path: Path, values: range) -> None:
    with tf.io.TFRecordWriter(str(path)) as writer:
        for i in values:
            writer.write(tf.train.Example(features=tf.train.Features(feature={
                'x': tf.train.Feature(int64_list=tf.train.Int64List(value=[i])),
                'pair': tf.train.Feature(float_list=tf.train.FloatList(value=[i, -i])),
                'name': tf.train.Feature(bytes_list=tf.train.BytesList(value=[b'n%d' % i])),
                'tokens': tf.train.Feature(
                    int64_list=tf.train.Int64List(value=range(i)))})).SerializeToString())


def records(pattern: Path, source: type[RecordInput] = RecordInput, **values: Any) -> RecordInput:
    values.setdefault('features',
                      {'x': Feature.Params(dtype='int64'),
                       'pair': Feature.Params(dtype='float32', shape=(2,)),
                       'name': Feature.Params(dtype='string')})
    return source.Params(files=str(pattern),
                         **{'batch_size': 4, 'shuffle': False, **values}).instantiate()


@pytest.fixture
def record_files(tmp_path) -> Path:
    for file, values in (('b', range(3, 8)), ('a', range(3)), ('c', range(8, 10)),
                         ('empty', range(0))):
        write_records(tmp_path / f'{file}.tfrecord', values)
    return tmp_path


def test_records_are_read_in_the_order_of_file_names(record_files):
    source = records(record_files / '*.tfrecord', num_epochs=1)
    assert batches_of(source) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 9, 9]]
    assert batches_of(source, 1, key='pair') == [[[0., 0.], [1., -1.], [2., -2.], [3., -3.]]]
    assert batches_of(source, 1, key='name') == [[b'n0', b'n1', b'n2', b'n3']]
    assert source.spec()['pair'] == tf.TensorSpec([4, 2])


def test_example_is_named_by_its_place_in_the_data_whatever_the_order(record_files):
    shuffled = Numbers.Params(batch_size=4, seed=3).instantiate()
    assert [example_name(shuffled, position) for position in range(8)] == [
        f'example {number} of Numbers' for batch in batches_of(shuffled, 2) for number in batch]
    source = records(record_files / '*.tfrecord', shuffle=False, num_epochs=1)
    assert example_name(source, 3) == f'the record at byte 0 of {record_files}/b.tfrecord'


def test_the_first_example_that_is_not_finite_and_counts_is_named():
    source = numbers(batch_size=4, shuffle=False)
    values = np.float32([[0., 1.], [np.nan, 0.], [0., 0.], [0., np.inf]])
    batch = {'x': np.int32([1, 2, 3, 4]), 'y': {'a': values}, 'weight': np.float32([1, 1, 1, 1])}
    assert nonfinite(source, 4, batch) == "'y/a' of example 5 of Numbers is not finite"
    batch['weight'] = np.float32([1, 0, 1, 1])
    assert nonfinite(source, 4, batch) == "'y/a' of example 7 of Numbers is not finite"
    batch['weight'] = np.float32([[1, 1], [0, 0], [1, 1], [0, 0]])   # of tokens
    assert nonfinite(source, 4, batch) == ''
    del batch['weight']
    own = OwnDataset.Params(batch_size=4).instantiate()
    assert nonfinite(own, 4, batch) == "'y/a' of example 1 of the mini-batch is not finite"


def test_records_and_arrays_are_shuffled_alike(record_files):
    source = records(record_files / '*.tfrecord', shuffle=True)
    assert batches_of(source, 8) == batches_of(numbers(batch_size=4), 8)
    assert batches_of(source, 2, position=16) == batches_of(source, 8)[4:6]


def test_several_patterns_may_be_given(record_files):
    pattern = Path(f'{record_files}/c.tfrecord, {record_files}/a.*')
    assert batches_of(records(pattern, batch_size=5, num_epochs=1)) == [[8, 9, 0, 1, 2]]


@pytest.mark.parametrize('name', ['run [1]*.tfrecord', 'a,b.tfrecord'])
def test_a_file_that_exists_is_no_pattern(tmp_path, name):
    """A path with brackets matched no file, although it was there."""
    write_records(tmp_path / name, range(3))
    write_records(tmp_path / 'run 1.tfrecord', range(5))
    assert records(tmp_path / name).num_examples() == 3


def test_sequences_are_made_static_by_preprocess(record_files):
    class Padded(RecordInput):
        def preprocess(self, example: dict[str, Any], seed: tf.Tensor) -> dict[str, Any]:
            tokens = example['tokens'][:3]
            return {'tokens': tf.ensure_shape(
                tf.pad(tokens, [[0, 3 - tf.size(tokens)]], constant_values=-1), [3])}

    features = {'tokens': Feature.Params(dtype='int64', is_sequence=True)}
    source = records(record_files / '*.tfrecord', Padded, features=features)
    assert batches_of(source, 1, key='tokens') == [
        [[-1, -1, -1], [0, -1, -1], [0, 1, -1], [0, 1, 2]]]
    with pytest.raises(
            ValueError,
            match='tokens of RecordInput has shape .*None.*, and the network needs a static one'):
        records(record_files / '*.tfrecord', features=features).dataset()


def test_a_file_that_two_patterns_match_is_told(record_files, caplog):
    """Its examples counted twice in an evaluation, and nothing said so."""
    assert records(f'{record_files}/b*,{record_files}/a*').num_examples() == 8
    assert not caplog.records
    patterns = f'{record_files}/a*,{record_files}/?.tfrecord'
    assert records(patterns).num_examples() == 13
    assert [record.getMessage() for record in caplog.records] == [
        f'files={patterns!r} matches files more than once, whose examples then count as often '
        f'({record_files}/a.tfrecord)']


def test_a_pattern_that_matches_nothing_is_refused(tmp_path):
    with pytest.raises(
            ValueError,
            match=r"files='.*/\*\.nothing' matches no file; correct it \(it is looked up from "):
        records(tmp_path / '*.nothing').dataset()


def test_a_feature_that_is_not_there_is_named(record_files):
    with pytest.raises(ValueError, match="a.tfrecord lacks the feature 'z'; it has name, pair, "
                                         "tokens, x: correct features"):
        records(record_files / '*.tfrecord',
                features={'z': Feature.Params(dtype='int64')}).dataset()


def test_a_feature_of_another_type_is_named(record_files):
    with pytest.raises(
            ValueError,
            match="features.x.dtype='float32', and .*a.tfrecord has 'int64'; correct it"):
        records(record_files / '*.tfrecord',
                features={'x': Feature.Params(dtype='float32')}).dataset()


def test_a_compressed_file_is_refused(tmp_path):
    with tf.io.TFRecordWriter(str(tmp_path / 'x'), 'GZIP') as writer:
        writer.write(b'x')
    with pytest.raises(ValueError, match='x is compressed, and records of a compressed file cannot '
                                         'be read by index; write it plain'):
        records(tmp_path / 'x').dataset()


def test_a_file_of_something_else_is_refused(tmp_path):
    with tf.io.TFRecordWriter(str(tmp_path / 'x')) as writer:
        writer.write(b'no example at all')
    with pytest.raises(ValueError, match='the first record of .*/x is no tf.train.Example .*; for '
                                         'another format override read, and give features={}'):
        records(tmp_path / 'x').dataset()


class Lengths(RecordInput):
    """Reads records that are no tf.train.Example."""

    def read(self, index: tf.Tensor) -> dict[str, Any]:
        return {'x': tf.strings.length(self.records.read(index))}


def test_records_of_another_format_are_read_as_the_error_says(tmp_path):
    """The first record was checked all the same, so that the remedy changed nothing."""
    with tf.io.TFRecordWriter(str(tmp_path / 'x')) as writer:
        writer.write(b'no example at all')
    source = records(tmp_path / 'x', Lengths, features={}, batch_size=1, num_epochs=1)
    assert batches_of(source) == [[17]]
    with pytest.raises(ValueError, match='features={} reads nothing; name the features'):
        records(tmp_path / 'x', features={}, batch_size=1).dataset()


@pytest.mark.parametrize(('at', 'value'), [(20, 0x10), (2, 0xff)], ids=['data', 'length'])
def test_a_broken_record_is_named_with_file_and_offset(record_files, at, value):
    path = record_files / 'b.tfrecord'
    offset = records(path).records.place_of(2)[1]
    content = bytearray(path.read_bytes())
    content[offset + at] ^= value
    path.write_bytes(content)
    with pytest.raises((ValueError, tf.errors.OpError),
                       match=f'b.tfrecord has a broken record at byte {offset}: '):
        batches_of(records(record_files / '*.tfrecord', num_epochs=1))


def test_a_file_that_was_cut_is_named_with_the_offset(record_files):
    path = record_files / 'b.tfrecord'
    offset = records(path).records.place_of(4)[1]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=f'b.tfrecord has a broken record at byte {offset}: '
                                         f'.*Write the file again, or leave it out'):
        records(record_files / '*.tfrecord').dataset()


def test_a_first_record_that_is_broken_is_not_called_another_format(record_files):
    """The remedy was to override read."""
    path = record_files / 'a.tfrecord'
    content = bytearray(path.read_bytes())
    content[20] ^= 0x10
    path.write_bytes(content)
    with pytest.raises(ValueError, match='^[^ ]*a.tfrecord has a broken record at byte 0: its data '
                                         'does not have its checksum. Write the file again'):
        records(path).dataset()


def test_a_feature_of_another_number_of_values_is_named(record_files):
    with pytest.raises(ValueError, match=r'features.pair.shape=\[3\] is of 3 values, and the first '
                                         r'record of .*a.tfrecord has 2; correct it, or set'):
        records(record_files / '*.tfrecord',
                features={'pair': Feature.Params(dtype='float32', shape=(3,))}).dataset()


def test_a_feature_that_holds_nothing_is_missing(tmp_path):
    """The error said that the record lacks x, and that it has x."""
    with tf.io.TFRecordWriter(str(tmp_path / 'x')) as writer:
        writer.write(tf.train.Example(features=tf.train.Features(feature={
            'x': tf.train.Feature()})).SerializeToString())
    with pytest.raises(ValueError, match="lacks the feature 'x'; it has none: correct features"):
        records(tmp_path / 'x', features={'x': Feature.Params(dtype='int64')}).dataset()


def test_a_later_record_of_other_features_is_named(record_files):
    """The error named ops and iterators of TensorFlow, and none of thousands of files."""
    with tf.io.TFRecordWriter(str(record_files / 'd.tfrecord')) as writer:
        writer.write(tf.train.Example().SerializeToString())
    source = records(record_files / '*.tfrecord', num_epochs=1)
    assert source.num_examples() == 11
    with pytest.raises(ValueError, match='^RecordInput cannot make a mini-batch: '
                                         'InvalidArgumentError: Name: example 10, Feature: name '):
        list(source.batches())


# tensorflow-datasets.

class Resized(TFDSInput):
    def preprocess(self, example: dict[str, Any], seed: tf.Tensor) -> dict[str, Any]:
        return {'image': tf.image.resize(example['image'], [8, 8]), 'label': example['label']}


@pytest.mark.parametrize(('name', 'source', 'shape'),
                         [('cifar10', TFDSInput, [4, 32, 32, 3]),
                          ('imagenet2012', Resized, [4, 8, 8, 3])])
def test_sets_of_tensorflow_datasets_are_read_by_name(name, source, shape):
    with tfds.testing.mock_data(num_examples=10):
        data = source.Params(name=name, batch_size=4).instantiate()
        assert data.spec()['image'].shape.as_list() == shape
        whole = batches_of(data, 6, key='label')
        assert batches_of(data, 2, position=16, key='label') == whole[4:6]
        assert data.num_examples() == 10
        assert len(data.class_names) == {'cifar10': 10, 'imagenet2012': 1000}[name]


class Tiny(tfds.core.GeneratorBasedBuilder):
    """A real set with files, in which x counts from 0."""

    VERSION = tfds.core.Version('1.0.0')

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(
            {'x': tfds.features.Scalar(np.int64)}))

    def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
        return {'train': self._generate_examples(20), 'test': self._generate_examples(3)}

    def _generate_examples(self, n: int) -> Any:
        for x in range(n):
            yield x, {'x': x}


@pytest.fixture(scope='module')
def tiny(tmp_path_factory) -> str:
    directory = str(tmp_path_factory.mktemp('tfds'))
    Tiny(data_dir=directory).download_and_prepare()
    return directory


@pytest.mark.parametrize(('split', 'num_examples'),
                         [('train', 20), ('test', 3), ('train[:25%]', 5), ('train[5:]+test', 18)])
def test_prepared_files_are_read_by_index_whatever_the_slice(tiny, split, num_examples):
    data = TFDSInput.Params(name='tiny', data_dir=tiny, split=split, batch_size=1, shuffle=False,
                            num_epochs=1).instantiate()
    plain = tfds.load('tiny', data_dir=tiny, split=split, download=False)
    assert sum(batches_of(data), []) == [int(example['x']) for example in plain]
    assert data.num_examples() == num_examples
    assert data.class_names == ()


def test_a_split_that_is_not_there_is_named(tiny):
    with pytest.raises(ValueError, match="tiny has no split 'validation'; it has test, train"):
        TFDSInput.Params(name='tiny', data_dir=tiny, split='validation',
                         batch_size=1).instantiate().dataset()


def test_a_set_that_is_not_prepared_is_refused_without_asking_the_network(tmp_path, monkeypatch):
    monkeypatch.setattr(socket, 'getaddrinfo',
                        lambda *args, **kwargs: pytest.fail(f'{args[0]} is looked up'))
    with pytest.raises(ValueError, match=r'cifar10 is not prepared in .*\. Where there is a '
                                         r'network, run python -c .*, or set download='):
        TFDSInput.Params(name='cifar10', data_dir=str(tmp_path),
                         batch_size=1).instantiate().dataset()


def test_an_unknown_set_is_refused_in_one_line(tmp_path):
    with pytest.raises(ValueError,
                       match="tensorflow-datasets has no 'cifar11': .* Is it cifar10") as caught:
        TFDSInput.Params(name='cifar11', data_dir=str(tmp_path),
                         batch_size=1).instantiate().dataset()
    assert '\n' not in str(caught.value)


# Batches in Python.

def test_batches_are_those_of_the_dataset_from_any_position():
    source = numbers(batch_size=4, num_epochs=2)
    assert ([batch['x'].numpy().tolist() for batch in source.batches(8)]
            == batches_of(source, position=8))


def test_what_a_source_finds_wrong_while_it_reads_is_one_sentence(record_files):
    source = records(record_files / '*.tfrecord', num_epochs=1)
    assert source.num_examples() == 10
    (record_files / 'b.tfrecord').write_bytes(bytes(1000))
    with pytest.raises(ValueError, match='^.*b.tfrecord has a broken record at byte 0: .* Write '
                                         'the file again, or leave it out.$') as e:
        list(source.batches())
    assert '\n' not in str(e.value)


LIVES_AT_EXIT = """
import atexit
# The first is called last.
atexit.register(lambda: print(*['ended' if one() is None else 'alive' for one in iterators]))

import gc
import weakref
import numpy as np
import lingpipe.tools   # makes the import of TensorFlow quick
from lingpipe.input import ArrayInput
import tensorflow as tf

class Zeros(ArrayInput):
    def load(self):
        return {'x': np.zeros([10])}

class Broken(Zeros):
    def preprocess(self, example, seed):
        tf.debugging.assert_equal(example['x'], np.float64(1.))
        return example

batches = Zeros.Params(batch_size=1).instantiate().batches()
next(batches)
try:
    next(Broken.Params(batch_size=1).instantiate().batches())
except ValueError as error:
    kept = error   # as sys.last_value, if nothing catches it
iterators = [weakref.ref(x) for x in gc.get_objects() if issubclass(type(x), tf.data.Iterator)]
"""


def test_the_iterator_ends_before_python_does():
    """A process with a pipeline of images in a global variable hung at exit once in six times.

    Python had already stopped the threads of tf.data. A script that ended by the error of an input
    hung three times in four: the traceback held the iterator, in frames of TensorFlow.
    """
    done = subprocess.run([sys.executable, '-c', LIVES_AT_EXIT], check=True, timeout=60,
                          cwd=Path(__file__).parents[3], text=True, stdout=subprocess.PIPE)
    assert done.stdout == 'ended ended\n'


def test_a_position_that_is_wrong_is_refused_before_the_first_batch():
    with pytest.raises(ValueError, match='position=-4 is negative'):
        numbers(batch_size=4).batches(-4)


# The meter.

def test_the_meter_tells_the_share_of_time_spent_waiting():
    now = [0.]

    def slow():
        for _ in range(9):
            now[0] += 3.
            yield None

    meter = InputMeter(slow(), clock=lambda: now[0])
    next(meter)              # The start is not counted.
    for _ in range(4):
        now[0] += 1.         # This is a step.
        next(meter)
    assert meter.wait_s == 3.
    assert meter.share == 0.75
    assert meter.warning().startswith(
        'the training waits for its input 75% of the time, 3000.0 ms a batch; raise prefetch')
    now[0] += 1.
    assert meter.share == 0.
    assert meter.warning() == ''


def test_the_meter_ends_with_its_items():
    assert list(InputMeter([1, 2, 3])) == [1, 2, 3]
    assert InputMeter([]).share == 0.


def test_without_tensorflow_datasets_the_error_has_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, 'tensorflow_datasets', None)   # Its import then fails.
    source = TFDSInput.Params(name='cifar10', batch_size=2).instantiate()
    with pytest.raises(ValueError,
                       match='tensorflow-datasets is needed here and cannot be imported '
                             r'.*; run pip install tensorflow-datasets importlib_res'):
        source.num_examples()


def test_tensorflow_datasets_is_imported_only_when_it_is_used():
    for path in Path(datasets.__file__).parent.glob('*.py'):
        assert not re.search('^(import|from) tensorflow_datasets', path.read_text(),
                             re.MULTILINE), path


# Checksums.

@pytest.mark.parametrize('size', [0, 3, 15, 16, 17, 1023, 1024, 1025, 5000])
def test_checksums_are_those_that_tensorflow_writes(tmp_path, size):
    data = np.random.default_rng(size).bytes(size)
    with tf.io.TFRecordWriter(str(tmp_path / 'x')) as writer:
        writer.write(data)
    written = (tmp_path / 'x').read_bytes()
    assert masked_crc32c(data) == int.from_bytes(written[-4:], 'little')
    assert masked_crc32c(written[:8]) == int.from_bytes(written[8:12], 'little')
