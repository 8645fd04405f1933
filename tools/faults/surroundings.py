"""Surroundings: the disk, the clock and the network that some kinds of faults need."""
from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Collection, Iterator

from lingpipe.tools.faults import clock, disk
from lingpipe.tools.faults.disturbed_run import NUM_WORKERS, Place
from lingpipe.tools.faults.network import Network
from lingpipe.tools.launch_local import free_addresses

_PORT = 2222   # in a namespace, nobody else has it


@contextlib.contextmanager
def prepared(folder: pathlib.Path, names: Collection[str], seed: int) -> Iterator[Place]:
    """Prepares what the kinds of faults of these names need, for as long as the block runs.

    Args:
      folder: where the logdir will be. With the kind full_disk, it is a small disk.
      names: of the kinds.
      seed: draws the packets that are lost.

    Raises:
      OSError: something cannot be prepared.
    """
    with contextlib.ExitStack() as stack:
        folder.mkdir(parents=True, exist_ok=True)
        clock_file = folder.parent / 'clock' if 'clock' in names else None
        prefix = clock.prefix(clock_file) if clock_file else ()
        if 'full_disk' in names:
            stack.enter_context(disk.small(folder))
        if not {'cut', 'delay', 'lose'} & set(names):
            yield Place(tuple(free_addresses(NUM_WORKERS)), (prefix,) * (NUM_WORKERS + 1),
                        clock_file=clock_file)
            return

        network = Network(NUM_WORKERS + 1, seed)
        stack.callback(network.close)
        yield Place(tuple(f'{network.host(i)}:{_PORT}' for i in range(NUM_WORKERS)),
                    tuple((*network.prefix(i), *prefix) for i in range(NUM_WORKERS + 1)),
                    network, clock_file)
