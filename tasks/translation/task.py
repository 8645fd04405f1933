"""Translation: the Task of a Transformer, with its vocabulary, and translating lines of text.

    n sentences of a group, S ids of the longest source
"""
from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import logging
from rich.console import Console
from rich.progress import Progress

from lingpipe.hyperparams import field
from lingpipe.input import Input
from lingpipe.pipeline.decoder import Decoder, Group
from lingpipe.pipeline.search import SearchParams
from lingpipe.task import Task
from tasks.translation.corpus.vocabulary import END, PAD, START, Vocabulary

if TYPE_CHECKING:
    from lingpipe.pipeline.program import Program

_TAG = re.compile(r'<([a-z-]+)>\s*')


class DecodeParams(SearchParams):
    """How lines are translated."""
    extra_length: int = field(50, 'A translation has at most so many ids more than its source, and no more than max_length.')
    max_source_length: int = field(256, 'Longer sources, in ids, their end included, are cut.')
    group_size: int = field(16, 'Sentences of a group; there are two groups a cell.')
    language: str = field('', 'The language whose tag goes before lines that have none (<de> Guten Tag); empty: no tag.')

    def check(self) -> None:
        """Raises ValueError for a number that is too small."""
        super().check()
        for name, least in (('extra_length', 0), ('max_source_length', 2), ('group_size', 1)):
            if getattr(self, name) < least:
                raise ValueError(f'{name}={getattr(self, name)}; use {least} or more.')


class Translation(Task):
    """A translator."""

    class Params(Task.Params):
        """Network, learner, and how lines are translated."""
        vocabulary: str = field('', 'The file of the vocabulary that lines are translated with; empty: that of the training.')
        decode: DecodeParams = field(DecodeParams(), 'How lines are translated.')

    params: Params

    def facts(self, source: Input) -> dict[str, Any]:
        """The vocabulary's file and the hash of its content, if the input has one."""
        path = getattr(getattr(source, 'corpus', None), 'vocabulary_path', '')
        return {'vocabulary': os.path.abspath(path), 'sha256': _sha256(path)} if os.path.exists(path) else {}

    def check_facts(self, facts: Mapping[str, Any], source: Input) -> None:
        """Raises ValueError if the input's vocabulary is another than that of the weights."""
        now = self.facts(source)
        if facts and now and now['sha256'] != facts['sha256']:
            raise ValueError(f'{now["vocabulary"]} is not the vocabulary that the weights were trained with, {facts["vocabulary"]}: its '
                             f'SHA-256 is {now["sha256"][:12]}..., and that of theirs {facts["sha256"][:12]}...; put theirs back, '
                             'or choose another logdir.')

    def decode(self, program: Program, lines: Sequence[str], facts: Mapping[str, Any]) -> list[str]:
        """Translations of lines, in their order; an empty line stays empty.

        Args:
          program: with the weights.
          lines: a sentence each; it may begin with its language's tag, if the vocabulary has it: '<de> Guten Tag'.
          facts: of the training that the weights come from, as `facts` gave them.

        Raises:
          ValueError: the vocabulary is not that of the training, or is not there.
        """
        p = self.params.decode
        vocabulary = self._vocabulary(facts)
        sources = self._encoded(vocabulary, lines)
        found = [''] * len(lines)
        order = sorted((i for i, ids in enumerate(sources) if ids), key=lambda i: -len(sources[i]))   # the largest first: if any, it fails
        num_cells = len(program.plan.cells)
        num_groups = 1 if num_cells == 1 else 2 * num_cells
        decoder = Decoder(program, p, START, END)
        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task('sentences', total=len(order))
            for some in _calls(order, num_groups * p.group_size):
                groups = [some[g * len(some) // num_groups:(g + 1) * len(some) // num_groups] for g in range(num_groups)]
                results = decoder.decode([self._group([sources[i] for i in group]) for group in groups])
                for group, (ids, _) in zip(groups, results, strict=True):
                    for i, text in zip(group, vocabulary.decode(ids[:len(group)]), strict=True):
                        found[i] = ' '.join(text.split())
                bar.advance(task, len(some))
        return found

    def _group(self, sources: list[list[int]]) -> Group:
        """The sentences, or if there are none, one that is over at once."""
        p = self.params.decode
        limits = [min(p.max_length, len(ids) + p.extra_length) for ids in sources] or [0]
        sources = sources or [[END]]
        length = max(map(len, sources))
        return Group({'source': np.array([ids + [PAD] * (length - len(ids)) for ids in sources], np.int32)}, np.array(limits, np.int32))

    def _encoded(self, vocabulary: Vocabulary, lines: Sequence[str]) -> list[list[int]]:
        """The ids of sources, tag and end included; of an empty line none."""
        p, found, num_cut = self.params.decode, [], 0
        tags = [_TAG.match(line) for line in lines]
        texts = [line[tag.end():] if tag else line for line, tag in zip(lines, tags, strict=True)]
        for tag, ids in zip(tags, vocabulary.encode(texts), strict=True):
            code = tag[1] if tag else p.language
            first = [vocabulary.tag(code)] if code else []
            room = p.max_source_length - len(first) - 1
            num_cut += len(ids) > room
            found.append([*first, *ids[:room], END] if ids else [])
        if num_cut:
            logging.warning('%d sources are longer than task.decode.max_source_length=%d ids and were cut', num_cut, p.max_source_length)
        return found

    def _vocabulary(self, facts: Mapping[str, Any]) -> Vocabulary:
        path = self.params.vocabulary or facts.get('vocabulary', '')
        if not path:
            raise ValueError('task.vocabulary is empty, and the checkpoint names none; name the file of the training\'s vocabulary.')
        vocabulary = Vocabulary(path)
        vocab_size: int = getattr(self.params.model, 'vocab_size', vocabulary.size)
        if vocabulary.size != vocab_size:
            raise ValueError(f'{path} has {vocabulary.size:,} ids, but task.model.vocab_size={vocab_size:,}; set task.vocabulary to the '
                             'vocabulary of the training.')
        if facts and _sha256(path) != facts['sha256']:
            raise ValueError(f'{path} is not the vocabulary of the training, {facts["vocabulary"]}: its SHA-256 is '
                             f'{_sha256(path)[:12]}..., that of the training {facts["sha256"][:12]}...; set task.vocabulary to a copy of '
                             'that one.')
        return vocabulary


def _calls(order: list[int], size: int) -> Iterator[list[int]]:
    """The sentences of each call of the decoder."""
    for first in range(0, len(order), size):
        yield order[first:first + size]


def _sha256(path: str) -> str:
    with open(path, 'rb') as file:
        return hashlib.file_digest(file, 'sha256').hexdigest()
