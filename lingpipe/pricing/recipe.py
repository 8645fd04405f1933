"""Recipe: how the forward of a layer makes the tensors that its backward reads, op by op.

It holds what the choice of tensors to keep is made from: the bytes of every tensor, and how much of
the layer's forward must run again to make it once more. A view shares the memory of another tensor
and takes no time, so recipes know only the tensors that are viewed, the roots. What depends on
weights alone is computed again in any case, so that it is no part of a recipe either.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import tensorflow as tf

from lingpipe.pricing.flops import flops_of
from lingpipe.pricing.ops import bytes_of, viewed

Leaf: TypeAlias = tuple[int, int]
"""The place of a value among those that a layer reads, or writes, and the index of a leaf of it."""

# Moving a byte takes as long as so many floating point operations. Devices differ: a P100 has 13,
# an H100 with TensorFloats 150, the CPUs on which this was written about 10. It decides only which
# ops of one layer count how much; all of them together take what the layer takes.
FLOPS_OF_BYTE = 10


@dataclasses.dataclass(frozen=True)
class Made:
    """A tensor that an op of the forward makes: the number of the op, and of its output."""
    op: int
    output: int


Source: TypeAlias = Made | Leaf
"""A root: made by an op, or a leaf of the layer's inputs."""


@dataclasses.dataclass(frozen=True)
class RecipeOp:
    """An op of the forward.

    Attributes:
      share: how much of the time of the layer's forward it takes, 0 to 1.
      inputs: the roots that it reads.
      outputs: the names of what it makes, as in the trace of the layer by itself, with their bytes.
    """
    share: float
    inputs: tuple[Source, ...]
    outputs: tuple[tuple[str, int], ...]


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How the forward of a layer makes what its backward reads; see the head of this file.

    Attributes:
      ops: those that depend on the micro-batch, in an order in which they can run.
      needed: the roots that the backward reads.
      outputs: leaf of the outputs -> the root of it. A leaf that is the same in every micro-batch
        is left out.
    """
    ops: tuple[RecipeOp, ...] = ()
    needed: tuple[Source, ...] = ()
    outputs: Mapping[Leaf, Source] = dataclasses.field(default_factory=dict)


def recipe_of(forward_ops: Mapping[str, tf.Operation], dependent_ops: Sequence[tf.Operation],
              needed: Iterable[tf.Tensor], read: Mapping[Leaf, tf.Tensor],
              written: Mapping[Leaf, tf.Tensor], scope: str) -> Recipe:
    """Makes the recipe of a layer from its graph.

    Args:
      forward_ops: name -> op of the forward pass.
      dependent_ops: those that depend on the micro-batch, in the order of creation.
      needed: the roots that the backward reads.
      read, written: the tensors of the layer's inputs and outputs.
      scope: the name scope of the forward, which names leave out.
    """
    weight_of = {name: _weight(op) for name, op in forward_ops.items()}
    total = sum(weight_of.values()) or 1.0
    number_of = {op.name: i for i, op in enumerate(dependent_ops)}
    leaf_of = {tensor.name: leaf for leaf, tensor in read.items()}

    def source(tensor: tf.Tensor) -> Source | None:
        """The root of a tensor; None if it is the same in every micro-batch."""
        root = viewed(tensor)
        if root.name in leaf_of:
            return leaf_of[root.name]
        number = number_of.get(root.op.name)
        return None if number is None else Made(number, root.value_index)

    def sources(tensors: Iterable[tf.Tensor]) -> tuple[Source, ...]:
        distinct = dict.fromkeys(source(tensor) for tensor in tensors)
        return tuple(one for one in distinct if one is not None)

    roots_written = {leaf: source(tensor) for leaf, tensor in written.items()}
    return Recipe(
        ops=tuple(RecipeOp(
            weight_of[op.name] / total,
            sources(op.inputs),
            tuple((tensor.name.removeprefix(scope), bytes_of(tensor)) for tensor in op.outputs))
            for op in dependent_ops),
        needed=sources(needed),
        outputs={leaf: root for leaf, root in roots_written.items() if root is not None})


def _weight(op: tf.Operation) -> float:
    """The time of an op, in FLOPs: what it computes, or what it moves if that takes longer."""
    if not op.outputs or viewed(op.outputs[0]) is not op.outputs[0]:
        return 0.0
    moved = sum(bytes_of(tensor) for tensor in [*op.inputs, *op.outputs])
    try:
        return max(flops_of(op), float(FLOPS_OF_BYTE * moved))
    except ValueError:   # An unknown shape: the layer has a cost of its own.
        return float(FLOPS_OF_BYTE * moved)
