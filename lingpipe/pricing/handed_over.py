"""Handed over: what the second part of a split backward takes from the first, in one layer.

The first part, B, computes the gradients of the layer's inputs; the second, W, those of its
weights. W goes back from these to the first tensors that exist anyway: residuals, inputs, gradients
of the outputs and what B computes.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import tensorflow as tf

from lingpipe.pricing.ops import ancestors, bytes_of, viewed
from lingpipe.pricing.recipe import Leaf


@dataclasses.dataclass(frozen=True)
class HandedOver:
    """What W reads.

    Attributes:
      inner_bytes: bytes of residuals that are neither inputs nor outputs.
      inputs, outputs: the leaves that are read and whose memory is kept.
      seeds: the leaves of the outputs whose gradients are read.
      gradient_bytes: bytes of other tensors that B computes.
      passed_on: a leaf of the inputs -> the leaf of the outputs whose gradient it gets unchanged.
    """
    inner_bytes: int = 0
    inputs: frozenset[Leaf] = frozenset()
    outputs: frozenset[Leaf] = frozenset()
    seeds: frozenset[Leaf] = frozenset()
    gradient_bytes: int = 0
    passed_on: Mapping[Leaf, Leaf] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Leaves:
    """Names of tensors -> the leaves of which they are the roots."""
    inputs: Mapping[str, Leaf]
    outputs: Mapping[str, Leaf]
    seeds: Mapping[str, Leaf | None]   # None for that of a loss


def handed_over(of_weights: Sequence[tf.Tensor], of_inputs: Mapping[Leaf, tf.Tensor],
                residuals: Sequence[tf.Tensor], constant: Sequence[tf.Tensor],
                leaves: Leaves) -> HandedOver:
    """Finds what W reads.

    Args:
      of_weights, of_inputs: the gradients.
      residuals: the tensors that the backward starts from, the arguments of the layer included.
      constant: those arguments that are the same in every micro-batch.
      leaves: of the layer.
    """
    stop = {tensor.name for tensor in residuals} | set(leaves.seeds)
    constant_names = {tensor.name for tensor in constant}
    made_by_b = ancestors(list(of_inputs.values()), stop | constant_names)
    dependent = _dependent(of_weights, stop, constant_names)

    read: dict[str, tf.Tensor] = {}
    seen: set[str] = set()
    stack = list(of_weights)
    while stack:
        tensor = stack.pop()
        if tensor.name in constant_names:
            continue
        if tensor.name in stop or tensor.op.name in made_by_b and tensor.op.name in dependent:
            read[viewed(tensor).name] = viewed(tensor)
        elif tensor.op.name not in seen:
            seen.add(tensor.op.name)
            stack.extend(tensor.op.inputs)

    known = {*leaves.inputs, *leaves.outputs, *leaves.seeds, *constant_names}
    others = {name: tensor for name, tensor in read.items() if name not in known}
    roots_of_residuals = {viewed(tensor).name for tensor in residuals}
    roots_of_gradients = {leaf: viewed(tensor).name for leaf, tensor in of_inputs.items()}
    seeds = {name: leaf for name, leaf in leaves.seeds.items() if leaf is not None}
    return HandedOver(
        inner_bytes=sum(bytes_of(tensor) for name, tensor in others.items()
                        if name in roots_of_residuals),
        inputs=frozenset(leaf for name, leaf in leaves.inputs.items() if name in read),
        outputs=frozenset(leaf for name, leaf in leaves.outputs.items() if name in read),
        seeds=frozenset(leaf for name, leaf in seeds.items() if name in read),
        gradient_bytes=sum(bytes_of(tensor) for name, tensor in others.items()
                           if name not in roots_of_residuals),
        passed_on={leaf: seeds[name] for leaf, name in roots_of_gradients.items()
                   if name in seeds})


def _dependent(fetches: Sequence[tf.Tensor], stop: set[str], constant: set[str]) -> set[str]:
    """The names of the ops behind the fetches that depend on a tensor named in `stop`."""
    if not fetches:
        return set()
    behind = ancestors(fetches, stop | constant)
    dependent: set[str] = set()
    for op in fetches[0].graph.get_operations():   # In the order of creation, inputs come first.
        if op.name in behind and any(
                tensor.name in stop or tensor.op.name in dependent for tensor in op.inputs):
            dependent.add(op.name)
    return dependent
