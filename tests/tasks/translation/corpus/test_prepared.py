"""A prepared folder returns all pairs, keeps the test apart, and has one vocabulary for all."""
from __future__ import annotations

import io
import json
import pathlib
import shutil

import numpy as np
import pytest
import sentencepiece

from lingpipe.tasks.translation.corpus.pair import Pair, Place
from lingpipe.tasks.translation.corpus.prepared import PreparedCorpus, by_size, write
from lingpipe.tasks.translation.corpus.report import Report
from lingpipe.tasks.translation.corpus.split import folded
from lingpipe.tasks.translation.corpus.vocabulary import (
    END,
    PAD,
    START,
    UNKNOWN,
    Vocabulary,
    encode_corpus,
    sample,
    train,
)
from tests.support import small_corpus


@pytest.fixture(scope='module')
def corpus(tmp_path_factory) -> PreparedCorpus:
    return small_corpus.prepared(tmp_path_factory.mktemp('corpus'))


def test_all_pairs_come_back_in_the_order_of_size(corpus):
    assert [language.code for language in corpus.languages] == ['de', 'cy', 'zu', 'fr']
    there = sorted((code, *pair) for code in corpus.codes for split in ('train', 'test')
                   for pair in zip(*corpus.pairs(split, code), strict=True))
    assert there == sorted(pair[:3] for pair in small_corpus.pairs())


def test_no_english_of_the_test_is_trained_on_in_any_language(corpus):
    """All languages have the same sentences, some with other endings, which count as the same."""
    train_english, test_english = (set(corpus.texts(split, 'english'))
                                   for split in ('train', 'test'))
    assert not {folded(one) for one in train_english} & {folded(one) for one in test_english}
    assert not train_english & test_english
    num_train, num_test = (len(corpus.texts(split, 'english')) for split in ('train', 'test'))
    assert 0.08 <= num_test / (num_train + num_test) <= 0.10


def test_ids_are_those_of_the_sentences(corpus):
    vocabulary = Vocabulary(corpus.vocabulary_path)
    ids, starts = corpus.ids('test', 'source')
    texts = corpus.texts('test', 'source')
    assert ids.dtype == np.uint16 and len(starts) == len(texts) + 1
    assert ([ids[a:b].tolist() for a, b in zip(starts, starts[1:], strict=False)]
            == vocabulary.encode(texts))


def test_sentences_with_other_ends_of_lines_stay_whole(tmp_path):
    made = [Pair('de', f'eins\u2028zwei\x85 {i}', f'one {"x" * i}', Place('made'))
            for i in range(9)]
    corpus = write(str(tmp_path), made, Report(), 0.)
    assert corpus.pairs('train', 'de') == ([pair.text for pair in made],
                                           [pair.english for pair in made])
    assert corpus.texts('train', 'source', 3, 5) == [pair.text for pair in made[3:5]]
    assert corpus.texts('test', 'source') == []


@pytest.mark.parametrize(('name', 'content'), [
    ('test.english.txt', b''), ('test.english.txt', b'one more line\n'),
    ('test.english.txt', 'as long'), ('test.english.starts.npy', b'no array')])
def test_a_file_that_has_changed_is_refused(corpus, tmp_path, name, content):
    """Sentences were cut anywhere, and scored against those of other lines."""
    changed = PreparedCorpus(shutil.copytree(corpus.folder, tmp_path / 'corpus'))
    path = pathlib.Path(changed.folder, name)
    if content == 'as long':
        content = path.read_bytes().replace(b'the ', b'the\n')
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf'{name} does not fit the other files of the corpus: it '
                                         'has changed since lingpipe.tools.build_corpus wrote it; '
                                         'build the corpus again'):
        changed.pairs('test', 'de')
    assert changed.texts('train', 'english') == corpus.texts('train', 'english')


def test_languages_are_in_thirds_by_their_pairs_for_training():
    made = by_size({'de': (90, 1), 'fr': (80, 1), 'cy': (80, 9), 'zu': (10, 1), 'sm': (0, 1)})
    assert [(one.code, one.level) for one in made] == [
        ('de', 'high'), ('cy', 'high'), ('fr', 'middle'), ('zu', 'middle'), ('sm', 'low')]


def test_what_is_not_there_is_refused(corpus, tmp_path):
    with pytest.raises(ValueError, match='holds no corpus.json; prepare a corpus there: python -m '
                                         'lingpipe.tools.build_corpus'):
        PreparedCorpus(str(tmp_path))
    with pytest.raises(ValueError, match=r"language 'ze' is not one of the 4 in .*; the nearest "
                                         r"are .*zu \(Zulu\)"):
        corpus.pairs('test', 'ze')
    with pytest.raises(ValueError, match="none of the languages de is of level 'low' in "):
        corpus.select(['de'], 'low')

    plain = write(str(tmp_path), small_corpus.pairs(), Report())
    with pytest.raises(ValueError, match='has no ids of a vocabulary; make them: python -m '
                                         'lingpipe.tools.train_vocabulary --corpus='):
        plain.ids('train', 'source')
    with pytest.raises(ValueError, match='no pair for training is left of 0 that were found'):
        write(str(tmp_path), [], Report())
    with pytest.raises(ValueError, match='test_share=1.0 is no part of the sentences'):
        write(str(tmp_path), [], Report(), 1.)

    described = json.loads((tmp_path / 'corpus.json').read_text())
    (tmp_path / 'corpus.json').write_text(json.dumps({**described, 'version': 0}))
    with pytest.raises(ValueError,
                       match='holds a corpus of version 0, and this reads 1; build it again'):
        PreparedCorpus(str(tmp_path))

    (tmp_path / 'corpus.json').write_text('5')
    with pytest.raises(ValueError, match=r"corpus.json does not describe a corpus \(TypeError: "
                                         r"'int' object .*\); build it again"):
        PreparedCorpus(str(tmp_path))


