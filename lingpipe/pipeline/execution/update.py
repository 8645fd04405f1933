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
from collections.abc import Collection, Sequence

import tensorflow as tf

from lingpipe.learning.gradient import Gradient
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution import results
from lingpipe.pipeline.execution.accumulators import Accumulators
from lingpipe.pipeline.execution.alike_layers import AlikeLayers
from lingpipe.pipeline.execution.cell_update import CellUpdate
from lingpipe.pipeline.execution.gradients import Gradients, Use
from lingpipe.pipeline.execution.placed import placed
from lingpipe.pipeline.execution.squared_norms import SquaredNorms
from lingpipe.pipeline.execution.stamps import Stamps, UpdatePart, call_stamped
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
                 variables: Variables, learner: Learner, alike: AlikeLayers):
        """Adds nothing to a graph yet; all replicas share `alike`."""
        self._cells, self._accumulators, self._variables, self._learner = (
            cells, accumulators, variables, learner)
        self.gradients = Gradients(cells, accumulators, variables, learner)
        self._clips = learner.params.clip_norm is not None
        self._norms = SquaredNorms(self.gradients, alike, self._clips)
        self._cell_update = CellUpdate(
            accumulators, variables, self.gradients, alike, self._clips)

    def decide(self, last: Sequence[tf.Operation], foreign: dict[Use, Gradient], step: tf.Tensor,
               reached: Collection[str], stamps: Stamps | None) -> Decision:
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
            layers = self._variables.trained_of(cell)
            squares.append(call_stamped(
                lambda *a, of=layers: self._norms.of(of, reached, *a),
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

    def apply(self, decision: Decision, last: Sequence[tf.Operation], foreign: dict[Use, Gradient],
              reached: Collection[str], stamps: Stamps | None = None) -> list[tf.Tensor]:
        """Adds the update of all cells, and returns tensors that exist once it is done."""
        # No cell may reset its accumulators before the other cells have read the gradients that
        # they need from it, nor before every reported result has been read: the metrics of a cell
        # that emits nothing else enter neither the norm nor the decision.
        with tf.device(self._cells[0].device):
            reported = tf.group(*decision.results.values())
        before = [*tf.nest.flatten(foreign, expand_composites=True), reported]

        done = []
        for cell, op in zip(self._cells, last, strict=True):
            done.append(call_stamped(
                lambda *a, c=cell: self._cell_update.of(c, reached, *a),
                [decision.inverse_weight, decision.clip_factor,
                 decision.results['learning_rate'], decision.is_update,
                 self.gradients.foreign_of(cell, foreign)],
                UpdatePart('update', cell.index), cell.device, [*before, op], stamps))
        return done
