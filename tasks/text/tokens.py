"""Tokens: a corpus as two long files of ids, made once and mapped into memory.

    DIRECTORY/train.bin, test.bin    start, a document's ids, end; start, the next one's, ...;
                                     a tokenizer of Hugging Face may have no start
    DIRECTORY/vocabulary.model       of sentencepiece; or tokenizer.json
    DIRECTORY/facts.json             what they were made of, with checksums

The directory is written under another name and renamed when it is complete, so that there is never
half of it. A document belongs to the test part by its checksum, however the files are ordered and
split, and one that comes twice is not in both parts.
"""
from __future__ import annotations

import dataclasses
import functools
import json
import os
import shutil
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
from absl import logging

from lingpipe.tasks.text.documents import Format, documents, source_paths
from lingpipe.tasks.text.vocabulary import (
    Pieces,
    Vocabulary,
    check_is_file,
    open_vocabulary,
    train_vocabulary,
)
from lingpipe.tasks.translation.corpus.vocabulary import warn_of_unknown
from lingpipe.tasks.translation.vocabulary_facts import sha256_of
from lingpipe.wording.counts import counted

Split = Literal['train', 'test']
SPLITS: tuple[Split, ...] = ('train', 'test')

_SAMPLE_BYTES = 10_000_000   # of lines that a vocabulary is trained on
_CHUNK = 1000   # documents that are encoded at a time


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How tokens are made: the fields of TextInput.Params that say so."""
    files: Sequence[str]
    format: Format
    key: str
    vocabulary: str
    vocab_size: int
    test_share: float

    def settings(self) -> dict[str, Any]:
        """What two directories must have alike, besides their sources."""
        return {'format': self.format, 'key': self.key, 'test_share': self.test_share,
                'vocab_size': self.vocab_size,
                'given_vocabulary': sha256_of(self.vocabulary) if self.vocabulary else ''}


class Tokens:
    """The tokens in a directory."""

    def __init__(self, directory: str):
        """Raises ValueError if there are none."""
        self.directory = directory
        path = os.path.join(directory, 'facts.json')
        if not os.path.exists(path):
            raise ValueError(f'{directory} has no tokens (facts.json); name the sources, as '
                             '--set "train_input.files=[\'/data/*.txt\']", and they are made.')
        with open(path, encoding='utf-8') as file:
            self.facts: dict[str, Any] = json.load(file)

    @property
    def vocabulary_path(self) -> str:
        """The file of the vocabulary."""
        return os.path.join(self.directory, self.facts.get('vocabulary_file', Pieces.file_name))

    @functools.cached_property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary."""
        return open_vocabulary(self.vocabulary_path, self.vocabulary_facts)

    @property
    def vocabulary_facts(self) -> dict[str, Any]:
        """What a run records of its vocabulary: the file, its checksum, and what opens it."""
        return {'vocabulary': os.path.abspath(self.vocabulary_path),
                'sha256': self.facts['vocabulary_sha256'],
                **{name: self.facts[name] for name in ('ends', 'chat_template')
                   if name in self.facts}}

    def bytes_of_ids(self, split: Split) -> np.ndarray:
        """The bytes of text that each id of a part stands for, float32 [V].

        A vocabulary that folds characters spells fewer bytes than the text of the part has; the
        rest is shared among all ids in proportion.
        """
        # Earlier versions wrote one number for both parts.
        ratio = self.facts[split].get('bytes_per_spelt_byte',
                                      self.facts.get('bytes_per_spelt_byte'))
        return (self.vocabulary.bytes_of_ids() * ratio).astype(np.float32)

    def ids(self, split: Split) -> np.ndarray:
        """The ids of a part, mapped into memory."""
        dtype = np.dtype(self.facts['dtype'])
        path = os.path.join(self.directory, f'{split}.bin')
        if not self.facts[split]['tokens']:
            raise ValueError(f'the {split} part of {self.directory} has no document; change '
                             'test_share, or add documents.')
        return np.memmap(path, dtype, 'r')

    def check(self, recipe: Recipe) -> None:
        """Checks that the tokens are those of a recipe.

        Raises:
          ValueError: they are not.
        """
        now, then = recipe.settings(), self.facts['settings']
        changed = [name for name, value in now.items() if then[name] != value]
        paths = source_paths(recipe.files)
        known = self.facts['sources']
        if set(paths) != set(known):
            changed.append('files')
        else:
            changed += [path for path in paths if not _is_as_before(path, known[path])]
        if changed:
            raise ValueError(f'the tokens in {self.directory} were made of something else: '
                             f'{", ".join(changed[:5])} changed; set directory= to a new place, '
                             'or delete that one to make it again.')


def tokens_of(directory: str, recipe: Recipe) -> Tokens:
    """The tokens of a recipe, which are made if the directory does not exist.

    Without files, the tokens that are there are taken as they are.

    Raises:
      ValueError: they were made by another recipe, or cannot be made.
    """
    if not recipe.files:
        return Tokens(directory)
    if recipe.vocabulary:
        check_is_file(recipe.vocabulary)
    # With a slash at its end, the temporary directory beside it would be in it.
    directory = directory.rstrip(os.sep) or directory
    if not os.path.exists(os.path.join(directory, 'facts.json')):
        _check_is_free(directory)
        _make(directory, recipe)
    tokens = Tokens(directory)
    tokens.check(recipe)
    return tokens


