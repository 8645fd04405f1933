"""Outputs: the values that a network is used for, and the layers that they need.

A training network ends in losses and metrics, which write nothing and read labels and weights that
nobody has when the network is used. Walking back from the outputs leaves out all such layers:

    layers            reads             writes            needed for x
    conv              x=image           x                 yes
    smooth            label             soft_label        no
    classifier        x                 x                 yes
    loss              x, soft_label     (nothing)         no
"""
from __future__ import annotations

from collections.abc import Sequence

from lingpipe.layers.sequential import Sequential
from lingpipe.pipeline.planning.dataflow import BATCH, Element, Value
from lingpipe.wording.values import nearest


def output_names(network: Sequential, elements: Sequence[Element],
                 named: Sequence[str] = ()) -> tuple[str, ...]:
    """Returns the names of the values that a network gives as its outputs.

    Args:
      network: may name them itself.
      elements: all of its layers.
      named: the names that somebody has chosen; (): those that the network names or, if it names
        none, all that the last layer writes whose result depends on weights. Losses write
        nothing, and what is computed of labels or weights of examples alone is no prediction.

    Raises:
      ValueError: no layer writes a value of that name, or no layer writes anything.
    """
    writers = [element for element in elements if element.writes]
    if not writers:
        raise ValueError('no layer of the network writes a value, so that it has no outputs; give '
                         'a layer before the loss a name to write.')
    names = tuple(named) or network.output_names() or tuple(_last_learned(elements).writes)
    written = {name for element in writers for name in element.writes}
    for name in names:
        if name not in written:
            hint = nearest(name, sorted(written), 'there are')
            raise ValueError(f'outputs names {name!r}, which no layer writes; {hint}'
                             f'{"" if hint.endswith("?") else ": correct task.outputs."}')
    return names


def _last_learned(elements: Sequence[Element]) -> Element:
    """The last layer that writes what depends on weights; the last that writes, if none does."""
    learned: set[int] = set()
    for element in elements:
        makers = {value.maker for value in element.reads.values()}
        if makers & learned or any(element.layer.weights()):
            learned.add(element.index)
    writers = [element for element in elements if element.writes]
    return next((one for one in reversed(writers) if one.index in learned), writers[-1])


def output_values(elements: Sequence[Element], names: Sequence[str]) -> dict[str, Value]:
    """The last value of each name."""
    written = {name: value for element in elements for name, value in element.writes.items()}
    return {name: written[name] for name in names}


def layers_before(elements: Sequence[Element], values: Sequence[Value]) -> tuple[Element, ...]:
    """The layers without which the values cannot be computed, in their order."""
    needed: set[int] = set()
    missing = [value.maker for value in values]
    while missing:
        maker = missing.pop()
        if maker != BATCH and maker not in needed:
            needed.add(maker)
            missing += [value.maker for value in elements[maker].reads.values()]
    return tuple(element for element in elements if element.index in needed)


def inputs_of(elements: Sequence[Element]) -> tuple[str, ...]:
    """The names of the values of the mini-batch that the layers read."""
    read = [value for element in elements for value in element.reads.values()]
    return tuple(dict.fromkeys(value.name for value in read if value.maker == BATCH))
