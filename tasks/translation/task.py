"""Translation: the problem that a Transformer learns, with its vocabulary. It translates lines.

    n sentences of a sentence group, S ids of the longest source
"""
from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import logging
from rich.console import Console
from rich.progress import Progress

from lingpipe.hyperparams import field
from lingpipe.input import Input
from lingpipe.pipeline.decoding.decoder import Decoder, SentenceGroup
from lingpipe.pipeline.decoding.search import SearchParams
from lingpipe.tasks.translation.corpus.languages import checked
from lingpipe.tasks.translation.corpus.vocabulary import END, PAD, START, Vocabulary
from lingpipe.training.problem import Problem

if TYPE_CHECKING:
    from lingpipe.pipeline.execution.program import Program

NUM_NAMED_LINES = 5
_TAG = re.compile(r'<([a-z-]+)>\s*')


class DecodeParams(SearchParams):
    """How lines are translated."""
    extra_length: int = field(
        50, 'A translation has at most so many ids more than its source, and no more than '
            'max_length.', least=0)
    max_source_length: int = field(
        256, 'Longer sources, in ids, their end included, are cut.', least=2)
    group_size: int = field(16, 'Sentences of a group; there are two groups a cell.', least=1)
    language: str = field(
        '', 'The language whose tag goes before lines that have none (<de> Guten Tag); empty: no '
            'tag.')


