"""Prediction files, and example files, which are read from the same formats."""
from __future__ import annotations

import json
import re

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.export.prediction_files import check_output, write_predictions
from lingpipe.input.example_files import read_examples

ARRAYS = {'x': np.array([[0.1, 2], [3, np.pi]], np.float32), 'id': np.array([7, 8], np.int32)}
SPECS = {'x': tf.TensorSpec([2]), 'id': tf.TensorSpec([], tf.int32), 'weight': tf.TensorSpec([])}


@pytest.mark.parametrize('ending', ['npz', 'csv', 'jsonl'])
def test_what_is_written_is_read_with_the_same_bits(ending, tmp_path):
    path = f'{tmp_path}/file.{ending}'
    write_predictions(path, ARRAYS)
    read = read_examples(path, SPECS, frozenset({'weight'}))
    assert read.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(read[name], array)


def test_text_is_plain(tmp_path, capsys):
    write_predictions(f'{tmp_path}/file.csv', ARRAYS)
    assert (tmp_path / 'file.csv').read_text() == 'id,x.0,x.1\n7,0.1,2.0\n8,3.0,3.1415927\n'
    write_predictions('', ARRAYS)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        {'x': [0.1, 2.0], 'id': 7}, {'x': [3.0, 3.1415927], 'id': 8}]


def test_a_file_of_one_array_is_the_only_input(tmp_path):
    np.save(tmp_path / 'x.npy', ARRAYS['x'])
    read = read_examples(f'{tmp_path}/x.npy', {'x': SPECS['x']})
    np.testing.assert_array_equal(read['x'], ARRAYS['x'])


def test_records_are_read_by_the_names_of_their_features(tmp_path):
    with tf.io.TFRecordWriter(f'{tmp_path}/a.tfrecord') as writer:
        for x, number in zip(ARRAYS['x'], ARRAYS['id'], strict=True):
            writer.write(tf.train.Example(features=tf.train.Features(feature={
                'x': tf.train.Feature(float_list=tf.train.FloatList(value=x)),
                'id': tf.train.Feature(int64_list=tf.train.Int64List(value=[number])),
            })).SerializeToString())
    read = read_examples(f'{tmp_path}/*.tfrecord', SPECS, frozenset({'weight'}))
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(read[name], array)


@pytest.mark.parametrize(('values', 'why'), [
    ([2], 'Name: example 1, Key: x, Index: 1. Number of float values != expected. Values size: 1 '
          'but output shape: [2]'),
    ([], 'Name: example 1, Key: x, Index: 1. Number of float values != expected. Values size: 0 '
         'but output shape: [2]')])
def test_a_record_of_another_shape_is_named(values, why, tmp_path):
    """The error had the names of devices and ops, and no remedy."""
    with tf.io.TFRecordWriter(f'{tmp_path}/a.tfrecord') as writer:
        for numbers in [1, 2], values:
            writer.write(tf.train.Example(features=tf.train.Features(feature={
                'x': tf.train.Feature(float_list=tf.train.FloatList(value=numbers))})
            ).SerializeToString())
    with pytest.raises(ValueError, match=re.escape(
            f'a.tfrecord cannot be parsed (InvalidArgumentError: {why}); write what the network '
            'takes: x float32 [2].')):
        read_examples(f'{tmp_path}/a.tfrecord', {'x': SPECS['x']})


