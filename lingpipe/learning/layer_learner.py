"""LayerLearner: the slots, averages and updates of one layer.

There is one Keras optimizer for each layer, and not one for all. Its slots are created beside the
layer's weights, on whichever device they are, and a layer takes its slots along when another
partition puts it elsewhere.
"""
from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TypeAlias

import tensorflow as tf

from lingpipe.learning.averaged_layer import AveragedLayer
from lingpipe.learning.gradient import Gradient, cast
from lingpipe.learning.layer_optimizer import LayerOptimizer
from lingpipe.learning.program_order import in_program_order
from lingpipe.learning.update_rule import UpdateRule

_GivenGradient: TypeAlias = Gradient | Callable[[], Gradient | None] | None


class LayerLearner(AveragedLayer):
    """Slots, averages and updates of one layer; see Learner.for_layer."""

    def __init__(self, rule: UpdateRule, layer_path: str, weights: Mapping[str, tf.Variable],
                 experiment_seed: int = 0):
        super().__init__(rule, weights)
        with tf.device(self._device):
            self._optimizer = LayerOptimizer(rule, layer_path, weights, experiment_seed)

    @property
    def kind(self) -> Hashable:
        """Equal for layers whose updates are the same computation on other variables."""
        return super().kind, self._optimizer.kind

    @property
    def seeds(self) -> list[int]:
        """What `apply` is given, where layers that are alike share one trace of it."""
        return self._optimizer.seeds

    def apply(self, gradients: Mapping[str, _GivenGradient],
              learning_rate: tf.Tensor | None = None,
              seeds: tf.Tensor | None = None) -> tf.Tensor | None:
        """Updates weights, slots and averages once.

        It may be traced in a tf.function, also in a branch of tf.cond. It opens no tf.device, since
        layers on several devices may share one trace: the caller opens the device of the weights.

        Args:
          gradients: by path, already regularised and clipped, or functions that make them. Such a
            function is called when it is the weight's turn, so that its temporary tensors come and
            go too. A weight whose gradient is None or missing stays as it is, slots included.
            Gradients of frozen weights are ignored.
          learning_rate: that of this update; by default what the Params say for the number of
            updates made, which checkpoints restore.
          seeds: int64, those of this layer; by default its own.

        Returns:
          The number of updates made, available when all is done: a control dependency for the next
          layer's update. None if there are no weights.
        """
        if not self.weights:
            return None
        num_updates = tf.identity(self._optimizer.num_updates)
        if learning_rate is None:
            learning_rate = self._rule.learning_rate(num_updates)
        ema_decay = self._averages.decay(num_updates)

        # One weight after the other. Keras' own apply leaves the order to TensorFlow, which begins
        # with the first operation of all updates and holds the temporaries of all weights at once.
        done = [num_updates]
        with tf.control_dependencies(done):
            self._optimizer.begin_step(learning_rate)
        seeds = tf.constant(self.seeds, tf.int64) if seeds is None else seeds
        for i, path in enumerate(self.weights):
            with tf.control_dependencies(done), in_program_order(self.weights[path].shape):
                gradient = gradients.get(path)
                if callable(gradient):
                    gradient = gradient()
                done = self._update_weight(path, gradient, learning_rate, ema_decay,
                                           seeds[i]) or done
        with tf.control_dependencies(done):
            return self._optimizer.num_updates.assign_add(1, read_value=True) + 0

    def _update_weight(self, path: str, gradient: Gradient | None, learning_rate: tf.Tensor,
                       ema_decay: tf.Tensor | None, seed: tf.Tensor) -> list[tf.Tensor]:
        """Updates one weight, its slots and average; returns what is read after the last write."""
        weight = self.weights[path]
        stored: list[tf.Operation] = []
        if gradient is not None:
            rate = self._rule.rate_of(path, tf.cast(learning_rate, weight.dtype))
            if self._rule.weight_decay and self._rule.decays(path, weight.shape.rank):
                weight.assign_sub(weight * self._rule.weight_decay * rate)
            stored = self._optimizer.update(path, cast(gradient, weight.dtype), rate, seed)
        with tf.control_dependencies(stored):
            written = self._averages.update(path, weight, ema_decay)
            return written or ([] if gradient is None else [weight.read_value()])

    def variables(self) -> dict[str, tf.Variable]:
        """Those of AveragedLayer and, if there are weights, of LayerOptimizer."""
        return {**super().variables(), **(self._optimizer.variables() if self.weights else {})}
