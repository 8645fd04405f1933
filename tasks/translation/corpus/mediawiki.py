"""MediaWiki's messages: */i18n/*.json, one file a language beside en.json, about 500 languages.

They are under GPL-2+ and no part of this project: `python -m tools.get_mediawiki` fetches Debian's package and unpacks the messages
to a folder of the user's, where they are read.
"""
from __future__ import annotations

import io
import json
import lzma
import os
import pathlib
import tarfile
from collections.abc import Iterator

from tasks.translation.corpus.pair import Pair, Place
from tasks.translation.corpus.report import FOUND, Report

SOURCE = 'mediawiki'
NO_JSON = 'file is no JSON'


def message_pairs(folder: str, report: Report) -> Iterator[Pair]:
    """The messages of all languages that have a key of English, in the order of paths.

    Raises:
      ValueError: there is no en.json in an i18n folder.
    """
    root = pathlib.Path(folder)
    english_files = sorted(path for path in root.rglob('en.json') if 'i18n' in path.parts)
    if not english_files:
        raise ValueError(f'{folder} holds no i18n/en.json; name a folder that python -m tools.get_mediawiki --output made, or another with '
                         f'MediaWiki\'s i18n files (it is looked up from {os.getcwd()}).')
    for english_file in english_files:
        english = _messages(english_file, root, report)
        for path in sorted(english_file.parent.glob('*.json')):
            if path.stem in ('en', 'qqq'):   # qqq explains the messages to translators
                continue
            name = str(path.relative_to(root))
            for key, text in _messages(path, root, report).items():
                if key in english:
                    yield Pair(path.stem, text, english[key], Place(SOURCE, name, key=key))


def _messages(path: pathlib.Path, root: pathlib.Path, report: Report) -> dict[str, str]:
    """The messages of a file by key; none if it is no JSON, which the report says."""
    try:
        found = json.loads(path.read_bytes().decode('utf-8-sig'))
    except ValueError:   # JSONDecodeError and UnicodeDecodeError are such
        found = None
    if not isinstance(found, dict):
        place = Place(SOURCE, str(path.relative_to(root)))
        report.count(FOUND, place)
        report.count(NO_JSON, place)
        return {}
    return {key: value for key, value in found.items() if isinstance(value, str)}


def unpack(package: str, folder: str) -> int:
    """Unpacks */i18n/*.json of a Debian package below a folder, and returns how many files that were.

    A package is an ar archive with data.tar.xz in it (deb(5)); no program of Debian's is needed.

    Raises:
      ValueError: it is no such package.
    """
    count = 0
    with tarfile.open(fileobj=_data_of(package), mode='r|') as archive:
        for member in archive:
            parts = pathlib.PurePosixPath(member.name).parts
            if not member.isfile() or 'i18n' not in parts[:-1] or not member.name.endswith('.json') or '..' in parts:
                continue
            content = archive.extractfile(member)
            assert content is not None
            target = pathlib.Path(folder, *parts[parts.index('mediawiki') + 1 if 'mediawiki' in parts else 1:])
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content.read())
            count += 1
    return count


def _data_of(package: str) -> io.BytesIO:
    """The uncompressed data.tar of a package."""
    with open(package, 'rb') as file:
        if file.read(8) != b'!<arch>\n':
            raise ValueError(f'{package} is no Debian package; name the .deb that apt-get download mediawiki left.')
        while len(header := file.read(60)) == 60:   # name 16, time 12, owner 6, group 6, mode 8, size 10, end 2
            name, size = header[:16].decode().strip(' /'), int(header[48:58])
            if name.startswith('data.tar'):
                data = file.read(size)
                if name == 'data.tar':
                    return io.BytesIO(data)
                if name != 'data.tar.xz':
                    raise ValueError(f'{package} holds {name}, and only .xz is read; unpack it yourself: dpkg-deb -x {package} FOLDER.')
                return io.BytesIO(lzma.decompress(data))
            file.seek(size + size % 2, os.SEEK_CUR)
    raise ValueError(f'{package} holds no data.tar; download it again.')
