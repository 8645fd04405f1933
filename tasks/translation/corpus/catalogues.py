"""Message catalogues of gettext: .po and .mo files, whose message ids are English.

Programs keep them as locale/de/LC_MESSAGES/name.po, or as po/de.po; the language is in the path, or else in the header. Marked as
fuzzy, obsolete or not translated is what translators did not finish: it is left out. Of a message with plural forms, the singular is
paired with the first form and the plural with the last.
"""
from __future__ import annotations

import ast
import os
import pathlib
import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

from tasks.translation.corpus.languages import language_of
from tasks.translation.corpus.pair import Pair, Place
from tasks.translation.corpus.report import FOUND, Report

BROKEN = 'catalogue is broken'
FOLDER = 'LC_MESSAGES'


class Message(NamedTuple):
    """A translated message.

    Attributes:
      line: of its msgid; 0 in a .mo file.
      english: singular and, if it has one, plural.
      texts: the translation, in all forms.
    """
    line: int
    english: tuple[str, ...]
    texts: tuple[str, ...]


def catalogue_pairs(folder: str, report: Report) -> Iterator[Pair]:
    """The messages of all catalogues below a folder, in the order of paths. Where there is a .po file, a .mo beside it is not read.

    Raises:
      ValueError: there is no catalogue.
    """
    root = pathlib.Path(folder)
    paths = sorted(path for path in root.rglob('*.[pm]o') if path.suffix == '.po' or not path.with_suffix('.po').exists())
    if not paths:
        raise ValueError(f'{folder} holds no .po or .mo file; name a folder with locale/CODE/LC_MESSAGES/*.po (of an installed package: '
                         f'site-packages/NAME; of the system: /usr/share/locale). It is looked up from {os.getcwd()}.')
    source = f'gettext {root.name}'
    for path in paths:
        place = Place(source, str(path.relative_to(root)))
        try:
            header, messages = read_po(path.read_bytes()) if path.suffix == '.po' else read_mo(path.read_bytes())
        except (ValueError, LookupError, struct.error, SyntaxError) as error:
            report.count(FOUND, place)
            report.count(f'{BROKEN} ({str(error)[:60]})', place)
            continue
        code = _code(path, header)
        for message in messages:
            yield Pair(code, message.texts[0], message.english[0], place._replace(line=message.line))
            if len(message.english) > 1:
                yield Pair(code, message.texts[-1], message.english[1], place._replace(line=message.line))


def read_po(content: bytes) -> tuple[str, list[Message]]:
    """(header, messages) of a .po file (GNU gettext's manual, 'The Format of PO Files').

    Raises:
      ValueError, LookupError: it is not of the charset that it says, or a string is not as it must be.
    """
    charset = re.search(rb'charset=([\w-]+)', content)
    name = charset[1].decode() if charset and charset[1] != b'CHARSET' else 'utf-8'
    header, messages = '', []
    for entry in _entries(content.decode(name)):
        english = tuple(text for key in ('msgid', 'msgid_plural') if (text := entry.strings.get(key)) is not None)
        texts = tuple(text for key, text in entry.strings.items() if key.startswith('msgstr'))
        if english == ('',):
            header = header or ''.join(texts)
        elif english and texts and all(texts) and not entry.is_fuzzy:
            messages.append(Message(entry.line, english, texts))
    return header, messages


def read_mo(content: bytes) -> tuple[str, list[Message]]:
    """(header, messages) of a .mo file (GNU gettext's manual, 'The Format of GNU MO Files').

    Raises:
      ValueError, LookupError, struct.error: it is none, or broken.
    """
    order = {b'\xde\x12\x04\x95': '<', b'\x95\x04\x12\xde': '>'}.get(content[:4])
    if order is None:
        raise ValueError('it does not begin as a .mo file')
    _, number, ids, texts = struct.unpack(order + '4I', content[4:20])

    def string(table: int, i: int) -> bytes:
        size, at = struct.unpack_from(order + '2I', content, table + 8 * i)
        if at + size > len(content):
            raise ValueError('the file ends within a string')
        return content[at:at + size]

    pairs = [(string(ids, i), string(texts, i)) for i in range(number)]
    header = dict(pairs).get(b'', b'').decode('latin-1')
    charset = re.search(r'charset=([\w-]+)', header)
    name = charset[1] if charset else 'utf-8'
    messages = [Message(0, tuple(key.rpartition(b'\x04')[2].decode(name).split('\0')), tuple(text.decode(name).split('\0')))
                for key, text in pairs if key and text.strip(b'\0')]   # before \4 stands the context
    return header, messages


class _Entry:
    """What is between two blank lines of a .po file."""

    def __init__(self) -> None:
        self.line, self.is_fuzzy = 0, False
        self.strings: dict[str, str] = {}


def _entries(text: str) -> Iterator[_Entry]:
    entry, key = _Entry(), ''
    for number, line in enumerate(text.split('\n'), 1):
        line = line.strip()
        found = re.match(r'(msgctxt|msgid_plural|msgid|msgstr(?:\[\d+\])?)\s*(".*")$', line)
        is_new = line.startswith('#') or found and found[1] in ('msgctxt', 'msgid')
        if is_new and any(one.startswith('msgstr') for one in entry.strings):
            yield entry
            entry = _Entry()
        if found:
            key = found[1]
            entry.strings[key] = _unquoted(found[2], number)
            entry.line = number if key == 'msgid' else entry.line
        elif line.startswith('"') and key:
            entry.strings[key] += _unquoted(line, number)
        elif line.startswith('#,'):
            entry.is_fuzzy = 'fuzzy' in line
        elif line and not line.startswith('#'):
            raise ValueError(f'line {number} is no part of a message')
    yield entry


def _unquoted(text: str, number: int) -> str:
    try:
        return str(ast.literal_eval(text))   # C's escapes are Python's
    except (ValueError, SyntaxError) as error:
        raise ValueError(f'line {number} is no string') from error


def _code(path: pathlib.Path, header: str) -> str:
    """The code of the language: of the folder above LC_MESSAGES, the file's name if that is one, or what the header says."""
    if path.parent.name == FOLDER:
        return path.parent.parent.name
    if language_of(path.stem)[0]:
        return path.stem
    found = re.search(r'^Language:[ \t]*(\S+)', header, re.MULTILINE)
    return found[1] if found else path.stem
