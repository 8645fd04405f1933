"""Scores are sacreBLEU's own over pools of all sentences; the dictionary knows frequent words."""
from __future__ import annotations

import pytest

from lingpipe.tasks.translation.dictionary import Dictionary
from lingpipe.tasks.translation.scores import Translated, scored

REFERENCES = ['the cat sat on the mat today', 'write the name of the page']


def language(code, level, train, lines, references=REFERENCES):
    return Translated(code, level, train, {'model': lines}, references)


def test_scores_are_sacrebleus():
    import sacrebleu
    lines = ['the cat sat on a mat today', 'write a name of the page']
    found = scored([language('cy', 'low', 10, lines), language('de', 'high', 20, REFERENCES),
                    language('fr', 'high', 30, lines)])
    expected = {'bleu': sacrebleu.corpus_bleu(lines, [REFERENCES]).score,
                'chrf': sacrebleu.corpus_chrf(lines, [REFERENCES]).score}
    assert [(row['name'], row['train']) for row in found['languages']] == [
        ('fr', 30), ('de', 20), ('cy', 10)]
    assert (found['languages'][0]['model'] == found['languages'][2]['model']
            == pytest.approx(expected))
    assert found['languages'][1]['model'] == pytest.approx({'bleu': 100., 'chrf': 100.})

    pools = {row['name']: row for row in found['pools']}
    assert list(pools) == ['high', 'low', 'all']
    assert (pools['high']['sentences'], pools['high']['train'], pools['all']['sentences']) == (
        4, 50, 6)
    assert pools['high']['model']['bleu'] == pytest.approx(
        sacrebleu.corpus_bleu([*lines, *REFERENCES], [REFERENCES * 2]).score)
    assert found['signatures']['bleu'].startswith(
        'nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:')
    assert found['signatures']['chrf'].startswith(
        'nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:')


def test_mistakes_are_one_sentence():
    with pytest.raises(ValueError, match=r'de: model has 1 line, but there are 2 references; line '
                                         r'n of one must be that of the other'):
        language('de', 'high', 20, ['the cat'])
    with pytest.raises(ValueError, match=r'de: there are no references'):
        language('de', 'high', 20, [], [])
    with pytest.raises(ValueError, match=r'de: no line of the references has a word; give the '):
        language('de', 'high', 20, ['a', 'b'], ['', ' '])
    with pytest.raises(ValueError, match=r'languages have different systems'):
        scored([language('de', '', 0, REFERENCES),
                Translated('cy', '', 0, {'copy': REFERENCES}, REFERENCES)])


def test_dictionary_translates_by_dice_and_keeps_the_rest():
    texts = ['die Katze schläft', 'die Katze frisst', 'der Hund schläft', 'der Hund frisst',
             'ein Vogel']
    english = ['the cat sleeps', 'the cat eats', 'that dog sleeps', 'that dog eats', 'one bird']
    dictionary = Dictionary(texts, english)
    # 'katze' always comes with 'cat' and 'the'; among equals, the first by name is taken. 'vogel'
    # came once, which is no evidence.
    assert (dictionary.words['katze'] == 'cat' and dictionary.words['hund'] == 'dog'
            and dictionary.words['schläft'] == 'sleeps')
    assert 'vogel' not in dictionary.words
    assert dictionary.translate(['Hund: Katze (schläft), Vogel 7!', '']) == [
        'Dog: Cat (sleeps), Vogel 7!', '']
