"""Residuals: the tensors of a forward pass that its backward pass starts from.

They are not guessed: the gradient is built behind the forward graph, and what it reads of the
forward graph is what has to be kept. `residual_tensors` finds them in any graph. The tracer of the
pipeline cuts its compiled tasks there, and `residuals_of_layer` finds them in the graph of one
layer, so that a forecast counts what the tasks really hand over.

Views (a reshape) share the memory of the tensor that they view. So bytes are counted by that
tensor, the root of the view.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from lingpipe.layers.base import Layer
from lingpipe.layers.nested import Nested, leaves
from lingpipe.learning.gradient import Gradient
from lingpipe.learning.pool_gradients import pair_with_pools
from lingpipe.pricing.graph import FPROP, Trace, trace
from lingpipe.pricing.handed_over import HandedOver, Leaves, handed_over
from lingpipe.pricing.ops import ancestors, bytes_of, narrow_casts, viewed
from lingpipe.pricing.recipe import Leaf, Recipe, recipe_of
from lingpipe.pricing.temporaries import most_bytes

Views: TypeAlias = Mapping[Leaf, tuple[str, Leaf]]
"""A leaf of the outputs -> the leaf of the inputs ('reads') or outputs ('writes') that it views."""


@dataclasses.dataclass(frozen=True)
class Residuals:
    """What the backward pass of one layer takes over from its forward pass.

    Attributes:
      inner_bytes: bytes of tensors that are neither inputs nor outputs.
      inputs: the leaves of the inputs that are read.
      outputs: the leaves of the outputs whose memory is kept.
      gradients: the leaves of the inputs that get a gradient.
      views: the leaves of the outputs that share the memory of another leaf.
      recipe: how the forward makes all of it.
      handed_over: what the gradients of weights need, if the backward is split.
      cast_bytes: bytes of weights in a narrower dtype; a step holds them.
      temporary_bytes: the most that the forward or the backward needs besides, while it runs.
    """
    inner_bytes: int = 0
    inputs: frozenset[Leaf] = frozenset()
    outputs: frozenset[Leaf] = frozenset()
    gradients: frozenset[Leaf] = frozenset()
    views: Views = dataclasses.field(default_factory=dict)
    recipe: Recipe = dataclasses.field(default_factory=Recipe)
    handed_over: HandedOver = dataclasses.field(default_factory=HandedOver)
    cast_bytes: int = 0
    temporary_bytes: int = 0


def residuals_of_layer(layer: Layer, inputs: Mapping[str, Nested], trained: Sequence[str],
                       differentiated: Callable[[Leaf], bool],
                       asked: Callable[[Leaf], bool]) -> Residuals:
    """Traces a layer, forward and backward, and finds what is handed over.

    Args:
      layer: the layer.
      inputs: argument of fprop -> nested tf.TensorSpec, in the order to which leaves refer.
      trained: the paths of the weights whose gradients are wanted.
      differentiated: whether the gradient of a leaf of the inputs is wanted.
      asked: whether later layers give a gradient of a leaf of the outputs.
    """
    traced = trace(layer, **inputs)
    read = _by_leaf(traced.inputs[name] for name in inputs)
    written = _by_leaf(layer.written(traced.outputs).values())

    targets = {leaf: tensor for leaf, tensor in written.items() if asked(leaf)}
    wanted = [leaf for leaf in read if differentiated(leaf)]
    sources = [*(traced.weights[path] for path in trained), *(read[leaf] for leaf in wanted)]
    forward = [*written.values(), *traced.emissions.tensors()]
    backward = _backward(traced, list(targets.values()), sources, forward)
    kept = backward.kept
    args = [*traced.micro_batch_args, *traced.weights.values()]
    forward_ops, dependent_ops = _dependent_ops(forward, {tensor.name for tensor in args},
                                                traced.micro_batch_args)
    of_weights, of_inputs = backward.gradients[:len(trained)], backward.gradients[len(trained):]
    gradients_of_inputs = {leaf: gradient
                           for leaf, gradient in zip(wanted, of_inputs, strict=True)
                           if gradient is not None}

    leaf_of_input = {tensor.name: leaf for leaf, tensor in read.items()}
    leaf_of_output, views = _outputs_and_views(written, leaf_of_input)
    return Residuals(
        inner_bytes=sum(bytes_of(tensor) for name, tensor in kept.items()
                        if name not in leaf_of_input and name not in leaf_of_output),
        inputs=frozenset(leaf_of_input[name] for name in kept if name in leaf_of_input),
        outputs=frozenset(leaf_of_output[name] for name in kept if name in leaf_of_output),
        gradients=frozenset(gradients_of_inputs),
        views=views,
        recipe=recipe_of(forward_ops, dependent_ops, kept.values(), read, written, f'{FPROP}/'),
        handed_over=handed_over(
            [tensor for gradient in of_weights for tensor in _tensors_of(gradient)],
            {leaf: tensor for leaf, gradient in gradients_of_inputs.items()
             for tensor in _tensors_of(gradient)},
            [*backward.residuals, *traced.micro_batch_args],
            list(traced.weights.values()),
            Leaves(leaf_of_input, leaf_of_output, backward.leaf_of_seed(targets))),
        cast_bytes=_cast_bytes(traced),
        temporary_bytes=_temporary_bytes(forward, backward, args, of_weights, of_inputs))


def _temporary_bytes(forward: Sequence[tf.Tensor], backward: _Backward, args: Sequence[tf.Tensor],
                     of_weights: Sequence[Gradient | None],
                     of_inputs: Sequence[Gradient | None]) -> int:
    """The most that the forward or the backward of a layer needs besides while it runs.

    Args:
      forward: what it fetches. Residuals are counted as kept, and not here.
      backward: it starts from residuals and the gradients of what the layer writes.
      args: the inputs and weights of the layer.
      of_weights, of_inputs: the gradients. Sums take those of weights as soon as they are there.
    """
    given = {tensor.name for tensor in args}
    held = given | {tensor.name for tensor in backward.residuals}
    seeds = {seed.name for seed in backward.seeds}
    return max(
        most_bytes(forward, given, given | set(backward.kept)),
        most_bytes([tensor for gradient in of_inputs for tensor in _tensors_of(gradient)],
                   held | seeds, held | set(backward.kept),
                   [tensor for gradient in of_weights for tensor in _tensors_of(gradient)]))


def _cast_bytes(traced: Trace) -> int:
    """The bytes of the weights that the layer uses in a narrower dtype, once for each dtype."""
    names = {tensor.name for tensor in traced.weights.values()}
    casts = {(cast.op.inputs[0].name, cast.dtype): cast
             for cast in narrow_casts(traced.graph, names)}
    return sum(map(bytes_of, casts.values()))


def _by_leaf(values: Iterable[Any]) -> dict[Leaf, tf.Tensor]:
    """The tensors of values, by the place of the value and the index of the leaf."""
    return {(place, i): tensor for place, value in enumerate(values)
            for i, tensor in enumerate(leaves(value))}


def _outputs_and_views(written: Mapping[Leaf, tf.Tensor], leaf_of_input: Mapping[str, Leaf]
                       ) -> tuple[dict[str, Leaf], Views]:
    """Returns name of a root -> the first output that has its memory, and the other outputs' views.

    Args:
      written: the outputs.
      leaf_of_input: name of an input -> its leaf.
    """
    leaf_of_output: dict[str, Leaf] = {}
    views: dict[Leaf, tuple[str, Leaf]] = {}
    for leaf, tensor in written.items():
        root = viewed(tensor).name
        if root in leaf_of_input:
            views[leaf] = 'reads', leaf_of_input[root]
        elif leaf_of_output.setdefault(root, leaf) != leaf:
            views[leaf] = 'writes', leaf_of_output[root]
    return leaf_of_output, views


@dataclasses.dataclass(frozen=True, eq=False)
class _Backward:
    """The gradient behind the forward graph of a layer.

    Attributes:
      gradients: of each source, or None.
      seeds: the placeholders of the gradients of the targets.
      residuals: the tensors that it starts from.
      kept: name -> the roots of the forward tensors that are read.
    """
    gradients: Sequence[tf.Tensor | tf.IndexedSlices | None]
    seeds: Sequence[tf.Tensor] = ()
    residuals: Sequence[tf.Tensor] = ()
    kept: Mapping[str, tf.Tensor] = dataclasses.field(default_factory=dict)

    def leaf_of_seed(self, targets: Iterable[Leaf]) -> dict[str, Leaf | None]:
        """Name of a seed -> the leaf whose gradient it is; None for that of a loss."""
        leaves_or_losses = [*targets, *[None] * len(self.seeds)]
        return {seed.name: leaf
                for seed, leaf in zip(self.seeds, leaves_or_losses, strict=False)}


def _backward(traced: Trace, targets: Sequence[tf.Tensor], sources: Sequence[tf.Tensor],
              forward: Sequence[tf.Tensor]) -> _Backward:
    """Adds the gradient to the graph and finds what it reads of the forward pass.

    Args:
      traced: the forward graph.
      targets: the outputs whose gradients are given; losses are targets too.
      sources: the tensors whose gradients are wanted.
      forward: what the forward pass fetches.
    """
    targets = [*targets, *traced.emissions.losses.values()]
    if not targets or not sources:
        return _Backward([None] * len(sources))
    with traced.graph.as_default():
        seeds = [tf.compat.v1.placeholder(target.dtype, target.shape) for target in targets]
        num_before = len(traced.graph.get_operations())
        gradients = tf.gradients(targets, sources, seeds)
        pair_with_pools(traced.graph.get_operations()[num_before:])

    backward = [tensor for gradient in gradients for tensor in _tensors_of(gradient)]
    inputs = leaves(traced.inputs)
    args = [*traced.micro_batch_args, *traced.weights.values(), *seeds]
    residuals = residual_tensors(forward, backward, args, traced.micro_batch_args)

    backward_ops = ancestors(backward, {tensor.name for tensor in [*args, *residuals]})
    names_read = {tensor.name for op in backward_ops.values() for tensor in op.inputs}
    inputs_read = [tensor for tensor in inputs if tensor.name in names_read]
    # A loop hands its weights over, though they are in memory anyway.
    weights = {tensor.name for tensor in traced.weights.values()}
    roots = [viewed(tensor) for tensor in [*residuals, *inputs_read]]
    return _Backward(gradients, seeds, residuals,
                     {root.name: root for root in roots if root.name not in weights})


def residual_tensors(forward: Sequence[tf.Tensor], backward: Sequence[tf.Tensor],
                     args: Sequence[tf.Tensor], micro_batch_args: Sequence[tf.Tensor],
                     kept: Collection[str] | None = None) -> list[tf.Tensor]:
    """The tensors made by the forward pass that the backward pass starts from.

    What depends on weights alone (a weight cast to bfloat16, say) is computed again instead: it
    would be kept once for every micro-batch in flight.

    Args:
      forward, backward: what the two passes fetch.
      args: all arguments of the traced function.
      micro_batch_args: those that differ from one micro-batch to the next.
      kept: if given, the backward starts from the tensors of these names alone, as far as it needs
        them, and repeats what lies between them and what it reads.
    """
    stop = {tensor.name for tensor in args}
    forward_ops, ops = _dependent_ops(forward, stop, micro_batch_args)
    dependent_ops = {op.name for op in ops}

    residuals: dict[str, tf.Tensor] = {}
    seen_ops: set[str] = set()
    stack = list(backward)
    while stack:
        tensor = stack.pop()
        op = tensor.op
        if tensor.name in stop:
            continue
        if tensor.name in kept if kept is not None else op.name in dependent_ops:
            residuals[tensor.name] = tensor
        elif op.name not in seen_ops:
            seen_ops.add(op.name)
            stack.extend(op.inputs)
            for control in op.control_inputs:
                if control.name not in dependent_ops:
                    stack.extend(control.outputs[:1] or control.inputs)
    return [residuals[name] for name in sorted(residuals)]


def _dependent_ops(forward: Sequence[tf.Tensor], stop: set[str],
                   micro_batch_args: Sequence[tf.Tensor],
                   ) -> tuple[dict[str, tf.Operation], list[tf.Operation]]:
    """The ops of a forward pass, by name, and those of them that depend on the micro-batch.

    Args:
      forward: what it fetches.
      stop: the names of all arguments.
      micro_batch_args: the arguments that differ from one micro-batch to the next.
    """
    forward_ops = ancestors(forward, stop)
    names = {tensor.op.name for tensor in micro_batch_args}
    dependent_ops = []
    # In the order of creation, inputs come first.
    for op in micro_batch_args[0].graph.get_operations():
        if op.name in forward_ops and any(tensor.op.name in names for tensor in op.inputs):
            names.add(op.name)
            dependent_ops.append(op)
    return forward_ops, dependent_ops


def bytes_of_roots(tensors: Sequence[tf.Tensor], others: Sequence[tf.Tensor]) -> int:
    """The bytes that tensors of one graph take besides `others`.

    What several of them view counts once.
    """
    counted = {viewed(tensor).name for tensor in others}
    roots = {root.name: root for root in map(viewed, tensors)}
    return sum(bytes_of(root) for name, root in roots.items() if name not in counted)


def _tensors_of(gradient: tf.Tensor | tf.IndexedSlices | None) -> list[tf.Tensor]:
    """The tensors that a gradient consists of."""
    if gradient is None:
        return []
    if isinstance(gradient, tf.IndexedSlices):
        return [gradient.values, gradient.indices]
    return [gradient]
