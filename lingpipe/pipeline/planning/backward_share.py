"""Backward share: how much of the whole backward of a layer there is to compute.

The gradient of a frozen matrix is a product that nobody computes. Neither is that of the input of
the first layer that trains, if what lies before it is frozen. All that lies before it has no
backward, which is known without counting (Element.has_backward). In a network without a frozen
matrix, plans take every backward to be whole, that of the first layer too.
"""
from __future__ import annotations

import functools

from lingpipe.pipeline.planning.dataflow import Element, Kind, has_frozen, signature
from lingpipe.pricing import BackwardFlops, backward_flops
from lingpipe.process.error_text import blaming


def backward_share(element: Element) -> float:
    """How much of its whole backward a layer computes, 0 to 1.

    It is 1 if no matrix is frozen, of the layer or, if no gradient of its inputs is wanted, before
    it. Layers of one kind are traced once in the life of the process.
    """
    flops = _flops(element)
    if flops is None:
        return 1.0
    return (flops.trained if _passes_gradient_on(element) else flops.weights) / flops.whole


def weight_share(element: Element) -> float:
    """How much of the backward that a layer computes is that of its weights, 0 to 1.

    It is half if no matrix is frozen, and all if no gradient of its inputs is wanted.
    """
    if not element.trained:
        return 0.0
    if not _passes_gradient_on(element):
        return 1.0
    flops = _flops(element)
    return 1 - flops.inputs / flops.trained if flops is not None else 0.5


def _flops(element: Element) -> BackwardFlops | None:
    """The FLOPs of the gradients of a layer; None if it is whole, or they are unknown."""
    follows_frozen = any(value.follows_frozen for value in element.reads.values())
    is_whole = not has_frozen(element.layer, element.trained) and (
        _passes_gradient_on(element) or not follows_frozen)
    return _flops_of_kind(signature(element)) if element.has_backward and not is_whole else None


def _passes_gradient_on(element: Element) -> bool:
    """Whether a gradient of what a layer reads is wanted."""
    return any(value.needs_gradient for value in element.reads.values())


@functools.lru_cache(maxsize=10_000)
def _flops_of_kind(kind: Kind) -> BackwardFlops | None:
    element = kind.element
    inputs = {argument: value.spec for argument, value in element.reads.items()}
    with blaming(element.layer.path):
        try:
            flops = backward_flops(element.layer, inputs, [w.path for w in element.trained])
        except (LookupError, ValueError):
            # TensorFlow has no gradient of an op, which a step need not have either if all weights
            # before it are frozen. Or a shape is not known, or a loop has no bound.
            return None
    return flops if flops.trained else None
