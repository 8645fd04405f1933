"""A small corpus for tests: invented words in four invented translations.

It is prepared once for each test module.
"""
from __future__ import annotations

import pathlib

from lingpipe.tasks.translation.corpus.pair import Pair, Place
from lingpipe.tasks.translation.corpus.prepared import PreparedCorpus, write
from lingpipe.tasks.translation.corpus.report import Report
from lingpipe.tasks.translation.corpus.vocabulary import encode_corpus, sample, train

VERBS = 'open close move delete find read write print send save'.split()
NOUNS = 'file page user image table link list word line group'.split()
# How many of the 400 sentences each language has. Its words are changed English words, so that a
# vocabulary has something to learn.
SIZES = {'de': 400, 'cy': 200, 'zu': 100, 'fr': 40}


def english_sentences() -> list[str]:
    """Returns 400 sentences, some of them long.

    Every fourth one is another sentence with a changed case, plural or digit.
    """
    found = []
    for i, (verb, noun) in enumerate((verb, noun) for verb in VERBS for noun in NOUNS):
        tail = ' and then the next one of them' * (i % 7 == 0)
        found += [f'{verb} the {noun}{tail}', f'{verb.capitalize()} the {noun}s{tail}',
                  f'{verb} my {noun}', f'{verb} {i} {noun}s']
    return found


def pairs() -> list[Pair]:
    """All pairs, which are clean already."""
    sentences = english_sentences()
    return [Pair(code, ' '.join(word[::-1] + code for word in english.split()), english,
                 Place('made'))
            for code, number in SIZES.items() for english in sentences[:number]]


def prepared(folder: pathlib.Path, tags: bool = False) -> PreparedCorpus:
    """The corpus, prepared with a vocabulary of 500 ids."""
    corpus = write(str(folder), pairs(), Report())
    vocabulary = train(sample(corpus, 400, 5., 0.3), 500, 'bpe', 1., corpus.codes if tags else ())
    encode_corpus(corpus, vocabulary)
    return corpus
