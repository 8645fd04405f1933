"""Files of the tokenizers of NLLB-200 and M2M-100 are read, and refused where they do not fit."""
from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest
import sentencepiece

from lingpipe.tasks.translation.decode_params import DecodeParams
from lingpipe.tasks.translation.tokenizer import TranslationTokenizer, open_tokenizer
from tests.support import tiny_tokenizers

END, DEU = 2, 17


def test_codes_between_underscores_are_languages_too(tmp_path: pathlib.Path) -> None:
    tiny_tokenizers.write(tmp_path, 'nllb')
    path = tmp_path / 'tokenizer.json'
    path.write_text(path.read_text().replace('deu_Latn', '__de__'))
    assert TranslationTokenizer(str(path)).languages['de'] == DEU


def test_a_tokenizer_without_padding_or_languages_is_refused(tmp_path: pathlib.Path) -> None:
    path = tiny_tokenizers.write(tmp_path, 'nllb', pad_token='<blank>')
    with pytest.raises(ValueError, match='has no token of padding among its special tokens; take'):
        TranslationTokenizer(path)
    described = json.loads(pathlib.Path(path).read_text())
    described['added_tokens'] = described['added_tokens'][:4]
    pathlib.Path(path).write_text(json.dumps(described))
    with pytest.raises(ValueError, match='has no tokens of languages among its special tokens'):
        TranslationTokenizer(path)


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
