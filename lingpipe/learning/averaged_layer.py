"""AveragedLayer: the weights of a layer that train, with their moving averages and without slots.

It is all of a layer's learner that a program needs that only reads checkpoints.
"""
from __future__ import annotations

from collections.abc import Container, Mapping

import tensorflow as tf

from lingpipe.learning.averages import Averages
from lingpipe.learning.trained_layer import TrainedLayer
from lingpipe.learning.update_rule import UpdateRule


class AveragedLayer(TrainedLayer):
    """Weights of one layer and their averages, which are on the weights' device."""

    def __init__(self, rule: UpdateRule, weights: Mapping[str, tf.Variable]):
        """
        Args:
          rule: says how weights are averaged.
          weights: those that train, by path.
        """
        super().__init__(weights, rule.decays)
        self._rule = rule
        with tf.device(self._device):
            self._averages = Averages(weights, rule.ema_decay, rule.ema_warmup)

    @property
    def _device(self) -> str | None:
        """The device of the weights; None if there are none."""
        return next((weight.device for weight in self.weights.values()), None)

    def ema(self) -> dict[str, tf.Variable]:
        """The moving averages by path of the weight; empty if ema_decay is none."""
        return dict(self._averages.variables)

    def variables(self) -> dict[str, tf.Variable]:
        """All that a checkpoint must hold besides the weights, as ema/<weight path>."""
        return {f'ema/{path}': one for path, one in self._averages.variables.items()}

    def follow_weights(self, but: Container[str] = (),
                       assigned: Mapping[str, tf.Variable] | None = None) -> None:
        """Sets averages, and slots that are copies at first, to weights that other code assigned.

        Args:
          but: keys in `variables` of what that code has assigned too.
          assigned: path -> the weight that it assigned, if not this layer's own.
        """
        variables = self.variables()
        for path, weight in self.weights.items():
            weight = weight if assigned is None else assigned[path]
            slots = [f'optimizer/{path}/{name}' for name in self._rule.copied_slots]
            for key in (f'ema/{path}', *slots):
                if key in variables and key not in but:
                    variables[key].assign(tf.cast(weight, variables[key].dtype))
