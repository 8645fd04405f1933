"""MeanWeight: the mean weight of a micro-batch, known before the first task of a mini-batch runs.

The objective is (sum of losses) / (sum of weights), and the sum of weights is known only at the
end. But a layer that adds a term directly to the objective, such as an L2 penalty
(Context.emit_penalty), must scale this term in the first micro-batch already. So the main loss is
traced by itself, and so are the layers that write what it reads. Of these graphs only the part that
the weight depends on is kept: usually the `weight` of the mini-batch, sometimes a mask. That part
runs for all micro-batches before the tasks.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import tensorflow as tf

from lingpipe.layers import nested
from lingpipe.layers.nested import Nested
from lingpipe.pipeline.execution.compiled_task import CompiledTask
from lingpipe.pipeline.execution.graph_cutting import Subgraphs, used_feeds
from lingpipe.pipeline.planning.cell import Leaf
from lingpipe.pipeline.planning.dataflow import BATCH, Element, Value
from lingpipe.pricing.graph import Trace, trace

# The input of a task that receives the mean weight.
MEAN_WEIGHT: Leaf = (
    Value('mean weight', BATCH, tf.TensorSpec([], tf.float32), needs_gradient=False), 0)


class _Part:
    """The part of an element's trace that computes some of its tensors."""

    def __init__(self, element: Element, traced: Trace, fetches: Sequence[tf.Tensor]):
        """
        Raises:
          ValueError: the tensors depend on weights, or on the position of the micro-batch.
        """
        leaf_of: dict[str, Leaf] = {}
        for argument, value in element.reads.items():
            leaves = nested.leaves(traced.inputs[argument])
            leaf_of.update({tensor.name: (value, i) for i, tensor in enumerate(leaves)})

        placeholders = [op.outputs[0] for op in traced.graph.get_operations()
                        if op.type == 'Placeholder']
        used = used_feeds(fetches, placeholders)
        if not used <= leaf_of.keys():
            raise ValueError(
                f'{element.layer.path} makes what the main loss is weighted with, out of its '
                'weights or random numbers, but layers of the network add penalties to the '
                'objective (regularizers, say), for which the total weight must be known before '
                'any layer runs; weight the loss with a value of the mini-batch, or leave the '
                'penalties out.')

        feeds = [tensor for tensor in placeholders if tensor.name in used]
        self.reads = [leaf_of[tensor.name] for tensor in feeds]
        self.call: Callable[..., list[tf.Tensor]] = Subgraphs(traced.graph).function(feeds, fetches)


class MeanWeight:
    """The weight that the main loss emits, averaged over the micro-batches of all replicas."""

    def __init__(self, elements: Sequence[Element], training: bool):
        """
        Args:
          elements: of the plan.
          training: whether the network trains, as in Context.

        Raises:
          ValueError: the weight depends on the weights of the network, or no layer emits one.
        """
        self._training = training
        parts = (self._weight_part(element) for element in reversed(elements))
        loss = next((part for part in parts if part is not None), None)
        if loss is None:
            raise ValueError(
                'no layer gives a loss with a weight; end the network with a loss. What layers of '
                'Keras give to add_loss only comes on top of one; if a Keras model is trained by '
                'add_loss alone, compile it with a loss that is 0 (docs/keras.md).')
        self._loss: _Part = loss

        self._makers: dict[Leaf, _Part] = {}
        missing = list(loss.reads)
        while missing:
            leaf = missing.pop()
            if leaf[0].maker != BATCH and leaf not in self._makers:
                self._makers[leaf] = self._leaf_part(elements[leaf[0].maker], leaf)
                missing += self._makers[leaf].reads

    @property
    def names(self) -> set[str]:
        """The names of the values of the mini-batch that it is computed from."""
        return {value.name for part in (self._loss, *self._makers.values())
                for value, _ in part.reads if value.maker == BATCH}

    def of(self, batch: dict[str, Nested], num_micro_batches: int) -> tf.Tensor:
        """Computes the mean weight, a float32 scalar.

        Args:
          batch: the mini-batch of all replicas.
          num_micro_batches: R M.
        """
        parts = [self._loss, *self._makers.values()]
        leaves_of_batch = {leaf for part in parts for leaf in part.reads if leaf[0].maker == BATCH}
        micro_batches = {
            (value, i): tf.split(nested.leaves(batch[value.name])[i], num_micro_batches)
            for value, i in leaves_of_batch}

        weights = []
        for m in range(num_micro_batches):
            known = {leaf: parts[m] for leaf, parts in micro_batches.items()}
            weights += self._loss.call(*[self._made(leaf, known) for leaf in self._loss.reads])
        return tf.add_n(weights) / num_micro_batches

    def _made(self, leaf: Leaf, known: dict[Leaf, tf.Tensor]) -> tf.Tensor:
        """Computes a leaf of the micro-batch whose leaves `known` holds, and adds it there."""
        if leaf not in known:
            part = self._makers[leaf]
            known[leaf], = part.call(*[self._made(one, known) for one in part.reads])
        return known[leaf]

    def _traced(self, element: Element) -> Trace:
        specs: dict[str, Nested] = {argument: value.spec
                                    for argument, value in element.reads.items()}
        return trace(element.layer, training=self._training, **specs)

    def _weight_part(self, element: Element) -> _Part | None:
        traced = self._traced(element)
        weights = list(traced.emissions.weights.values())
        return _Part(element, traced, weights) if weights else None

    def _leaf_part(self, element: Element, leaf: Leaf) -> _Part:
        traced = self._traced(element)
        value, i = leaf
        name = next(name for name, one in element.writes.items() if one is value)
        written = element.layer.written(traced.outputs)
        return _Part(element, traced, [nested.leaves(written[name])[i]])


def asked_for(tasks: Iterable[CompiledTask]) -> bool:
    """Whether one of the tasks takes the mean weight."""
    return any(MEAN_WEIGHT in task.inputs for task in tasks)
