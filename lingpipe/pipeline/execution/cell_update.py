"""Cell update: the new weights of one cell, on its device."""
from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence

import tensorflow as tf

from lingpipe.learning.gradient import Gradient, scaled
from lingpipe.learning.layer_learner import LayerLearner
from lingpipe.pipeline.execution.accumulators import Accumulators
from lingpipe.pipeline.execution.alike_layers import AlikeLayers
from lingpipe.pipeline.execution.gradients import Gradients
from lingpipe.pipeline.execution.placed import placed
from lingpipe.pipeline.execution.state_update import update_state
from lingpipe.pipeline.execution.variables import Variables
from lingpipe.pipeline.planning.cell import Cell


class CellUpdate:
    """Updates the cells of one replica, each when it is called for it."""

    def __init__(self, accumulators: Sequence[Accumulators], variables: Variables,
                 gradients: Gradients, alike: AlikeLayers, clips: bool):
        """Adds nothing to a graph yet.

        Args:
          accumulators: [K].
          variables: of the replica.
          gradients: of the replica.
          alike: calls functions of layers.
          clips: whether gradients are clipped.
        """
        self._accumulators, self._variables = accumulators, variables
        self._gradients, self._alike, self._clips = gradients, alike, clips

    def of(self, cell: Cell, reached: Collection[str], inverse_weight: tf.Tensor,
           clip_factor: tf.Tensor, learning_rate: tf.Tensor, is_update: tf.Tensor,
           foreign: Mapping[str, Gradient]) -> tf.Tensor:
        """Updates the weights of a cell, or none, and resets its accumulators.

        Args:
          cell: the cell.
          reached: paths of the weights that have a gradient.
          inverse_weight, clip_factor, is_update: as in Decision.
          learning_rate: of this update.
          foreign: gradients that other cells computed, as Gradients.foreign_of returns them.

        Returns:
          A tensor that exists once all is done.
        """
        def update(layer: LayerLearner, inverse_weight: tf.Tensor, clip_factor: tf.Tensor,
                   learning_rate: tf.Tensor, seeds: tf.Tensor) -> tf.Tensor:
            gradients = {
                path: functools.partial(self._clipped, path, inverse_weight, clip_factor, foreign)
                for path in layer.weights if path in reached}
            done = layer.apply(gradients, learning_rate, seeds)
            assert done is not None
            return tf.cast(done, tf.int64)

        done: list[tf.Tensor] = []
        for layer in self._variables.learners_of(cell):
            # The layers are updated one after the other, so that the temporaries of only one exist
            # at a time.
            with tf.control_dependencies(done[-1:]):
                # Each layer has a condition of its own, since a branch for all layers of a cell
                # would take hundreds of variables.
                done.append(self._alike.call(
                    update, layer, self._gradients, reached, inverse_weight, clip_factor,
                    learning_rate, tf.constant(layer.seeds, tf.int64), only_if=is_update))
        with tf.control_dependencies(done[-1:]):
            done.append(self._update_state(cell, is_update))
        for sums in self._accumulators[cell.index].by_layer(cell.elements):
            with tf.control_dependencies(done[-1:]):
                done.append(self._alike.reset(sums))
        return done[-1]

    def _update_state(self, cell: Cell, is_update: tf.Tensor) -> tf.Tensor:
        """Updates the weights that layers set from what they emitted, or none."""
        accumulators = self._accumulators[cell.index]
        layout = accumulators.layout
        if not (layout.moments or layout.means or layout.states):
            return tf.identity(is_update)

        def apply() -> tf.Tensor:
            update_state(cell, accumulators.merged(), self._variables.weights)
            return tf.constant(True)

        return placed(lambda is_update: tf.cond(is_update, apply, lambda: tf.constant(False)))(
            is_update)

    def _clipped(self, path: str, inverse_weight: tf.Tensor, clip_factor: tf.Tensor,
                 foreign: Mapping[str, Gradient]) -> Gradient:
        gradient = self._gradients.mean(path, inverse_weight, foreign)
        if not self._clips:
            return gradient
        # Keras squares rows one by one for the norm, and adds them up when it clips.
        return scaled(tf.convert_to_tensor(gradient), clip_factor)
