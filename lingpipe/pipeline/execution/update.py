"""Update: the end of a training step: normalise, clip, optimise, reset.

    on the first device:   sums of all devices -> total weight W
    on each device:        the sum of squares of every gradient g / W + l2 w
    on the first device:   the global norm; is everything finite?
    on each device:        layer by layer, clip (g / W + l2 w) -> optimizer; averages; reset

A weight that the loss does not depend on keeps its value and its slots, as in Keras: neither weight
decay nor l2 changes it. Which weights these are is known from the traces of the tasks, so it is a
property of the graph: `reached` names the weights that have a gradient.
"""
from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Mapping, Sequence

import tensorflow as tf

from lingpipe.learning.layer_learner import LayerLearner
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution import results
from lingpipe.pipeline.execution.accumulators import Accumulators
from lingpipe.pipeline.execution.alike_layers import AlikeLayers
from lingpipe.pipeline.execution.gradients import Gradients, Use
from lingpipe.pipeline.execution.placed import placed
from lingpipe.pipeline.execution.squared_norms import SquaredNorms
from lingpipe.pipeline.execution.stamps import Stamps, UpdatePart, call_stamped
from lingpipe.pipeline.execution.state_update import update_state
from lingpipe.pipeline.execution.variables import Variables
from lingpipe.pipeline.planning.cell import Cell


@dataclasses.dataclass(frozen=True, eq=False)
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


class Update:
    """Adds the update of one replica to the graph of a step.

    Attributes:
      gradients: of the replica.
    """

    def __init__(self, cells: Sequence[Cell], accumulators: Sequence[Accumulators],
                 variables: Variables, learner: Learner):
        self._cells, self._accumulators, self._variables, self._learner = (
            cells, accumulators, variables, learner)
        self.gradients = Gradients(cells, accumulators, variables, learner)
        self._alike = AlikeLayers(self.gradients)
        self._clips = learner.params.clip_norm is not None
        self._norms = SquaredNorms(self.gradients, self._alike, self._clips)

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
                placed(lambda *a, c=cell: self._norms.of(self._layers(c), reached, *a)),
                [inverse_weight, self.gradients.foreign_of(cell, foreign)],
                UpdatePart('norms', cell.index), cell.device, [op], stamps))

        with tf.device(cells[0].device):
            norm = tf.sqrt(2.0 * tf.reduce_sum(tf.concat(squares, 0)))
            # Without clipping, a norm beyond float32 means that the squares that optimizers compute
            # of such gradients would overflow as well.
            is_usable = tf.math.is_finite(norm if self._clips else tf.cast(norm, tf.float32))
            is_finite = is_usable & tf.math.is_finite(loss_sum) & tf.math.is_finite(weight)

            means = {name: tf.math.divide_no_nan(total, w) for name, (total, w) in sums.items()}
            means['loss'] = tf.where(tf.math.is_finite(loss_sum),
                                     loss_sum * tf.cast(inverse_weight, loss_sum.dtype), loss_sum)
            means.update(weight=weight, gradient_norm=norm, is_finite=is_finite,
                         learning_rate=learning_rate)
            return Decision(inverse_weight, self._learner.clip_factor(norm),
                            is_finite & (weight != 0.0), means)

    def apply(self, decision: Decision, last: Sequence[tf.Operation], foreign: dict[Use, tf.Tensor],
              reached: Collection[str], stamps: Stamps | None = None) -> list[tf.Tensor]:
        """Adds the update of all cells, and returns tensors that exist once it is done."""
        # No cell may reset its accumulators before the other cells have read the gradients that
        # they need from it, nor before every reported result has been read: the metrics of a cell
        # that emits nothing else enter neither the norm nor the decision.
        with tf.device(self._cells[0].device):
            reported = tf.group(*decision.results.values())
        before = [*foreign.values(), reported]

        done = []
        for cell, op in zip(self._cells, last, strict=True):
            done.append(call_stamped(
                placed(lambda *a, c=cell: self._update(c, reached, *a)),
                [decision.inverse_weight, decision.clip_factor,
                 decision.results['learning_rate'], decision.is_update,
                 self.gradients.foreign_of(cell, foreign)],
                UpdatePart('update', cell.index), cell.device, [*before, op], stamps))
        return done

    def _update(self, cell: Cell, reached: Collection[str], inverse_weight: tf.Tensor,
                clip_factor: tf.Tensor, learning_rate: tf.Tensor, is_update: tf.Tensor,
                foreign: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Updates the weights of a cell, or none, and resets its accumulators."""
        accumulators = self._accumulators[cell.index]

        def apply(layer: LayerLearner, inverse_weight: tf.Tensor, clip_factor: tf.Tensor,
                  learning_rate: tf.Tensor) -> tf.Tensor:
            gradients = {
                path: functools.partial(self._clipped, path, inverse_weight, clip_factor, foreign)
                for path in layer.weights if path in reached}
            done = layer.apply(gradients, learning_rate)
            assert done is not None
            return done

        def update(layer: LayerLearner, is_update: tf.Tensor, *args: tf.Tensor) -> tf.Tensor:
            # The condition is here, where layers that are alike share it. Around all layers of a
            # cell, it would take hundreds of variables into each of its branches.
            return tf.cond(is_update, lambda: tf.cast(apply(layer, *args), tf.int64),
                           lambda: tf.constant(0, tf.int64))

        done: list[tf.Tensor] = []
        for layer in self._layers(cell):
            # The layers are updated one after the other, so that the temporaries of only one exist
            # at a time.
            with tf.control_dependencies(done[-1:]):
                done.append(self._alike.call(update, layer, reached, is_update, inverse_weight,
                                             clip_factor, learning_rate))
        with tf.control_dependencies(done[-1:]):
            done.append(self._update_state(cell, is_update))
        with tf.control_dependencies(done[-1:]):
            return accumulators.reset()

    def _update_state(self, cell: Cell, is_update: tf.Tensor) -> tf.Tensor:
        """Updates the weights that layers set from what they emitted, or none."""
        accumulators = self._accumulators[cell.index]
        layout = accumulators.layout
        if not (layout.moments or layout.means or layout.states):
            return tf.identity(is_update)

        def apply() -> tf.Tensor:
            update_state(cell, accumulators.merged(), self._variables.weights)
            return tf.constant(True)

        return tf.cond(is_update, apply, lambda: tf.constant(False))

    def _clipped(self, path: str, inverse_weight: tf.Tensor, clip_factor: tf.Tensor,
                 foreign: Mapping[str, tf.Tensor]) -> tf.Tensor:
        gradient = self.gradients.mean(path, inverse_weight, foreign)
        return gradient * tf.cast(clip_factor, gradient.dtype) if self._clips else gradient

    def _layers(self, cell: Cell) -> list[LayerLearner]:
        learners = self._variables.learners
        return [learners[e.layer.path] for e in cell.elements if e.layer.path in learners]
