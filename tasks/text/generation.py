"""Generation: continues prompts with a language model, on the cells of its pipeline.

    n prompts of a group, P ids of the longest prompt

Several groups are written at once, so that every cell has work (pipeline/decoding/decoder.py). Keys
and values of earlier positions stay on the cells. The ids that all prompts of a group have are read
many at once, the rest of longer prompts one by one, as those that are written.
"""
from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from absl import logging

from lingpipe.hyperparams import field
from lingpipe.pipeline.decoding.decoder import Decoder
from lingpipe.pipeline.decoding.sampling import SamplingParams
from lingpipe.pipeline.decoding.sentence_group import SentenceGroup
from lingpipe.pipeline.execution.program import Program
from lingpipe.tasks.text.vocabulary import END, START, Vocabulary


class GenerationParams(SamplingParams):
    """How prompts are continued."""
    beam_size: int = field(1, 'k, the hypotheses that are followed; 1: one text, by the best id '
                              'every time or by chance.', least=1)
    alpha: float = field(0., 'Strength of the length normalisation of a beam.', least=0)
    max_length: int = field(1024, 'Ids of a prompt and its continuation together, at most.',
                            least=1)
    max_new: int = field(128, 'Ids of a continuation, at most.', least=1)
    stop: tuple[str, ...] = field((), 'A continuation ends before the first of these texts; '
                                      "'\\n' is written as a line break.")
    group_size: int = field(8, 'Prompts of a group; there are two groups a cell.', least=1)


def continuations(program: Program, vocabulary: Vocabulary, prompts: Sequence[str],
                  params: GenerationParams) -> list[str]:
    """Returns the texts that follow the prompts, in their order.

    Each prompt begins a document. What is drawn for a prompt depends on its place in `prompts` and
    on params.seed alone.

    Raises:
      ValueError: a prompt has no room for one more id.
    """
    rows = _ids_of(vocabulary, prompts, params.max_length)
    num_cells = len(program.plan.cells)
    num_groups = 1 if num_cells == 1 else 2 * num_cells
    decoder = Decoder(program, params, START, END)
    texts, endless = [''] * len(prompts), 0

    # Prompts of about one length come together, since a group writes until its last text ends.
    order = sorted(range(len(prompts)), key=lambda i: -len(rows[i]))
    for first in range(0, len(order), num_groups * params.group_size):
        some = order[first:first + num_groups * params.group_size]
        groups = [some[g * len(some) // num_groups:(g + 1) * len(some) // num_groups]
                  for g in range(num_groups)]
        results = decoder.decode([_group(rows, group, params) for group in groups])
        for group, (ids, _) in zip(groups, results, strict=True):
            for i, row in zip(group, ids, strict=False):   # An empty group has one row.
                new = row[len(rows[i]):len(rows[i]) + params.max_new]
                endless += END not in new
                texts[i] = _cut(vocabulary.decode([new])[0], params.stop)
    if endless:
        logging.info('%d of %d continuations were cut at max_new=%d or max_length=%d ids', endless,
                     len(prompts), params.max_new, params.max_length)
    return texts


def as_line(text: str) -> str:
    """A text in one line: a line break becomes \\n, and a backslash two."""
    return text.replace('\\', '\\\\').replace('\n', '\\n').replace('\r', '\\r')


def from_line(line: str) -> str:
    """The text of which `as_line` made a line; other signs after a backslash stay."""
    signs = {'n': '\n', 'r': '\r', '\\': '\\'}
    return re.sub(r'\\(.)', lambda match: signs.get(match[1], match[0]), line)


def _ids_of(vocabulary: Vocabulary, prompts: Sequence[str], max_length: int) -> list[list[int]]:
    """The ids of prompts. Raises ValueError if one leaves no room."""
    rows = vocabulary.encode(prompts)
    for number, row in enumerate(rows, 1):
        if len(row) >= max_length:
            raise ValueError(f'prompt {number} has {len(row):,} ids, and a prompt and its '
                             f'continuation have room for max_length={max_length:,} together; '
                             'raise task.decode.max_length, or shorten the prompt.')
    return rows


def _group(rows: list[list[int]], group: list[int], params: GenerationParams) -> SentenceGroup:
    """The sentence group of some prompts; without any, it has one that ends at once."""
    limits = [min(params.max_length, len(rows[i]) + params.max_new) for i in group] or [0]
    prompts = np.full([len(limits), max((len(rows[i]) for i in group), default=0)], -1, np.int32)
    for row, i in zip(prompts, group, strict=False):
        row[:len(rows[i])] = rows[i]
    chances = np.zeros([len(limits), params.max_length if params.temperature else 0], np.float32)
    if params.temperature:
        for row, i in zip(chances, group, strict=False):
            # float32 rounds some numbers below 1 to 1.
            drawn = np.random.default_rng([params.seed, i]).random(params.max_length)
            row[:] = np.minimum(drawn, 1 - 2 ** -24)
    return SentenceGroup({}, np.array(limits, np.int32), prompts, chances)


def _cut(text: str, stop: Sequence[str]) -> str:
    """The text before the first of the stop texts."""
    ends = [text.index(one) for one in stop if one in text]
    return text[:min(ends, default=len(text))]
