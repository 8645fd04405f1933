"""Source ids: tags and ends are those of training, and what is cut or unknown is named."""
from __future__ import annotations

import pytest

from lingpipe.tasks.translation.corpus.vocabulary import END, START, Vocabulary
from lingpipe.tasks.translation.inputs import TranslationInput
from lingpipe.tasks.translation.source_ids import source_ids, warn_of_tags
from tests.support import small_corpus


@pytest.fixture(scope='module')
def corpus(tmp_path_factory):
    return small_corpus.prepared(tmp_path_factory.mktemp('corpus'), tags=True)


@pytest.fixture(scope='module')
def vocabulary(corpus):
    return Vocabulary(corpus.vocabulary_path)


@pytest.fixture(scope='module')
def without_tags(tmp_path_factory):
    folder = tmp_path_factory.mktemp('without_tags')
    return Vocabulary(small_corpus.prepared(folder).vocabulary_path)


def test_tags_and_ends_are_those_of_training_examples(corpus, vocabulary):
    source = TranslationInput.Params(directory=corpus.folder, batch_size=1, languages=('de',),
                                     language_tags=True, shuffle=False, num_epochs=1).instantiate()
    batch = next(iter(source.batches()))
    trained = [int(i) for i in batch['source'][0] if i]
    text = corpus.texts('train', 'source', int(batch['index'][0]), int(batch['index'][0]) + 1)
    assert source_ids(vocabulary, [f'<de> {text[0]}'], '', 256) == [trained]

    short, = source_ids(vocabulary, text, 'cy', 6)
    # The source is cut, and the tag is of another language.
    assert short == [vocabulary.tag('cy'), *trained[1:5], END] and START not in short


def test_line_of_html_is_text_if_there_are_no_tags(without_tags):
    lines = ['<b>nepo</b> eht elif', '<de> nepo']
    assert source_ids(without_tags, lines, '', 256) == [
        [*ids, END] for ids in without_tags.encode(lines)]
    with pytest.raises(ValueError, match=r"task\.decode\.language='de', but the vocabulary has no "
                                         r"tags of languages; leave it empty, or"):
        source_ids(without_tags, lines, 'de', 256)


def test_lines_are_cleaned_as_those_of_training_are(vocabulary):
    lines = ['nepo eht', '\u200bne\u00adpo \u2066eht\u2069 ']
    plain, marked = source_ids(vocabulary, lines, '', 256)
    assert marked == plain


def test_unknown_tag_names_its_line_and_the_nearest(vocabulary):
    match = (r"^line 2 begins with <dee>, which .*: language 'dee' is not one of the vocabulary's "
             r"tags; the nearest are de \(German\)")
    with pytest.raises(ValueError, match=match):
        source_ids(vocabulary, ['nepo', '<dee> nepo'], '', 256)
    assert source_ids(vocabulary, ['<de> <b>nepo</b>'], '', 256) == [
        [vocabulary.tag('de'), *vocabulary.encode(['<b>nepo</b>'])[0], END]]
    with pytest.raises(ValueError, match=r"^task\.decode\.language: language 'xx' is not one of "
                                         r"the vocabulary's tags"):
        source_ids(vocabulary, ['nepo'], 'xx', 256)


def test_what_is_not_seen_before_a_tag_does_not_make_it_text(vocabulary):
    """After a space or an invisible sign, it became an id in the middle of the source."""
    lines = ['<de> nepo', ' <de> nepo', '\u200b<de>\tnepo']
    plain, *others = source_ids(vocabulary, lines, '', 256)
    assert plain[0] == vocabulary.tag('de')
    assert others == [plain, plain]


def test_tags_after_the_beginning_are_named(vocabulary, caplog):
    """They became ids where the training had none, and nothing said so."""
    lines = ['<de> nepo', '<de> nepo <fr> eht', '', 'nepo <de>', '<de> <cy> nepo', 'nepo <br>']
    sources = source_ids(vocabulary, lines, '', 256)
    warn_of_tags(sources, vocabulary, None)
    assert caplog.messages == [
        'in 3 of 6 lines, a tag of a language stands after the beginning, where it is read as that '
        'tag and not as text: lines 2, 4, 5; begin the line with it, or leave it out']


def test_lines_that_are_cut_are_named(vocabulary, caplog):
    source_ids(vocabulary, ['nepo', *['nepo eht elif dna eht txen'] * 7, ''], '', 6)
    assert caplog.messages == ['task.decode.max_source_length=6 ids has cut 7 sources that are '
                               'longer: lines 2, 3, 4, 5, 6, ...']
