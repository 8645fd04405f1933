"""Parts: the variables of a checkpoint by the process that writes them, a few at a time."""
from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

CHUNK_BYTES = (1 << 21, 1 << 28)    # least and most: 2 ms to 0.3 s of work, and 0.8 ms for a file
_NUM_CHUNKS = 64                    # of a checkpoint, unless they get too small or too large
_LEAST_ROUNDS = 8                   # of many workers, whose files would be too many otherwise
_VARIABLE_BYTES = 20_000            # the time that a variable takes besides its data, in bytes

Kinds = Mapping[str, Mapping[str, Any]]   # key -> {'shape': [2, 3], 'dtype': 'float32'}


@dataclasses.dataclass(frozen=True)
class Part:
    """Variables that one process writes to one file, or reads.

    Attributes:
      host: the CPU of the worker; '' for this process.
      keys: of the variables.
    """
    host: str
    keys: Sequence[str]


def rounds(kinds: Kinds, hosts: Mapping[str, str]) -> list[list[Part]]:
    """Returns all variables in rounds, each with at most one part for every process.

    The parts of a round are written at the same time. All take about equally long.

    Args:
      kinds: of the variables.
      hosts: key -> CPU of the worker that writes it; this process writes the others.
    """
    costs = {key: math.prod(kind['shape']) * tf.as_dtype(kind['dtype']).size + _VARIABLE_BYTES
             for key, kind in kinds.items()}
    keys_by_host: dict[str, list[str]] = {}
    for key in kinds:
        keys_by_host.setdefault(hosts.get(key, ''), []).append(key)

    num_rounds = max(_NUM_CHUNKS // max(1, len(keys_by_host)), _LEAST_ROUNDS)
    largest = max((sum(costs[key] for key in keys) for keys in keys_by_host.values()), default=0)
    least, most = CHUNK_BYTES
    limit = min(max(largest / num_rounds, least), most)
    by_host = [[Part(host, chunk) for chunk in _chunks(keys, costs, limit)]
               for host, keys in keys_by_host.items()]
    return [[part for part in one_round if part] for one_round in itertools.zip_longest(*by_host)]


def _chunks(keys: Sequence[str], costs: Mapping[str, int], limit: float) -> Iterator[list[str]]:
    """Yields the keys in lists, each of which ends once it costs `limit`."""
    chunk: list[str] = []
    cost = 0
    for key in keys:
        chunk.append(key)
        cost += costs[key]
        if cost >= limit:
            yield chunk
            chunk = []
            cost = 0
    if chunk:
        yield chunk
