"""TargetDependence: which layers of a network depend on the ids so far, and which give the next.

The layers that depend on the target run once for every position. Of the rest of the network, such
as an encoder, those that the next ids need run once, before the first position.
"""
from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence

from lingpipe.layers.base import Layer
from lingpipe.pipeline.planning.dataflow import BATCH, Element, Value


class TargetDependence:
    """The elements of a network that depend on the target, and those that the candidates need.

    Attributes:
      target: the Value of the ids so far.
      candidates: the Value that the last layer that gives candidates writes.
      stepped: the elements that the candidates need and that depend on the target.
      before: the elements that the candidates need and that do not depend on the target.
      prefilled: the elements that a prompt must run through, so that later positions find what they
        look at: those that remember something, and all that these need. Empty if one of them cannot
        read several positions at once.
      can_start_late: whether sentences may begin at different positions; see DecodedFunction.
    """

    def __init__(self, elements: Sequence[Element], target: str):
        """Follows the values of a network.

        Raises:
          ValueError: the network reads no target, or no layer that depends on it gives candidates
            for the next ids.
        """
        read = {v for e in elements for v in e.reads.values()
                if v.maker == BATCH and v.name == target}
        if not read:
            raise ValueError(f'the network reads no {target!r}, so that there is nothing to '
                             f'decode; name the value of the ids so far.')
        self.target, = read

        moving, dependent = {self.target}, set()
        for element in elements:
            if moving & set(_reads(element, 'decode').values()):
                moving |= set(element.writes.values())
                dependent.add(element)
        self._moving, self._dependent = moving, dependent

        giving = [e for e in elements if e in dependent and e.layer.gives_candidates]
        if not giving:
            raise ValueError(f'no layer that depends on {target!r} gives candidates for the next '
                             f'ids; end the network with Logits or SoftmaxShards, before its loss.')
        self.candidates, = giving[-1].writes.values()

        needed = self._needed([giving[-1]], elements)
        self.stepped = [e for e in elements if e in needed and e in dependent]
        self.before = [e for e in elements if e in needed and e not in dependent]

        remembering = [e for e in self.stepped
                       if type(e.layer).initial_past is not Layer.initial_past]
        before_these = self._needed(remembering, elements)
        prefilled = [e for e in self.stepped if e in before_these]
        self.prefilled = prefilled if all(e.layer.has_prefill for e in prefilled) else []
        self.can_start_late = all(e.layer.can_start_late for e in self.stepped)

    def _needed(self, last: Sequence[Element], elements: Sequence[Element]) -> set[Element]:
        """The elements `last`, and all whose values reach one of them when decoding."""
        needed: set[Element] = set()
        stack = [*last]
        while stack:
            element = stack.pop()
            if element not in needed:
                needed.add(element)
                values = (*self.moving_reads(element).values(), *self.fixed_reads(element))
                stack += [elements[value.maker] for value in values if value.maker != BATCH]
        return needed

    def decode_reads(self, element: Element) -> Mapping[str, Value]:
        """Argument of Layer.decode -> value."""
        return _reads(element, 'decode')

    def moving_reads(self, element: Element) -> Mapping[str, Value]:
        """Argument of Layer.decode -> value, where the value depends on the target."""
        if element not in self._dependent:
            return {}
        return {argument: v for argument, v in self.decode_reads(element).items()
                if v in self._moving}

    def prepare_reads(self, element: Element) -> Mapping[str, Value]:
        """Argument of Layer.prepare -> value, where the value does not depend on the target."""
        return {argument: v for argument, v in _reads(element, 'prepare').items()
                if v not in self._moving}

    def fixed_reads(self, element: Element) -> list[Value]:
        """All values that an element reads and that do not depend on the target."""
        if element not in self._dependent:
            return list(element.reads.values())
        return [v for v in (*self.prepare_reads(element).values(),
                            *self.decode_reads(element).values()) if v not in self._moving]


def _reads(element: Element, method: str) -> Mapping[str, Value]:
    """Argument -> value, for the values that the layer's `prepare` or `decode` reads.

    A layer that overrides the method reads the arguments that its signature names. Without an
    override, `prepare` reads nothing, and `decode` reads everything that fprop reads.
    """
    function = getattr(type(element.layer), method)
    if function is getattr(Layer, method):
        return element.reads if method == 'decode' else {}
    names = inspect.signature(function).parameters
    return {argument: value for argument, value in element.reads.items() if argument in names}
