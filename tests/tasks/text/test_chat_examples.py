"""Conversations become rows, of which the answers of the assistant are learned."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lingpipe.tasks.text.chat_examples import chat_examples
from lingpipe.tasks.text.tokenizer import Tokenizer
from tests.support import tiny_tokenizers

TEMPLATE = ("{% for message in messages %}{{ message.role[0] }}:{{ message.content }}<|im_end|>\n"
            "{% endfor %}{{ 'a:' if add_generation_prompt else '' }}")
END = 1   # <|im_end|>


def chat(*contents: str) -> list[dict[str, str]]:
    return [{'role': 'assistant' if i % 2 else 'user', 'content': content}
            for i, content in enumerate(contents)]


CHATS = [chat('the', 'cat'), chat('a', ' sat 世', 'on', 'the mat\n'), chat('hat', 'a:hat')]


def folder(tmp_path: Path, template: str = TEMPLATE) -> str:
    return tiny_tokenizers.write(tmp_path, 'qwen2', eos_token='<|im_end|>', chat_template=template)


def test_rows_hold_whole_conversations_and_what_the_assistant_says_is_learned(
        tmp_path: Path) -> None:
    path = folder(tmp_path)
    vocabulary = Tokenizer(path)
    texts = ['u:the<|im_end|>\na:cat<|im_end|>\n',
             'u:a<|im_end|>\na: sat 世<|im_end|>\nu:on<|im_end|>\na:the mat\n<|im_end|>\n',
             'u:hat<|im_end|>\na:a:hat<|im_end|>\n']
    ids = vocabulary.encode(texts)
    length = len(ids[1]) + len(ids[0]) - 2   # room for two of them, without the first id of each
    examples = chat_examples(path, CHATS, length)
    assert {name: (array.shape, array.dtype.name) for name, array in examples.items()} == {
        'target': ((2, length), 'int32'), 'label': ((2, length), 'int32'),
        'weight': ((2, length), 'float32'), 'positions': ((2, length), 'int32'),
        'documents': ((2, length), 'int32')}

    learned = []
    for row, document, expected in (0, 1, ids[0]), (0, 2, ids[1]), (1, 1, ids[2]):
        mine = examples['documents'][row] == document
        np.testing.assert_array_equal(examples['target'][row][mine], expected[:-1])
        np.testing.assert_array_equal(examples['label'][row][mine], expected[1:])
        np.testing.assert_array_equal(examples['positions'][row][mine], range(len(expected) - 1))
        labels = examples['label'][row][mine & (examples['weight'][row] == 1)]
        starts = np.flatnonzero(np.append(END, labels) == END)
        learned.append([vocabulary.decode([labels[start:end]])[0] for start, end in zip(
            starts, starts[1:], strict=False)])
        assert labels[-1] == END
    assert learned == [['cat'], [' sat 世', 'the mat\n'], ['a:hat']]
    padding = examples['documents'] == 0
    assert not examples['weight'][padding].any()
    assert padding[1].sum() == length - len(ids[2]) + 1 and not padding[0].any()


def test_a_conversation_that_is_longer_than_a_row_is_cut(tmp_path: Path, caplog: Any) -> None:
    path = folder(tmp_path)
    examples = chat_examples(path, [CHATS[1], CHATS[0]], 10)
    ids, _ = Tokenizer(path).encode(['u:a<|im_end|>\na: sat 世<|im_end|>\n', ''])
    np.testing.assert_array_equal(examples['target'][0], ids[:10])
    np.testing.assert_array_equal(examples['label'][0], ids[1:11])
    assert '1 conversation is cut at length=10 tokens' in caplog.text
    with pytest.raises(ValueError, match='no token of an assistant is within length=2 tokens of a'):
        chat_examples(path, CHATS, 2)


def test_answers_without_an_end_are_learned_and_said(tmp_path: Path, caplog: Any) -> None:
    """The end of the template was not that of the tokenizer, so that no answer would have ended."""
    chat_examples(folder(tmp_path), CHATS, 64)
    assert not caplog.messages
    path = tiny_tokenizers.write(tmp_path, 'qwen2', chat_template=TEMPLATE)   # <|endoftext|>
    examples = chat_examples(path, CHATS, 64)
    assert np.any(examples['label'][examples['weight'] == 1] == END)
    assert [message.partition(';')[0] for message in caplog.messages] == [
        'no end is learned of 4 answers: the chat template writes none of the ids [0] behind them, '
        f'which end a text by the files beside {path}']


@pytest.mark.parametrize('template, conversations, words', [
    (TEMPLATE, [], 'no token of an assistant is within'),
    (TEMPLATE, [chat('only a question')], "give conversations with messages of the role 'assistan"),
    (TEMPLATE, [[{'role': 'assistant', 'content': 'a'}]], 'begins with an answer; begin it with'),
    (TEMPLATE, [[{'role': 'user'}]], 'is no message of a conversation'),
    ('{{ messages | length }}' + TEMPLATE, [CHATS[1]],
     'writes the first 2 messages of the conversation .* in another way when more are said, or do'),
    (TEMPLATE.replace("'a:'", "'b:'"), [CHATS[0]], 'does not ask for the answer as it writes it'),
])
def test_what_cannot_be_learned_from_is_refused(
        template: str, conversations: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=words):
        chat_examples(folder(tmp_path, template), conversations, 64)


def test_a_tokenizer_without_a_template_is_refused(tmp_path: Path) -> None:
    path = tiny_tokenizers.write(tmp_path, 'qwen2')
    with pytest.raises(ValueError, match=r'tokenizer\.json has no chat template; put chat_'):
        chat_examples(path, CHATS, 64)