@pytest.mark.parametrize(('name', 'text', 'sentence'), [
    ('a.csv', 'x.0,id\n1,2\n', "has no column 'x.1'; the network takes x float32 [2], id int32 [],"
                               ' and the columns are x.0, id.'),
    ('a.csv', 'x.0,x.1,id\n1,2\n', 'line 2 of '),
    ('a.csv', 'x.0,x.1,id\n\n1,cat,2\n', "line 3 of "),
    ('a.csv', 'x.0,x.1,id\n1,cat,2\n', "has ['1', 'cat'] for 'x', which is float32; correct it."),
    ('a.csv', 'x.0,x.1,x.2,id\n1,2,3,4\n', "has a column x.2, but 'x' has only 2 numbers"),
    ('a.csv', 'x.0,x.1,id,id\n1,2,3,4\n', "has the column 'id' twice"),
    ('a.jsonl', '{"x": [1, 2], "id": 3.7}\n', '3.7 is no whole number that int32 can hold'),
    ('a.jsonl', '{"x": [1, 2], "id": 3000000000}\n', 'no whole number that int32 can hold'),
    ('a.jsonl', '{"x": [1, 2], "id": true}\n', 'it has true or false'),
    ('a.jsonl', '{"x": [1, null], "id": 3}\n', 'it has null or other values that are no numbers'),
    ('a.jsonl', '{"x": ["1", "2"], "id": 3}\n', 'it has text'),
    ('a.csv', 'x.0,x.1,id\n1,2,"3\n4,5,6\n', 'is no CSV: unexpected end of data; quote a value'),
    ('a.csv', 'x.0,x.1,id\n1,1e39,2\n', '1e+39 is larger than float32 can hold'),
    ('a.csv', '', 'is empty; begin it with a line of names.'),
    ('a.jsonl', '{"x": [1, 2]}\n', "has no 'id'; the network takes"),
    ('a.jsonl', '{"x": [1, 2], "id": 1}\n{"x": [1], "id": 1}\n',
     'its lists have different lengths'),
    ('a.jsonl', 'x\n', 'is no JSON: '),
    ('a.jsonl', '\n', 'has no examples; write one object a line.'),
    ('a.npz', 'nothing', 'cannot be read: it holds no arrays of numbers or strings; write it by '
                         'numpy.savez.'),
    ('a.npy', 'nothing', 'holds one array, but the network takes x, id'),
    ('a.tfrecord', 'nothing', 'has a broken record'),
    ('a.PNG', 'pixels', 'is an image, and examples are read from .npz, .npy, .csv, .jsonl and '
                        'TFRecord files; name an eval input that reads images'),
])
def test_files_of_another_kind_are_refused(name, text, sentence, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=re.escape(sentence)):
        read_examples(f'{tmp_path}/{name}', SPECS, frozenset({'weight'}))


@pytest.mark.parametrize('name, text', [
    ('a.csv', 'seen,id\nFalse,1\ntrue,2\n0,3\n1,4\n'),
    ('a.jsonl', '\n'.join(f'{{"seen": {seen}, "id": {i}.0}}' for i, seen in enumerate(
        ['false', 'true', 'false', 'true'], 1))),
])
def test_bools_and_whole_numbers_are_what_is_written(name, text, tmp_path):
    (tmp_path / name).write_text(text)
    specs = {'seen': tf.TensorSpec([], tf.bool), 'id': tf.TensorSpec([], tf.int32)}
    arrays = read_examples(f'{tmp_path}/{name}', specs)
    assert arrays['seen'].tolist() == [False, True, False, True]
    assert arrays['id'].tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize('name, text', [
    ('a.csv', 'seen\nno\n'), ('a.jsonl', '{"seen": "no"}\n'), ('a.jsonl', '{"seen": 2}\n')])
def test_what_is_no_bool_is_refused(name, text, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match='bool'):
        read_examples(f'{tmp_path}/{name}', {'seen': tf.TensorSpec([], tf.bool)})


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(OSError, match='a.csv cannot be read: No such file or directory'):
        read_examples(f'{tmp_path}/a.csv', SPECS)


@pytest.mark.parametrize(('path', 'sentence'), [
    ('out.txt', "has the ending '.txt'; use .csv, .jsonl, .npz."),
    ('/proc/nowhere/out.csv', 'cannot be written: No such file or directory; correct '
                              '--predict_output.'),
])
def test_outputs_that_cannot_be_written_are_found_before_anything_is_predicted(path, sentence):
    with pytest.raises((ValueError, OSError), match=re.escape(sentence)):
        check_output(path)


def test_a_nested_example_has_the_shape_of_the_input(tmp_path):
    specs = {'x': tf.TensorSpec([3, 2])}
    for rows in ([1, 2, 3, 4, 5, 6], [[1, 2], [3, 4], [5, 6]]):
        (tmp_path / 'a.jsonl').write_text(json.dumps({'x': rows}))
        assert read_examples(f'{tmp_path}/a.jsonl', specs)['x'].tolist() == [
            [[1, 2], [3, 4], [5, 6]]]
    (tmp_path / 'a.jsonl').write_text(json.dumps({'x': [[1, 2, 3], [4, 5, 6]]}))
    with pytest.raises(ValueError, match=re.escape('the shape is [2, 3]')):
        read_examples(f'{tmp_path}/a.jsonl', specs)


def test_text_that_is_not_utf8_is_refused(tmp_path):
    (tmp_path / 'a.csv').write_bytes(b'x.0,x.1,id\n1,2,\xe9\n')
    with pytest.raises(ValueError, match='a.csv is not UTF-8; convert it'):
        read_examples(f'{tmp_path}/a.csv', SPECS, frozenset({'weight'}))