class Translation(Problem):
    """Translates lines of many languages to English."""

    class Params(Problem.Params):
        """Network, learner, and how lines are translated."""
        vocabulary: str = field(
            '', 'The file of the vocabulary that lines are translated with; empty: that of the '
                'training.')
        decode: DecodeParams = field(DecodeParams(), 'How lines are translated.')

    params: Params

    def facts(self, source: Input) -> dict[str, Any]:
        """Returns the file of the input's vocabulary and the hash of its content, if it has one."""
        path = getattr(getattr(source, 'corpus', None), 'vocabulary_path', '')
        return ({'vocabulary': os.path.abspath(path), 'sha256': _sha256(path)}
                if os.path.exists(path) else {})

    def check_facts(self, facts: Mapping[str, Any], source: Input) -> None:
        """Checks that the input's vocabulary fits the weights and the network.

        Raises:
          ValueError: the vocabulary is not that of the weights, or its number of ids is not that of
            the network.
        """
        now = self.facts(source)
        if not now:
            return
        if facts and now['sha256'] != facts['sha256']:
            raise ValueError(
                f'{now["vocabulary"]} is not the vocabulary that the weights were trained with, '
                f'{facts["vocabulary"]}: its SHA-256 is {now["sha256"][:12]}..., and that of '
                f'theirs {facts["sha256"][:12]}...; put theirs back, or choose another logdir.')

        size = Vocabulary(now['vocabulary']).size
        vocab_size: int = getattr(self.params.model, 'vocab_size', size)
        if size != vocab_size:
            raise ValueError(
                f'{now["vocabulary"]} has {size:,} ids, but task.model.vocab_size={vocab_size:,}, '
                f'and they must be equal; set task.model.vocab_size={size}, or give the corpus a '
                f'vocabulary of {vocab_size:,} ids: python -m lingpipe.tools.train_vocabulary '
                f'--corpus={os.path.dirname(now["vocabulary"])} --size={vocab_size}.')

    def check_taken(self, facts: Mapping[str, Any], keys: Iterable[str], source: Input) -> None:
        """Checks that no weight with a part for each id comes from a run with another vocabulary.

        Raises:
          ValueError: a weight does.
        """
        now = self.facts(source)
        if not now or facts.get('sha256', now['sha256']) == now['sha256']:
            return

        keys = list(keys)
        tables = [layer.path for layer in self.network.layers()
                  if layer.own_weights and hasattr(layer.params, 'vocab_size')]
        taken = [path for path in tables if any(f'/{path}/' in key for key in keys)]
        if taken:
            raise ValueError(
                f'{", ".join(taken)} would be taken from a training with the vocabulary '
                f'{facts["vocabulary"]}, whose ids mean other pieces than those of '
                f'{now["vocabulary"]}; put ".*/({"|".join(taken)})/.*" -> none first in '
                'initialize_from.rules, or make the corpus ids of that vocabulary: python '
                f'-m lingpipe.tools.train_vocabulary --corpus={os.path.dirname(now["vocabulary"])} '
                f'--vocabulary={facts["vocabulary"]}.')

    def decode(self, program: Program, lines: Sequence[str], facts: Mapping[str, Any]) -> list[str]:
        """Returns the translations of lines, in their order; an empty line stays empty.

        Args:
          program: the program with the weights.
          lines: one sentence each. If the vocabulary has tags, a line may begin with its language's
            tag: '<de> Guten Tag'. If it has none, such a tag is text.
          facts: the facts of the run that the weights come from, as `facts` returned them.

        Raises:
          ValueError: the vocabulary is missing or is not that of the run, or it does not have the
            tag of a line.
        """
        p = self.params.decode
        vocabulary = self.vocabulary(facts)
        sources = self.encoded(vocabulary, lines)
        found = [''] * len(lines)
        endless: list[int] = []
        # The largest come first: if any sentence is too large, the first one fails.
        order = sorted((i for i, ids in enumerate(sources) if ids), key=lambda i: -len(sources[i]))

        num_cells = len(program.plan.cells)
        num_groups = 1 if num_cells == 1 else 2 * num_cells
        decoder = Decoder(program, p, START, END)
        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task('sentences', total=len(order))
            for some in _calls(order, num_groups * p.group_size):
                groups = [some[g * len(some) // num_groups:(g + 1) * len(some) // num_groups]
                          for g in range(num_groups)]
                given = [self._group([sources[i] for i in group]) for group in groups]
                for group, (_, limits), (ids, _) in zip(groups, given, decoder.decode(given),
                                                        strict=True):
                    # An empty sentence group has one row, which zip leaves out.
                    endless += [i for i, limit, row in zip(group, limits, ids, strict=False)
                                if END not in row[:limit]]
                    for i, text in zip(group, vocabulary.decode(ids[:len(group)]), strict=True):
                        found[i] = ' '.join(text.split())
                bar.advance(task, len(some))

        if endless:
            logging.warning('%d translations reached their limit, task.decode.max_length=%d ids or '
                            'extra_length=%d more than the source, without an end: %s',
                            len(endless), p.max_length, p.extra_length, _line_numbers(endless))
        return found

    def _group(self, sources: list[list[int]]) -> SentenceGroup:
        """Returns the sentence group; without sentences, it has one that ends at once."""
        p = self.params.decode
        limits = [min(p.max_length, len(ids) + p.extra_length) for ids in sources] or [0]
        sources = sources or [[END]]
        length = max(map(len, sources))
        return SentenceGroup(
            {'source': np.array([ids + [PAD] * (length - len(ids)) for ids in sources], np.int32)},
            np.array(limits, np.int32))

    def encoded(self, vocabulary: Vocabulary, lines: Sequence[str]) -> list[list[int]]:
        """Returns the ids of sources, with tag and end; an empty line has no ids.

        Raises:
          ValueError: a line's language, or task.decode.language, has no tag in the vocabulary.
        """
        p, found, cut = self.params.decode, [], []
        known = vocabulary.tags
        if p.language and not known:
            raise ValueError(f'task.decode.language={p.language!r}, but the vocabulary has no tags '
                             'of languages; leave it empty, or train with a vocabulary of '
                             'lingpipe.tools.train_vocabulary --language_tags.')

        usual = [_tag(p.language, known, 'task.decode.language')] if p.language else []
        tags = [_TAG.match(line) if known else None for line in lines]
        texts = [line[tag.end():] if tag else line for line, tag in zip(lines, tags, strict=True)]
        for i, (tag, ids) in enumerate(zip(tags, vocabulary.encode(texts), strict=True)):
            first = [_tag(tag[1], known,
                          f'line {i + 1} begins with {tag[0].strip()}, which is text only after a '
                          'tag')] if tag else usual
            room = p.max_source_length - len(first) - 1
            if len(ids) > room:
                cut.append(i)
            found.append([*first, *ids[:room], END] if ids else [])

        if cut:
            logging.warning('%d sources are longer than task.decode.max_source_length=%d ids and '
                            'were cut: %s', len(cut), p.max_source_length, _line_numbers(cut))
        return found

    def vocabulary(self, facts: Mapping[str, Any]) -> Vocabulary:
        """Returns the vocabulary of the run with these facts, or a copy of it.

        Raises:
          ValueError: no file of the vocabulary is known, or the file has other ids than the
            network.
        """
        path = self.params.vocabulary or facts.get('vocabulary', '')
        if not path:
            raise ValueError('task.vocabulary is empty, and the checkpoint names none; name the '
                             'file of the training\'s vocabulary.')

        vocabulary = Vocabulary(path)
        vocab_size: int = getattr(self.params.model, 'vocab_size', vocabulary.size)
        if vocabulary.size != vocab_size:
            raise ValueError(f'{path} has {vocabulary.size:,} ids, but '
                             f'task.model.vocab_size={vocab_size:,}; set task.vocabulary to the '
                             'vocabulary of the training.')
        if facts and _sha256(path) != facts['sha256']:
            raise ValueError(f'{path} is not the vocabulary of the training, '
                             f'{facts["vocabulary"]}: its SHA-256 is {_sha256(path)[:12]}..., that '
                             f'of the training {facts["sha256"][:12]}...; set task.vocabulary to a '
                             'copy of that one.')
        return vocabulary


def _calls(order: list[int], size: int) -> Iterator[list[int]]:
    """Yields the sentences of each call of the decoder."""
    for first in range(0, len(order), size):
        yield order[first:first + size]


def _tag(code: str, tags: Mapping[str, int], where: str) -> int:
    """Returns the id of a language's tag; `where` begins the error."""
    try:
        language, = checked([code], tags, "one of the vocabulary's tags")
    except ValueError as error:
        raise ValueError(f'{where}: {error}') from error
    return tags[language]


def _line_numbers(indices: Iterable[int]) -> str:
    """Returns the first of the line numbers, counted from 1."""
    numbers = [str(i + 1) for i in sorted(indices)]
    return (f'line{"s" * (len(numbers) > 1)} '
            f'{", ".join(numbers[:NUM_NAMED_LINES])}{", ..." * (len(numbers) > NUM_NAMED_LINES)}')


def _sha256(path: str) -> str:
    with open(path, 'rb') as file:
        return hashlib.file_digest(file, 'sha256').hexdigest()
