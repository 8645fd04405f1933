"""Rows: what a check reports, a line of the table each."""
from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

Verdict: TypeAlias = Literal['ok', 'BROKEN', 'differs', 'info', 'n/a', 'FAILED']
"""A promise that is held; one that is not; bits that differ where nobody promises them; a number;
what this machine cannot do; a check that did not come to its end."""

BAD = ('BROKEN', 'FAILED')
_WIDTH = 80
_INDENT = 23


@dataclasses.dataclass(frozen=True)
class Row:
    """A result.

    Attributes:
      check: the name of the check.
      verdict: see `Verdict`.
      text: a short sentence.
      numbers: the same for programs.
    """
    check: str
    verdict: Verdict
    text: str
    numbers: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def line(self) -> str:
        """Returns the row as it is printed, of 80 columns; a long text goes on below."""
        check = self.check.replace('_deterministic', '+det')
        head = f'{check:14}{self.verdict:8} '
        return textwrap.fill(head + self.text, _WIDTH, subsequent_indent=' ' * _INDENT,
                             break_long_words=False, break_on_hyphens=False)

    def to_json(self) -> dict[str, Any]:
        """Returns the row as a JSON object."""
        return dataclasses.asdict(self)
