"""A prepared corpus: a folder that training reads, written once.

    corpus.json                  languages by size, the split, the report of what was dropped
    train.source.txt             one sentence a line, in UTF-8, language by language in the order of
                                 corpus.json
    train.english.txt            their English, line by line
    train.source.starts.npy      the byte where each line begins, int64 [n + 1]
    vocabulary.model             the sentencepiece model, once there is one
    train.source.ids.npy         the ids of all lines, one after the other: uint16, or int32 if the
                                 vocabulary has more than 2^16
    train.source.ids.starts.npy  where each line begins in the ids, int64 [n + 1]

The test split has the same files, called test.*.
"""
from __future__ import annotations

import collections
import functools
import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import numpy as np

from lingpipe.tasks.translation.corpus.languages import KNOWN, checked
from lingpipe.tasks.translation.corpus.pair import Pair
from lingpipe.tasks.translation.corpus.report import Report
from lingpipe.tasks.translation.corpus.split import is_test

VERSION = 1
SPLITS, SIDES = ('train', 'test'), ('source', 'english')
LEVELS: tuple[Literal['high', 'middle', 'low'], ...] = ('high', 'middle', 'low')
VOCABULARY = 'vocabulary.model'
_BUFFER = 1 << 20   # bytes of a language before they go to its file


class Language(NamedTuple):
    """A language of a corpus.

    Attributes:
      code: the code, as in languages.KNOWN.
      name: the name in English.
      train, test: the numbers of pairs.
      level: 'high', 'middle' or 'low': the third of the languages that it belongs to, by the
        number of pairs for training.
    """
    code: str
    name: str
    train: int
    test: int
    level: str


def write(folder: str, pairs: Iterable[Pair], report: Report,
          test_share: float = 0.09) -> PreparedCorpus:
    """Writes clean pairs as a corpus without ids; an earlier corpus is replaced at the end.

    Args:
      folder: is created if it does not exist.
      pairs: the pairs that a Cleaner kept.
      report: the report of the Cleaner, which goes into corpus.json.
      test_share: the part of the folded English sentences that is kept for the test.

    Raises:
      ValueError: the share leaves nothing to train on, or there are no pairs.
    """
    if not 0 <= test_share < 1:
        raise ValueError(f'test_share={test_share} is no part of the sentences that leaves some to '
                         'train on; use 0 to below 1, as 0.09.')

    root = pathlib.Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root) as scratch:
        counts = _scatter(pathlib.Path(scratch), pairs, test_share)
        languages = by_size({code: (counts[code, 'train'], counts[code, 'test'])
                             for code in {code for code, _ in counts}})
        if not any(language.train for language in languages):
            raise ValueError(f'no pair for training is left of {report.total("found"):,} that were '
                             f'found:\n{report.text()}\nName other sources or languages, or weaken '
                             'the filters.')

        # A kill from here on leaves no corpus.
        for old in [*root.glob('corpus.json'), *root.glob(VOCABULARY), *root.glob('*.npy')]:
            old.unlink()

        for split in SPLITS:
            for side in SIDES:
                target = root / f'{split}.{side}.txt'
                with open(target, 'wb') as out:
                    for language in languages:
                        path = pathlib.Path(scratch, f'{language.code}.{split}.{side}')
                        if path.exists():
                            with open(path, 'rb') as part:
                                shutil.copyfileobj(part, out)
                np.save(root / f'{split}.{side}.starts.npy', _line_starts(target))

    described = {'version': VERSION, 'test_share': test_share,
                 'languages': [language._asdict() for language in languages],
                 'report': report.rows()}
    (root / 'corpus.json').write_text(json.dumps(described, indent=1, ensure_ascii=False) + '\n',
                                      encoding='utf-8')
    return PreparedCorpus(folder)


