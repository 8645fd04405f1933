"""TranslationTokenizer: the tokenizer of a translation model of Hugging Face.

    NLLB-200    tokenizer.json            ids of texts, and the special tokens, which languages are
    M2M-100     vocab.json                ids of pieces; those of languages come behind them
                sentencepiece.bpe.model   pieces of texts
    both        tokenizer_config.json     eos_token, pad_token, legacy_behaviour

The first is read by the package `tokenizers`, as for a language model, and special tokens that a
text spells are read as such. The second is read by sentencepiece, and what a text spells is text.
"""
from __future__ import annotations

import os
from collections.abc import Sequence

from lingpipe.checkpoint.hugging_face import read_json
from lingpipe.tasks.text.tokenizer import Tokenizer, config_beside, token_beside
from lingpipe.tasks.translation.corpus.vocabulary import sentencepiece_module
from lingpipe.tasks.translation.multilingual import Multilingual

_VOCAB, _PIECES = 'vocab.json', 'sentencepiece.bpe.model'
# In the order of their ids, which no file says; `language_codes` names the list.
_CODES = {
    'm2m100': 'af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga '
              'gd gl gu ha he hi hr ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt '
              'lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps pt ro ru sd si sk sl so sq sr '
              'ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu',
    'wmt21': 'en ha is ja cs ru zh de'}


def open_tokenizer(path: str) -> Multilingual:
    """Opens a tokenizer.json, or vocab.json with the model of sentencepiece beside it.

    Raises:
      ValueError: what reads it or a file is missing, or a file is damaged.
    """
    is_m2m_100 = os.path.basename(path) == _VOCAB
    return M2M100Tokenizer(path) if is_m2m_100 else TranslationTokenizer(path)


class TranslationTokenizer(Multilingual, Tokenizer):
    """A tokenizer.json with languages."""

    def __init__(self, path: str):
        """
        Args:
          path: the file.

        Raises:
          ValueError: as Tokenizer does, or the files name no languages or no padding.
        """
        Tokenizer.__init__(self, path)
        tokens = self.special_ids()
        self.languages = {token.strip('_'): i for token, i in tokens.items()
                          if not (token.startswith('<') and token.endswith('>'))}
        self.pad = tokens.get(token_beside(path, 'pad_token') or '<pad>', -1)
        if not self.languages or self.pad < 0:
            what = 'tokens of languages' if not self.languages else 'token of padding'
            raise ValueError(f'{path} has no {what} among its special tokens; take the tokenizer '
                             'of a translation model, as that of NLLB-200.')
        self.is_legacy = config_beside(path, 'legacy_behaviour') is True

    def ids_before(self, path: str) -> tuple[int, ...]:
        """Returns no ids: `source` says what is around a text, whatever tokenizer.json puts there.
        """
        return ()

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of texts alone."""
        return Tokenizer.encode(self, texts)

    def texts(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Returns the texts of rows of ids, without special tokens."""
        return Tokenizer.decode(self, rows)


class M2M100Tokenizer(Multilingual):
    """A model of sentencepiece whose pieces have other ids, by vocab.json, and the languages."""
    is_legacy = False

    def __init__(self, path: str):
        """
        Args:
          path: vocab.json.

        Raises:
          ValueError: sentencepiece or a file is missing, a file is damaged, or the list of its
            languages is not known here.
        """
        beside = os.path.join(os.path.dirname(path), _PIECES)
        for file in path, beside:
            if not os.path.exists(file):
                raise ValueError(f'{file} is no file; name the {_VOCAB} of a folder of M2M-100 '
                                 f'with its {_PIECES} beside it.')
        self._id_of = read_json(path)
        names = [token_beside(path, f'{kind}_token') or default for kind, default in
                 [('eos', '</s>'), ('pad', '<pad>'), ('unk', '<unk>'), ('bos', '<s>')]]
        if lost := [name for name in names if type(self._id_of.get(name)) is not int]:
            raise ValueError(f'{path} has no ids of {", ".join(lost)}; copy the folder again.')
        end, self.pad, self._unknown, _ = (self._id_of[name] for name in names)
        self.ends = (end,)
        codes = config_beside(path, 'language_codes') or 'm2m100'
        if codes not in _CODES:
            raise ValueError(f'tokenizer_config.json has language_codes={codes!r}, and the lists '
                             f'of languages that are known are {", ".join(_CODES)}; take another '
                             'model.')
        self.languages = {code: len(self._id_of) + i
                          for i, code in enumerate(_CODES[codes].split())}
        self.size = len(self._id_of) + len(self.languages)
        special = {self._id_of[name] for name in names}
        self._piece_of = {i: piece for piece, i in self._id_of.items() if i not in special}
        self._model = sentencepiece_module().SentencePieceProcessor()
        try:
            self._model.load(beside)
        except RuntimeError as error:
            raise ValueError(f'{beside} is no model of sentencepiece; copy it again.') from error

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of texts alone."""
        return [[self._id_of.get(piece, self._unknown) for piece in pieces]
                for pieces in self._model.encode(list(texts), out_type=str)]

    def texts(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Returns the texts of rows of ids, without special tokens."""
        return [self._model.decode([self._piece_of[i] for i in row if i in self._piece_of])
                for row in rows]
