"""Decoding translates every line in order, with the vocabulary of the run and no other."""
from __future__ import annotations

import shutil

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.checkpoint import Checkpointer
from lingpipe.pipeline.decoding.decoder import Decoder
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.tasks.translation.corpus.vocabulary import END, UNKNOWN
from lingpipe.tasks.translation.inputs import TranslationInput
from lingpipe.tasks.translation.transformer import Transformer
from lingpipe.tasks.translation.translator import translation_learner, translator
from lingpipe.training.evaluation import Evaluations
from lingpipe.training.experiment import Experiment
from lingpipe.training.initialize_from import InitializeFrom
from lingpipe.training.saved_state import SavedState
from tests.support import small_corpus

LINES = ['nepo eht elif', '', 'etirw', '  ', 'nepo', 'dnif eht eman dna neht eht txen']


@pytest.fixture(scope='module')
def corpus(tmp_path_factory):
    return small_corpus.prepared(tmp_path_factory.mktemp('corpus'), tags=True)


@pytest.fixture(scope='module')
def without_tags(tmp_path_factory):
    return small_corpus.prepared(tmp_path_factory.mktemp('without_tags'))


def made(num_cells=2, vocab_size=500, fields=None, **values):
    network = Transformer.Params(num_encoder_layers=1, num_decoder_layers=1, vocab_size=vocab_size,
                                 model_dim=8, hidden_dim=8, num_heads=2, **(fields or {}))
    params = translator(network, translation_learner(model_dim=8))
    params.decode.set(group_size=2, extra_length=3)
    for path, value in values.items():
        params.override(path.replace('__', '.'), str(value))
    task = params.instantiate()
    batch_spec = ({name: tf.TensorSpec([2, 6], tf.int32) for name in ('source', 'target', 'label')}
                  | {'weight': tf.TensorSpec([2])})
    program = Program(task.network, batch_spec, PipelineParams(num_cells=num_cells), task.learner)

    # The only control id that is drawn is the end, and that after some other ids.
    bias = program.weights['model/softmax/b']
    bias.assign(np.where(np.arange(vocab_size) <= UNKNOWN, -20., 0.)
                + np.where(np.arange(vocab_size) == END, 18., 0.))
    return task, program


def facts(task, corpus):
    return task.facts(TranslationInput.Params(directory=corpus.folder, batch_size=2).instantiate())


def test_every_line_has_a_line_in_its_order(corpus):
    task, program = made()
    found = task.decode(program, LINES, facts(task, corpus))
    assert (len(found) == len(LINES)
            and [bool(line.strip()) for line in LINES] == [bool(line) for line in found])
    assert all('\n' not in line for line in found)
    assert task.decode(program, LINES[2:3], facts(task, corpus)) == found[2:3]
    assert task.decode(program, LINES[::-1], facts(task, corpus)) == found[::-1]


def test_greedy_in_one_cell_too(corpus):
    found = [task.decode(program, LINES, facts(task, corpus))
             for task, program in (made(k, decode__beam_size=1) for k in (1, 2))]
    assert found[0] == found[1]


def test_a_source_is_cut_where_learned_positions_end(corpus, caplog):
    """A longer one failed within TensorFlow: 'Dimensions must be equal'."""
    task, program = made(1, fields={'positions': 'learned', 'max_length': 6}, decode__beam_size=1,
                         decode__max_length=6)
    known = facts(task, corpus)
    line = ' '.join(['nepo'] * 9)
    assert task.decode(program, [line], known) == task.translate(program, [line], known,
                                                                 max_source_length=6)
    assert any('max_source_length=6 ids has cut 1 source' in one for one in caplog.messages)


def test_graphs_are_built_anew_only_for_params_that_they_depend_on(corpus, monkeypatch):
    """Each length, group size and language built them again, which took seconds."""
    decoders = []

    def make_and_count(*args):
        decoders.append(Decoder(*args))
        return decoders[-1]

    monkeypatch.setattr('lingpipe.tasks.translation.line_translator.Decoder', make_and_count)
    task, program = made(1, decode__beam_size=1)
    known = facts(task, corpus)
    other = {'extra_length': 9, 'group_size': 1, 'language': 'de', 'max_source_length': 4}
    expected = task.params.copy().instantiate().translate(program, LINES, known, **other)

    decoders.clear()
    whole = task.translate(program, LINES, known)
    for name, value in other.items():
        task.translate(program, LINES, known, **{name: value})
    assert task.translate(program, LINES, known, **other) == expected != whole
    assert task.translate(program, LINES, known) == whole
    short = task.translate(program, LINES, known, max_length=2)
    assert task.translate(program, LINES, known) == whole
    assert len(decoders) == 1
    assert task.params.copy().instantiate().translate(
        program, LINES, known, max_length=2) == short != whole
    decoders.clear()
    task.translate(program, LINES, known, max_length=300)
    assert len(decoders) == 1
    task.translate(program, LINES, known, beam_size=2)
    assert len(decoders) == 2


