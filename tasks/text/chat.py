"""Chat: conversations as the texts that the template of an instruct model makes of them.

    FOLDER/chat_template.jinja                    the template, or else
    FOLDER/tokenizer_config.json  chat_template   it, or a list of several, of which one is default
                                  bos_token ...   what templates call so
    FOLDER/special_tokens_map.json                of those that the file before does not name

A conversation is a list of messages, {'role': 'user', 'content': 'Hello!'}, with further entries
that the template may ask for. The package jinja2 renders templates in its sandbox, since they come
with models. What a template finds there is what apply_chat_template of transformers gives it:
`messages`, no tools and no documents, the special tokens, `raise_exception`, `strftime_now`,
`tojson` without the escapes of HTML, loops with break, and blocks named generation.
"""
from __future__ import annotations

import dataclasses
import datetime
import functools
import importlib
import json
import os
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from absl import logging

from lingpipe.checkpoint.hugging_face import read_json
from lingpipe.training.problem import Conversation
from lingpipe.wording.values import show

_FILE, _CONFIG = 'chat_template.jinja', 'tokenizer_config.json'
_TOKENS_FILE = 'special_tokens_map.json'
_TOKENS = ('bos_token', 'eos_token', 'unk_token', 'sep_token', 'pad_token', 'cls_token',
           'mask_token')


@dataclasses.dataclass(frozen=True)
class ChatTemplate:
    """What makes one text of a conversation.

    Attributes:
      source: the template, in the language of Jinja.
      tokens: the special tokens that it may write, as bos_token -> '<s>'.
    """
    source: str
    tokens: Mapping[str, str]

    @property
    def facts(self) -> dict[str, Any]:
        """What is kept of it, to make it again by ChatTemplate(**facts)."""
        return {'source': self.source, 'tokens': dict(self.tokens)}

    def text(self, conversation: Conversation, asks: bool = True) -> str:
        """Returns the text of a conversation.

        Args:
          conversation: its messages.
          asks: whether the text ends where the model is to answer.

        Raises:
          ValueError: it is no conversation, the template is damaged or refuses it, or jinja2 is
            not installed.
        """
        messages = [{name: value for name, value in message.items() if value is not None}
                    for message in _plain(conversation)]   # as transformers
        template = _compiled(self.source)
        try:
            text = str(template.render(
                messages=messages, tools=None, documents=None, add_generation_prompt=asks,
                **self.tokens))
            text.encode()
        except Exception as error:   # A template may do anything that Jinja lets it do.
            raise ValueError(f'the chat template of the model does not take the conversation '
                             f'{show(messages)}: {error}; correct it.') from error
        return text


def template_beside(path: str) -> ChatTemplate | None:
    """The template in the folder of a tokenizer; None: there is none, or several without a default.

    Raises:
      ValueError: a file is damaged.
    """
    folder = os.path.dirname(path)
    own_path = os.path.join(folder, _FILE)
    of_tokens, config = (read_json(one) if os.path.exists(one) else {} for one in (
        os.path.join(folder, name) for name in (_TOKENS_FILE, _CONFIG)))
    source = config.get('chat_template')
    if os.path.exists(own_path):
        with open(own_path, encoding='utf-8') as file:
            source = file.read()
    if isinstance(source, list):
        sources = {one.get('name'): one.get('template') for one in source if isinstance(one, dict)}
        source = sources.get('default')
    if not isinstance(source, str):
        return None
    named = {name: token for name, token in {**of_tokens, **config}.items() if name in _TOKENS}
    if unknown := [name for name in _TOKENS
                   if name not in named and re.search(rf'\b{name}\b', source)]:
        logging.warning('the chat template beside %s asks for %s, which neither %s nor %s there '
                        'names, so that it writes nothing in its place; put the one of the model '
                        'there', path, ', '.join(unknown), _CONFIG, _TOKENS_FILE)
    contents = {name: token.get('content') if isinstance(token, dict) else token
                for name, token in named.items()}
    return ChatTemplate(source, {name: str(content) for name, content in contents.items()
                                 if content is not None})


def conversation_of(line: str) -> Conversation:
    """The conversation of a line of JSON: a list of messages, or an object that has it as messages.

    Raises:
      ValueError: it is none.
    """
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f'the line {show(line)} is no JSON: {error}; with task.decode.lines=chats '
                         'each line is a JSON list of messages.') from error
    return _plain(value.get('messages') if isinstance(value, dict) else value)


def _plain(conversation: object) -> list[dict[str, Any]]:
    """The conversation of what JSON can hold, which has no methods that a template could call."""
    if not isinstance(conversation, (list, tuple)) or not conversation:
        raise ValueError(f'{show(conversation)} is no conversation, which is a list of one or more '
                         "messages such as {'role': 'user', 'content': 'Hello!'}; write it so.")
    for message in conversation:
        entries = message if isinstance(message, Mapping) else {}
        if not isinstance(entries.get('role'), str) or not isinstance(entries.get('content'), str):
            raise ValueError(f'{show(message)} is no message of a conversation, which has texts as '
                             "role and content, such as {'role': 'user', 'content': 'Hello!'}; "
                             'write it so.')
    try:
        plain: list[dict[str, Any]] = json.loads(json.dumps([*map(dict, conversation)]))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f'the conversation {show(conversation)} has what JSON does not have: '
                         f'{error}; leave it out.') from error
    return plain


@functools.lru_cache(maxsize=8)
def _compiled(source: str) -> Any:
    """The template in a sandbox. Raises ValueError if it is damaged or jinja2 is missing."""
    try:
        jinja2, ext, nodes, sandbox = map(importlib.import_module, (
            'jinja2', 'jinja2.ext', 'jinja2.nodes', 'jinja2.sandbox'))
    except ImportError as error:
        raise ValueError(f'jinja2 is needed for conversations and cannot be imported ({error}); '
                         'run pip install jinja2, or give prompts as texts.') from error

    def parse(extension: Any, parser: Any) -> Any:
        """Reads a block named generation, which marks what the assistant says, as a plain one."""
        line_number = next(parser.stream).lineno
        body = parser.parse_statements(['name:endgeneration'], drop_needle=True)
        return nodes.Scope(body, lineno=line_number)

    def raise_exception(message: str) -> NoReturn:
        raise jinja2.TemplateError(message)

    generation = type('Generation', (ext.Extension,), {'tags': {'generation'}, 'parse': parse})
    environment = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[ext.loopcontrols, generation])
    environment.filters['tojson'] = _to_json
    environment.globals |= {'raise_exception': raise_exception, 'strftime_now': _now}
    try:
        return environment.from_string(source)
    except jinja2.TemplateError as error:
        raise ValueError(f'the chat template of the model is damaged: {error}; fetch it again, or '
                         f'put another one into {_FILE} beside its tokenizer.') from error


def _to_json(value: object, ensure_ascii: bool = False, indent: int | None = None,
             separators: tuple[str, str] | None = None, sort_keys: bool = False) -> str:
    """The filter tojson. That of Jinja writes < as \\u003c, for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def _now(format: str) -> str:
    return datetime.datetime.now().strftime(format)
