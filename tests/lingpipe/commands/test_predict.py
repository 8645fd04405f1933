"""Predict and export: the newest checkpoint, on files and on eval inputs."""
from __future__ import annotations

import csv
import json
import re

import numpy as np
import pytest

from lingpipe.api.run import Run
from lingpipe.api.start import start
from lingpipe.commands.export import export
from lingpipe.commands.predict import predict
from lingpipe.commands.run_options import RunOptions
from lingpipe.training.predictions import names_of
from tests.support.tiny_experiment import DIM, Tiny


@pytest.fixture(scope='module')
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run with a checkpoint."""
    with start(Tiny, logdir=tmp_path_factory.mktemp('run')) as made:
        made.train(steps=1, evaluate=False)
        yield made


def predicted(run: Run, source: str, folder: str) -> np.ndarray:
    predict(run.params, RunOptions('predict', logdir=run.logdir, predict_input=source,
                                   predict_output=f'{folder}/out.npz'))
    with np.load(f'{folder}/out.npz') as outputs:
        assert list(outputs) == ['x']
        return outputs['x']


def test_a_file_an_eval_input_and_an_array_give_the_same_outputs(run, tmp_path):
    """The input has 13 examples, of which 5 are in the last of its mini-batches of 8."""
    examples = run.experiment.eval_inputs['test'].load()
    np.savez(f'{tmp_path}/in.npz', x=examples['x'])
    of_file = predicted(run, f'{tmp_path}/in.npz', tmp_path)
    assert of_file.shape == (13, DIM)
    np.testing.assert_array_equal(predicted(run, 'test', tmp_path), of_file)
    np.testing.assert_array_equal(run.predict(examples['x'])['x'], of_file)


def test_examples_of_an_eval_input_that_have_names_keep_them(run, tmp_path, monkeypatch):
    """Predictions of a folder of images did not say which image was which."""
    source = type(run.experiment.eval_inputs['test'])
    assert not names_of(run.experiment.eval_inputs['test'])
    monkeypatch.setattr(source, 'name_of', lambda self, index: f'{index}, of 13.jpg')
    for suffix in ('csv', 'jsonl'):
        predict(run.params, RunOptions('predict', logdir=run.logdir, predict_input='test',
                                       predict_output=f'{tmp_path}/out.{suffix}'))
    with open(f'{tmp_path}/out.csv', newline='') as file:
        rows = list(csv.DictReader(file))
    with open(f'{tmp_path}/out.jsonl') as file:
        examples = [json.loads(line) for line in file]
    outputs = run.predict('test')['x']
    for table in (rows, examples):
        assert [row['example'] for row in table] == [f'{i}, of 13.jpg' for i in range(13)]
    np.testing.assert_array_equal([np.float32(row['x.0']) for row in rows], outputs[:, 0])
    np.testing.assert_array_equal(np.float32([row['x'] for row in examples]), outputs)


def test_an_export_says_what_it_is(run, tmp_path):
    options = RunOptions('export', logdir=run.logdir, export_path=f'{tmp_path}/weights',
                         export_format='npz')
    assert export(run.params, options) == f'step 1 as npz: {tmp_path}/weights.npz'


def test_an_export_of_another_type_is_for_one_format(run, tmp_path):
    options = RunOptions('export', logdir=run.logdir, export_path=f'{tmp_path}/weights',
                         export_format='npz', export_dtype='bfloat16')
    with pytest.raises(ValueError, match="format='npz' writes the weights in the type that they "
                                         'have, and only hugging_face rounds them to bfloat16; '
                                         'use that, or leave bfloat16 out'):
        export(run.params, options)


@pytest.mark.parametrize(('options', 'sentence'), [
    (RunOptions('predict'), '--predict_input is missing; name a file of examples or an eval input: '
                            'test.'),
    (RunOptions('predict', predict_input='nope'),
     '--predict_input=nope does not exist; name a file of examples or an eval input: test.'),
    (RunOptions('predict', predict_input='/'), '--predict_input=/ is a directory; name a file of '),
    (RunOptions('export'), '--export_path is missing; name the file or the directory to write.'),
])
def test_flags_are_checked_before_anything_is_restored(options, sentence):
    command = predict if options.mode == 'predict' else export
    with pytest.raises(ValueError, match=re.escape(sentence)):
        command(Tiny.params(), options)
