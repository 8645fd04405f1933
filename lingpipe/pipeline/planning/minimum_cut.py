"""Minimum cut: splits a graph in two where the arcs between the parts have the least capacity.

By hand, so that no dependency is added for one function: SciPy's maximum_flow is documented for
integer capacities of 32 bits, and bytes need more; NetworkX is in pure Python too. Neither was
timed here.
"""
from __future__ import annotations

from collections.abc import Sequence

INFINITE = 1 << 62

Arc = tuple[int, int, int]
"""From a node, to a node, and the capacity, an integer of 0 or more."""


def minimum_cut(num_nodes: int, arcs: Sequence[Arc], source: int, sink: int) -> set[int]:
    """The nodes on the side of the source, as few of them as possible.

    The cost is the capacity of the arcs that lead from this side to the other. It is found by
    Dinic's algorithm: maximum flow along shortest paths, all paths of one length at a time.

    Args:
      num_nodes: nodes are 0 to num_nodes - 1.
      arcs: those of INFINITE capacity are never cut if that can be avoided.
      source, sink: two nodes.
    """
    flow = _Flow(num_nodes, arcs)
    while True:
        levels = flow.levels(source)
        if levels[sink] < 0:
            return {node for node, level in enumerate(levels) if level >= 0}
        flow.block(levels, source, sink)


class _Flow:
    """The capacity that a flow leaves; arc i and arc i ^ 1 are each other's way back."""

    def __init__(self, num_nodes: int, arcs: Sequence[Arc]):
        self._heads: list[int] = []
        self._left: list[int] = []
        self._arcs_of: list[list[int]] = [[] for _ in range(num_nodes)]
        for tail, head, capacity in arcs:
            self._arcs_of[tail].append(len(self._heads))
            self._arcs_of[head].append(len(self._heads) + 1)
            self._heads += [head, tail]
            self._left += [capacity, 0]

    def levels(self, source: int) -> list[int]:
        """The distance of every node from the source along arcs with capacity left, or -1."""
        levels = [-1] * len(self._arcs_of)
        levels[source] = 0
        reached = [source]
        for node in reached:
            for arc in self._arcs_of[node]:
                head = self._heads[arc]
                if self._left[arc] and levels[head] < 0:
                    levels[head] = levels[node] + 1
                    reached.append(head)
        return levels

    def block(self, levels: list[int], source: int, sink: int) -> None:
        """Adds flow until no path that ascends by one level an arc has capacity left."""
        heads, left = self._heads, self._left
        untried = [iter(arcs) for arcs in self._arcs_of]
        path: list[int] = []
        node = source
        while True:
            if node == sink:
                amount = min(left[arc] for arc in path)
                for arc in path:
                    left[arc] -= amount
                    left[arc ^ 1] += amount
                full = next(i for i, arc in enumerate(path) if not left[arc])
                node = heads[path[full] ^ 1]
                # The arc may be of use again only in another phase.
                del path[full:]
                continue

            for arc in untried[node]:
                if left[arc] and levels[heads[arc]] == levels[node] + 1:
                    path.append(arc)
                    node = heads[arc]
                    break
            else:
                if not path:
                    return
                levels[node] = -1
                node = heads[path.pop() ^ 1]
