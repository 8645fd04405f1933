"""TrainedLayer: the weights of a layer that train, whoever keeps their slots."""
from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

import tensorflow as tf


class TrainedLayer:
    """The weights of one layer that train.

    Attributes:
      weights: by path.
    """

    def __init__(self, weights: Mapping[str, tf.Variable], decays: Callable[[str, int], bool]):
        """
        Args:
          weights: by path.
          decays: (path, rank) -> whether decay applies to the weight.
        """
        self.weights = dict(weights)
        self._decays = decays

    @property
    def kind(self) -> Hashable:
        """Equal for layers for which the same is computed, on other variables."""
        return tuple((tuple(weight.shape), weight.dtype.name,
                      self._decays(path, weight.shape.rank))
                     for path, weight in self.weights.items())

    def variables(self) -> dict[str, tf.Variable]:
        """All variables besides the weights, by stable keys: none."""
        return {}
