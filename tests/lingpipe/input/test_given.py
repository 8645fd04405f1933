"""Inputs of what a notebook has: arrays, data frames, datasets, and sources with len() and []."""
from __future__ import annotations

import re
import tracemalloc
from typing import Any

import google_crc32c
import keras
import numpy as np
import pytest
import tensorflow as tf

from lingpipe.input import ArrayInput, ArrayRecordInput, DatasetInput, Feature, Input, SourceInput

X = np.arange(14, dtype=np.float32).reshape([7, 2])
LABELS = np.arange(7, dtype=np.int32)
NAMES = ('x', 'labels')


def batches(params: Input.Params, position: int = 0, most: int = 9) -> list[dict[str, np.ndarray]]:
    source = params.copy().freeze().instantiate()
    taken = zip(range(most), source.batches(position), strict=False)
    return [tf.nest.map_structure(lambda tensor: tensor.numpy(), batch) for _, batch in taken]


def pairs(**kwargs: Any) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X, LABELS))


class Source:
    """As Grain's data sources."""

    def __len__(self) -> int:
        return 7

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {'x': X[index], 'labels': LABELS[index]}


class Batches(keras.utils.PyDataset):
    """A data set of Keras: its length is a number of batches."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        return X[index:index + 2], LABELS[index:index + 2]


class Series:
    """As a pandas Series: it has items, whose names are the rows."""

    def items(self) -> Any:
        return enumerate(LABELS)


class Frame:
    """As a pandas DataFrame: its columns by name, and no dict."""

    def __init__(self, **columns: Any):
        self.columns = list(columns)
        self.items = columns.items


GIVEN = {
    'arrays': lambda **p: ArrayInput.of({'x': X.astype(np.float64), 'labels': LABELS}, **p),
    'frame': lambda **p: ArrayInput.of(Frame(x=X, labels=list(LABELS)), **p),
    'tuples': lambda **p: DatasetInput.of(pairs, **p),
    'dicts': lambda **p: DatasetInput.of(
        lambda: pairs().map(lambda x, labels: {'x': x, 'labels': labels}), **p),
    'batches': lambda **p: DatasetInput.of(lambda: pairs().batch(2), is_batched=True, **p),
    'positioned': lambda **p: DatasetInput.of(
        lambda position: pairs().repeat(p.get('num_epochs')).skip(position), **p),
    'source': lambda **p: SourceInput.of(Source(), **p),
    'list': lambda **p: SourceInput.of(list(zip(X, LABELS, strict=True)), **p)}


@pytest.mark.parametrize('kind', GIVEN)
def test_an_evaluation_has_every_example_once_and_copies_of_weight_0(kind):
    params = GIVEN[kind](batch_size=3, num_epochs=1, shuffle=False)
    source = params.instantiate()
    assert (source.num_batches(), source.num_real_examples(6)) == (3, 1)
    found = batches(params)
    assert [list(batch['labels']) for batch in found] == [[0, 1, 2], [3, 4, 5], [6, 6, 6]]
    assert [list(batch['weight']) for batch in found] == [[1, 1, 1], [1, 1, 1], [1, 0, 0]]
    np.testing.assert_array_equal(found[1]['x'], X[3:6])
    assert found[0]['x'].dtype == np.float32


def keras_element() -> tuple[dict[str, Any], dict[str, Any], np.ndarray]:
    return {'a': X, 'b': 2 * X}, {'u': LABELS, 'v': LABELS + 1}, LABELS + 2


@pytest.mark.parametrize('make', [
    lambda: DatasetInput.of(
        lambda: tf.data.Dataset.from_tensor_slices(keras_element()), batch_size=7),
    lambda: SourceInput.of(
        [tf.nest.map_structure(lambda array, i=i: array[i], keras_element()) for i in range(7)],
        batch_size=7, shuffle=False)])
def test_dicts_of_inputs_and_of_labels_are_as_in_keras(make):
    batch, = batches(make(), most=1)
    assert sorted(batch) == ['a', 'b', 'labels_u', 'labels_v', 'weight']
    np.testing.assert_array_equal(batch['b'], 2 * X)
    np.testing.assert_array_equal(batch['labels_v'], LABELS + 1)
    np.testing.assert_array_equal(batch['weight'], LABELS + 2)


def test_with_a_name_of_its_own_a_dict_is_one_value():
    made = DatasetInput.of(
        lambda: tf.data.Dataset.from_tensor_slices(({'a': X}, LABELS)), batch_size=7,
        names=('features', 'labels'))
    batch, = batches(made, most=1)
    np.testing.assert_array_equal(batch['features']['a'], X)


@pytest.mark.parametrize('kind', ['arrays', 'batches', 'positioned', 'source'])
def test_a_position_gives_the_batches_that_follow_it(kind):
    params = GIVEN[kind](batch_size=3, shuffle=False)
    np.testing.assert_equal(batches(params, 6, most=3), batches(params, most=5)[2:])


def test_skipping_is_told_of_and_a_function_with_a_position_need_not(caplog):
    batches(GIVEN['positioned'](batch_size=3), 6, most=1)
    assert not caplog.records
    batches(GIVEN['tuples'](batch_size=3), 6, most=1)
    assert 'resumes by making 6 examples again and skipping them; a function' in caplog.text


def test_a_weight_of_its_own_stays():
    made = DatasetInput.of(
        lambda: tf.data.Dataset.from_tensor_slices((X, LABELS, LABELS)), batch_size=4, num_epochs=1)
    assert [list(batch['weight']) for batch in batches(made)] == [[0, 1, 2, 3], [4, 5, 6, 0]]


@pytest.mark.parametrize('array', [
    np.arange(3 << 20, dtype=np.float32).reshape([-1, 3])[::2], np.zeros([0, 3], np.int32),
    np.zeros([5, 0], np.float32)])
def test_the_checksum_of_arrays_takes_no_copy_of_them(array):
    """All bytes were copied at once, so that a large array had to fit into memory twice."""
    tracemalloc.start()
    params = ArrayInput.of({'x': array}, batch_size=2)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert params.contents.endswith(f' {google_crc32c.value(array.tobytes()):08x}')
    assert peak_bytes < 2_000_000


def test_text_tells_one_object_from_another():
    text = GIVEN['arrays'](batch_size=3).to_text()
    assert text == GIVEN['arrays'](batch_size=3).to_text()
    assert text != ArrayInput.of({'x': X + 1, 'labels': LABELS}, batch_size=3).to_text()
    read = Input.Params.from_text(text)
    with pytest.raises(ValueError, match='were read from text, which does not hold what was given'):
        read.instantiate().spec()


class Static(DatasetInput):
    def make(self) -> tf.data.Dataset:
        return tf.data.Dataset.range(3).map(lambda n: tf.range(n))


@pytest.mark.parametrize(('make', 'sentence'), [
    (lambda: ArrayInput.of([1, 2], batch_size=1), 'arrays is list, but must be a dict'),
    (lambda: ArrayInput.of(Series(), batch_size=1), 'arrays is Series, but must be a dict'),
    (lambda: ArrayInput.of((X, LABELS), batch_size=1),
     "or a DataFrame; write lp.ArrayInput.of({'x': x, 'labels': labels}, batch_size=32)."),
    (lambda: ArrayInput.of({'x': X, 'y': X[:3]}, batch_size=1), 'have different lengths: x 7, y 3'),
    (lambda: ArrayInput.of({'x': X, 'weight': np.arange(7.) - 1}, batch_size=1),
     "'weight' has -1 in example 0, but what an example counts is 0 or more; give 0 to leave it"),
    (lambda: ArrayInput.of({'x': X, 'weight': np.ones([7]) * 1j}, batch_size=1),
     "'weight' is of complex128, but what an example counts is a real number of 0 or more"),
    (lambda: DatasetInput.of(3, batch_size=1), 'make is int, but must be a function'),
    (lambda: DatasetInput.of(lambda: 3, batch_size=1).instantiate().spec(),
     'returns int, but must return a tf.data.Dataset.'),
    (lambda: DatasetInput.of(pairs, batch_size=1, names=('x',)).instantiate().spec(),
     'the elements of the dataset have 2 parts, and there are names for 1 (x); set names.'),
    (lambda: DatasetInput.of(lambda: pairs().take(0), batch_size=1).instantiate().spec(),
     'has no examples; give it data.'),
    (lambda: DatasetInput.of(lambda: pairs().repeat(), batch_size=1,
                             num_epochs=2).instantiate().spec(), 'but the dataset has no end'),
    (lambda: DatasetInput.of(lambda: pairs().repeat(), batch_size=1,
                             num_epochs=1).instantiate().spec(), 'but the dataset has no end'),
    (lambda: DatasetInput.of(lambda: pairs().batch(2), batch_size=2).instantiate().spec(),
     'begin with a dimension of any size: if they are batches, set is_batched=True; if they'),
    (lambda: Static.Params(batch_size=1).instantiate().spec(), 'x of Static has shape (None,)'),
    (lambda: DatasetInput.of(pairs, batch_size=1, shuffle=True).validate(),
     'shuffle=True, but a DatasetInput keeps the order of its dataset'),
    (lambda: DatasetInput.of(lambda: tf.data.Dataset.from_tensor_slices(((X, X), LABELS)),
                             batch_size=1).instantiate().spec(),
     "no names; name them, as dataset.map(lambda x, y: {'a': x[0], 'b': x[1], 'labels': y})"),
    (lambda: DatasetInput.of(lambda: tf.data.Dataset.from_tensor_slices((X, X, {'u': LABELS})),
                             batch_size=1).instantiate().spec(),
     'sample_weight is a dict (u), but an example has one weight for all outputs'),
    (lambda: DatasetInput.of(lambda: tf.data.Dataset.from_tensor_slices(({'labels': X}, LABELS)),
                             batch_size=1).instantiate().spec(),
     "an element has 'labels' in x and as another part of the tuple; give one of them another"),
    (lambda: SourceInput.of([({'x': X, 'weight': 2.}, 1, 1.)], batch_size=1).instantiate().spec(),
     "an element has 'weight' in x and as another part of the tuple; give one of them another"),
    (lambda: SourceInput.of(Batches(), batch_size=1),
     'source is Batches, a PyDataset of Keras, whose items are batches; give a source whose'),
    (lambda: SourceInput.of([{'x': X, 'labels': None}], batch_size=1).instantiate().spec(),
     "'labels' of element 0 of list is None; give it a value, or leave it out of every element."),
    (lambda: SourceInput.of(iter([1]), batch_size=1), 'which has no len() or no []'),
    (lambda: batches(SourceInput.of([{'x': X}, {'x': X[:1]}], batch_size=2, shuffle=False)),
     "'x' of example 1 has shape (1, 2), but that of example 0 has (7, 2)"),
    (lambda: batches(SourceInput.of([{'x': 1}, {'x': 2.7}], batch_size=2, shuffle=False)),
     "'x' of example 1 is float64, but that of example 0 is int64; give every example the same"),
])
def test_what_is_no_input_is_refused(make, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        make()


def test_batches_that_look_like_examples_cost_a_warning(caplog):
    def whole_batches() -> tf.data.Dataset:
        return pairs().repeat(9).batch(3, drop_remainder=True)

    DatasetInput.of(whole_batches, batch_size=3).instantiate().spec()
    assert 'if the dataset makes batches, set is_batched=True' in caplog.text
    caplog.clear()
    DatasetInput.of(whole_batches, batch_size=3, is_batched=True).instantiate().spec()
    assert not caplog.text


@pytest.mark.parametrize(('change', 'warns'), [
    (lambda made: made.shuffle(7), True),
    (lambda made: made.concatenate(made.shuffle(7)).prefetch(2), True),
    (lambda made: made.shuffle(7, seed=0), False)])
def test_a_shuffle_without_a_seed_costs_a_warning(change, warns, caplog):
    """A resumed run repeated some examples, left out others, and nobody knew."""
    params = DatasetInput.of(lambda: change(pairs()), batch_size=3)
    batches(params)
    assert ('shuffles without a seed' in caplog.text) == warns
    caplog.clear()
    batches(params.set(num_epochs=1))   # An evaluation.
    assert not caplog.text


@pytest.mark.parametrize(('seed', 'warns'), [(None, True), (0, False)])
def test_tensorflows_own_seed_makes_no_shuffle_the_same(seed, warns, caplog):
    """After keras.utils.set_random_seed, each dataset gets another seed, and nobody was warned."""
    tf.random.set_seed(0)
    try:
        batches(DatasetInput.of(lambda: pairs().shuffle(7, seed=seed), batch_size=3))
    finally:
        tf.random.set_seed(None)
    assert ('shuffles without a seed' in caplog.text) == warns


@pytest.mark.parametrize(('make', 'sentence'), [
    (lambda: pairs().take(2), 'batch_size=3 is larger than the 2 examples of GivenDataset, so a '),
    (lambda: pairs().map(lambda x, y: (tf.sparse.from_dense(x), y)),
     r"'x' of GivenDataset is a SparseTensor, and a network takes dense tensors, or dicts of"),
    (lambda: pairs().map(lambda x, y: (tf.range(y), y)),
     r'x of GivenDataset has shape \(None,\), and the network needs a static one; resize, crop or '
     r'pad it in the dataset \(padded_batch, with padded_shapes\), or state there by')])
def test_datasets_that_cannot_be_trained_on_are_refused(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        batches(DatasetInput.of(make, batch_size=3))


def test_array_records_are_read_by_index(tmp_path):
    writer = pytest.importorskip('array_record.python.array_record_module').ArrayRecordWriter(
        f'{tmp_path}/a.arrayrecord', 'group_size:1')
    for number in range(5):
        feature = tf.train.Feature(int64_list=tf.train.Int64List(value=[number]))
        writer.write(tf.train.Example(features=tf.train.Features(
            feature={'id': feature})).SerializeToString())
    writer.close()
    params = ArrayRecordInput.Params(
        files=f'{tmp_path}/*.arrayrecord', features={'id': Feature.Params(dtype='int64')},
        batch_size=2, num_epochs=1, shuffle=False)
    assert [list(batch['id']) for batch in batches(params)] == [[0, 1], [2, 3], [4, 4]]


@pytest.mark.parametrize('first, second', [
    (np.uint8(1), np.uint16(300)), (np.float32(1), 1e39), (np.int64(1), np.uint64(2 ** 63))])
def test_a_value_that_the_dtype_of_the_first_cannot_hold_is_refused(first, second):
    examples = [{'x': first}, {'x': second}]
    source = SourceInput.of(examples, batch_size=2, shuffle=False).instantiate()
    with pytest.raises(tf.errors.OpError, match="'x' of example 1 is .* cannot hold"):
        next(iter(source.dataset()))


def test_bytes_keep_the_nul_at_their_end():
    values = [b'a\0', b'b']
    for source in (SourceInput.of([{'x': value} for value in values], batch_size=2, shuffle=False),
                   ArrayInput.of({'x': values}, batch_size=2, shuffle=False)):
        assert next(iter(source.instantiate().dataset()))['x'].numpy().tolist() == values
