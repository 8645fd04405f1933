"""Generation: continues prompts with a language model, on the cells of its pipeline.

    n prompts of a group, P ids of the longest prompt

Several groups are written at once, so that every cell has work (pipeline/decoding/decoder.py). Keys
and values of earlier positions stay on the cells. The ids of all prompts of a group are read many
at once.
"""
from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
from absl import logging

from lingpipe.hyperparams import field
from lingpipe.pipeline.decoding.decoder import Decoder
from lingpipe.pipeline.decoding.sampling import SamplingParams
from lingpipe.pipeline.decoding.sentence_group import SentenceGroup, grouped
from lingpipe.pipeline.execution.program import Program
from lingpipe.tasks.text.vocabulary import Vocabulary
from lingpipe.training.problem import Conversation, Piece

STEP = 16   # ids between two looks at stop texts


class GenerationParams(SamplingParams):
    """How prompts are continued."""
    beam_size: int = field(1, 'k, the hypotheses that are followed; 1: one text, by the best id '
                              'every time or by chance.', least=1)
    alpha: float = field(0., 'Strength of the length normalisation of a beam.', least=0)
    max_length: int = field(1024, 'Ids of a prompt and its continuation together, at most.',
                            least=1)
    max_new: int = field(128, 'Ids of a continuation, at most.', least=1)
    stop: tuple[str, ...] = field((), 'A continuation ends before whichever of these is complete '
                                      "first; '\\n' is written as a line break.")
    lines: Literal['text', 'chats'] = field(
        'text', 'What each line of --mode=decode is: a prompt, or JSON of a conversation, which is '
                'answered.')
    group_size: int = field(8, 'Prompts of a sentence group, at most; there is one group a cell, '
                               'and two where more prompts come.', least=1)

    def check(self) -> None:
        """Raises ValueError for fields that contradict each other, and for an empty stop text."""
        super().check()
        if '' in self.stop:
            raise ValueError("stop has an empty text, before which every text ends; leave it out")


class Prompt(NamedTuple):
    """The ids of a prompt.

    Attributes:
      ids: the first, which is the start if the vocabulary has one, and those behind it.
      limit: the ids of prompt and continuation together, with the first, at most.
    """
    ids: list[int]
    limit: int


class Generator:
    """Continues prompts. Its graphs are built once for each number of groups."""

    def __init__(self, program: Program, vocabulary: Vocabulary, params: GenerationParams,
                 decoder: Decoder | None = None):
        """
        Args:
          program: of the language model.
          vocabulary: its own.
          params: how prompts are continued.
          decoder: what decodes up to the ends of the vocabulary, if it is there already.

        Raises:
          ValueError: params contradict each other.
        """
        self.program, self.params = program, params.copy().validate()
        self._vocabulary = vocabulary
        # What is read first is the first id of each prompt: not all vocabularies have a start.
        self._decoder = decoder or Decoder(program, self.params, None, *vocabulary.ends)

    def with_params(self, params: GenerationParams) -> Generator:
        """A generator with other params, and with the graphs of this one if they fit."""
        fits = (_of_graphs(params) == _of_graphs(self.params)
                and self._decoder.serves(params.max_length))
        return Generator(self.program, self._vocabulary, params, self._decoder if fits else None)

    def pieces(self, prompts: Sequence[str | Conversation], step: int) -> Iterator[Piece]:
        """Yields the texts that follow the prompts, as they are written.

        Each prompt begins a document. What is drawn for a prompt depends on its place in `prompts`
        and on params.seed alone. Texts of a beam come when they are whole.

        Args:
          prompts: texts, or conversations, of which the chat template makes them.
          step: how many ids of a text are written before its next piece.

        Raises:
          ValueError: a prompt has no room for one more id, or has no id, or a conversation has no
            template.
        """
        p = self.params
        rows = _prompts(self._vocabulary, prompts, p)
        texts = [Continuation(self._vocabulary, p.stop, len(row.ids), row.limit) for row in rows]
        # Prompts of about one length come together, since a group writes until its last text ends.
        order = sorted(range(len(prompts)), key=lambda i: -len(rows[i].ids))
        for groups in grouped(order, len(self.program.plan.cells), p.group_size):
            yield from self._pieces_of(groups, rows, texts, step)
        if num_cut := sum(text.is_cut for text in texts):
            logging.info('%d of %d continuations were cut at max_new=%d or max_length=%d ids',
                         num_cut, len(prompts), p.max_new, p.max_length)

    def _pieces_of(self, groups: list[list[int]], rows: list[Prompt],
                   texts: list[Continuation], step: int) -> Iterator[Piece]:
        """Yields the texts of groups of prompts."""
        is_beam = self.params.beam_size > 1
        stream = self._decoder.stream([_group(rows, group, self.params) for group in groups])
        while any(not texts[i].is_over for group in groups for i in group):
            limits = [np.array([0 if texts[i].is_over else rows[i].limit - 1 for i in group]
                               or [0]) for group in groups]
            for group, written in zip(groups, stream.advance(
                    self.params.max_length if is_beam else step, limits), strict=True):
                all_ids = written.best_ids if is_beam else written.ids
                for i, ids in zip(group, all_ids, strict=False):   # An empty group has one row.
                    if not texts[i].is_over:
                        all_ids_of_text = np.append(rows[i].ids[0], ids)
                        yield Piece(i, texts[i].next_piece(all_ids_of_text), texts[i].is_over)


