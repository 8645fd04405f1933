"""A vocabulary of a corpus, as a translator asks for it."""
from __future__ import annotations

import pytest

from lingpipe.tasks.translation.corpus.vocabulary import END, train
from lingpipe.tasks.translation.decode_params import DecodeParams
from lingpipe.tasks.translation.line_vocabulary import TaggedVocabulary


def test_a_vocabulary_of_a_corpus_has_no_target_language() -> None:
    pieces = train(['a b c', 'c a'] * 9, 267, kind='bpe', tags=['de'])
    vocabulary = TaggedVocabulary(pieces)
    assert vocabulary.sources(['a', ''], DecodeParams(language='de'), None) == [
        [pieces.tag('de'), *pieces.encode(['a'])[0], END], []]
    assert vocabulary.prompt(DecodeParams()) == []
    with pytest.raises(ValueError, match=r"task\.decode\.target_language='fra_Latn', but a model "
                                         'with this vocabulary translates into the one language'):
        vocabulary.prompt(DecodeParams(target_language='fra_Latn'))