# The vocabulary.

def test_anything_can_be_spelt_and_nothing_is_unknown(corpus):
    vocabulary = Vocabulary(corpus.vocabulary_path)
    texts = ['open the file', '字 ẅ ¿?', 'ᚠᛇᚻ']
    ids = vocabulary.encode(texts)
    assert UNKNOWN not in sum(ids, [])
    assert vocabulary.decode([[START, *row, END, 400, PAD] if i == 0 else [*row, PAD, PAD]
                              for i, row in enumerate([ids[0]])]) == texts[:1]
    assert [vocabulary.decode([row])[0] for row in ids] == texts
    assert vocabulary.size == 500 and vocabulary.is_byte.sum() == 256


def test_ids_that_are_unknown_are_counted(tmp_path, caplog):
    """A vocabulary without bytes loses characters, and nothing said so."""
    corpus = small_corpus.prepared(tmp_path)
    assert not caplog.messages
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(['only these letters'] * 9), model_writer=model, vocab_size=99,
        model_type='bpe', hard_vocab_limit=False, pad_id=PAD, bos_id=START, eos_id=END,
        unk_id=UNKNOWN, minloglevel=2)
    encode_corpus(corpus, Vocabulary('few letters', model.getvalue()))
    for side, message in zip(('source', 'english'), caplog.messages, strict=True):
        ids = np.concatenate([corpus.ids(split, side)[0] for split in ('train', 'test')])
        assert message == (
            f'{np.sum(ids == UNKNOWN):,} of {len(ids):,} ids of the {side} sentences are unknown: '
            'characters that the vocabulary has no piece for are lost; train it with '
            'byte_fallback, which spells them in bytes')


def test_a_vocabulary_that_cannot_be_is_refused(corpus):
    with pytest.raises(ValueError, match='sentencepiece makes no vocabulary of size=260 with '
                                         'coverage=1.0: .*change the size, or lower'):
        train(sample(corpus, 400, 5., 0.3), 260, coverage=1.)
    with pytest.raises(ValueError, match='vocabulary_is_not_there is no file; train a vocabulary'):
        Vocabulary('vocabulary_is_not_there')
    with pytest.raises(ValueError, match=r'test_prepared.py is no model of sentencepiece'):
        Vocabulary(__file__)


def test_ids_without_their_vocabulary_count_for_nothing(tmp_path):
    """The vocabulary is written last, so a kill while ids are written leaves no mixture of two."""
    corpus = small_corpus.prepared(tmp_path)
    pathlib.Path(corpus.vocabulary_path).unlink()
    with pytest.raises(ValueError, match='has no ids of a vocabulary; make them'):
        corpus.ids('train', 'source')


def test_the_english_of_a_sample_is_not_the_first_in_the_alphabet(corpus):
    english = sorted(set(corpus.texts('train', 'english')))
    found = set(sample(corpus, 40, 5., 0.25)) & set(english)
    assert found - set(english[:10])


def test_the_sample_holds_languages_by_temperature_and_no_test_sentence(corpus):
    found = sample(corpus, 200, float('inf'), 0.2)
    numbers = {code: sum(all(word.endswith(code) for word in text.split()) for text in found)
               for code in corpus.codes}
    assert numbers == {'de': 40, 'cy': 40, 'zu': 40, 'fr': len(corpus.pairs('train', 'fr')[0])}
    assert not set(found) & {*corpus.texts('test', 'source'), *corpus.texts('test', 'english')}
    assert (found == sample(corpus, 200, float('inf'), 0.2)
            != sample(corpus, 200, float('inf'), 0.2, seed=1))


@pytest.mark.parametrize(('values', 'sentence'), [
    ((200, 0., 0.2), 'temperature=0.0 is below 1'),
    ((200, 1., 2.), 'english_share=2.0 is no part of a whole; use 0 to 1'),
    ((5, 1., 0.5), '5 sentences, 2 of them English, are too few for 4 languages; take more')])
def test_a_sample_that_cannot_be_is_refused(corpus, values, sentence):
    with pytest.raises(ValueError, match=sentence):
        sample(corpus, *values)


def test_tags_are_ids_of_their_own(tmp_path):
    corpus = small_corpus.prepared(tmp_path, tags=True)
    vocabulary = Vocabulary(corpus.vocabulary_path)
    assert [vocabulary.tag(code) for code in corpus.codes] == [4, 5, 6, 7]
    with pytest.raises(ValueError, match="the vocabulary has no tag of the language 'it'; train it "
                                         "with --language_tags"):
        vocabulary.tag('it')


def test_english_keeps_its_share_of_a_small_corpus(corpus):
    """It was repeated up to its part of a sample that the other languages could not fill."""
    found = sample(corpus, 10_000, 5., 0.2)
    num_english = len(found) - len(corpus.texts('train', 'source'))
    assert num_english == round(0.2 * len(found))
