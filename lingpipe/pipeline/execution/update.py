"""Update: the end of a training step: normalise, clip, optimise, reset.

    on the first device:   sums of all devices -> total weight W
    on each device:        the sum of squares of every gradient g / W + l2 w
    on the first device:   the global norm; is everything finite?
    on each device:        layer by layer, clip (g / W + l2 w) -> optimizer; averages; reset

A weight that the loss does not depend on keeps its value and its slots, as in Keras: neither weight
decay nor l2 changes it. Which weights these are is known from the traces of the tasks, so it is a
property of the graph: `reached` names the weights that have a gradient.

Keras takes 25 ms per weight to trace an optimizer. Layers that are alike, such as those of a
Transformer, therefore share one traced function, which takes the variables' handles as arguments.
"""
from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from lingpipe.layers import nested
from lingpipe.learning.layer_learner import LayerLearner
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution import results
from lingpipe.pipeline.execution.accumulators import Accumulators
from lingpipe.pipeline.execution.compiled_task import CompiledTask
from lingpipe.pipeline.execution.emission_layout import Merged
from lingpipe.pipeline.execution.graph_cutting import Subgraphs
from lingpipe.pipeline.execution.placed import placed
from lingpipe.pipeline.execution.stamps import Stamps, UpdatePart, call_stamped
from lingpipe.pipeline.execution.variables import Variables
from lingpipe.pipeline.planning.cell import Cell

# Identifies a gradient: the index of the cell that computes it, and the path of the weight as that
# cell's layer calls it.
Use = tuple[int, str]


@dataclasses.dataclass
class Decision:
    """What a step derives from the sums of all devices before any weight changes.

    Attributes:
      inverse_weight: float64, the factor that turns sums of gradients into means.
      clip_factor: float64, the factor that clips gradients to the global norm.
      is_update: whether weights are updated: everything is finite, and some example has a weight
        other than 0.
      results: scalars by name: losses, metrics, 'weight', 'gradient_norm', 'learning_rate' and
        'is_finite'.
    """
    inverse_weight: tf.Tensor
    clip_factor: tf.Tensor
    is_update: tf.Tensor
    results: dict[str, tf.Tensor]


def uses_of(cells: Iterable[Cell]) -> dict[str, list[Use]]:
    """Path of an owned weight -> its gradients, in the order of the network."""
    uses: dict[str, list[Use]] = {}
    for cell in cells:
        for element in cell.elements:
            for weight in element.trained:
                owner = weight.shared_with or weight.path
                uses.setdefault(owner, []).append((cell.index, weight.path))
    return uses


def reached_weights(cells: Iterable[Cell],
                    tasks: Mapping[tuple[str, int], CompiledTask]) -> frozenset[str]:
    """The paths of the owned weights for which some task computes a gradient."""
    made = {(k, path) for (_, k), task in tasks.items() for path in task.differentiated}
    return frozenset(path for path, uses in uses_of(cells).items() if made.intersection(uses))


