"""Split: chooses the pairs for the test by a hash of their English.

The obvious way, a random part of the pairs, puts every test sentence into training, because each
language translates the same English. A hash of the English keeps a sentence on one side for all
languages and sources, but 'Delete page', 'delete pages' and 'Delete page $1' may still be on
different sides. So the hash is taken of the folded English, which leaves out everything in which
such sentences differ.
"""
from __future__ import annotations

import hashlib
import re
import unicodedata

PLACEHOLDER = re.compile(r'\{\{.*?\}\}|\$\w+|%\(\w*\)[a-z]|%\d*\$?[a-z]\b|\{\w*\}|<[^>]*>|&\w+;')
PLURAL_IN_BRACKETS = re.compile(r'\(e?s\)', re.IGNORECASE)
NOT_LETTERS = re.compile(r'[\W\d_]+')


def folded(english: str) -> str:
    """Returns the English without what similar sentences differ in: 'Pages (%d) of 2' -> 'pag of'.

    That is case, accents, placeholders, digits, punctuation and the endings of plurals. Folding
    may be coarse: it only keeps sentences on one side of the split, and nobody sees the result.
    """
    text = PLACEHOLDER.sub(' ', english)
    text = PLURAL_IN_BRACKETS.sub('', text)
    text = ''.join(c for c in unicodedata.normalize('NFKD', text.casefold())
                   if not unicodedata.combining(c))
    words = NOT_LETTERS.sub(' ', re.sub("['\u2019]", ' ', text)).split()
    return ' '.join(_singular(word) for word in words if word != 's')


def is_test(english: str, test_share: float) -> bool:
    """Returns whether a pair with this English is for the test.

    It depends on the folded English and the share alone. A larger share takes the sentences of a
    smaller one, and more.
    """
    digest = hashlib.blake2b(folded(english).encode(), digest_size=8, person=b'split').digest()
    return int.from_bytes(digest, 'big') < test_share * 2 ** 64


def _singular(word: str) -> str:
    """Returns one form for a word and its plural.

    'category', 'categories' -> 'categori'; 'class', 'classes' -> 'class'; 'use', 'uses' -> 'us'.
    """
    if len(word) > 3 and word.endswith('s') and not word.endswith('ss'):
        word = word[:-1]
    if len(word) > 2 and word.endswith('e'):
        word = word[:-1]
    return word[:-1] + 'i' if word.endswith('y') else word
