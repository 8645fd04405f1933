"""Layer call: one layer's forward and backward inside the trace of its cell."""
from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from lingpipe.layers import nested
from lingpipe.layers.context import Context, Emissions
from lingpipe.layers.nested import Nested
from lingpipe.layers.static_shapes import as_spec
from lingpipe.learning.gradient import Gradient
from lingpipe.learning.pool_gradients import pair_with_pools
from lingpipe.pipeline.planning.cell import Leaf
from lingpipe.pipeline.planning.dataflow import Element, Value
from lingpipe.process.error_text import blaming
from lingpipe.process.graph_lifetime import gradients_of


@dataclasses.dataclass(frozen=True, eq=False)
class LayerCall:
    """One call of a layer: the layer and its arguments.

    Attributes:
      element: the layer in its network.
      weights: path -> tensor. No other call uses the same tensors.
      inputs: every value that the layer reads -> its nested tensors.
      make_context: makes a new context, always with the same seeds.
    """
    element: Element
    weights: Mapping[str, tf.Tensor]
    inputs: Mapping[Value, Nested]
    make_context: Callable[[], Context]

    def forward(self, with_tape: bool) -> LayerResult:
        """Runs fprop.

        Args:
          with_tape: whether `LayerResult.backward` will be called.

        Raises:
          ValueError: the layer's results do not have the shapes and dtypes that its cost gives.
        """
        with tf.name_scope(scope_of(self.element.layer.path)):
            if not with_tape:
                return LayerResult(self, *self._fprop(), tape=None)
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(self.sources)
                written, emissions = self._fprop()
            return LayerResult(self, written, emissions, tape)

    def repeat(self, after: Sequence[tf.Tensor | tf.Operation]) -> LayerResult:
        """Runs fprop again under a tape, after the ops in `after`.

        The caller must ignore what it emits.
        """
        with tf.control_dependencies(after):
            return self.forward(with_tape=True)

    @property
    def sources(self) -> list[tf.Tensor]:
        """The tensors to differentiate by: the trained weights, then the leaves of inputs."""
        weights = [self.weights[weight.path] for weight in self.element.trained]
        leaves = [nested.leaves(self.inputs[value])[i] for value, i in self.differentiated_inputs]
        return weights + leaves

    @property
    def differentiated_inputs(self) -> list[Leaf]:
        """The leaves of inputs that carry a gradient, each once even if it is read twice."""
        return [(value, i) for value in dict.fromkeys(self.element.reads.values())
                for i, carries in enumerate(value.carries_gradient) if carries]

    def _fprop(self) -> tuple[dict[str, Nested], Emissions]:
        """Runs fprop; returns name -> what the layer writes, and what it emits."""
        layer, context = self.element.layer, self.make_context()
        arguments = {name: self.inputs[value] for name, value in self.element.reads.items()}
        with blaming(layer.path):
            result = layer.fprop(layer.theta(dict(self.weights)), context, **arguments)

        for where, leaf in nested.flatten(result):
            if not hasattr(leaf, 'dtype'):
                raise ValueError(
                    f'{layer.path} returns {type(leaf).__name__}{where and f" as {where!r}"}; '
                    f'fprop of {type(layer).__name__} must return a tensor, or a dict of tensors '
                    f'with names.')
        written = nested.map_leaves(tf.convert_to_tensor, layer.written(result))
        self._check_specs(written)
        return written, context.emissions

    def _check_specs(self, written: dict[str, Nested]) -> None:
        layer = self.element.layer
        expected = {name: value.spec for name, value in self.element.writes.items()}
        specs = {path: as_spec(tensor) for path, tensor in nested.flatten(written)}
        expected_specs = {path: as_spec(spec) for path, spec in nested.flatten(expected)}
        if specs != expected_specs:
            raise ValueError(
                f'{layer.path} writes {_listed(specs)}, but its cost says '
                f'{_listed(expected_specs)}; correct {type(layer).__name__}.cost.')


@dataclasses.dataclass(frozen=True, eq=False)
class LayerResult:
    """The result of a layer's call.

    Attributes:
      call: the call.
      written: name -> nested tensors.
      emissions: what the layer emitted.
      tape: the tape that recorded the call; None if there will be no backward.
    """
    call: LayerCall
    written: Mapping[str, Nested]
    emissions: Emissions
    tape: tf.GradientTape | None

    def backward(self, sums: Mapping[Leaf, tf.Tensor]) -> LayerGradients:
        """Differentiates the layer.

        Args:
          sums: leaf of a value -> the sum of its gradients so far. For the values that the layer
            writes, the sums are complete.
        """
        assert self.tape is not None
        element = self.call.element
        targets = {(value, i): tensor for name, value in element.writes.items()
                   for i, tensor in enumerate(nested.leaves(self.written[name]))
                   if (value, i) in sums and value.carries_gradient[i]}
        losses = [loss for _, loss in sorted(self.emissions.losses.items())]
        if not targets and not losses:
            return LayerGradients({}, {})

        seeds = [*(sums[leaf] for leaf in targets), *(tf.ones_like(loss) for loss in losses)]
        with tf.name_scope(scope_of(element.layer.path) + '_backward'):
            graph = tf.compat.v1.get_default_graph()
            num_before = len(graph.get_operations())
            with blaming(element.layer.path):
                gradients = gradients_of(self.tape, [*targets.values(), *losses],
                                         self.call.sources, seeds)
            pair_with_pools(graph.get_operations()[num_before:])
            paths = [weight.path for weight in element.trained]
            weights = {path: _kept(gradient, path, element)
                       for path, gradient in zip(paths, gradients[:len(paths)], strict=True)
                       if gradient is not None}
            inputs = {}
            for leaf, gradient in zip(self.call.differentiated_inputs, gradients[len(paths):],
                                      strict=True):
                if gradient is not None:
                    dense = tf.convert_to_tensor(gradient)
                    inputs[leaf] = sums[leaf] + dense if leaf in sums else dense
        return LayerGradients(weights, inputs)


@dataclasses.dataclass(frozen=True, eq=False)
class LayerGradients:
    """The gradients that a layer's backward computes.

    Attributes:
      weights: path of a weight, as used -> its gradient, as rows if Element.gradient_rows has it.
      inputs: leaf of an input -> the sum of its gradients so far, including this layer's.
    """
    weights: Mapping[str, Gradient]
    inputs: Mapping[Leaf, tf.Tensor]


def _kept(gradient: Gradient, path: str, element: Element) -> Gradient:
    """The gradient of a weight, as rows if the plan has a place for them, and else dense.

    Raises:
      ValueError: the gradient is rows, or is dense, contrary to the plan.
    """
    is_rows = isinstance(gradient, tf.IndexedSlices)
    if element.layer.keeps_gradient_rows and is_rows != (path in element.gradient_rows):
        raise ValueError(f'{path}: the loss depends on fewer of the values that '
                         f'{element.layer.path} writes than other layers read, which decides '
                         'whether its gradient is rows; leave out the layers that read them in '
                         'vain, or set keeps_gradient_rows=False of the layer.')
    return gradient if path in element.gradient_rows else tf.convert_to_tensor(gradient)


def scope_of(path: str) -> str:
    """Turns a layer's path into a name scope that no other layer's op names start with."""
    return re.sub(r'^[^A-Za-z0-9.]|[^A-Za-z0-9_./-]', '.', path) + '.'


def _listed(specs: Mapping[str, tf.TensorSpec]) -> str:
    listed = [f'{path} {spec.dtype.name} {spec.shape}' for path, spec in specs.items()]
    return ', '.join(listed) or 'nothing'