def test_vocabulary_of_another_run_is_refused(corpus, tmp_path):
    task, program = made(1)
    known = facts(task, corpus)
    other = shutil.copy(known['vocabulary'], tmp_path / 'same.model')
    task, program = made(1, vocabulary=other, decode__beam_size=1)
    assert task.decode(program, ['nepo'], known)   # a copy is as good
    with pytest.raises(ValueError, match=r'same\.model is not the vocabulary that the run used, '
                                         r'.*vocabulary\.model: its SHA-256 is \w{12}'):
        task.decode(program, ['nepo'], {**known, 'sha256': '0' * 64})

    task, program = made(1, vocab_size=499)
    with pytest.raises(ValueError, match=r'vocabulary\.model has 500 ids, but '
                                         r'task\.model\.vocab_size=499; set task\.vocabulary'):
        task.decode(program, ['nepo'], known)
    with pytest.raises(ValueError,
                       match=r"task\.vocabulary is empty, and the checkpoint names none"):
        task.decode(program, ['nepo'], {})


def test_a_vocabulary_that_is_a_folder_is_refused(tmp_path):
    """As one of Hugging Face; the error was the system's, and named no remedy."""
    task, program = made(vocabulary=str(tmp_path))
    with pytest.raises(ValueError, match=r'task\.vocabulary=.* is a folder, and a vocabulary is a '
                                         r'file; name the one in it, such as tokenizer\.json\.$'):
        task.decode(program, ['nepo'], {})


def test_training_does_not_go_on_with_another_vocabulary(corpus):
    task, _ = made()
    source = TranslationInput.Params(directory=corpus.folder, batch_size=2).instantiate()
    task.check_facts(facts(task, corpus), source)
    task.check_facts({}, source)   # of a checkpoint that knows none
    match = (r'vocabulary\.model is not the vocabulary that the weights were trained with, '
             r'/old/v\.model: its SHA-256 .*another logdir')
    with pytest.raises(ValueError, match=match):
        task.check_facts({'vocabulary': '/old/v.model', 'sha256': '0' * 64}, source)


def test_vocabulary_has_as_many_ids_as_the_network(corpus):
    # A vocabulary of 320 ids once trained with vocab_size=8000, and only decoding refused it. One
    # of 8000 ids with vocab_size=500 ended in an error of TensorFlow's.
    source = TranslationInput.Params(directory=corpus.folder, batch_size=2).instantiate()
    for vocab_size in (499, 501):
        task, _ = made(vocab_size=vocab_size)
        match = (rf'vocabulary\.model has 500 ids, but task\.model\.vocab_size={vocab_size}, and '
                 rf'they must be equal; set task\.model\.vocab_size=500, or .* '
                 rf'--size={vocab_size}\.$')
        with pytest.raises(ValueError, match=match):
            task.check_facts({}, source)


def experiment_of(task, corpus, **values):
    source = TranslationInput.Params(directory=corpus.folder, batch_size=2)
    return Experiment.Params(task=task.params.copy(), train_input=source, **values).instantiate()


@pytest.mark.parametrize('logdir', ['new', 'resumed'])
def test_training_begins_by_checking_its_input(corpus, tmp_path, logdir):
    task, program = made(vocab_size=501)
    checkpointer = Checkpointer(str(tmp_path / 'checkpoints'))
    if logdir != 'new':
        checkpointer.save(1, program.variables(),
                          {'position': 2, 'num_nonfinite': 0, 'num_nonfinite_in_a_row': 0})
    state = SavedState(checkpointer, program, experiment_of(task, corpus), print)
    with pytest.raises(ValueError, match=r'has 500 ids, but task\.model\.vocab_size=501'):
        state.restore(str(tmp_path))


