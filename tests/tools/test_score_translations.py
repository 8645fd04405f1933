"""score_translations scores files, a corpus alone, and a run on a corpus, from end to end."""
from __future__ import annotations

import json

import pytest
import tensorflow as tf

from lingpipe import trainer
from lingpipe.commands import device_setup
from lingpipe.hyperparams import Params
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.tasks.translation.corpus.prepared import write
from lingpipe.tasks.translation.corpus.report import Report
from lingpipe.tasks.translation.corpus.split import is_test
from lingpipe.tasks.translation.corpus.vocabulary import sample, train
from lingpipe.tasks.translation.inputs import TranslationInput
from lingpipe.tasks.translation.transformer import Transformer
from lingpipe.tasks.translation.translator import translation_learner, translator
from lingpipe.tools import score_translations
from lingpipe.training.experiment import Experiment
from lingpipe.training.registry import register
from lingpipe.training.train_params import TrainParams
from tests.support import small_corpus


@register
class TinyTranslator:
    """Trains for two steps, so its translations mean nothing."""

    @classmethod
    def params(cls) -> Params:
        network = Transformer.Params(num_encoder_layers=1, num_decoder_layers=1, vocab_size=500,
                                     model_dim=8, hidden_dim=8, num_heads=2)
        task = translator(network, translation_learner(model_dim=8))
        task.decode.set(beam_size=2, max_length=8)
        return Experiment.Params(
            task=task,
            train_input=TranslationInput.Params(directory='', batch_size=4, bucket_lengths=(32,)),
            pipeline=PipelineParams(num_micro_batches=2), train=TrainParams(num_steps=2))


@pytest.fixture(scope='module')
def corpus(tmp_path_factory):
    return small_corpus.prepared(tmp_path_factory.mktemp('corpus'))


def printed(capsys, *flags):
    capsys.readouterr()
    score_translations.main(list(flags))
    return capsys.readouterr().out


def error_of(*flags):
    with pytest.raises(SystemExit) as stop:
        score_translations.main(list(flags))
    return str(stop.value)


def test_files_alone(capsys, tmp_path):
    (tmp_path / 'ours').write_text('write the name of the page\nsave it\n')
    (tmp_path / 'theirs').write_text('write the name of the page\nsave it\n')
    text = printed(capsys, f'--file=de:{tmp_path}/ours:{tmp_path}/theirs')
    assert text.splitlines()[2].split() == ['de*', '0', '2', '100.0', '100.0']
    assert 'bleu: nrefs:1|case:mixed' in text
    (tmp_path / 'ours').write_text('one\n')
    assert error_of(f'--file=de:{tmp_path}/ours:{tmp_path}/theirs').startswith(
        'score_translations: de: file has 1 line, but there are 2 references')


def test_files_are_read_as_decoding_reads_them(capsys, tmp_path):
    (tmp_path / 'ours').write_bytes('\ufeffwrite the name of the page\r\nsave\u2028it\r\n'.encode())
    (tmp_path / 'theirs').write_text('write the name of the page\nsave\u2028it\n')
    assert '100.0' in printed(capsys, f'--file=de:{tmp_path}/ours:{tmp_path}/theirs')

    (tmp_path / 'ours').write_bytes(b'save it\n\xff\n')
    assert error_of(f'--file=de:{tmp_path}/ours:{tmp_path}/theirs') == (
        f'score_translations: line 2 of {tmp_path}/ours is not UTF-8; convert it, as with iconv -t '
        'UTF-8.')
    assert error_of(f'--file=de:{tmp_path}/none:{tmp_path}/theirs') == (
        f"score_translations: {tmp_path}/none cannot be read: No such file or directory; name "
        'a file of lines in UTF-8.')
    assert error_of(f'--file=dee:{tmp_path}/theirs:{tmp_path}/theirs').startswith(
        "score_translations: language 'dee' is not known; the nearest are ee (Ewe), de (German)")


def test_what_a_score_hides_is_said(capsys, corpus, tmp_path):
    (tmp_path / 'ours').write_text('\n \n' + 'save it\n' * 48)
    (tmp_path / 'theirs').write_text('save it\n' * 50)
    score_translations.main([f'--file={code}:{tmp_path}/ours:{tmp_path}/theirs'
                             for code in ('de', 'cy')])
    out, err = capsys.readouterr()
    assert err == 'score_translations: blank translations, scored as they are, of 100: file 4\n'
    assert '*' not in out   # 50 sentences are enough

    pairs = [pair for pair in small_corpus.pairs() if pair.code != 'fr'
             or not is_test(pair.english, 0.09)]
    write(f'{tmp_path}/corpus', pairs, Report())
    score_translations.main([f'--corpus={tmp_path}/corpus', '--baselines'])
    assert (capsys.readouterr().err
            == 'score_translations: without test sentences, and left out: fr\n')


