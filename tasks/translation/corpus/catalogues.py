"""Message catalogues of gettext: .po and .mo files, whose message ids are English.

Programs keep them as locale/de/LC_MESSAGES/name.po, or as po/de.po. The language is in the path, or
else in the header. Messages that are marked as fuzzy or obsolete, or that have no translation, are
not finished and are left out. Of a message with plural forms, the singular is paired with the first
form, and the plural with the last.

Both formats are read by hand. These libraries were tried:

- polib reads a .mo file that was cut short as if it were whole, and a line of a .po file without
  its closing quotation mark as an empty translation. It takes three times as long for .mo files.
- Babel refuses a whole catalogue if a date in its header is not as it expects, which dropped 3 of
  300 files of Debian. It takes three times as long, too.
- Python's gettext reads .mo files, but cannot list the messages.
"""
from __future__ import annotations

import ast
import os
import pathlib
import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

from lingpipe.tasks.translation.corpus.languages import language_of
from lingpipe.tasks.translation.corpus.pair import Pair, Place
from lingpipe.tasks.translation.corpus.report import FOUND, Report

BROKEN = 'catalogue is broken'
FOLDER = 'LC_MESSAGES'


class Message(NamedTuple):
    """A translated message.

    Attributes:
      line: the line of its msgid; 0 in a .mo file.
      english: the singular and, if there is one, the plural.
      texts: all forms of the translation.
    """
    line: int
    english: tuple[str, ...]
    texts: tuple[str, ...]


def catalogue_pairs(folder: str, report: Report) -> Iterator[Pair]:
    """Yields the messages of all catalogues below a folder, in the order of paths.

    A .mo file is not read if there is a .po file beside it.

    Raises:
      ValueError: there is no catalogue.
    """
    root = pathlib.Path(folder)
    paths = sorted(path for path in root.rglob('*.[pm]o')
                   if path.suffix == '.po' or not path.with_suffix('.po').exists())
    if not paths:
        raise ValueError(
            f'{folder} holds no .po or .mo file; name a folder with locale/CODE/LC_MESSAGES/*.po '
            '(of an installed package: site-packages/NAME; of the system: /usr/share/locale). It '
            f'is looked up from {os.getcwd()}.')

    source = f'gettext {root.name}'
    for path in paths:
        place = Place(source, str(path.relative_to(root)))
        read = read_po if path.suffix == '.po' else read_mo
        try:
            header, messages = read(path.read_bytes())
        except (ValueError, LookupError, struct.error, SyntaxError) as error:
            report.count(FOUND, place)
            report.count(f'{BROKEN} ({str(error)[:60]})', place)
            continue

        code = _code(path, header)
        for message in messages:
            message_place = place._replace(line=message.line)
            yield Pair(code, message.texts[0], message.english[0], message_place)
            if len(message.english) > 1:
                yield Pair(code, message.texts[-1], message.english[1], message_place)


def read_po(content: bytes) -> tuple[str, list[Message]]:
    """Returns the header and the messages of a .po file.

    The format is in GNU gettext's manual, 'The Format of PO Files'.

    Raises:
      ValueError, LookupError: it is not in the charset that it names, or a string is malformed.
    """
    charset = re.search(rb'charset=([\w-]+)', content)
    name = charset[1].decode() if charset and charset[1] != b'CHARSET' else 'utf-8'

    header, messages = '', []
    for entry in _entries(content.decode(name)):
        english = tuple(entry.strings[key] for key in ('msgid', 'msgid_plural')
                        if key in entry.strings)
        texts = tuple(text for key, text in entry.strings.items() if key.startswith('msgstr'))
        if english == ('',):
            header = header or ''.join(texts)
        elif english and texts and all(texts) and not entry.is_fuzzy:
            messages.append(Message(entry.line, english, texts))
    return header, messages


def read_mo(content: bytes) -> tuple[str, list[Message]]:
    """Returns the header and the messages of a .mo file.

    The format is in GNU gettext's manual, 'The Format of GNU MO Files'.

    Raises:
      ValueError, LookupError, struct.error: it is not such a file, or it is broken.
    """
    order = {b'\xde\x12\x04\x95': '<', b'\x95\x04\x12\xde': '>'}.get(content[:4])
    if order is None:
        raise ValueError('it does not begin as a .mo file')
    _, num_messages, id_table, text_table = struct.unpack(order + '4I', content[4:20])

    def string(table: int, i: int) -> bytes:
        size, start = struct.unpack_from(order + '2I', content, table + 8 * i)
        if start + size > len(content):
            raise ValueError('the file ends within a string')
        return content[start:start + size]

    pairs = [(string(id_table, i), string(text_table, i)) for i in range(num_messages)]
    header = dict(pairs).get(b'', b'').decode('latin-1')
    charset = re.search(r'charset=([\w-]+)', header)
    name = charset[1] if charset else 'utf-8'

    messages = []
    for key, text in pairs:
        if key and text.strip(b'\0'):
            _, _, english = key.rpartition(b'\x04')   # the context stands before \4
            messages.append(Message(0, tuple(english.decode(name).split('\0')),
                                    tuple(text.decode(name).split('\0'))))
    return header, messages


class _Entry:
    """What stands between two blank lines of a .po file."""

    def __init__(self) -> None:
        self.line = 0
        self.is_fuzzy = False
        self.strings: dict[str, str] = {}


def _entries(text: str) -> Iterator[_Entry]:
    """Yields the messages of a catalogue; raises ValueError for a line that is part of none."""
    entry, key = _Entry(), ''
    for number, line in enumerate(text.split('\n'), 1):
        line = line.strip()
        keyword = re.match(r'(msgctxt|msgid_plural|msgid|msgstr(?:\[\d+\])?)\s*(".*")$', line)
        is_start = line.startswith('#') or keyword and keyword[1] in ('msgctxt', 'msgid')
        if is_start and any(one.startswith('msgstr') for one in entry.strings):
            yield entry
            entry = _Entry()

        if keyword:
            key = keyword[1]
            entry.strings[key] = _unquoted(keyword[2], number)
            entry.line = number if key == 'msgid' else entry.line
        elif line.startswith('"') and key:
            entry.strings[key] += _unquoted(line, number)
        elif line.startswith('#,'):
            entry.is_fuzzy |= 'fuzzy' in line   # A message may have several lines of flags.
        elif line and not line.startswith('#'):
            raise ValueError(f'line {number} is no part of a message')
    yield entry


def _unquoted(text: str, number: int) -> str:
    try:
        return str(ast.literal_eval(text))   # C's escapes are Python's
    except (ValueError, SyntaxError) as error:
        raise ValueError(f'line {number} is no string') from error


def _code(path: pathlib.Path, header: str) -> str:
    """Returns the code of the language.

    It is the folder above LC_MESSAGES, or else the file's name if that is a code, or else what the
    header says.
    """
    if path.parent.name == FOLDER:
        return path.parent.parent.name
    if language_of(path.stem)[0]:
        return path.stem
    language = re.search(r'^Language:[ \t]*(\S+)', header, re.MULTILINE)
    return language[1] if language else path.stem
