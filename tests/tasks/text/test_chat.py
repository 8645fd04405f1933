"""Conversations become the texts that templates of instruct models write, and are refused."""
from __future__ import annotations

import datetime
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from lingpipe.tasks.text.chat import ChatTemplate, conversation_of, template_beside
from lingpipe.tasks.text.tokenizer import Tokenizer
from lingpipe.tasks.text.vocabulary import open_vocabulary
from tests.support import tiny_tokenizers

CHAT = [{'role': 'user', 'content': ' a <b> '}, {'role': 'assistant', 'content': 'c'},
        {'role': 'user', 'content': 'd'}]
HELLO = [{'role': 'user', 'content': 'Hello!'}]

# In the manner of SmolLM2: one line.
LINE = ("{% for message in messages %}{% if loop.first and message['role'] != 'system' %}"
        "{{ '<|im_start|>system\nBe kind.<|im_end|>\n' }}{% endif %}"
        "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
# In the manner of Llama 3: with the start, trimmed texts, a date, a break and a refusal.
HEADERS = """{{- bos_token }}
{%- set date = strftime_now('%Y') if strftime_now is defined else 'never' %}
{%- if tools is not none %}
    {{- raise_exception('no tools') }}
{%- endif %}
{{- '<|start|>system<|end|>' + date + '<|eot|>' }}
{%- for message in messages %}
    {%- if message.role == 'nobody' %}
        {{- raise_exception('nobody may speak') }}
    {%- elif message.role == 'last' %}
        {%- break %}
    {%- endif %}
    {{- '<|start|>' + message.role + '<|end|>' + message['content'] | trim + '<|eot|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start|>assistant<|end|>' }}
{%- endif %}
"""
# In the manner of Qwen: with calls of tools as JSON, generation blocks, and lines of blocks alone.
CALLS = """{% for message in messages %}
    {% if message.role == 'assistant' %}
        {% generation %}
<{{ message.content }}{% for call in message.calls %}{{ call | tojson }}{% endfor %}>
        {% endgeneration %}
    {% else %}
{{ message.content | tojson }}
    {% endif %}
{% endfor %}
"""


@pytest.mark.parametrize('asks', [False, True])
def test_templates_of_three_families_write_what_transformers_writes(asks: bool) -> None:
    assert ChatTemplate(LINE, {}).text(CHAT, asks) == (
        '<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\n a <b> <|im_end|>\n'
        '<|im_start|>assistant\nc<|im_end|>\n<|im_start|>user\nd<|im_end|>\n'
        + ('<|im_start|>assistant\n' if asks else ''))
    year = datetime.datetime.now().year
    assert ChatTemplate(HEADERS, {'bos_token': '<s>'}).text(CHAT, asks) == (
        f'<s><|start|>system<|end|>{year}<|eot|><|start|>user<|end|>a <b><|eot|>'
        '<|start|>assistant<|end|>c<|eot|><|start|>user<|end|>d<|eot|>'
        + ('<|start|>assistant<|end|>' if asks else ''))
    assert ChatTemplate(HEADERS, {}).text([*CHAT, {'role': 'last', 'content': ''}], asks) == (
        ChatTemplate(HEADERS, {}).text(CHAT, asks))
    called = {'role': 'assistant', 'content': 'c', 'calls': [{'n': 1.5, 'x': '<é>', 'y': None}],
              'name': None}
    assert ChatTemplate(CALLS, {}).text([CHAT[0], called], asks) == (
        '" a <b> "\n<c{"n": 1.5, "x": "<é>", "y": null}>\n')


@pytest.mark.parametrize('files, source, tokens', [
    ({}, None, {}),
    ({'tokenizer_config.json': {'eos_token': '</s>'}}, None, {}),
    ({'tokenizer_config.json': {'chat_template': 'in', 'bos_token': None, 'eos_token': {
        'content': '</s>'}, 'pad_token': '</s>', 'clean_up': True}},
     'in', {'eos_token': '</s>', 'pad_token': '</s>'}),
    ({'tokenizer_config.json': {'chat_template': 'in'}, 'chat_template.jinja': 'own'}, 'own', {}),
    ({'chat_template.jinja': 'own'}, 'own', {}),
    # The start was left out of every conversation, since the template writes nothing for it.
    ({'chat_template.jinja': 'own', 'tokenizer_config.json': {'eos_token': '</s>'},
      'special_tokens_map.json': {'bos_token': {'content': '<s>'}, 'eos_token': 'other'}},
     'own', {'bos_token': '<s>', 'eos_token': '</s>'}),
    ({'tokenizer_config.json': {'chat_template': [{'name': 'tools', 'template': 'a'},
                                                  {'name': 'default', 'template': 'b'}]}}, 'b', {}),
    ({'tokenizer_config.json': {'chat_template': [{'name': 'tools', 'template': 'a'}]}}, None, {}),
])
def test_the_files_beside_a_tokenizer_have_the_template(
        files: dict[str, Any], source: str | None, tokens: dict[str, str], tmp_path: Path) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content if isinstance(content, str) else json.dumps(content))
    template = template_beside(str(tmp_path / 'tokenizer.json'))
    assert template == (None if source is None else ChatTemplate(source, tokens))


