"""AlikeLayers: one traced function for all layers that are alike.

Keras takes 25 ms per weight to trace an optimizer. Layers that are alike, such as those of a
Transformer and those of all replicas, therefore share one traced function, which takes the
variables' handles as arguments.
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from typing import TypeAlias

import tensorflow as tf

from lingpipe.learning.trained_layer import TrainedLayer
from lingpipe.pipeline.execution.gradients import Gradients

# Takes the handles of a layer's variables, and other arguments.
_OfHandles: TypeAlias = Callable[..., tf.Tensor]


class AlikeLayers:
    """Traces functions of layers, and calls them for the layers that are alike."""

    def __init__(self) -> None:
        self._traced_by_kind: dict[Hashable, _OfHandles] = {}

    def call(self, body: Callable[..., tf.Tensor], layer: TrainedLayer, gradients: Gradients,
             reached: Collection[str], *args: tf.Tensor) -> tf.Tensor:
        """Calls body(layer, *args), traced once for all layers that are alike.

        Layers are alike if their weights are, and if the same ones of them have a gradient.

        Args:
          body: uses no variables but those of the layer and of its gradients.
          layer: the layer.
          gradients: of its replica.
          reached: paths of the weights that have a gradient.
          args: other arguments of the body.
        """
        if any(len(gradients.uses[path]) > 1 for path in layer.weights):
            return body(layer, *args)
        handles = _handles(layer, gradients)
        key = (body.__name__, layer.kind, tuple(path in reached for path in layer.weights),
               tuple(len(gradients.variables_of(path)) for path in layer.weights))
        if key not in self._traced_by_kind:
            self._traced_by_kind[key] = _traced(body, layer, handles, args)
        return self._traced_by_kind[key](handles, *args)


def _handles(layer: TrainedLayer, gradients: Gradients) -> list[tf.Tensor]:
    """The handles of all variables that an update of the layer touches.

    Their order is the same for layers that are alike.
    """
    sums = [variable for path in layer.weights for variable in gradients.variables_of(path)]
    return [variable.handle for variable in
            (*layer.weights.values(), *layer.variables().values(), *sums)]


def _traced(body: Callable[..., tf.Tensor], layer: TrainedLayer, handles: Sequence[tf.Tensor],
            args: Sequence[tf.Tensor]) -> _OfHandles:
    """Makes body(layer, *args) a function of the variables' handles and the arguments."""
    function = tf.function(
        lambda *a: body(layer, *a), autograph=False, experimental_attributes={'_noinline': True}
    ).get_concrete_function(*[tf.TensorSpec(a.shape, a.dtype) for a in args])
    number_of = {handle.ref(): i for i, handle in enumerate(handles)}
    order = [number_of[captured.ref()] for captured, _ in function.graph.captures]

    def call(handles: Sequence[tf.Tensor], *args: tf.Tensor) -> tf.Tensor:
        function.set_external_captures([handles[i] for i in order])
        result: tf.Tensor = function(*args)
        return result

    return call
