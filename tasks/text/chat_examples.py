"""Chat examples: conversations as arrays from which the answers of the assistant are learned.

A row of T tokens holds as many whole conversations as fit, in their order:

    target      <user> Hi <end> <bot> Hello <end> <user> Bye <end> <bot> Bye <end> pad
    label       Hi <end> <bot> Hello <end>        Bye <end> <bot> Bye <end>            pad
    weight      0  0     0     1     1            0   0     0     1   1                0

The template of the tokenizer makes the text of a conversation. Where the assistant speaks in it is
found by the texts of the conversation up to there: that which asks for the message, and that which
ends with it.
"""
from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np
from absl import logging

from lingpipe.tasks.text.chat import ChatTemplate
from lingpipe.tasks.text.tokenizer import Tokenizer
from lingpipe.training.problem import Conversation
from lingpipe.wording.counts import are, counted
from lingpipe.wording.values import show

_CHUNK = 1000   # conversations that are encoded at a time


def chat_examples(vocabulary: str, conversations: Iterable[Conversation],
                  length: int) -> dict[str, np.ndarray]:
    """Returns examples for ArrayInput, whose loss counts what the assistant says and its end.

        target      int32 [N, T]     what the network reads
        label       int32 [N, T]     the next token of each
        weight      float32 [N, T]   1 where the label belongs to an answer, otherwise 0
        positions   int32 [N, T]     counted from the beginning of the conversation
        documents   int32 [N, T]     which conversation of the row a token belongs to

    A conversation of more than T + 1 tokens is cut there, and a warning says how many are. Another
    says how many answers have no end behind them, so that none is learned.

    Args:
      vocabulary: the tokenizer.json of a folder with a chat template.
      conversations: lists of messages, {'role': 'user', 'content': 'Hello!'}.
      length: T.

    Raises:
      ValueError: there is no template, there is nothing to learn, or the template refuses a
        conversation or writes what was said before in another way when more is said.
    """
    tokenizer = Tokenizer(vocabulary)
    template = tokenizer.chat_template
    if template is None:
        raise ValueError(f'{vocabulary} has no chat template; put chat_template.jinja beside it.')
    rows: list[dict[str, np.ndarray]] = []
    num_used = length   # tokens of the last row
    num_cut = num_endless = 0   # conversations, answers
    remaining = iter(conversations)
    while chunk := list(itertools.islice(remaining, _CHUNK)):
        for ids, is_learned, num_without_end in _learned(tokenizer, template, chunk):
            num_cut += len(ids) > length + 1
            num_endless += num_without_end
            n = min(len(ids) - 1, length)
            if n < 1:   # Nothing follows anything.
                continue
            if num_used + n > length:
                rows.append(_padding(length))
                num_used = 0
            _put(rows[-1], num_used, ids[:n + 1], is_learned[:n + 1])
            num_used += n
    _warn_of_cut(num_cut, length)
    _warn_of_endless(num_endless, tokenizer, vocabulary)
    if not any(row['weight'].any() for row in rows):
        raise ValueError(f'no token of an assistant is within length={length} tokens of a '
                         'conversation, so that there is nothing to learn; give conversations with '
                         "messages of the role 'assistant', or a larger length.")
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def _warn_of_cut(num_conversations: int, length: int) -> None:
    """Says how many conversations are cut, if any are."""
    if num_conversations:
        logging.warning('%s %s cut at length=%d tokens',
                        counted(num_conversations, 'conversation'), are(num_conversations), length)


def _warn_of_endless(num_answers: int, tokenizer: Tokenizer, vocabulary: str) -> None:
    """Says how many answers have no end behind them, if any, and where to name their own."""
    if num_answers:
        logging.warning(
            'no end is learned of %s: the chat template writes none of the ids %s behind them, '
            'which end a text by the files beside %s; if it writes another one, name that as '
            'eos_token in tokenizer_config.json, or among eos_token_id in generation_config.json',
            counted(num_answers, 'answer'), list(tokenizer.ends), vocabulary)


def _learned(tokenizer: Tokenizer, template: ChatTemplate,
             conversations: list[Conversation]) -> list[tuple[np.ndarray, np.ndarray, int]]:
    """The ids of conversations and which of them are the assistant's, both [t].

    The third value is how many answers have no end.
    """
    texts = [template.text(conversation, asks=False) for conversation in conversations]
    rows = []
    for conversation, text, (ids, offsets) in zip(
            conversations, texts, tokenizer.encode_with_offsets(texts), strict=True):
        is_learned, num_endless = np.zeros([len(ids)], bool), 0
        for begin, end in _spans(template, conversation, text):
            is_inside = (offsets[:, 1] > begin) & (offsets[:, 0] < end)
            # What a template writes behind the end, as a line break, is never asked for.
            places = np.flatnonzero(is_inside & np.isin(ids, tokenizer.ends))
            num_endless += not len(places)
            is_learned |= is_inside & (np.arange(len(ids)) <= max(places, default=len(ids)))
        rows.append((ids, is_learned, num_endless))
    return rows


def _spans(template: ChatTemplate, conversation: Conversation, text: str) -> list[tuple[int, int]]:
    """Where the assistant speaks in the text of a conversation: begin and end, in characters."""
    spans = []
    for i, message in enumerate(conversation):
        if message['role'] != 'assistant':
            continue
        if i == 0:
            raise ValueError(f'the conversation {show(list(conversation))} begins with an answer; '
                             'begin it with what is answered.')
        before = template.text(conversation[:i])
        whole = template.text(conversation[:i + 1], asks=False)
        if not text.startswith(whole) or not whole.startswith(before):
            raise ValueError(f'the chat template writes the first {i + 1} messages of the '
                             f'conversation {show(list(conversation))} in another way when more '
                             'are said, or does not ask for the answer as it writes it; train with '
                             'a template that does, in chat_template.jinja.')
        spans.append((len(before), len(whole)))
    return spans


def _padding(length: int) -> dict[str, Any]:
    """A row of no conversation, each value [T]. What fills up a row is its document 0."""
    row: dict[str, Any] = {name: np.zeros([length], np.int32)
                           for name in ('target', 'label', 'weight', 'positions', 'documents')}
    row['weight'] = row['weight'].astype(np.float32)
    return row


def _put(row: dict[str, Any], first: int, ids: np.ndarray, is_learned: np.ndarray) -> None:
    """Writes a conversation into a row, in which `first` tokens are taken."""
    places = slice(first, first + len(ids) - 1)
    row['target'][places] = ids[:-1]
    row['label'][places] = ids[1:]
    row['weight'][places] = is_learned[1:]
    row['positions'][places] = np.arange(len(ids) - 1)
    row['documents'][places] = row['documents'].max() + 1