def by_size(sizes: dict[str, tuple[int, int]]) -> tuple[Language, ...]:
    """Returns the languages in thirds, the largest first, from the pairs (train, test) by code."""
    order = sorted(sizes, key=lambda code: (-sizes[code][0], code))
    return tuple(Language(code, KNOWN.get(code, code), *sizes[code], LEVELS[3 * i // len(order)])
                 for i, code in enumerate(order))


class PreparedCorpus:
    """Reads a folder that `write` made. Files are mapped into memory, not loaded.

    Attributes:
      folder: the folder of the corpus.
      languages: its languages, the largest first.
    """

    def __init__(self, folder: str):
        """
        Raises:
          ValueError: the folder holds no corpus, or one of another version.
        """
        self.folder = folder
        path = os.path.join(folder, 'corpus.json')
        if not os.path.exists(path):
            raise ValueError(f'{folder!r} holds no corpus.json; prepare a corpus there: python -m '
                             f'lingpipe.tools.build_corpus --output={folder} ... (it is looked up '
                             f'from {os.getcwd()}).')

        try:
            with open(path, encoding='utf-8') as file:
                self.described: dict[str, Any] = json.load(file)
            version = self.described['version']
            if version == VERSION:
                self.languages = tuple(Language(**language)
                                       for language in self.described['languages'])
        except (LookupError, TypeError, ValueError) as error:
            raise ValueError(f'{path} does not describe a corpus ({type(error).__name__}: '
                             f'{error}); build it again.') from error
        if version != VERSION:
            raise ValueError(f'{folder} holds a corpus of version {version}, and this reads '
                             f'{VERSION}; build it again.')

    @property
    def vocabulary_path(self) -> str:
        """The path of the vocabulary, once there is one."""
        return os.path.join(self.folder, VOCABULARY)

    @functools.cached_property
    def codes(self) -> tuple[str, ...]:
        """The languages' codes: language number i of a batch is codes[i]."""
        return tuple(language.code for language in self.languages)

    def rows(self, split: str) -> np.ndarray:
        """Where each language's pairs begin: int64 [languages + 1]."""
        return np.cumsum([0, *(getattr(language, split) for language in self.languages)])

    def select(self, codes: Iterable[str] = (), level: str = 'all') -> tuple[int, ...]:
        """Returns the numbers of the languages of these codes (no codes: all languages) and level.

        Raises:
          ValueError: the corpus lacks a language, or none is left.
        """
        codes = (checked(codes, self.codes, f'one of the {len(self.codes)} in {self.folder}')
                 or self.codes)
        selected = tuple(i for i, one in enumerate(self.languages) if one.code in codes
                         and level in ('all', one.level))
        if not selected:
            raise ValueError(f'none of the languages {", ".join(codes)} is of level {level!r} in '
                             f'{self.folder}; choose others.')
        return selected

    def texts(self, split: str, side: str, first: int = 0, end: int | None = None) -> list[str]:
        """Returns the sentences of rows first to end of a split; side is 'source' or 'english'.

        Raises:
          ValueError: the file of the sentences is not the one that `write` made.
          OSError: it cannot be read.
        """
        path = os.path.join(self.folder, f'{split}.{side}.txt')
        all_starts = self._starts(split, side)
        num_bytes, num_lines = os.path.getsize(path), int(self.rows(split)[-1])
        if (num_bytes, num_lines) != (all_starts[-1], len(all_starts) - 1):
            raise self._changed(path)
        starts = all_starts[first:None if end is None else end + 1]
        if len(starts) < 2:
            return []
        with open(path, 'rb') as file:
            file.seek(int(starts[0]))
            content = file.read(int(starts[-1] - starts[0]))
        ends = np.flatnonzero(np.frombuffer(content, np.uint8) == ord('\n')) + 1
        if not np.array_equal(ends, starts[1:] - starts[0]):
            raise self._changed(path)
        return content.decode().split('\n')[:-1]

    def _starts(self, split: str, side: str) -> np.ndarray:
        """Where each line begins; see the file's docstring."""
        name = f'{split}.{side}.starts'
        try:
            starts = self._array(name)
        except ValueError as error:   # NumPy's, of a file that is no array.
            raise self._changed(os.path.join(self.folder, f'{name}.npy')) from error
        if starts.ndim != 1 or not len(starts):
            raise self._changed(os.path.join(self.folder, f'{name}.npy'))
        return starts

    def _changed(self, path: str) -> ValueError:
        return ValueError(f'{path} does not fit the other files of the corpus: it has changed '
                          'since lingpipe.tools.build_corpus wrote it; build the corpus again.')

    def pairs(self, split: str, code: str) -> tuple[list[str], list[str]]:
        """Returns the sentences of a language and their English, from which scores are computed."""
        number, = self.select([code])
        first, end = map(int, self.rows(split)[number:number + 2])
        return self.texts(split, 'source', first, end), self.texts(split, 'english', first, end)

    def ids(self, split: str, side: str) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ids of all sentences, and where each sentence begins: int64 [n + 1].

        Raises:
          ValueError: there are no ids yet.
        """
        if not os.path.exists(self.vocabulary_path):
            raise ValueError(f'{self.folder} has no ids of a vocabulary; make them: python -m '
                             f'lingpipe.tools.train_vocabulary --corpus={self.folder} --size=16000 '
                             '(or --vocabulary=FILE of one that is there).')
        return self._array(f'{split}.{side}.ids'), self._array(f'{split}.{side}.ids.starts')

    def forget_ids(self) -> None:
        """Deletes the vocabulary and the ids."""
        for old in [*pathlib.Path(self.folder).glob(VOCABULARY),
                    *pathlib.Path(self.folder).glob('*.ids*.npy')]:
            old.unlink()

    def write_ids(self, split: str, side: str, ids: list[np.ndarray], vocab_size: int) -> None:
        """Writes the ids of all sentences of a split and side, in order."""
        flat = np.concatenate([np.zeros([0], np.int64), *ids])
        self._save(f'{split}.{side}.ids',
                   flat.astype(np.uint16 if vocab_size <= 1 << 16 else np.int32))
        self._save(f'{split}.{side}.ids.starts', np.cumsum([0, *map(len, ids)]))

    def text(self) -> str:
        """Returns a table of the languages, with sums."""
        lines = [f'{"language":24} {"train":>12} {"test":>9}  level']
        lines += [f'{one.code:4} {one.name:19} {one.train:12,} {one.test:9,}  {one.level}'
                  for one in self.languages]
        train, test = (int(self.rows(split)[-1]) for split in SPLITS)
        lines.append(f'{len(self.languages):4} {"languages":19} {train:12,} {test:9,}  '
                     f'{test / max(1, train + test):.1%} test')
        return '\n'.join(lines)

    def _array(self, name: str) -> np.ndarray:
        array: np.ndarray = np.load(os.path.join(self.folder, name + '.npy'), mmap_mode='r')
        return array

    def _save(self, name: str, array: np.ndarray) -> None:
        np.save(os.path.join(self.folder, name + '.npy'), array)


def _scatter(scratch: pathlib.Path, pairs: Iterable[Pair],
             test_share: float) -> collections.Counter[tuple[str, str]]:
    """Writes a file for each language, split and side; returns the pairs by (language, split)."""
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    waiting: dict[str, bytearray] = collections.defaultdict(bytearray)

    def flush(name: str) -> None:
        with open(scratch / name, 'ab') as file:
            file.write(waiting.pop(name))

    for pair in pairs:
        split = 'test' if is_test(pair.english, test_share) else 'train'
        counts[pair.code, split] += 1
        for side, text in (('source', pair.text), ('english', pair.english)):
            name = f'{pair.code}.{split}.{side}'
            waiting[name] += text.encode() + b'\n'
            if len(waiting[name]) > _BUFFER:
                flush(name)
    for name in list(waiting):
        flush(name)
    return counts


def _line_starts(path: pathlib.Path) -> np.ndarray:
    """Returns where each line begins, and the end: int64 [lines + 1]."""
    content = np.memmap(path, np.uint8, 'r') if path.stat().st_size else np.zeros([0], np.uint8)
    return np.concatenate([[0], np.flatnonzero(content == ord('\n')) + 1]).astype(np.int64)
