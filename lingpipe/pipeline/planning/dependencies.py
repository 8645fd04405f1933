"""Dependencies: which slot of a schedule waits for which.

K cells, M micro-batches, k a cell, m a micro-batch.
"""

from collections.abc import Callable, Collection

from lingpipe.pipeline.planning.schedule import Schedule, Slot

Edges = Collection[tuple[int, int]]
"""Pairs (maker cell, reader cell): the reader's forward reads what the maker's made.

The maker is the earlier cell.
"""

def chain(num_cells: int) -> frozenset[tuple[int, int]]:
    """The edges of a plain sequence: each cell reads the one before it."""
    return frozenset((k, k + 1) for k in range(num_cells - 1))


def dependency_graph(schedule: Schedule,
                     edges: Edges | None = None) -> dict[Slot, tuple[Slot, ...]]:
    """Returns what each slot needs before it can start, besides its turn on its device.

    F(k, m), and B(k, m) where it is fused with F, needs F(j, m) for every edge (j, k). B(k, m)
    needs its own F(k, m) unless fused, its R(k, m) if there is one, and B(j, m) for every edge
    (k, j) whose reader j has a backward. R(k, m) needs its F(k, m), and W(k, m) its B(k, m).

    Args:
      schedule: any schedule.
      edges: all pairs (maker, reader), skip connections included; the chain by default.

    Raises:
      ValueError: an edge does not go from a cell to a later one.
    """
    needs_of = needs_of_slots(schedule, edges)
    has_r = {slot[1:] for slot in schedule.device_of if slot[0] == 'R'}
    graph: dict[Slot, tuple[Slot, ...]] = {}
    for k in range(schedule.num_cells):
        for kind, _, m in schedule.slots_of(k):
            needs = needs_of(kind, k, kind == 'B' and (k, m) in has_r)
            graph[Slot(kind, k, m)] = tuple(Slot(*need, m) for need in needs)
    return graph


def needs_of_slots(schedule: Schedule, edges: Edges | None,
                   ) -> Callable[[str, int, bool], list[tuple[str, int]]]:
    """A function of the kind and the cell of a slot, and of whether it is a B after an R.

    It gives the kinds and cells of the slots that the slot needs, all of its micro-batch.

    Raises:
      ValueError: an edge does not go from a cell to a later one.
    """
    num_cells, backward_cells = schedule.num_cells, schedule.backward_cells
    makers: list[list[int]] = [[] for _ in range(num_cells)]
    backward_readers: list[list[int]] = [[] for _ in range(num_cells)]
    for maker, reader in sorted(chain(num_cells) if edges is None else set(edges)):
        if not 0 <= maker < reader < num_cells:
            raise ValueError(
                f'edge ({maker}, {reader}) does not go from a cell to a later one of {num_cells}; '
                f'give (maker, reader) with maker < reader < {num_cells}.')
        makers[reader].append(maker)
        if reader in backward_cells:
            backward_readers[maker].append(reader)

    def needs_of(kind: str, k: int, is_after_r: bool) -> list[tuple[str, int]]:
        """Returns the kinds and cells of the slots that a slot of cell k waits for."""
        if kind in 'RW':
            return [('F' if kind == 'R' else 'B', k)]
        inputs = [('F', j) for j in makers[k]]
        if kind == 'F':
            return inputs
        is_fused = k == num_cells - 1
        own = inputs if is_fused else [('F', k), ('R', k)][:1 + is_after_r]
        return own + [('B', j) for j in backward_readers[k]]

    return needs_of
