"""A growing cell: its bytes, while it is extended by one layer after the other.

What is fixed, held, working and handed is said at the head of memory.py.
"""
from __future__ import annotations

import math
from collections.abc import Callable

from lingpipe.pipeline.planning.layer_bytes import LayerBytes, Leaves
from lingpipe.pipeline.planning.slot_shares import SlotShares


class FixedBytes:
    """The bytes of a cell's weights and of all that goes with them, while it grows."""

    def __init__(self, num_replicas: int, is_summed_in_groups: bool, receives_gradients: bool,
                 shards_slots: bool = False):
        self._times = 1 + is_summed_in_groups
        r = num_replicas
        self._received_share = 2 * (r - 1) / r if receives_gradients else 0.0
        self._owned: set[str] = set()
        self._copied: dict[str, int] = {}
        self._own_bytes = self._gradient_bytes = self._slot_bytes = self._update_bytes = 0
        self._shares = SlotShares(num_replicas) if shards_slots else None

    def add(self, layer: LayerBytes) -> None:
        """Extends the cell by the next layer.

        Its weights, gradients and optimizer slots count, and copies of tied weights.
        """
        self._own_bytes += layer.own_bytes
        if self._shares is not None:
            self._shares.add(layer.slots)
            self._slot_bytes += sum(one.slot_bytes for one in layer.slots)
        self._gradient_bytes += layer.gradient_bytes
        self._update_bytes = max(self._update_bytes, layer.update_bytes)
        self._owned |= layer.owned
        for path in layer.owned:
            self._copied.pop(path, None)
        for path, size in layer.shared:
            if path not in self._owned:
                self._copied[path] = size

    @property
    def total(self) -> int:
        """Bytes of the replica that holds the most."""
        kept_by_others = self._slot_bytes - self._shares.largest if self._shares else 0
        return (self._own_bytes - kept_by_others + sum(self._copied.values())
                + self._times * self._gradient_bytes)

    @property
    def received(self) -> int:
        """Bytes from other replicas, or the temporaries of the update, which comes later.

        Each device sums 1/R of the gradients of the R - 1 other replicas and receives the sums of
        the rest.
        """
        return max(math.ceil(self._received_share * self._gradient_bytes), self._update_bytes)


class Activations:
    """The bytes of a cell's values and residuals of one micro-batch, while it grows."""

    def __init__(self, start: int, leaves: Leaves):
        self._start, self._leaves = start, leaves
        self._inputs: set[int] = set()
        self._kept: set[int] = set()
        self._repeated: set[int] = set()
        self._has_backward = False
        self._input_bytes = 0       # of the values that the cell reads
        self._kept_input_bytes = 0  # of those of them that are residuals
        self._kept_bytes = 0        # of the other residuals
        self._repeated_bytes = 0    # of the cell's own values that recomputing its layers reads
        self._layer_bytes = 0       # the most of those, a layer's own residuals and its gradients
        self._handed = _Handed(start, leaves)

    def add(self, layer: LayerBytes) -> None:
        """Extends the cell by the next layer.

        The values that it reads count, and the residuals that its backward takes over.
        """
        start, makers, num_bytes = self._start, self._leaves.makers, self._leaves.num_bytes
        for leaf in layer.reads:
            if makers[leaf] < start and leaf not in self._inputs:
                self._inputs.add(leaf)
                self._input_bytes += num_bytes[leaf]
        if not layer.has_backward:
            return

        self._has_backward = True
        self._kept_bytes += layer.inner_bytes
        for leaf in layer.residuals:
            root = self._root(leaf)
            if root not in self._kept:
                self._kept.add(root)
                if makers[root] < start:
                    self._kept_input_bytes += num_bytes[root]
                else:
                    self._kept_bytes += num_bytes[root]

        for leaf in layer.repeats:
            root = self._root(leaf)
            if makers[root] >= start and root not in self._repeated:
                self._repeated.add(root)
                self._repeated_bytes += num_bytes[root]
        self._layer_bytes = max(
            self._layer_bytes,
            self._repeated_bytes + layer.repeated_bytes + layer.gradient_bytes)
        self._handed.add(layer, self._root)

    @property
    def residual(self) -> int:
        return self._kept_bytes + self._kept_input_bytes

    @property
    def handed(self) -> _Handed:
        """What W reads if the backward is split."""
        return self._handed

    def held_and_working(self, mode: str) -> tuple[int, int]:
        if not self._has_backward:
            return self._input_bytes, 0
        if mode == 'none':
            return self.residual, 0
        return self._input_bytes, self._kept_bytes if mode == 'cell' else self._layer_bytes

    def _root(self, leaf: int) -> int:
        """The leaf whose memory this one shares, as far as the cell has both."""
        while leaf in self._leaves.viewed and self._leaves.makers[leaf] >= self._start:
            leaf = self._leaves.viewed[leaf]
        return leaf


class _Handed:
    """The bytes that W reads of one micro-batch, while a cell grows."""

    def __init__(self, start: int, leaves: Leaves):
        self._start, self._leaves = start, leaves
        self._residuals: set[int] = set()
        self._seeds: set[int] = set()             # leaves whose gradients are read
        self._same_gradient: dict[int, int] = {}  # leaf -> another one with the same gradient
        self.residual_bytes = 0
        self.gradient_bytes = 0
        self.gives_gradients = False              # to earlier cells

    @property
    def total(self) -> int:
        return self.residual_bytes + self.gradient_bytes

    def add(self, layer: LayerBytes, root_of: Callable[[int], int]) -> None:
        """Extends the cell by the next layer, which has a backward."""
        leaves = self._leaves
        self.gives_gradients |= any(leaves.makers[leaf] < self._start
                                    for leaf in layer.gradients_out)
        self.residual_bytes += layer.handed_inner_bytes
        self.gradient_bytes += layer.handed_gradient_bytes
        for root in map(root_of, layer.handed):
            if root not in self._residuals:
                self._residuals.add(root)
                self.residual_bytes += leaves.num_bytes[root]

        for leaf, passed in layer.passed_on.items():
            if leaves.num_readers[leaf] == 1:     # Of several readers, gradients are summed.
                self._same_gradient[leaf] = passed
                if leaf in self._seeds:
                    self._seeds.remove(leaf)
                    self.gradient_bytes -= leaves.num_bytes[leaf]
                    self._add_seed(passed)
        for leaf in layer.seeds:
            self._add_seed(leaf)

    def _add_seed(self, leaf: int) -> None:
        while leaf in self._same_gradient:
            leaf = self._same_gradient[leaf]
        if leaf not in self._seeds:
            self._seeds.add(leaf)
            self.gradient_bytes += self._leaves.num_bytes[leaf]