class Continuation:
    """The text that follows a prompt, while it is written.

    Attributes:
      limit: the ids of prompt and continuation together, at most.
      is_over: whether it is whole.
      is_cut: whether it ends at its limit.
    """

    def __init__(self, vocabulary: Vocabulary, stop: Sequence[str], num_given: int, limit: int):
        self.limit, self.is_over, self.is_cut = limit, False, False
        self._vocabulary, self._stop, self._num_given = vocabulary, stop, num_given
        self._given_out = 0   # characters

    def next_piece(self, ids: np.ndarray) -> str:
        """Returns what is certain now of the text and was not returned before.

        A character of which some bytes are missing, and what may become a stop text, is held back.

        Args:
          ids: [t], those of the prompt and those that are written so far.
        """
        given, new = np.split(ids[:self.limit], [self._num_given])
        places_of_ends = np.flatnonzero(np.isin(new, self._vocabulary.ends))
        new = new[:min(places_of_ends, default=len(new))]
        # Sentencepiece may leave out a space before the first id that it is given.
        before, both = self._vocabulary.decode([given, np.append(given, new)])
        whole = both[len(before):]
        text = _cut(whole, self._stop)
        is_ended = len(places_of_ends) > 0 or len(text) < len(whole)
        self.is_cut = len(ids) >= self.limit and not is_ended
        self.is_over = is_ended or self.is_cut
        end = len(text) if self.is_over else _num_certain(text, self._stop)
        piece = text[self._given_out:end]
        self._given_out = max(end, self._given_out)
        return piece


def as_line(text: str) -> str:
    """A text in one line: a line break becomes \\n, and a backslash two."""
    return text.replace('\\', '\\\\').replace('\n', '\\n').replace('\r', '\\r')


def from_line(line: str) -> str:
    """The text of which `as_line` made a line; other signs after a backslash stay."""
    signs = {'n': '\n', 'r': '\r', '\\': '\\'}
    return re.sub(r'\\(.)', lambda match: signs.get(match[1], match[0]), line)


def _of_graphs(params: GenerationParams) -> GenerationParams:
    """The params without those that the graphs of a generator do not depend on.

    Of max_length the decoder knows whether it serves.
    """
    return params.copy().set(
        max_new=1, stop=(), lines='text', group_size=1, seed=0, max_length=1)


def _prompts(vocabulary: Vocabulary, prompts: Sequence[str | Conversation],
             params: GenerationParams) -> list[Prompt]:
    """The ids of prompts. Raises ValueError as Generator.pieces does."""
    p, found = params, []
    rows = vocabulary.encode([_text_of(vocabulary, prompt) for prompt in prompts])
    for number, (prompt, row) in enumerate(zip(prompts, rows, strict=True), 1):
        if len(row) >= p.max_length:
            raise ValueError(f'prompt {number} has {len(row):,} ids, and a prompt and its '
                             f'continuation have room for max_length={p.max_length:,} together; '
                             'raise task.decode.max_length, or shorten the prompt.')
        # A template writes the start itself, if the model wants one.
        before = vocabulary.before if isinstance(prompt, str) else ()
        ids = [*before, *row]
        if not ids:
            raise ValueError(f'prompt {number} is empty, and the tokenizer of this model puts no '
                             'start before a text; begin the text.')
        limit = min(p.max_length, len(row) + p.max_new)
        found.append(Prompt(ids, limit + len(before)))
    return found


def _text_of(vocabulary: Vocabulary, prompt: str | Conversation) -> str:
    """A prompt as a text. Raises ValueError for a conversation without a template."""
    if isinstance(prompt, str):
        return prompt
    if vocabulary.chat_template is None:
        raise ValueError('a prompt is a conversation, but the vocabulary of this model has no chat '
                         'template; copy tokenizer_config.json and, if there is one, '
                         'chat_template.jinja of an instruct model beside the tokenizer.json of '
                         'the run (in train_input.directory, or where task.vocabulary is), or give '
                         'prompts as texts.')
    return vocabulary.chat_template.text(prompt)


def _group(rows: list[Prompt], group: list[int], params: GenerationParams) -> SentenceGroup:
    """The sentence group of some prompts; without any, it has one that ends at once."""
    limits = [rows[i].limit - 1 for i in group] or [0]
    prompts = np.full([len(limits), max((len(rows[i].ids) for i in group), default=1)], -1,
                      np.int32)
    for row, i in zip(prompts, group, strict=False):
        row[:len(rows[i].ids)] = rows[i].ids
    chances = np.zeros([len(limits), params.max_length if params.temperature else 0], np.float32)
    if params.temperature:
        for row, i in zip(chances, group, strict=False):
            # float32 rounds some numbers below 1 to 1.
            # NumPy takes no negative seeds.
            drawn = np.random.default_rng([params.seed % 2 ** 64, i]).random(params.max_length)
            row[:] = np.minimum(drawn, 1 - 2 ** -24)
    return SentenceGroup({}, np.array(limits, np.int32), prompts, chances)


def _cut(text: str, stop: Sequence[str]) -> str:
    """The text before the stop text that ends first, whatever comes after that."""
    spans = [(text.index(one) + len(one), text.index(one)) for one in stop if one in text]
    return text[:min(spans)[1]] if spans else text


def _num_certain(text: str, stop: Sequence[str]) -> int:
    """How many characters of an unfinished text will not change and belong to no stop text."""
    certain = text.rstrip('\ufffd')   # which stands for each byte of an incomplete character
    held = [n for one in stop for n in range(1, len(one)) if certain.endswith(one[:n])]
    return len(certain) - max(held, default=0)