def test_a_template_that_asks_for_a_token_without_a_name_is_said(
        tmp_path: Path, caplog: Any) -> None:
    (tmp_path / 'chat_template.jinja').write_text('{{ bos_token }}{{ eos_token }}')
    config = tmp_path / 'tokenizer_config.json'
    config.write_text(json.dumps({'bos_token': None, 'eos_token': '</s>'}))   # It has no start.
    path = str(tmp_path / 'tokenizer.json')
    template_beside(path)
    assert not caplog.messages
    config.write_text(json.dumps({'eos_token': '</s>'}))
    template_beside(path)
    assert [message.partition(';')[0] for message in caplog.messages] == [
        f'the chat template beside {path} asks for bos_token, which neither tokenizer_config.json '
        'nor special_tokens_map.json there names, so that it writes nothing in its place']


def test_special_tokens_of_a_rendered_text_become_their_ids(tmp_path: Path) -> None:
    path = tiny_tokenizers.write(tmp_path, 'llama2', bos_token='<s>', chat_template=(
        '{{ bos_token }}{% for message in messages %}{{ message.content + eos_token }}{% endfor %}')
    )
    vocabulary = Tokenizer(path)
    assert vocabulary.chat_template is not None
    row, = vocabulary.encode([vocabulary.chat_template.text(CHAT)])
    assert [i for i in row if i < 3] == [1, 2, 2, 2]
    assert vocabulary.decode([row])[0].split() == ['a', '<b>', 'c', 'd']

    # What was recorded of it opens it again, unless there is another one beside the file.
    copy = tmp_path / 'copy'
    copy.mkdir()
    vocabulary.save(str(copy / 'tokenizer.json'))
    facts = json.loads(json.dumps(vocabulary.facts))
    again = open_vocabulary(str(copy / 'tokenizer.json'), facts)
    assert again.chat_template == vocabulary.chat_template
    (copy / 'chat_template.jinja').write_text('other')
    assert open_vocabulary(str(copy / 'tokenizer.json'), facts).chat_template == ChatTemplate(
        'other', {})


@pytest.mark.parametrize('line, expected', [
    (json.dumps(HELLO), HELLO),
    (json.dumps({'messages': HELLO, 'id': 3}), HELLO),
    ('Hello!', "the line 'Hello!' is no JSON: Expecting value.*; with task.decode.lines=chats ea"),
    ('{"text": "Hello!"}', 'None is no conversation, which is a list of one or more messages such'),
    ('[]', r'\[\] is no conversation'),
    ('["Hello!"]', "'Hello!' is no message of a conversation, which has texts as role and content"),
    ('[{"role": "user"}]', "{'role': 'user'} is no message of a conversation"),
    ('[{"role": "user", "content": [1]}]', 'is no message of a conversation'),
])
def test_a_line_of_json_is_a_conversation_or_refused(line: str, expected: Any) -> None:
    if isinstance(expected, list):
        assert conversation_of(line) == expected
        return
    with pytest.raises(ValueError, match=expected):
        conversation_of(line)


@pytest.mark.parametrize('source, words', [
    ('{% if %}', 'the chat template of the model is damaged: Expected an expression'),
    ("{{ raise_exception('roles must alternate') }}",
     "does not take the conversation [{'role': 'user', 'content': 'Hello!'}]: roles must alternate;"
     ' correct it.'),
    ('{{ messages[0].content + 1 }}', 'does not take the conversation'),
    ("{{ ''.__class__.__mro__ }}", 'does not take the conversation'),   # out of the sandbox
    ("{{ messages.append(1) }}", 'does not take the conversation'),   # to change what it is given
    ("{{ '\\ud800' }}", 'does not take the conversation'),
])
def test_a_template_that_fails_is_an_error(source: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        ChatTemplate(source, {}).text(HELLO)


def test_what_a_conversation_cannot_hold_is_refused() -> None:
    for extra, words in (object(), 'not JSON serializable'), ('\ud800', 'surrogates not allowed'):
        with pytest.raises(ValueError, match=words):
            ChatTemplate('{{ messages[0].extra }}', {}).text([{**HELLO[0], 'extra': extra}])


def test_without_jinja2_only_conversations_are_refused(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, 'jinja2', None)
    vocabulary = Tokenizer(tiny_tokenizers.write(tmp_path, 'qwen2', chat_template='without jinja2'))
    assert vocabulary.chat_template is not None
    with pytest.raises(ValueError, match='jinja2 is needed for conversations and cannot be imp.*; '
                                         'run pip install jinja2, or give prompts as texts'):
        vocabulary.chat_template.text(HELLO)
