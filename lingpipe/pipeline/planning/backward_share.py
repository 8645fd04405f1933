"""Backward share: how much of the whole backward of a layer there is to compute.

The gradient of a frozen matrix is a product that nobody computes. Nobody computes those of what
lies before the first trained weight either, but that is known without counting
(Element.has_backward).
"""
from __future__ import annotations

import functools

from lingpipe.pipeline.planning.dataflow import Element, Kind, signature
from lingpipe.pricing import BackwardFlops, backward_flops
from lingpipe.process.error_text import blaming


def backward_share(element: Element) -> float:
    """How much of its whole backward a layer computes if some of its weights are frozen, 0 to 1.

    It is 1 if no matrix is frozen. Layers of one kind are traced once in the life of the process.
    """
    flops = _flops(element)
    return flops.trained / flops.whole if flops is not None else 1.0


def weight_share(element: Element) -> float:
    """How much of the backward that a layer computes is that of its weights, 0 to 1.

    It is half if no matrix is frozen, and all if no gradient of its inputs is wanted.
    """
    if not element.trained:
        return 0.0
    if not any(value.needs_gradient for value in element.reads.values()):
        return 1.0
    flops = _flops(element)
    return 1 - flops.inputs / flops.trained if flops is not None else 0.5


def _flops(element: Element) -> BackwardFlops | None:
    """The FLOPs of the gradients of a layer; None if no matrix is frozen, or they are unknown."""
    trained = {weight.path for weight in element.trained}
    frozen = [weight for weight in element.layer.weights() if weight.path not in trained]
    # The gradient of a vector is no product. Most vectors that do not train are moving averages.
    if not element.has_backward or all(len(weight.shape) < 2 for weight in frozen):
        return None
    return _flops_of_kind(signature(element))


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
