"""Tokenizers of NLLB-200 and M2M-100: sources, prompts and texts are those of their languages."""
from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest
import sentencepiece

from lingpipe.tasks.translation.decode_params import DecodeParams
from lingpipe.tasks.translation.tokenizer import TranslationTokenizer, open_tokenizer
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


def test_codes_between_underscores_are_languages_too(tmp_path: pathlib.Path) -> None:
    tiny_tokenizers.write(tmp_path, 'nllb')
    path = tmp_path / 'tokenizer.json'
    path.write_text(path.read_text().replace('deu_Latn', '__de__'))
    assert TranslationTokenizer(str(path)).languages['de'] == DEU


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


def test_a_tokenizer_that_is_none_of_this_network_is_refused(tmp_path: pathlib.Path) -> None:
    own = tokenizer(tmp_path / 'own')
    own.check_fits(tiny_m2m_100.network())
    with pytest.raises(ValueError, match='has 20 ids, but task.model.vocab_size=19; set task.voc'):
        own.check_fits(tiny_m2m_100.network(vocab_size=19))
    with pytest.raises(ValueError, match='pads with the id 1, but task.model.padding_id=0; set'):
        own.check_fits(tiny_m2m_100.network(padding_id=0))
    with pytest.raises(ValueError, match='has no token of padding among its special tokens; take'):
        tokenizer(tmp_path / 'other', pad_token='<blank>')
    path = tmp_path / 'own/tokenizer.json'
    described = json.loads(path.read_text())
    described['added_tokens'] = described['added_tokens'][:4]
    path.write_text(json.dumps(described))
    with pytest.raises(ValueError, match='has no tokens of languages among its special tokens'):
        TranslationTokenizer(str(path))


def m2m_100(folder: pathlib.Path, **entries: Any) -> str:
    """Writes the files of a tokenizer of M2M-100, whose ids are not those of sentencepiece."""
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(['ab ab c d', 'abc d', 'c ab d']), vocab_size=12, model_type='bpe',
        model_prefix=str(folder / 'sentencepiece.bpe'), minloglevel=2)
    model = sentencepiece.SentencePieceProcessor(str(folder / 'sentencepiece.bpe.model'))
    pieces = [model.id_to_piece(i) for i in range(3, 12)]
    vocabulary = ['<s>', '<pad>', '</s>', '<unk>', *reversed(pieces)]
    path = folder / 'vocab.json'
    path.write_text(json.dumps({piece: i for i, piece in enumerate(vocabulary)}))
    (folder / 'tokenizer_config.json').write_text(json.dumps(entries))
    return str(path)


def test_m2m_100_has_pieces_by_vocab_json_and_its_languages_behind_them(
        tmp_path: pathlib.Path) -> None:
    path = m2m_100(tmp_path)
    vocabulary, id_of = open_tokenizer(path), json.loads(pathlib.Path(path).read_text())
    assert len(vocabulary.languages) == 100 and vocabulary.size == len(id_of) + 100
    first, last = vocabulary.languages['af'], vocabulary.languages['zu']
    assert (first, last) == (len(id_of), len(id_of) + 99)
    source, unknown = vocabulary.sources(['c ab d', '<zu> x'], DecodeParams(language='af'), None)
    assert source == [first, id_of['▁c'], id_of['▁ab'], id_of['▁d'], END]
    assert unknown == [last, id_of['▁'], 3, END]
    assert vocabulary.prompt(DecodeParams(target_language='zu')) == [END, last]
    assert vocabulary.decode([[last, *source[1:], 4], [last, 3, 500, END]]) == ['c ab d', '']
    assert vocabulary.pad == 1


def test_files_of_m2m_100_that_do_not_fit_are_refused(tmp_path: pathlib.Path) -> None:
    path = m2m_100(tmp_path, language_codes='other')
    with pytest.raises(ValueError, match="language_codes='other', and the lists of languages that "
                                         'are known are m2m100, wmt21; take another'):
        open_tokenizer(path)
    path = m2m_100(tmp_path, pad_token='<blank>')
    with pytest.raises(ValueError, match=r'vocab\.json has no ids of <blank>; copy the folder'):
        open_tokenizer(path)
    (tmp_path / 'sentencepiece.bpe.model').unlink()
    with pytest.raises(ValueError, match=r'sentencepiece\.bpe\.model is no file; name the vocab'):
        open_tokenizer(path)
