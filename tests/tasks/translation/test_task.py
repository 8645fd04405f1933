"""Translation's promises: a translation for every line, in order, by the vocabulary of the training and no other."""
from __future__ import annotations

import importlib.util
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.pipeline.plan import PipelineParams
from lingpipe.pipeline.program import Program
from tasks.translation.corpus.vocabulary import END, START, UNKNOWN
from tasks.translation.inputs import TranslationInput
from tasks.translation.transformer import Transformer
from tasks.translation.translator import translation_learner, translator

spec = importlib.util.spec_from_file_location('small_corpus', pathlib.Path(__file__).parent / 'small_corpus.py')
assert spec is not None and spec.loader is not None
small_corpus = importlib.util.module_from_spec(spec)
spec.loader.exec_module(small_corpus)

LINES = ['nepo eht elif', '', 'etirw', '  ', 'nepo', 'dnif eht eman dna neht eht txen']


@pytest.fixture(scope='module')
def corpus(tmp_path_factory):
    return small_corpus.prepared(tmp_path_factory.mktemp('corpus'), tags=True)


def made(num_cells=2, vocab_size=500, **values):
    network = Transformer.Params(num_encoder_layers=1, num_decoder_layers=1, vocab_size=vocab_size, model_dim=8, hidden_dim=8, num_heads=2)
    params = translator(network, translation_learner(model_dim=8))
    params.decode.set(group_size=2, extra_length=3)
    for path, value in values.items():
        params.override(path.replace('__', '.'), str(value))
    task = params.instantiate()
    batch_spec = {name: tf.TensorSpec([2, 6], tf.int32) for name in ('source', 'target', 'label')} | {'weight': tf.TensorSpec([2])}
    program = Program(task.network, batch_spec, PipelineParams(num_cells=num_cells), task.learner)
    # No control id but the end, and that after some ids.
    bias = program.weights['model/softmax/b']
    bias.assign(np.where(np.arange(vocab_size) <= UNKNOWN, -20., 0.) + np.where(np.arange(vocab_size) == END, 18., 0.))
    return task, program


def facts(task, corpus):
    return task.facts(TranslationInput.Params(directory=corpus.folder, batch_size=2).instantiate())


def test_every_line_has_a_line_in_its_order(corpus):
    task, program = made()
    found = task.decode(program, LINES, facts(task, corpus))
    assert len(found) == len(LINES) and [bool(line.strip()) for line in LINES] == [bool(line) for line in found]
    assert all('\n' not in line for line in found)
    assert task.decode(program, LINES[2:3], facts(task, corpus)) == found[2:3]
    assert task.decode(program, LINES[::-1], facts(task, corpus)) == found[::-1]


def test_greedy_in_one_cell_too(corpus):
    found = [task.decode(program, LINES, facts(task, corpus)) for task, program in (made(k, decode__beam_size=1) for k in (1, 2))]
    assert found[0] == found[1]


def test_tags_and_ends_are_those_of_the_training(corpus):
    task, _ = made(decode__language='cy', decode__max_source_length=6)
    vocabulary = task._vocabulary(facts(task, corpus))
    source = TranslationInput.Params(directory=corpus.folder, batch_size=1, languages=('de',), language_tags=True, shuffle=False,
                                     num_epochs=1).instantiate()
    batch = next(iter(source.batches()))
    trained = [int(i) for i in batch['source'][0] if i]
    text = corpus.texts('train', 'source', int(batch['index'][0]), int(batch['index'][0]) + 1)
    task_long, _ = made()
    assert task_long._encoded(vocabulary, [f'<de> {text[0]}']) == [trained]
    short, = task._encoded(vocabulary, text)
    assert short == [vocabulary.tag('cy'), *trained[1:5], END] and START not in short   # cut, and another language


def test_vocabulary_of_another_training_is_refused(corpus, tmp_path):
    task, program = made()
    known = facts(task, corpus)
    other = shutil.copy(known['vocabulary'], tmp_path / 'same.model')
    task, program = made(vocabulary=other)
    assert task.decode(program, ['nepo'], known)   # a copy is as good
    with pytest.raises(ValueError, match=r'same\.model is not the vocabulary of the training, .*vocabulary\.model: its SHA-256 is \w{12}'):
        task.decode(program, ['nepo'], {**known, 'sha256': '0' * 64})
    task, program = made(vocab_size=499)
    with pytest.raises(ValueError, match=r'vocabulary\.model has 500 ids, but task\.model\.vocab_size=499; set task\.vocabulary'):
        task.decode(program, ['nepo'], known)
    with pytest.raises(ValueError, match=r"task\.vocabulary is empty, and the checkpoint names none"):
        task.decode(program, ['nepo'], {})


def test_training_does_not_go_on_with_another_vocabulary(corpus, tmp_path):
    task, _ = made()
    source = TranslationInput.Params(directory=corpus.folder, batch_size=2).instantiate()
    task.check_facts(facts(task, corpus), source)
    task.check_facts({}, source)   # of a checkpoint that knows none
    match = r'vocabulary\.model is not the vocabulary that the weights were trained with, /old/v\.model: its SHA-256 .*another logdir'
    with pytest.raises(ValueError, match=match):
        task.check_facts({'vocabulary': '/old/v.model', 'sha256': '0' * 64}, source)
