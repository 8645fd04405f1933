"""Update rule: what is the same in the updates of all layers."""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import keras
import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class UpdateRule:
    """How any layer's weights are updated, as Learner.Params say.

    Attributes:
      make_optimizer: makes an optimizer that is not built.
      copied_slots: slots that begin as copies of the weights, by their names in
        LayerLearner.variables.
      learning_rate: step -> the rate of the update that comes after `step` updates.
      rate_factor: path -> the factor on the rate of this weight.
      weight_decay: as in Learner.Params.
      decays: (path, rank) -> whether weight_decay applies to the weight.
      ema_decay, ema_warmup: as in Learner.Params.
    """
    make_optimizer: Callable[[], keras.optimizers.Optimizer]
    copied_slots: Sequence[str]
    learning_rate: Callable[[tf.Tensor], tf.Tensor]
    rate_factor: Callable[[str], float]
    weight_decay: float
    decays: Callable[[str, int], bool]
    ema_decay: float | None
    ema_warmup: bool

    def rate_of(self, path: str, rate: tf.Tensor) -> tf.Tensor:
        """The rate of one weight, given that of the update."""
        factor = self.rate_factor(path)
        return rate if factor == 1 else rate * factor
