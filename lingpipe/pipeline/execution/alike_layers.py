"""AlikeLayers: one traced function for all layers that are alike.

Keras takes 25 ms per weight to trace an optimizer. Layers that are alike, such as those of a
Transformer, therefore share one traced function, which takes the variables' handles as arguments.
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import tensorflow as tf

from lingpipe.learning.layer_learner import LayerLearner
from lingpipe.pipeline.execution.gradients import Gradients
from lingpipe.pipeline.execution.graph_cutting import Subgraphs


class AlikeLayers:
    """Traces functions of layers, and calls them for the layers that are alike."""

    def __init__(self, gradients: Gradients):
        self._gradients = gradients
        self._traced_by_kind: dict[Any, Callable[..., tf.Tensor]] = {}

    def call(self, body: Callable[..., tf.Tensor], layer: LayerLearner, reached: Collection[str],
             *args: tf.Tensor) -> tf.Tensor:
        """Calls body(layer, *args), traced once for all layers that are alike.

        Layers are alike if their weights are, and if the same ones of them have a gradient.
        """
        if any(len(self._gradients.uses[path]) > 1 for path in layer.weights):
            return body(layer, *args)
        key = (body.__name__, layer.kind, tuple(path in reached for path in layer.weights))
        if key not in self._traced_by_kind:
            self._traced_by_kind[key] = self._traced(body, layer, args)
        return self._traced_by_kind[key](self._handles(layer), *args)

    def _handles(self, layer: LayerLearner) -> list[tf.Tensor]:
        """The handles of all variables that an update of the layer touches.

        Their order is the same for layers that are alike.
        """
        sums = [variable for path in layer.weights
                for variable in self._gradients.variables_of(path)]
        return [variable.handle for variable in
                (*layer.weights.values(), *layer.variables().values(), *sums)]

    def _traced(self, body: Callable[..., tf.Tensor], layer: LayerLearner,
                args: Sequence[tf.Tensor]) -> Callable[..., tf.Tensor]:
        """Makes body(layer, *args) a function of the variables' handles and the arguments."""
        graph = tf.function(lambda *a: body(layer, *a), autograph=False).get_concrete_function(
            *[tf.TensorSpec(a.shape, a.dtype) for a in args]).graph
        with graph.as_default(), tf.control_dependencies(graph.control_outputs):
            result = tf.identity(graph.outputs[0])

        outside = {handle.ref(): i for i, handle in enumerate(self._handles(layer))}
        order = [outside[captured.ref()] for captured, _ in graph.captures]
        feeds = [*graph.inputs[:len(args)], *[inside for _, inside in graph.captures]]
        function = Subgraphs(graph).function(feeds, [result])
        return lambda handles, *a: function(*a, *[handles[i] for i in order])[0]
