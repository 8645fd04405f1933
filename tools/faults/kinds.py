"""Kinds of faults, and how some are drawn from a seed."""
from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Collection, Iterator

from lingpipe.tools.faults import clock, disk, files, links, network, processes, trainers
from lingpipe.tools.faults.disturbed_run import DisturbedRun


def _nothing_missing() -> str:
    return ''


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of fault.

    Attributes:
      cause: makes such a fault, and returns a few words on what it was. It draws all that is left
        open. When it returns, the run can recover, if it has to, without more help.
      missing: returns why this machine cannot make such a fault, or ''.
    """
    cause: Callable[[DisturbedRun, random.Random], str]
    missing: Callable[[], str] = _nothing_missing

    @property
    def name(self) -> str:
        """The name in --kinds."""
        return self.cause.__name__

    @property
    def text(self) -> str:
        """What it does, in a sentence."""
        return ' '.join((self.cause.__doc__ or '').split('\n\n')[0].split())


KINDS = (
    Kind(processes.kill), Kind(processes.away), Kind(processes.stop), Kind(processes.slow),
    Kind(processes.memory), Kind(processes.sigterm), Kind(trainers.two_trainers),
    Kind(files.flip), Kind(files.truncate), Kind(files.swap), Kind(files.delete),
    Kind(disk.full_disk, disk.missing), Kind(clock.clock, clock.missing),
    Kind(links.cut, network.missing), Kind(links.delay, network.missing),
    Kind(links.lose, network.missing),
)


def find(names: str) -> tuple[Kind, ...]:
    """Returns the kinds of a list such as 'kill,cut'; '' means all.

    Raises:
      ValueError: a name is unknown, or there twice.
    """
    known = {kind.name: kind for kind in KINDS}
    wanted = names.split(',') if names else list(known)
    for name in wanted:
        if name not in known:
            raise ValueError(f'--kinds has {name!r}; write names with commas between: '
                             f'{",".join(known)}')
        if wanted.count(name) > 1:
            raise ValueError(f'--kinds has {name} more than once, and each kind is drawn as often '
                             'as the others; name it once')
    return tuple(kind for name, kind in known.items() if name in wanted)


def drawn(kinds: Collection[Kind], count: int, chance: random.Random) -> Iterator[Kind]:
    """Yields `count` kinds in random order, each about as often as every other."""
    while count > 0:
        some = chance.sample(list(kinds), len(kinds))[:count]
        yield from some
        count -= len(some)
