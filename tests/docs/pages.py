"""The pages of the documentation, and the blocks in them that are marked.

A mark is a comment on the line before a fenced block. Readers of the page do not see it:

    <!-- run -->                 runs: bash as a command, python in a namespace that the page's
                                 blocks share
    <!-- fails -->               bash that must exit with another code than 0
    <!-- file: mine.py -->       is saved under this name, where the page's commands run
    <!-- prints -->              the output of the command before it has these lines, in this
                                 order; others may stand between them, and `...` says so
    <!-- ci: NAME -->            is run by .ci/run, since it takes longer than a test may

A line <!-- in the source: WORDS --> says that an error which the page explains has these words.
"""
from __future__ import annotations

import dataclasses
import pathlib
import re
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGES = sorted(path for path in [ROOT / 'README.md', *(ROOT / 'docs').rglob('*.md')])

_BLOCK = re.compile(r'^<!-- (?P<mark>run|fails|prints|file|ci)(?:: (?P<name>[\w. -]+))? -->\n'
                    r'```(?P<language>\w+)\n(?P<text>.*?)^```$', re.MULTILINE | re.DOTALL)
_MARK = re.compile(r'^<!-- (?!in the source)[^>]* -->$', re.MULTILINE)
_IN_THE_SOURCE = re.compile(r'^<!-- in the source: (.+) -->$', re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Block:
    """A marked block of a page; `line` is where its text begins, from 0."""
    line: int
    mark: str
    name: str
    language: str
    text: str


def blocks(page: pathlib.Path) -> list[Block]:
    """Returns the marked blocks of a page, in the order of the page.

    Raises:
      ValueError: a comment marks nothing, because of a typing error or a line below it.
    """
    text = page.read_text(encoding='utf-8')
    marked = list(_BLOCK.finditer(text))
    marks = {match.start() for match in _MARK.finditer(text)}
    unused = marks - {match.start() for match in marked}
    if unused:
        line = text[:min(unused)].count('\n') + 1
        raise ValueError(f'{page.name}:{line}: this comment marks no block; put one of the marks '
                         'of tests/docs/pages.py on the line before a fenced block.')
    return [Block(text[:match.start('text')].count('\n'), match['mark'], match['name'] or '',
                  match['language'], match['text']) for match in marked]


def quoted_words(page: pathlib.Path) -> Iterator[str]:
    """Returns the words that a page says are in the source."""
    yield from _IN_THE_SOURCE.findall(page.read_text(encoding='utf-8'))


def holds(output: str, expected: str) -> bool:
    """Returns whether the output has the expected lines in order, with any others in between."""
    lines = iter([line.strip() for line in output.splitlines()])
    wanted = [line.strip() for line in expected.splitlines()]
    return all(any(line == other for other in lines) for line in wanted if line and line != '...')
