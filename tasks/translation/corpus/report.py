"""Report: the pairs that were found and dropped, by source and reason, with their first places."""
from __future__ import annotations

import collections
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from lingpipe.tasks.translation.corpus.pair import Place

NUM_PLACES = 5   # of every source and reason
PLACES_WIDTH = 60
FOUND, KEPT = 'found', 'kept'


class Report:
    """Counts of pairs. Every pair is found once, and kept or dropped for one reason.

    Attributes:
      counts: the number of pairs by (source, reason), where FOUND and KEPT are reasons too.
      places: the first few places by (source, reason).
    """

    def __init__(self) -> None:
        self.counts: collections.Counter[tuple[str, str]] = collections.Counter()
        self.places: dict[tuple[str, str], list[str]] = collections.defaultdict(list)

    def count(self, reason: str, place: Place) -> None:
        """Counts a pair that was FOUND, KEPT, or dropped for a reason."""
        key = (place.source, reason)
        self.counts[key] += 1
        if reason not in (FOUND, KEPT) and len(self.places[key]) < NUM_PLACES:
            self.places[key].append(str(place))

    def total(self, reason: str, source: str | None = None) -> int:
        """Returns the number of pairs with a reason, in one source or in all."""
        return sum(n for (one, why), n in self.counts.items()
                   if why == reason and source in (None, one))

    @property
    def reasons(self) -> list[str]:
        """The reasons for which pairs were dropped, in the order of their first use."""
        return list(dict.fromkeys(reason for _, reason in self.counts
                                  if reason not in (FOUND, KEPT)))

    def rows(self) -> list[dict[str, Any]]:
        """Returns the pairs and the first places of every source and reason, for corpus.json."""
        return [{'source': source, 'reason': reason, 'pairs': n,
                 'places': self.places.get((source, reason), [])}
                for (source, reason), n in self.counts.items()]

    def text(self, width: int = 140) -> str:
        """Returns a table with a row for every source and reason."""
        table = Table(box=box.SIMPLE_HEAD)
        for name, justify in (('source', 'left'), ('pairs', 'left'), ('number', 'right'),
                              ('share', 'right'), ('the first', 'left')):
            table.add_column(name, justify=justify, overflow='fold')  # type: ignore[arg-type]

        for source in dict.fromkeys(source for source, _ in self.counts):
            num_found = self.total(FOUND, source)
            for reason in [FOUND, *self.reasons, KEPT]:
                if (n := self.total(reason, source)) or reason in (FOUND, KEPT):
                    label = reason if reason in (FOUND, KEPT) else f'dropped: {reason}'
                    table.add_row(source if reason == FOUND else '', label, f'{n:,}',
                                  f'{n / max(1, num_found):.1%}',
                                  _some(self.places.get((source, reason), [])))

        console = Console(width=width, color_system=None)
        with console.capture() as capture:
            console.print(table)
        return '\n'.join(line.rstrip() for line in capture.get().splitlines() if line.strip())


def _some(places: list[str]) -> str:
    """Returns as many of the places as fit in a line, but at least one."""
    shown = places[:1]
    for place in places[1:]:
        if len(', '.join([*shown, place])) <= PLACES_WIDTH:
            shown.append(place)
    return ', '.join(shown)
