"""MediaWiki's messages: */i18n/*.json, one file a language beside en.json, in about 500 languages.

They are under GPL-2+ and no part of this project: `python -m lingpipe.tools.get_mediawiki` fetches
Debian's package and unpacks the messages into a folder of the user's, from which they are read.

A package is an ar archive that holds data.tar.xz (deb(5)). tarfile reads the latter. The ar archive
is read by hand, in ten lines, so that neither Debian's programs are needed nor python-debian or
arpy, which nothing else here would use.
"""
from __future__ import annotations

import io
import json
import os
import pathlib
import tarfile
from collections.abc import Iterator

from lingpipe.tasks.translation.corpus.pair import Pair, Place
from lingpipe.tasks.translation.corpus.report import FOUND, Report

SOURCE = 'mediawiki'
NO_JSON = 'file is no JSON'


def message_pairs(folder: str, report: Report) -> Iterator[Pair]:
    """Yields the messages of all languages whose keys English has too, in the order of paths.

    Raises:
      ValueError: there is no en.json in an i18n folder.
    """
    root = pathlib.Path(folder)
    english_files = sorted(path for path in root.rglob('en.json') if 'i18n' in path.parts)
    if not english_files:
        raise ValueError(
            f'{folder} holds no i18n/en.json; name a folder that '
            'python -m lingpipe.tools.get_mediawiki '
            "--output made, or another with MediaWiki's i18n files (it is looked up from "
            f'{os.getcwd()}).')

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
    """Returns the messages of a file by key; a file that is not JSON has none, and is reported."""
    try:
        content = json.loads(path.read_bytes().decode('utf-8-sig'))
    except ValueError:   # JSONDecodeError and UnicodeDecodeError are ValueErrors
        content = None

    if not isinstance(content, dict):
        place = Place(SOURCE, str(path.relative_to(root)))
        report.count(FOUND, place)
        report.count(NO_JSON, place)
        return {}
    return {key: value for key, value in content.items() if isinstance(value, str)}


def unpack(package: str, folder: str) -> int:
    """Unpacks */i18n/*.json of a Debian package into a folder, and returns the number of files.

    Raises:
      ValueError: it is not such a package.
    """
    num_files = 0
    with _data_of(package) as archive:
        for member in archive:
            parts = pathlib.PurePosixPath(member.name).parts
            is_message_file = 'i18n' in parts[:-1] and member.name.endswith('.json')
            if not member.isfile() or not is_message_file or '..' in parts:
                continue

            content = archive.extractfile(member)
            assert content is not None
            first = parts.index('mediawiki') + 1 if 'mediawiki' in parts else 1
            target = pathlib.Path(folder, *parts[first:])
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content.read())
            num_files += 1
    return num_files


def _data_of(package: str) -> tarfile.TarFile:
    """Returns the archive data.tar.* of a package."""
    with open(package, 'rb') as file:
        if file.read(8) != b'!<arch>\n':
            raise ValueError(f'{package} is no Debian package; name the .deb that apt-get download '
                             'mediawiki left.')

        # A header is name 16, time 12, owner 6, group 6, mode 8, size 10, end 2.
        while len(header := file.read(60)) == 60:
            name = header[:16].decode().strip(' /')
            size = int(header[48:58])
            if not name.startswith('data.tar'):
                file.seek(size + size % 2, os.SEEK_CUR)
                continue
            try:
                return tarfile.open(fileobj=io.BytesIO(file.read(size)), mode='r:*')
            except tarfile.ReadError as error:
                raise ValueError(f'{package} holds {name}, which Python cannot read; unpack it '
                                 f'yourself: dpkg-deb -x {package} FOLDER.') from error
    raise ValueError(f'{package} holds no data.tar; download it again.')