def test_an_evaluation_in_buckets_has_the_metrics_of_one_long_bucket(corpus):
    task, program = made(num_cells=1)
    metrics = {}
    for buckets in ((32,), (16, 32)):
        source = TranslationInput.Params(
            directory=corpus.folder, split='test', batch_size=4, bucket_lengths=buckets,
            shuffle=False, num_epochs=1).instantiate()
        evaluations = Evaluations(program, {'test': source}, task, '')
        evaluations.check('test')
        metrics[buckets] = evaluations.run('test').metrics
    assert metrics[16, 32] == pytest.approx(metrics[32,], rel=1e-5)


def test_tables_are_not_taken_from_a_run_with_another_vocabulary(corpus, tmp_path):
    task, program = made()
    theirs = {**facts(task, corpus), 'vocabulary': '/old/v.model', 'sha256': '0' * 64}

    def initialized(known, *rules):
        place = tmp_path / str(len(list(tmp_path.iterdir())))
        Checkpointer(str(place / 'theirs')).save(1, program.variables(),
                                                 {'task': known} if known else {})
        source = InitializeFrom(directory=str(place / 'theirs'),
                                rules=(*rules, *InitializeFrom().rules))
        experiment = experiment_of(task, corpus, initialize_from=source)
        return SavedState(Checkpointer(str(place / 'ours')), program, experiment,
                          print).restore(str(place)).text

    with pytest.raises(ValueError) as refused:
        initialized(theirs)
    error = str(refused.value)
    assert error.startswith('model/source_embedding, model/target_embedding, model/softmax would '
                            'be taken from a run with the vocabulary /old/v.model, whose ids '
                            'mean other pieces than those of ')
    tables = '.*/(model/source_embedding|model/target_embedding|model/softmax)/.*'
    assert f'put "{tables}" -> none first in initialize_from.rules, or' in error
    assert 'variables are taken from' in initialized(theirs, (tables, None))
    for known in (facts(task, corpus), {}, {'classes': 10}):
        assert 'variables are taken from' in initialized(known)


def test_lines_are_translated_without_tags_too(without_tags):
    task, program = made(1)
    known = facts(task, without_tags)
    assert all(task.decode(program, ['<b>nepo</b> eht elif', '<de> nepo'], known))
    task, program = made(1, decode__language='de')
    with pytest.raises(ValueError, match=r"task\.decode\.language='de', but the vocabulary has no"):
        task.decode(program, ['nepo'], known)


def test_lines_with_other_tags_than_the_training_are_named(corpus, caplog):
    """Without its tag, a line was translated as no sentence of the training was, and silently."""
    task, program = made(1, decode__beam_size=1)
    program.weights['model/softmax/b'].assign(np.where(np.arange(500) == END, 40., 0.))
    source = TranslationInput.Params(directory=corpus.folder, batch_size=2, language_tags=True)
    known = task.facts(source.instantiate())
    task.decode(program, ['<de> nepo', ''], known)
    assert not caplog.messages
    task.decode(program, ['nepo', '<de> nepo', '', 'etirw'], known)
    assert caplog.messages == [
        'in 2 of 4 lines, the tag of the language is missing, which all sources of the run '
        'had: lines 1, 4; begin with it, as <de>, or set task.decode.language']

    caplog.clear()
    task.decode(program, ['nepo', '<de> nepo'], facts(task, corpus))
    assert caplog.messages == ['in 1 of 2 lines there is the tag of a language, but no source of '
                               'the run had one: line 2; leave it out']
    caplog.clear()
    of_earlier_versions = {name: known[name] for name in ('vocabulary', 'sha256')}
    task.decode(program, ['nepo', '<de> nepo'], of_earlier_versions)
    assert not caplog.messages


def test_translations_without_an_end_are_named(corpus, caplog):
    task, program = made(2, decode__max_length=4, decode__beam_size=2)
    bias, is_end = program.weights['model/softmax/b'], np.arange(500) == END
    bias.assign(np.where(is_end, 40., 0.))
    task.decode(program, ['', 'nepo', '  ', 'etirw'], facts(task, corpus))
    assert not caplog.messages
    bias.assign(np.where(is_end, -40., 0.))
    assert task.decode(program, ['', 'nepo'], facts(task, corpus))[0] == ''
    assert caplog.messages == ['1 translation reached the limit, task.decode.max_length=4 ids '
                               'or extra_length=3 more than the source, without an end: line 2']
