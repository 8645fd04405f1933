"""AlikeLayers: one traced function for all layers that are alike.

Keras takes 25 ms per weight to trace an optimizer. Layers that are alike, such as those of a
Transformer and those of all replicas, therefore share one traced function, which takes the
variables' handles as arguments.

Such a function is also the branch of a condition. tf.cond would trace it into two more functions.

The sums of layers that are alike are reset by one function, too.

XLA compiles these functions if it compiles tasks. On a GPU their operations, about ten for each
weight, would otherwise take longer to launch than to run.
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Any

import tensorflow as tf

from lingpipe.learning.trained_layer import TrainedLayer
from lingpipe.pipeline.execution.accumulators import set_to_zero
from lingpipe.pipeline.execution.gradients import Gradients


class AlikeLayers:
    """Traces functions of layers, and calls them for the layers that are alike."""

    def __init__(self, jit_compile: bool = False):
        """
        Args:
          jit_compile: whether XLA compiles functions, but those of gradients that are kept as rows:
            how many of these differ is known only when they run, and XLA wants fixed shapes.
        """
        self._jit_compile = jit_compile
        # Functions, and the numbers of the handles that they capture.
        self._traced_by_kind: dict[Hashable, tuple[Any, list[int]]] = {}
        self._zeros_by_kind: dict[Hashable, Any] = {}   # functions that return zeros

    def call(self, body: Callable[..., tf.Tensor], layer: TrainedLayer, gradients: Gradients,
             reached: Collection[str], *args: tf.Tensor,
             only_if: tf.Tensor | None = None) -> tf.Tensor:
        """Calls body(layer, *args), traced once for all layers that are alike.

        Layers are alike if their weights are, and if the same ones of them have a gradient.

        Args:
          body: uses no variables but those of the layer and of its gradients.
          layer: the layer.
          gradients: of its replica.
          reached: paths of the weights that have a gradient.
          args: other arguments of the body.
          only_if: a boolean; where it is false, nothing is done, and the result is zeros.
        """
        def of_layer(*of_function: tf.Tensor) -> tf.Tensor:
            """The body for this layer."""
            return body(layer, *of_function)

        num_sums = {path: len(gradients.variables_of(path)) for path in layer.weights}
        jit_compile = self._jit_compile and all(
            number == len(gradients.uses[path]) for path, number in num_sums.items())
        if any(len(gradients.uses[path]) > 1 for path in layer.weights):
            function = _traced(of_layer, args, jit_compile)
            captured = function.captured_inputs
        else:
            key = (body.__name__, layer.kind, tuple(path in reached for path in layer.weights),
                   tuple(num_sums.values()))
            function, captured = self._shared(
                key, of_layer, args, _handles(layer, gradients), jit_compile)

        if only_if is not None:
            return self._called_if(only_if, function, [*args, *captured])
        function.set_external_captures(captured)
        result: tf.Tensor = function(*args)
        return result

    def reset(self, sums: Sequence[tf.Variable]) -> tf.Tensor:
        """Sets the sums of a layer to zero; the result exists once this is done.

        The function is traced once for all sums of the same shapes and dtypes.
        """
        key = ('reset', *((variable.dtype, tuple(variable.shape)) for variable in sums))
        function, captured = self._shared(
            key, lambda: set_to_zero(sums), [], [variable.handle for variable in sums],
            self._jit_compile)
        function.set_external_captures(captured)
        result: tf.Tensor = function()
        return result

    def _shared(self, key: Hashable, body: Callable[..., tf.Tensor], args: Sequence[tf.Tensor],
                handles: Sequence[tf.Tensor], jit_compile: bool
                ) -> tuple[Any, list[tf.Tensor]]:
        """Returns a function that was traced once, and what it captures here.

        Args:
          key: equal where the functions are.
          body: of the function, here.
          args: of the call.
          handles: those of the variables that the body uses, in an order that depends on `key`.
          jit_compile: whether XLA compiles it.
        """
        if key not in self._traced_by_kind:
            function = _traced(body, args, jit_compile)
            number_of = {handle.ref(): i for i, handle in enumerate(handles)}
            self._traced_by_kind[key] = function, [
                number_of[handle.ref()] for handle in function.captured_inputs]
        function, numbers = self._traced_by_kind[key]
        return function, [handles[i] for i in numbers]

    def _called_if(self, condition: tf.Tensor, function: Any,
                   inputs: Sequence[tf.Tensor]) -> tf.Tensor:
        """Calls a function of one result, or returns zeros."""
        (result,) = function.outputs
        specs = [tf.TensorSpec(one.shape, one.dtype) for one in inputs]
        key = (result.dtype, tuple(result.shape), *specs)
        if key not in self._zeros_by_kind:
            self._zeros_by_kind[key] = tf.function(
                lambda *unused: tf.zeros(result.shape, result.dtype), autograph=False
            ).get_concrete_function(*specs)
        (called,) = tf.raw_ops.If(
            cond=condition, input=inputs, Tout=[result.dtype], output_shapes=[result.shape],
            then_branch=function, else_branch=self._zeros_by_kind[key])
        return called


def _handles(layer: TrainedLayer, gradients: Gradients) -> list[tf.Tensor]:
    """The handles of all variables that an update of the layer touches.

    Their order is the same for layers that are alike.
    """
    sums = [variable for path in layer.weights for variable in gradients.variables_of(path)]
    return [variable.handle for variable in
            (*layer.weights.values(), *layer.variables().values(), *sums)]


def _traced(body: Callable[..., tf.Tensor], args: Sequence[tf.Tensor], jit_compile: bool) -> Any:
    """Makes body(*args) a function of the arguments and of what it captures."""
    if jit_compile:  # A branch of a condition is not compiled, but what it calls is.
        body = tf.function(body, autograph=False, jit_compile=True)
    return tf.function(
        body, autograph=False, experimental_attributes={'_noinline': True}
    ).get_concrete_function(*[tf.TensorSpec(a.shape, a.dtype) for a in args])
