"""Measured layers: how long each layer takes on this machine, for micro-batches of any size.

Layers that are alike are timed once. What does not fit into memory together is timed in groups, so
that a network may be far bigger than the device: one layer at a time has to fit. A size that would
take too long is extrapolated from smaller ones.
"""
from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence

from lingpipe.pipeline.execution.measured_costs import layer_seconds
from lingpipe.pipeline.planning.dataflow import Element, num_examples, signature

Passes = tuple[float, float]
"""Seconds of a forward and of a backward."""

MAX_ROUNDS = 10
MIN_RUNS = 4   # of a layer: the first ones are slow


class MeasuredLayers:
    """Times layers on devices; asked for small micro-batches first, it can skip large ones.

    Calls give [L] the seconds of each layer's forward and backward.
    """

    def __init__(self, devices: Sequence[str], budget_s: float, free_bytes: float,
                 tell: Callable[[int], None] = lambda size: None):
        """
        Args:
          devices: tf.device strings; copies of a layer run on all of them at once.
          budget_s: about how long the layers of one size may take to be timed.
          free_bytes: what each device has for layers that are timed together.
          tell: called with the examples of a micro-batch before its layers are timed.
        """
        self._tell = tell
        self._devices, self._budget_s, self._free_bytes = devices, budget_s, free_bytes
        self._passes_of_size: dict[int, list[Passes]] = {}

    def __call__(self, elements: Sequence[Element]) -> list[Passes]:
        """[L] the seconds of each layer, forward and backward."""
        size = num_examples(elements)
        if size not in self._passes_of_size:
            smaller = sorted(known for known in self._passes_of_size if known < size)
            passes = self._extrapolated(smaller, size)
            passes_of_kind = dict(zip(map(signature, elements), passes, strict=False))
            if not passes or MIN_RUNS * sum(map(sum, passes_of_kind.values())) < self._budget_s:
                self._tell(size)
                passes = self._measured(elements)
            self._passes_of_size[size] = passes
        return self._passes_of_size[size]

    def _measured(self, elements: Sequence[Element]) -> list[Passes]:
        """Times one layer of each kind, and returns the passes of all layers."""
        first_of_kind: dict[Hashable, Element] = {}
        for element in elements:
            first_of_kind.setdefault(signature(element), element)

        passes_of_kind: dict[Hashable, Passes] = {}
        groups = list(_groups(first_of_kind, self._free_bytes))
        for kinds in groups:
            passes = layer_seconds([first_of_kind[kind] for kind in kinds], self._devices,
                                   MAX_ROUNDS, self._budget_s / len(groups))
            passes_of_kind |= dict(zip(kinds, passes, strict=True))
        return [passes_of_kind[signature(element)] for element in elements]

    def _extrapolated(self, sizes: Sequence[int], size: int) -> list[Passes]:
        """The passes on the line through the two largest of known sizes; empty without any."""
        if not sizes:
            return []
        large = sizes[-1]
        small = sizes[-2] if len(sizes) > 1 else 0
        none = [(0.0, 0.0)] * len(self._passes_of_size[large])
        pairs = zip(self._passes_of_size.get(small, none), self._passes_of_size[large],
                    strict=True)
        share = (size - large) / (large - small)
        return [(of_large[0] + share * max(0.0, of_large[0] - of_small[0]),
                 of_large[1] + share * max(0.0, of_large[1] - of_small[1]))
                for of_small, of_large in pairs]


def _groups(elements: dict[Hashable, Element], free_bytes: float) -> Iterator[list[Hashable]]:
    """Runs of kinds whose layers fit into memory together, or single ones."""
    group: list[Hashable] = []
    group_bytes = 0.0
    for kind, element in elements.items():
        num_bytes = _bytes_when_timed(element)
        if group and group_bytes + num_bytes > free_bytes:
            yield group
            group, group_bytes = [], 0.0
        group.append(kind)
        group_bytes += num_bytes
    yield group


def _bytes_when_timed(element: Element) -> float:
    """About what timing a layer takes: weights, gradients twice, values, residuals, temporaries."""
    weight_bytes: int = sum(weight.size * weight.dtype.size for weight in element.layer.weights())
    values = [*element.reads.values(), *element.writes.values()]
    return 4.0 * weight_bytes + 8.0 * sum(value.num_bytes for value in values)
