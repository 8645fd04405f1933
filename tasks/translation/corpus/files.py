"""Files of sentence pairs: two texts with equal line counts, or one with tabs between the sides.

They are in UTF-8, plain or compressed by gzip. A line that is wrong is dropped and named in the
report; a file that is wrong as a whole is refused. A file in another encoding is such a file: its
plain ASCII lines would be kept and all others dropped, so it is judged by the lines that are more
than ASCII.
"""
from __future__ import annotations

import gzip
import itertools
import os
import zlib
from collections.abc import Iterator

from lingpipe.tasks.translation.corpus.languages import checked
from lingpipe.tasks.translation.corpus.pair import Pair, Place
from lingpipe.tasks.translation.corpus.report import FOUND, Report
from lingpipe.wording.counts import are, counted

MAX_BAD_SHARE = 0.5       # with a larger share of bad lines, the file is something else
MIN_LINES_FOR_SHARE = 10
NOT_UTF8, NO_PAIR, EMPTY, HAS_NUL = 'not UTF-8', 'not two columns', 'empty line', 'a NUL byte'


def text_pairs(code: str, text_path: str, english_path: str, report: Report) -> Iterator[Pair]:
    """Yields the pairs of two files, line by line.

    Raises:
      ValueError: the language is unknown, a file cannot be read, the line counts differ, or more
        than half of the lines are wrong.
    """
    checked([code])
    numbers = [sum(1 for _ in _lines(path)) for path in (text_path, english_path)]
    if numbers[0] != numbers[1]:
        raise ValueError(f'{text_path} has {counted(numbers[0], "line")} and {english_path} has '
                         f'{numbers[1]:,}, but line n of one translates line n of the other; they '
                         f'may be apart from any line up to {min(numbers) + 1:,} on: write both '
                         'again from their pairs.')

    yield from _pairs(code, (text_path, english_path),
                      map(list, zip(_lines(text_path), _lines(english_path), strict=True)), report)


def tab_pairs(code: str, path: str, report: Report,
              columns: tuple[int, int] = (0, 1)) -> Iterator[Pair]:
    """Yields the pairs of a file with columns between tabs.

    Args:
      code: the language.
      path: the file.
      report: counts the lines that are no pair.
      columns: the columns of the sentence and of its English, from 0.

    Raises:
      ValueError: as in text_pairs.
    """
    checked([code])
    rows = (line.rstrip(b'\r\n').split(b'\t') for line in _lines(path))
    yield from _pairs(
        code, (path, path),
        ([row[i] for i in columns] if max(columns) < len(row) else [] for row in rows), report)


def _pairs(code: str, paths: tuple[str, str], lines: Iterator[list[bytes]],
           report: Report) -> Iterator[Pair]:
    """Yields the pairs of two columns from the files `paths`; a line without both columns is []."""
    source, num_bad, number = f'{code} {os.path.basename(paths[0])}', 0, 0
    num_beyond_ascii, num_not_utf8 = [0, 0], [0, 0]   # lines of each side

    for number, sides in enumerate(lines, 1):
        wrong = [side for side, text in enumerate(sides) if not _is_utf8(text)]
        place = Place(source, paths[wrong[0] if wrong else 0], number)
        for side, text in enumerate(sides):
            num_beyond_ascii[side] += not text.isascii()
            num_not_utf8[side] += side in wrong

        why, texts = (NOT_UTF8, []) if wrong else _decoded(sides)
        if not why:
            yield Pair(code, texts[0], texts[1], place)
            continue
        report.count(FOUND, place)
        report.count(why, place)
        num_bad += why != EMPTY

    if num_bad > MAX_BAD_SHARE * max(number, MIN_LINES_FOR_SHARE):
        kinds = '; '.join(f'{n:,} {why} (the first: {", ".join(report.places[source, why])})'
                          for why in (NOT_UTF8, NO_PAIR, HAS_NUL)
                          if (n := report.total(why, source)))
        raise ValueError(f'{paths[0]}: {num_bad:,} of {counted(number, "line")} {are(num_bad)} no '
                         f'pair of sentences in UTF-8: {kinds}. Convert it (iconv -t UTF-8), or '
                         'name the columns that hold the sentence and its English.')
    for path, num_wrong, num in zip(paths, num_not_utf8, num_beyond_ascii, strict=True):
        if num_wrong > MAX_BAD_SHARE * max(num, MIN_LINES_FOR_SHARE):
            raise ValueError(f'{path}: {num_wrong:,} of the {num:,} lines that are more than ASCII '
                             'are not UTF-8 (the first: '
                             f'{", ".join(report.places[source, NOT_UTF8])}), so it has another '
                             'encoding. Convert it, as with iconv -f ISO-8859-1 -t UTF-8.')
    if not number:
        raise ValueError(f'{paths[0]} is empty; name a file of sentences.')


def _is_utf8(text: bytes) -> bool:
    """Whether the bytes are UTF-8."""
    try:
        text.decode()
        return True
    except UnicodeDecodeError:
        return False


def _decoded(sides: list[bytes]) -> tuple[str, list[str]]:
    """Returns what is wrong with a line of UTF-8, and its two sides."""
    if len(sides) < 2:
        return NO_PAIR, []
    texts = [side.decode('utf-8-sig').strip() for side in sides]
    if not all(texts):
        return EMPTY, []
    return ('', texts) if '\0' not in itertools.chain(*texts) else (HAS_NUL, [])


def _lines(path: str) -> Iterator[bytes]:
    """Yields the lines of a file, which only b'\\n' ends, whatever else ends a line in Unicode."""
    try:
        with open(path, 'rb') as file:
            is_compressed = file.read(2) == b'\x1f\x8b'
        with gzip.open(path) if is_compressed else open(path, 'rb') as file:
            yield from file
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f'{path} is damaged ({error}); fetch it again.') from error
    except OSError as error:
        raise ValueError(f'{path} cannot be read ({error.strerror}); correct the path (it is '
                         f'looked up from {os.getcwd()}).') from error
