"""Translation: the problem that a Transformer learns, with its vocabulary. It translates lines.

    n sentences of a sentence group, S ids of the longest source
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging
from rich.console import Console
from rich.progress import Progress

from lingpipe.hyperparams import field
from lingpipe.input import Input
from lingpipe.pipeline.decoding.decoder import Decoder
from lingpipe.pipeline.decoding.sentence_group import SentenceGroup
from lingpipe.pipeline.execution.program import Program
from lingpipe.tasks.translation import vocabulary_facts
from lingpipe.tasks.translation.corpus.vocabulary import END, PAD, START, Vocabulary
from lingpipe.tasks.translation.decode_params import DecodeParams
from lingpipe.tasks.translation.source_ids import line_numbers, source_ids, warn_of_tags
from lingpipe.training.problem import Problem


class Translation(Problem):
    """Translates lines of many languages to English."""

    class Params(Problem.Params):
        """Network, learner, and how lines are translated."""
        vocabulary: str = field(
            '', 'The file of the vocabulary that lines are translated with; empty: that of the '
                'run.')
        decode: DecodeParams = field(DecodeParams(), 'How lines are translated.')

    params: Params

    def facts(self, source: Input) -> dict[str, Any]:
        """Returns the vocabulary of the input, and whether it has tags; see vocabulary_facts."""
        return vocabulary_facts.facts_of(source)

    def check_facts(self, facts: Mapping[str, Any], source: Input) -> None:
        """Checks that the input's vocabulary fits the weights and the network.

        Raises:
          ValueError: the vocabulary is not that of the weights, or its number of ids is not that of
            the network.
        """
        vocabulary_facts.check_facts(facts, source, self.params.model)

    def check_taken(self, facts: Mapping[str, Any], keys: Iterable[str], source: Input) -> None:
        """Checks that no weight with a part for each id comes from a run with another vocabulary.

        Raises:
          ValueError: a weight does.
        """
        vocabulary_facts.check_taken(facts, keys, source, self.network)

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
        sources = source_ids(vocabulary, lines, p.language, p.max_source_length)
        warn_of_tags(sources, vocabulary, facts.get('language_tags'))
        translations = [''] * len(lines)
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
                sentence_groups = [self._group([sources[i] for i in group]) for group in groups]
                results = decoder.decode(sentence_groups)
                for group, sentence_group, (ids, _) in zip(groups, sentence_groups, results,
                                                           strict=True):
                    # An empty sentence group has one row, which zip leaves out.
                    endless += [i for i, limit, row in zip(group, sentence_group.limits, ids,
                                                           strict=False)
                                if END not in row[:limit]]
                    for i, text in zip(group, vocabulary.decode(ids[:len(group)]), strict=True):
                        translations[i] = ' '.join(text.split())
                bar.advance(task, len(some))

        if endless:
            logging.warning('%d translations reached their limit, task.decode.max_length=%d ids or '
                            'extra_length=%d more than the source, without an end: %s',
                            len(endless), p.max_length, p.extra_length, line_numbers(endless))
        return translations

    def _group(self, sources: list[list[int]]) -> SentenceGroup:
        """Returns the sentence group; without sentences, it has one that ends at once."""
        p = self.params.decode
        limits = [min(p.max_length, len(ids) + p.extra_length) for ids in sources] or [0]
        sources = sources or [[END]]
        length = max(map(len, sources))
        return SentenceGroup(
            {'source': np.array([ids + [PAD] * (length - len(ids)) for ids in sources], np.int32)},
            np.array(limits, np.int32))

    def vocabulary(self, facts: Mapping[str, Any]) -> Vocabulary:
        """Returns the vocabulary of the run with these facts, or Params.vocabulary, a copy of it.

        Raises:
          ValueError: no file of it is known, or the file has other ids than the network.
        """
        return vocabulary_facts.vocabulary_of(self.params.vocabulary, facts, self.params.model)


def _calls(order: list[int], size: int) -> Iterator[list[int]]:
    """Yields the sentences of each call of the decoder."""
    for first in range(0, len(order), size):
        yield order[first:first + size]
