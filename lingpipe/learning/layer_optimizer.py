"""LayerOptimizer: the Keras optimizer of one layer, with its slots."""
from __future__ import annotations

from collections.abc import Hashable, Mapping

import tensorflow as tf

from lingpipe.learning.gradient import Gradient
from lingpipe.learning.optimizer import begin_step, is_of_a_user
from lingpipe.learning.rounded_slots import NUM_DRAWS, close_all, seed_of
from lingpipe.learning.slots import KerasWeight, slots_of
from lingpipe.learning.update_rule import UpdateRule


class LayerOptimizer:
    """Makes the new values of weights and slots.

    Attributes:
      seeds: one for each weight, of what is random in the rounding of its slots.
      kind: equal for optimizers whose updates are the same computation on other variables.
      keras_optimizer: the optimizer, which has been built.
    """

    def __init__(self, rule: UpdateRule, layer_path: str, weights: Mapping[str, tf.Variable],
                 experiment_seed: int):
        """Creates the slots, on the current device."""
        self._weights, self._layer_path = weights, layer_path
        self.seeds = [seed_of(experiment_seed, path) for path in weights]
        self.keras_optimizer = rule.make_optimizer()
        self.keras_optimizer.build([KerasWeight(weight, path) for path, weight in weights.items()])
        self._slots = slots_of(self.keras_optimizer, list(weights))
        slot_names = tuple(tuple(self._slots.by_weight[path]) for path in weights)
        looks_at_paths = is_of_a_user(self.keras_optimizer)
        self.kind: Hashable = (slot_names, tuple(weights) if looks_at_paths else (),
                               tuple(map(rule.rate_factor, weights)))

    @property
    def num_updates(self) -> tf.Variable:
        """The number of updates made."""
        return self.keras_optimizer.iterations.value

    def begin_step(self, learning_rate: tf.Tensor) -> None:
        """Updates what is kept for all weights together; to be called before the first update."""
        begin_step(self.keras_optimizer, learning_rate)

    def update(self, path: str, gradient: Gradient, learning_rate: tf.Tensor,
               seed: tf.Tensor) -> list[tf.Operation]:
        """Updates one weight and its slots.

        Args:
          path: of the weight.
          gradient: of the weight, in its dtype.
          learning_rate: in the dtype of the weight.
          seed: that of the weight, int64; see `seeds`.

        Returns:
          Ops that end after that of the weight, if there are any.
        """
        rounded = self._slots.rounded[path]
        for slot in rounded:
            slot.open()
        self.keras_optimizer.update_step(gradient, self._weights[path], learning_rate)
        if not rounded:
            return []
        return close_all(rounded, tf.stack([seed, NUM_DRAWS * self.num_updates]))

    def variables(self) -> dict[str, tf.Variable]:
        """All variables by their keys in checkpoints: iterations and those of Slots.by_key."""
        return {f'optimizer/{self._layer_path}/iterations': self.num_updates,
                **self._slots.by_key(self._layer_path)}
