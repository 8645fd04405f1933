"""LineTranslator: translates lines with a program, in sentence groups, the longest first.

    n sentences of a sentence group, S ids of the longest source
"""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from absl import logging
from rich.console import Console
from rich.progress import Progress

from lingpipe.pipeline.decoding.decoder import Decoder
from lingpipe.pipeline.decoding.sampling import SamplingParams
from lingpipe.pipeline.decoding.search_params import SearchParams
from lingpipe.pipeline.decoding.sentence_group import SentenceGroup, grouped
from lingpipe.pipeline.execution.program import Program
from lingpipe.tasks.translation.decode_params import DecodeParams
from lingpipe.tasks.translation.line_vocabulary import LineVocabulary
from lingpipe.tasks.translation.source_ids import line_numbers
from lingpipe.wording.counts import counted


class LineTranslator:
    """Translates lines. Its graphs are built once for each number of groups."""

    def __init__(self, program: Program, vocabulary: LineVocabulary, params: DecodeParams,
                 decoder: Decoder | None = None):
        """
        Args:
          program: of the network that translates.
          vocabulary: its own.
          params: how lines are translated.
          decoder: what decodes, if it is there already.
        """
        self.program, self.params = program, params.copy().validate()
        self._vocabulary = vocabulary
        self._decoder = decoder or Decoder(
            program, self.params if vocabulary.start is not None else _prompted(self.params),
            vocabulary.start, *vocabulary.ends)

    def with_params(self, params: DecodeParams) -> LineTranslator:
        """A translator with other params, and with the graphs of this one if they fit."""
        fits = (_of_graphs(params) == _of_graphs(self.params)
                and self._decoder.serves(params.max_length))
        return LineTranslator(self.program, self._vocabulary, params,
                              self._decoder if fits else None)

    def translate(self, lines: Sequence[str], has_tags: bool | None) -> list[str]:
        """Returns the translations of lines, in their order; an empty line stays empty.

        Args:
          lines: one sentence each. If the vocabulary has tags, a line may begin with its language's
            tag: '<de> Guten Tag'. If it has none, such a tag is text.
          has_tags: whether sources of the run had tags; None: it is not known.

        Raises:
          ValueError: the vocabulary does not have the tag of a line, or no target language is
            named to a model of many.
        """
        p, vocabulary = self.params, self._vocabulary
        sources = vocabulary.sources(lines, p, has_tags)
        prompt = vocabulary.prompt(p)
        translations = [''] * len(lines)
        endless: list[int] = []
        # The largest come first: if any sentence is too large, the first one fails.
        order = sorted((i for i, ids in enumerate(sources) if ids), key=lambda i: -len(sources[i]))

        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task('sentences', total=len(order))
            for groups in grouped(order, len(self.program.plan.cells), p.group_size):
                sentence_groups = [_group([sources[i] for i in group], prompt, vocabulary, p)
                                   for group in groups]
                results = self._decoder.decode(sentence_groups)
                for group, sentence_group, (ids, _) in zip(groups, sentence_groups, results,
                                                           strict=True):
                    # An empty sentence group has one row, which zip leaves out.
                    endless += [i for i, limit, row in zip(group, sentence_group.limits, ids,
                                                           strict=False)
                                if not np.isin(row[:limit], vocabulary.ends).any()]
                    for i, text in zip(group, vocabulary.decode(ids[:len(group)]), strict=True):
                        translations[i] = ' '.join(text.split())
                bar.advance(task, sum(map(len, groups)))

        if endless:
            logging.warning('%s reached the limit, task.decode.max_length=%d ids or '
                            'extra_length=%d more than the source, without an end: %s',
                            counted(len(endless), 'translation'), p.max_length, p.extra_length,
                            line_numbers(endless))
        return translations


def _of_graphs(params: DecodeParams) -> DecodeParams:
    """The params without those that the graphs of a translator do not depend on.

    Of max_length the decoder knows whether it serves.
    """
    return params.copy().set(extra_length=0, max_source_length=2, group_size=1, language='',
                             target_language='', max_length=1)


def _prompted(params: DecodeParams) -> SearchParams:
    """The same search, of sequences that begin with prompts."""
    return SamplingParams(beam_size=params.beam_size, alpha=params.alpha,
                          max_length=params.max_length, prefill=0)


def _group(sources: list[list[int]], prompt: list[int], vocabulary: LineVocabulary,
           params: DecodeParams) -> SentenceGroup:
    """Returns the sentence group; without sentences, it has one that ends at once."""
    limits = [min(params.max_length, len(ids) + params.extra_length) for ids in sources] or [0]
    sources = sources or [[vocabulary.ends[0]]]
    length = max(map(len, sources))
    rows = [ids + [vocabulary.pad] * (length - len(ids)) for ids in sources]
    prompts = np.tile(np.array(prompt, np.int32), [len(rows), 1]) if prompt else None
    return SentenceGroup({'source': np.array(rows, np.int32)}, np.array(limits, np.int32), prompts)
