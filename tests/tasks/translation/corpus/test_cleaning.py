"""Cleaning keeps or drops each pair for one reason, and never trains on English of the test."""
from __future__ import annotations

import pytest

from lingpipe.tasks.translation.corpus.cleaning import Cleaner, normalized
from lingpipe.tasks.translation.corpus.languages import KNOWN, LISTED, checked, language_of
from lingpipe.tasks.translation.corpus.pair import Pair, Place
from lingpipe.tasks.translation.corpus.report import FOUND, KEPT
from lingpipe.tasks.translation.corpus.split import folded, is_test


def cleaned(*pairs: tuple[str, str, str], **limits):
    """Returns what is kept, and the report; the pairs are lines 1, 2, ... of a file a."""
    cleaner = Cleaner(**limits)
    placed = [Pair(*pair, Place('test', 'a', i)) for i, pair in enumerate(pairs, 1)]
    return [tuple(pair[:3]) for pair in cleaner.clean(placed)], cleaner.report


# Languages.

@pytest.mark.parametrize(('code', 'language'), [
    ('de', 'de'), ('pt-br', 'pt'), ('pt_BR', 'pt'), ('sr-el', 'sr'), ('sr@latin', 'sr'),
    ('zh-hant', 'zh'), ('nb', 'no'), ('iw', 'he'), ('ZH_cn', 'zh'), ('kk-cyrl', 'kk')])
def test_variants_of_region_and_script_belong_to_their_language(code, language):
    assert language_of(code) == (language, '')


@pytest.mark.parametrize(('code', 'why'), [
    ('de-formal', 'formal variant'), ('nl-informal', 'formal variant'), ('xx', 'unknown language'),
    ('be-tarask', 'unknown language'), ('en-gb', 'English as a foreign language')])
def test_other_variants_are_dropped_with_a_reason(code, why):
    assert language_of(code) == (None, why)


def test_there_are_102_listed_languages():
    assert len(LISTED) == 102 and 'en' not in LISTED and set(LISTED) < set(KNOWN)


def test_codes_are_checked_and_an_unknown_one_names_the_nearest():
    assert checked(['pt-br', 'de', 'pt']) == ('pt', 'de')
    with pytest.raises(ValueError, match=r"language 'dee' is not known; the nearest are .*de "
                                         r"\(German\).*Use one of them."):
        checked(['dee'])


# Cleaning.

@pytest.mark.parametrize(('pair', 'reason'), [
    (('de', 'Hallo {{name}}', 'Hello'), 'markup'), (('de', 'Hallo', 'Hello $1'), 'markup'),
    (('de', 'Hallo', '100%s'), 'markup'), (('de', 'Siehe [[Hier]]', 'See'), 'markup'),
    (('de', '<b>Ja</b>', 'Yes'), 'markup'), (('de', 'Hallo', 'See https://a.b'), 'markup'),
    (('de', 'Ja', "''Yes''"), 'markup'), (('de', '&Datei', '&File'), 'markup'),
    (('de', '_Datei', '_File'), 'markup'), (('de', 'Hallo {name}', 'Hello'), 'markup'),
    (('de', '...', 'and so on'), 'no letters'), (('de', '', 'Hello'), 'empty'),
    (('de', 'Ja', '\u200e'), 'empty'), (('de', 'Wiki', 'WIKI'), 'not translated'),
    (('de', 'a ' * 61, 'A'), 'overlong'), (('zh', '字' * 401, 'A'), 'overlong'),
    (('de-formal', 'Ihre', 'Your'), 'formal variant'), (('xx', 'a', 'b'), 'unknown language')])
def test_what_is_dropped_is_counted_with_its_reason_and_place(pair, reason):
    kept, report = cleaned(pair)
    assert kept == []
    assert report.counts == {('test', FOUND): 1, ('test', reason): 1}
    assert report.places == {('test', reason): ['a:1']}


def test_what_is_kept_is_in_one_form():
    kept, report = cleaned(('sr-el', ' Zdravo  \u200esvete\n', 'Hello   world'),
                           ('fa', 'می\u200cخواهم', 'I want'), ('de', 'R & D', 'AT & T'))
    assert kept == [('sr', 'Zdravo svete', 'Hello world'), ('fa', 'می\u200cخواهم', 'I want'),
                    ('de', 'R & D', 'AT & T')]
    assert report.total(KEPT) == 3
    assert normalized('e\u0301') == '\u00e9'


def test_pairs_that_come_again_are_dropped_in_all_sources():
    kept, report = cleaned(('pt', 'Olá', 'Hello'), ('pt-br', 'Olá ', 'Hello'),
                           ('pt', 'Oi', 'Hello'), ('es', 'Olá', 'Hello'))
    assert kept == [('pt', 'Olá', 'Hello'), ('pt', 'Oi', 'Hello'), ('es', 'Olá', 'Hello')]
    assert report.total('repeated') == 1


def test_languages_and_limits_are_asked_for():
    kept, report = cleaned(('de', 'a b c', 'x y z'), ('fr', 'b', 'b c'), ('de', 'b', 'c'),
                           languages=('de',), min_words=2, max_words=2)
    assert kept == []
    assert {reason: n for (_, reason), n in report.counts.items()} == {
        FOUND: 3, 'overlong': 1, 'language not asked for': 1, 'too short': 1}
    with pytest.raises(ValueError, match='min_words=3, max_words=2, .* leave nothing; use 1 <= '
                                         'min_words <= max_words'):
        Cleaner(min_words=3, max_words=2)


def test_the_report_is_a_table():
    _, report = cleaned(('de', 'Ja', 'Yes'), ('de', 'Ja', 'Yes'), ('de', '$1', 'a'),
                        ('de', '$2', 'a'))
    rows = [line.split() for line in report.text().splitlines() if not line.strip().startswith('─')]
    assert rows == [['source', 'pairs', 'number', 'share', 'the', 'first'],
                    ['test', 'found', '4', '100.0%'], ['dropped:', 'repeated', '1', '25.0%', 'a:2'],
                    ['dropped:', 'markup', '2', '50.0%', 'a:3,', 'a:4'], ['kept', '1', '25.0%']]


# The split.

@pytest.mark.parametrize('same', [
    ('Delete page', 'delete pages', 'DELETE PAGE!', 'Delete page $1', 'Delete page %s',
     'Delete {{PLURAL:$1|x}} page(s)', 'Delete 2 pages'),
    ('A category', 'a categories'), ('class', 'classes'), ('use', 'uses'),
    ('the user’s talk', "the user's talk", 'the users talk'), ('Café', 'cafe')])
def test_english_that_differs_in_form_is_folded_to_one(same):
    assert len({folded(english) for english in same}) == 1


def test_english_that_differs_in_words_is_not():
    assert len({folded(english) for english in (
        'delete page', 'move page', 'page', 'delete', 'delete this page', 'this')}) == 6


def test_the_split_never_changes():
    """Models were tested on these sentences: no new version may move one to training."""
    assert [i for i in range(60) if is_test(f'sentence {"x" * i}', 0.09)] == [
        8, 27, 32, 35, 36, 42, 47, 51]


def test_a_larger_test_holds_a_smaller_one():
    words = [f'{a}{b}{c}' for a in 'abcdefghij' for b in 'klmnopqrst' for c in 'uvwxyzabcd']
    small, large = ({word for word in words if is_test(word, share)} for share in (0.09, 0.2))
    assert small < large
    assert 0.08 <= len(small) / len(words) <= 0.10