class Update:
    """Adds the update of one replica to the graph of a step."""

    def __init__(self, cells: Sequence[Cell], accumulators: Sequence[Accumulators],
                 variables: Variables, learner: Learner):
        self._cells, self._accumulators, self._variables, self._learner = (
            cells, accumulators, variables, learner)
        self._clip_norm = learner.params.clip_norm
        self._uses = uses_of(cells)
        self._alike: dict[Any, Callable[..., tf.Tensor]] = {}

    def unreached(self, reached: Collection[str]) -> list[str]:
        """The paths of trained weights without a gradient."""
        return [path for path in self._uses if path not in reached]

    def foreign_gradients(self, last: Sequence[tf.Operation]) -> dict[Use, tf.Tensor]:
        """Reads the gradients of weights that other cells own, after the last op of every device.

        `decide` and `apply` both take this result, so that each gradient is sent to its owner once.
        """
        return {use: self._read_gradient(use, last)
                for path, uses in self._uses.items() for use in uses if self._is_foreign(path, use)}

    def decide(self, last: Sequence[tf.Operation], foreign: dict[Use, tf.Tensor], step: tf.Tensor,
               reached: Collection[str], stamps: Stamps | None = None) -> Decision:
        """Computes, after the last op of every device, what all replicas must know to update."""
        cells = self._cells

        emitted = []
        for cell, accumulators, op in zip(cells, self._accumulators, last, strict=True):
            with tf.device(cell.device), tf.control_dependencies([op]):
                emitted.append(placed(lambda a=accumulators: results.read(a))())

        with tf.device(cells[0].device):
            sums = results.named_sums(emitted)
            loss_sum, weight = sums['loss']
            inverse_weight = tf.math.reciprocal_no_nan(tf.cast(weight, tf.float64))
            learning_rate = tf.cast(self._learner.learning_rate(step), tf.float32)

        squares = []
        for cell, op in zip(cells, last, strict=True):
            squares.append(call_stamped(
                placed(lambda *a, c=cell: self._squares(c, reached, *a)),
                [inverse_weight, self._given(cell, foreign)],
                UpdatePart('norms', cell.index), cell.device, [op], stamps))

        with tf.device(cells[0].device):
            norm = tf.sqrt(2.0 * tf.reduce_sum(tf.concat(squares, 0)))
            # Without clipping, a norm beyond float32 means that the squares that optimizers compute
            # of such gradients would overflow as well.
            is_usable = (tf.math.is_finite(tf.cast(norm, tf.float32)) if self._clip_norm is None
                         else tf.math.is_finite(norm))
            is_finite = is_usable & tf.math.is_finite(loss_sum) & tf.math.is_finite(weight)

            made = {name: tf.math.divide_no_nan(total, w) for name, (total, w) in sums.items()}
            made['loss'] = tf.where(tf.math.is_finite(loss_sum),
                                    loss_sum * tf.cast(inverse_weight, loss_sum.dtype), loss_sum)
            made.update(weight=weight, gradient_norm=norm, is_finite=is_finite,
                        learning_rate=learning_rate)
            return Decision(inverse_weight, self._learner.clip_factor(norm),
                            is_finite & (weight != 0.0), made)

    def apply(self, decision: Decision, last: Sequence[tf.Operation], foreign: dict[Use, tf.Tensor],
              reached: Collection[str], stamps: Stamps | None = None) -> list[tf.Tensor]:
        """Adds the update of all cells, and returns tensors that exist once it is done."""
        cells, made = self._cells, decision.results

        # No cell may reset its accumulators before the other cells have read the gradients that
        # they need from it, nor before every reported result has been read: the metrics of a cell
        # that emits nothing else enter neither the norm nor the decision.
        with tf.device(cells[0].device):
            reported = tf.group(*made.values())
        before = [*foreign.values(), reported]

        done = []
        for cell, op in zip(cells, last, strict=True):
            done.append(call_stamped(
                placed(lambda *a, c=cell: self._update(c, reached, *a)),
                [decision.inverse_weight, decision.clip_factor, made['learning_rate'],
                 decision.is_update, self._given(cell, foreign)],
                UpdatePart('update', cell.index), cell.device, [*before, op], stamps))
        return done

    # Gradients.

    def _is_foreign(self, path: str, use: Use) -> bool:
        return use[0] != self._variables.cell_of[path]

    def _read_gradient(self, use: Use, last: Sequence[tf.Operation]) -> tf.Tensor:
        k, path = use
        with tf.device(self._cells[k].device), tf.control_dependencies([last[k]]):
            return tf.identity(self._accumulators[k].gradients[path].read_value())

    def _given(self, cell: Cell, foreign: dict[Use, tf.Tensor]) -> dict[str, tf.Tensor]:
        """The gradients that other cells have computed for weights of this one."""
        return {f'{path}\n{use[1]}': foreign[use] for path, uses in self._uses.items()
                for use in uses if self._variables.cell_of[path] == cell.index and use in foreign}

    def _gradient(self, path: str, inverse_weight: tf.Tensor,
                  given: dict[str, tf.Tensor]) -> tf.Tensor:
        """The gradient of an owned weight, with the learner's regularization.

        The gradients of its uses are added in the order of the network and divided by the total
        weight.
        """
        total = None
        for use in self._uses[path]:
            part = (given[f'{path}\n{use[1]}'] if self._is_foreign(path, use)
                    else self._accumulators[use[0]].gradients[use[1]].read_value())
            total = part if total is None else total + part
        assert total is not None

        return self._learner.regularized(path, total * tf.cast(inverse_weight, total.dtype),
                                         self._variables.weights[path])

    def _clipped(self, path: str, inverse_weight: tf.Tensor, clip_factor: tf.Tensor,
                 given: dict[str, tf.Tensor]) -> tf.Tensor:
        gradient = self._gradient(path, inverse_weight, given)
        return (gradient if self._clip_norm is None
                else gradient * tf.cast(clip_factor, gradient.dtype))

    # On one device.

    def _layers(self, cell: Cell) -> list[LayerLearner]:
        learners = self._variables.learners
        return [learners[e.layer.path] for e in cell.elements if e.layer.path in learners]

    def _squares(self, cell: Cell, reached: Collection[str], inverse_weight: tf.Tensor,
                 given: dict[str, tf.Tensor]) -> tf.Tensor:
        """Half the sum of squares of every owned gradient, [n] float64; 0 for a missing gradient.

        The gradients are computed one after the other, so that only one is in memory at a time.
        With clipping, sums that overflow are computed again in float64.
        """
        def squares(layer: LayerLearner, inverse_weight: tf.Tensor,
                    dtype: tf.DType = tf.float32) -> tf.Tensor:
            """Computes half the sum of squares of each gradient of a layer."""
            halves: list[tf.Tensor] = []
            for path in layer.weights:
                if path not in reached:
                    halves.append(tf.zeros([], tf.float64))
                    continue
                with tf.control_dependencies(halves[-1:]):
                    gradient = self._gradient(path, inverse_weight, given)
                    wide = (tf.cast(gradient, dtype) if dtype.size > gradient.dtype.size
                            else gradient)
                    halves.append(tf.cast(tf.nn.l2_loss(wide), tf.float64))
            return tf.stack(halves)

        def exact_squares(layer: LayerLearner, inverse_weight: tf.Tensor) -> tf.Tensor:
            return squares(layer, inverse_weight, tf.float64)

        def of_all(body: Callable[..., tf.Tensor]) -> tf.Tensor:
            made: list[tf.Tensor] = []
            for layer in self._layers(cell):
                with tf.control_dependencies(made[-1:]):
                    made.append(self._call(body, layer, reached, inverse_weight))
            return tf.concat(made, 0) if made else tf.zeros([0], tf.float64)

        halves = of_all(squares)
        if self._clip_norm is None:
            return halves
        is_finite = tf.math.is_finite(halves)
        return tf.cond(tf.reduce_all(is_finite), lambda: halves,
                       lambda: tf.where(is_finite, halves, of_all(exact_squares)))

    def _update(self, cell: Cell, reached: Collection[str], inverse_weight: tf.Tensor,
                clip_factor: tf.Tensor, learning_rate: tf.Tensor, is_update: tf.Tensor,
                given: dict[str, tf.Tensor]) -> tf.Tensor:
        accumulators = self._accumulators[cell.index]

        def update(layer: LayerLearner, inverse_weight: tf.Tensor, clip_factor: tf.Tensor,
                   learning_rate: tf.Tensor) -> tf.Tensor:
            done = layer.apply(
                {path: functools.partial(self._clipped, path, inverse_weight, clip_factor, given)
                 for path in layer.weights if path in reached}, learning_rate)
            assert done is not None
            return done

        def apply() -> tf.Tensor:
            """Updates the layers of the cell, one after the other."""
            done: list[tf.Tensor] = []
            for layer in self._layers(cell):
                # The layers are updated one after the other, so that the temporaries of only one
                # exist at a time.
                with tf.control_dependencies(done[-1:]):
                    done.append(self._call(
                        update, layer, reached, inverse_weight, clip_factor, learning_rate))
            self._update_state(cell, accumulators.merged())
            with tf.control_dependencies(done[-1:]):
                return tf.constant(0)

        token = tf.cond(is_update, apply, lambda: tf.constant(0))
        with tf.control_dependencies([token]):
            return accumulators.reset()

    def _update_state(self, cell: Cell, merged: Merged) -> None:
        # Assigns the weights that layers update from what they emitted, such as moving moments.
        layers = {layer.path: layer for e in cell.elements for layer in e.layer.layers()}
        weights = self._variables.weights

        for (path, name), value in [*merged.moments.items(), *merged.means.items(),
                                    *merged.states.items()]:
            layer = layers[path]
            state = nested.NestedMap({own: weights[w.shared_with or w.path].read_value()
                                      for own, w in layer.own_weights.items()
                                      if (w.shared_with or w.path) in weights})

            for own, new in layer.updated_state(name, state, value).items():
                weight = layer.own_weights[own]
                if weight.shared_with is not None:
                    raise ValueError(
                        f'{weight.path} shares {weight.shared_with}, but {layer.path} updates it '
                        f'in every step from what it sees itself, so that it can belong to one '
                        f'layer only; take {own!r} out of its Params.share.')
                weights[weight.path].assign(new)

    # Layers that are alike.

    def _call(self, body: Callable[..., tf.Tensor], layer: LayerLearner, reached: Collection[str],
              *args: tf.Tensor) -> tf.Tensor:
        """Calls body(layer, *args), traced once for all layers that are alike.

        Layers are alike if their weights are, and if the same ones of them have a gradient.
        """
        if any(len(self._uses[path]) > 1 for path in layer.weights):
            return body(layer, *args)
        key = (body.__name__, layer.kind, tuple(path in reached for path in layer.weights))
        if key not in self._alike:
            self._alike[key] = self._traced(body, layer, args)
        return self._alike[key](self._handles(layer), *args)

    def _handles(self, layer: LayerLearner) -> list[tf.Tensor]:
        """The handles of all variables that an update of the layer touches.

        Their order is the same for layers that are alike.
        """
        gradients = [self._accumulators[k].gradients[path]
                     for own in layer.weights for k, path in self._uses[own]]
        return [variable.handle for variable in
                (*layer.weights.values(), *layer.variables().values(), *gradients)]

    def _traced(self, body: Callable[..., tf.Tensor], layer: LayerLearner,
                args: Sequence[tf.Tensor]) -> Callable[..., tf.Tensor]:
        # Makes body(layer, *args) a function of the variables' handles and the arguments.
        graph = tf.function(lambda *a: body(layer, *a), autograph=False).get_concrete_function(
            *[tf.TensorSpec(a.shape, a.dtype) for a in args]).graph
        with graph.as_default(), tf.control_dependencies(graph.control_outputs):
            result = tf.identity(graph.outputs[0])

        outside = {handle.ref(): i for i, handle in enumerate(self._handles(layer))}
        order = [outside[captured.ref()] for captured, _ in graph.captures]
        feeds = [*graph.inputs[:len(args)], *[inside for _, inside in graph.captures]]
        function = Subgraphs(graph).function(feeds, [result])
        return lambda handles, *a: function(*a, *[handles[i] for i in order])[0]
