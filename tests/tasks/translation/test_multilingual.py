"""Sources, prompts and texts of the tokenizers of NLLB-200 and M2M-100 name their languages."""
from __future__ import annotations

import pathlib
from typing import Any

import pytest

from lingpipe.tasks.translation.decode_params import DecodeParams
from lingpipe.tasks.translation.tokenizer import TranslationTokenizer
from tests.support import tiny_m2m_100, tiny_tokenizers

END, DEU, ENG, FRA = 2, 17, 18, 19
AB_C = [14, 15]   # ' ab c'


def tokenizer(folder: pathlib.Path, **entries: Any) -> TranslationTokenizer:
    return TranslationTokenizer(tiny_tokenizers.write(folder, 'nllb', **entries))


def test_sources_begin_with_their_language_and_end(tmp_path: pathlib.Path) -> None:
    """Whatever tokenizer.json itself puts around a text. A line may name another language."""
    lines = ['ab c', '<fra_Latn>  ab c', '', '  ', '<b> c', 'ab eng_Latn']
    sources = tokenizer(tmp_path).sources(lines, DecodeParams(language='deu_Latn'), None)
    assert sources == [[DEU, *AB_C, END], [FRA, *AB_C, END], [], [], [DEU, 4, 3, 6, 3, 15, END],
                       [DEU, 14, 4, ENG, END]]


def test_legacy_sources_end_with_their_language(tmp_path: pathlib.Path) -> None:
    sources = tokenizer(tmp_path, legacy_behaviour=True).sources(
        ['ab c'], DecodeParams(language='deu_Latn'), None)
    assert sources == [[*AB_C, END, DEU]]


def test_a_long_source_keeps_its_language_and_end(tmp_path: pathlib.Path, caplog: Any) -> None:
    sources = tokenizer(tmp_path).sources(
        ['c', 'ab c d'], DecodeParams(language='eng_Latn', max_source_length=4), None)
    assert sources == [[ENG, 15, END], [ENG, *AB_C, END]]
    assert caplog.messages == ['task.decode.max_source_length=4 ids has cut 1 source that is '
                               'longer: line 2']


def test_a_translation_begins_with_the_end_and_its_language(tmp_path: pathlib.Path) -> None:
    vocabulary = tokenizer(tmp_path)
    assert vocabulary.prompt(DecodeParams(target_language='fra_Latn')) == [END, FRA]
    assert vocabulary.decode([[FRA, *AB_C, END, 6, 7], [FRA, 3, 23, END, END]]) == ['ab c', '']


@pytest.mark.parametrize('fields, words', [
    ({'language': 'fra_latn'}, "task.decode.language='fra_latn' is no language of the tokenizer; "
                               "did you mean 'fra_Latn'?"),
    ({}, 'task.decode.language is empty, and no language is named in lines 1, 3; set it, as de')])
def test_a_source_without_a_language_is_refused(
        fields: dict[str, Any], words: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError) as error:
        tokenizer(tmp_path).sources(['a', '<deu_Latn> a', 'a', ''], DecodeParams(**fields), None)
    assert words in str(error.value)


@pytest.mark.parametrize('code, words', [
    ('', 'task.decode.target_language is empty, and the model translates into many languages; se'),
    ('fr', "task.decode.target_language='fr' is no language of the tokenizer; it has deu_Latn, ")])
def test_a_translation_without_a_language_is_refused(
        code: str, words: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError) as error:
        tokenizer(tmp_path).prompt(DecodeParams(target_language=code))
    assert words in str(error.value)


def test_a_vocabulary_that_is_not_that_of_the_network_is_refused(tmp_path: pathlib.Path) -> None:
    own = tokenizer(tmp_path / 'own')
    own.check_fits(tiny_m2m_100.network())
    with pytest.raises(ValueError, match='has 20 ids, but task.model.vocab_size=19; set task.voc'):
        own.check_fits(tiny_m2m_100.network(vocab_size=19))
    with pytest.raises(ValueError, match='pads with the id 1, but task.model.padding_id=0; set'):
        own.check_fits(tiny_m2m_100.network(padding_id=0))