def test_languages_of_few_sentences_are_marked_and_left_out_of_the_line(
        capsys, monkeypatch, tmp_path):
    for name, number in (('few', 49), ('many', 50)):
        (tmp_path / name).write_text('write the name of the page\n' * number)
    flags = [f'--file={code}:{tmp_path}/{name}:{tmp_path}/{name}'
             for code, name in (('cy', 'many'), ('de', 'few'), ('zu', 'many'))]
    lines = printed(capsys, *flags).splitlines()
    assert ([line.split()[0] for line in lines[2:5]] == ['cy', 'de*', 'zu']
            and lines[6].split()[0] == 'all')
    assert lines[8] == ('* fewer than 50 sentences: too few for a BLEU of the language alone; '
                        'the pools count them')
    found = json.loads(printed(capsys, *flags, '--json'))
    assert ([row['has_few_sentences'] for row in found['languages']] == [False, True, False]
            and found['pools'][-1]['sentences'] == 149)

    drawn = []
    monkeypatch.setattr(
        'matplotlib.axes.Axes.plot',
        lambda self, x, y, *args, **values: drawn.append((list(x), values.get('label', ''))))
    monkeypatch.setattr('matplotlib.axes.Axes.legend', lambda self, **values: None)
    score_translations.draw(found, str(tmp_path / 'scores.png'))
    assert [x for x, label in drawn] == [[0, 2], [1], [0, 2]] and drawn[-1][1] == 'file: all 100.0'


def test_a_dictionary_beats_copying(capsys, corpus, tmp_path):
    found = json.loads(printed(capsys, f'--corpus={corpus.folder}', '--baselines', '--json',
                               f'--output={tmp_path}/scores.png'))
    assert [row['name'] for row in found['languages']] == list(corpus.codes) == [
        'de', 'cy', 'zu', 'fr']
    assert [row['name'] for row in found['pools']] == ['high', 'middle', 'low', 'all']
    everything = found['pools'][-1]
    assert everything['copy']['bleu'] < 5 < 20 < everything['dictionary']['bleu']
    assert (tmp_path / 'scores.png').read_bytes().startswith(b'\x89PNG')


@pytest.mark.slow
def test_a_training_is_decoded_and_scored(capsys, monkeypatch, corpus, tmp_path):
    monkeypatch.setattr(device_setup, 'configure', lambda params: None)
    monkeypatch.setattr('lingpipe.training.registry.get', lambda name: TinyTranslator.params())
    directory = f'--set=train_input.directory={corpus.folder}'
    model = ['--model=TinyTranslator', f'--logdir={tmp_path}/log']
    assert trainer.main(['trainer', *model, '--mode=train', directory]) == 0
    found = json.loads(printed(capsys, *model, f'--set=train_input.directory={corpus.folder}',
                               f'--corpus={corpus.folder}', '--sentences=3', '--languages=de,cy',
                               '--baselines', '--json'))
    assert found['step'] == 2 and [row['sentences'] for row in found['languages']] == [3, 3]
    assert set(found['pools'][-1]) >= {'model', 'dictionary', 'copy'}
    events, = (tmp_path / 'log' / 'tensorboard' / 'scores').iterdir()
    tags = {value.tag for event in tf.compat.v1.train.summary_iterator(str(events))
            for value in event.summary.value}
    assert {'bleu/de', 'chrf/cy', 'bleu/all'} <= tags

    # The trainer itself decodes with the same vocabulary, without naming it, and keeps the lines in
    # order. It refuses another vocabulary.
    (tmp_path / 'in').write_text('nepo eht elif\n\netirw\n')
    flags = ['trainer', *model, '--mode=decode', f'--decode_input={tmp_path}/in',
             f'--decode_output={tmp_path}/out']
    assert trainer.main(flags) == 0
    assert (tmp_path / 'out').read_text().count('\n') == 3
    capsys.readouterr()
    train(sample(corpus, 300, 1., 0.5, seed=1), 500, 'bpe', 1.).save(f'{tmp_path}/other.model')
    assert trainer.main([*flags, f'--set=task.vocabulary={tmp_path}/other.model']) == 1
    assert (f'{tmp_path}/other.model is not the vocabulary that the run used, '
            f'{corpus.vocabulary_path}: its SHA-256' in capsys.readouterr().err)


@pytest.mark.parametrize('flags, error', [
    ([], 'nothing to score; give --model and --logdir, or --file, or --corpus and --baselines.'),
    (['--file=de:a:b', '--file=de:c:d'],
     '--file names the language de twice, whose sentences would count twice; give each language '
     'once.'),
    (['--file=no:a:b', '--file=nb:c:d'],
     '--file names the language no twice, whose sentences would count twice; give each language '
     'once.'),
    (['--model=x'], '--model and --logdir go together; give both, or neither.'),
    (['--model=x', '--logdir=y'],
     '--model translates the test part of a corpus; give --corpus, and no --file.'),
    (['--file=de:x:y', '--set=seed=1'],
     '--set changes Params of a model; give --model and --logdir, or leave it out.'),
    (['--file=de'],
     '--file=de has 1 part between colons; write --file=CODE:TRANSLATIONS:REFERENCES.'),
    (['--file=de:x'],
     '--file=de:x names no references; write --file=de:x:REFERENCES, or give --corpus.'),
    (['--file=de:x:y', '--baselines'], '--baselines come from pairs of a corpus; give --corpus.'),
])
def test_mistake_is_one_sentence(flags, error):
    assert error_of(*flags) == f'score_translations: {error}'
