"""Task: what is learned and how: a network, its learner, and the metric that says which checkpoint is best.

A domain's task extends it with what the domain needs (how to decode, what to show in TensorBoard).
"""
from __future__ import annotations

from typing import Any

from lingpipe.hyperparams import REQUIRED, Configurable, field
from lingpipe.layers.sequential import Sequential
from lingpipe.learner import Learner


class Task(Configurable):
    """A network that is declared, not yet on any device, and its learner.

    Attributes:
      network: the Sequential.
      learner: the Learner.
    """

    class Params(Configurable.Params):
        model: Sequential.Params = field(REQUIRED, 'The network: layers in order, the loss the last.')
        learner: Learner.Params = field(Learner.Params(), 'Optimizer, learning rate, clipping, averages.')
        best_metric: str = field('loss', 'The metric of the evaluation by which the best checkpoint is kept.')
        best_is_largest: bool = field(False, 'Whether more of best_metric is better, as of an accuracy.')

    params: Params

    def __init__(self, params: Any):
        super().__init__(params)
        p = self.params
        self.network: Sequential = p.model.instantiate(p.model.name or 'model')
        self.learner: Learner = p.learner.instantiate()
        self.learner.check_paths([weight.path for weight in self.network.weights() if weight.is_trainable and weight.shared_with is None])

    def images(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Pictures of a mini-batch for TensorBoard: name -> [n, height, width, 1, 3 or 4], uint8 or floats from 0 to 1; none here."""
        return {}