def _check_is_free(directory: str) -> None:
    """Raises ValueError unless there is no such directory, or an empty one that can be replaced."""
    if os.path.realpath(directory) == os.getcwd():
        raise ValueError('directory= of the input names the current folder, which tokens cannot '
                         'replace; name a new folder in it.')
    is_empty = os.path.isdir(directory) and not os.listdir(directory)
    if os.path.exists(directory) and not is_empty:
        raise ValueError(f'{directory} is there and has no tokens (facts.json), and these are made '
                         'in a folder of their own; set directory= of the input to a new place.')


def _make(directory: str, recipe: Recipe) -> None:
    """Makes the directory as a whole; if another process is first, takes that one."""
    temporary = f'{directory}.making-{os.getpid()}'
    shutil.rmtree(temporary, ignore_errors=True)
    os.makedirs(temporary)
    try:
        _write(temporary, recipe)
        try:
            os.rename(temporary, directory)
        except OSError:
            if not os.path.exists(os.path.join(directory, 'facts.json')):
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _write(directory: str, recipe: Recipe) -> None:
    """Writes the files of a directory."""
    paths = source_paths(recipe.files)
    vocabulary = _vocabulary(recipe, paths)
    dtype = np.dtype(np.uint16 if vocabulary.size <= 1 << 16 else np.int32)
    sizes = vocabulary.bytes_of_ids()
    before, end = vocabulary.before, vocabulary.ends[0]
    counts: dict[str, dict[str, float]] = {
        split: {'documents': 0, 'tokens': 0, 'bytes': 0} for split in SPLITS}
    for split in SPLITS:
        num_spelt = num_unknown = 0
        with open(os.path.join(directory, f'{split}.bin'), 'wb') as file:
            for texts in _chunks(_documents(paths, recipe, split)):
                rows = vocabulary.encode(texts)
                flat = np.concatenate([np.array([*before, *row, end]) for row in rows])
                file.write(flat.astype(dtype).tobytes())
                num_spelt += int(sizes[flat].sum())
                num_unknown += int(np.count_nonzero(flat == vocabulary.unknown))
                counts[split]['documents'] += len(texts)
                counts[split]['tokens'] += len(flat)
                counts[split]['bytes'] += sum(len(text.encode()) for text in texts)
        warn_of_unknown(f'the {split} part', num_unknown, int(counts[split]['tokens']))
        counts[split]['bytes_per_spelt_byte'] = counts[split]['bytes'] / max(1, num_spelt)

    if not any(of_split['bytes'] for of_split in counts.values()):
        raise ValueError(f'{", ".join(recipe.files)} hold no text; name files that do.')
    vocabulary_path = os.path.join(directory, vocabulary.file_name)
    vocabulary.save(vocabulary_path)
    facts = {**counts, 'dtype': dtype.name, 'settings': recipe.settings(),
             'sources': {path: _facts_of(path) for path in paths},
             'vocabulary_sha256': sha256_of(vocabulary_path), **vocabulary.facts}
    with open(os.path.join(directory, 'facts.json'), 'w', encoding='utf-8') as out:
        json.dump(facts, out, indent=1)
    logging.info('made tokens of %s: %s', counted(len(paths), 'file'), ', '.join(
        f'{split} {counted(int(of["documents"]), "document")}, '
        f'{counted(int(of["tokens"]), "token")}, {of["bytes"]:,} bytes'
        for split, of in counts.items()))


def _vocabulary(recipe: Recipe, paths: Sequence[str]) -> Vocabulary:
    """The vocabulary of the recipe, or one trained on lines of the documents for training.

    Raises:
      ValueError: it has another size.
    """
    if not recipe.vocabulary:
        every = max(1, sum(os.path.getsize(path) for path in paths) // _SAMPLE_BYTES)
        lines = (line for text in _documents(paths, recipe, 'train')
                 for line in text.splitlines(keepends=True)
                 if every == 1 or zlib.crc32(line.encode()) % every == 0)
        return train_vocabulary(lines, recipe.vocab_size)
    vocabulary = open_vocabulary(recipe.vocabulary, {})
    if not vocabulary.fits(recipe.vocab_size):
        raise ValueError(f'{recipe.vocabulary} has {vocabulary.size:,} ids, but '
                         f'vocab_size={recipe.vocab_size:,}; set vocab_size={vocabulary.size}.')
    return vocabulary


def _documents(paths: Sequence[str], recipe: Recipe, split: Split) -> Iterator[str]:
    """Yields the documents of a part, in order."""
    for path in paths:
        for text in documents(path, recipe.format, recipe.key):
            is_test = zlib.crc32(text.encode()) < recipe.test_share * (1 << 32)
            if is_test == (split == 'test'):
                yield text


def _chunks(texts: Iterator[str]) -> Iterator[list[str]]:
    chunk: list[str] = []
    for text in texts:
        chunk.append(text)
        if len(chunk) == _CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _facts_of(path: str) -> dict[str, Any]:
    status = os.stat(path)
    return {'size': status.st_size, 'mtime_ns': status.st_mtime_ns, 'sha256': sha256_of(path)}


def _is_as_before(path: str, before: dict[str, Any]) -> bool:
    """Whether a file has the content that it had; it is read only if its time has changed."""
    status = os.stat(path)
    if status.st_size != before['size']:
        return False
    return bool(status.st_mtime_ns == before['mtime_ns'] or sha256_of(path) == before['sha256'])
