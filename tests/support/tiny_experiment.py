"""A tiny experiment for tests of the trainer, tiny_experiment.Tiny.

Four dense layers learn a linear map.
"""
from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from lingpipe.hyperparams import REQUIRED, field
from lingpipe.input import ArrayInput
from lingpipe.layers.base import Layer
from lingpipe.layers.cost import Cost
from lingpipe.layers.sequential import Sequential
from lingpipe.learning import learning_rates, optimizers
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.training.experiment import Experiment
from lingpipe.training.problem import Problem
from lingpipe.training.registry import register
from lingpipe.training.train_params import TrainParams

DIM = 4


class Dense(Layer):
    """Returns tanh(x w), with dropout, so that seeds matter."""

    class Params(Layer.Params):
        dim: int = field(REQUIRED, 'Channels.')

    def __init__(self, params: Any, path: str = ''):
        super().__init__(params, path)
        self.add_weight('w', [self.params.dim, self.params.dim])

    def fprop(self, theta: Any, ctx: Any, x: tf.Tensor) -> tf.Tensor:
        y = tf.tanh(tf.matmul(x, theta.w))
        if ctx.training:
            y *= tf.cast(tf.random.stateless_uniform(tf.shape(y), ctx.seed(self.path)) < 0.9,
                         y.dtype)
        return y

    def cost(self, x: Any) -> Cost:
        return Cost(2 * x.shape[0] * self.params.dim ** 2, self.num_weights, x)


class SquaredError(Layer):
    """Emits the loss, and the mean absolute error as a metric."""

    def fprop(self, theta: Any, ctx: Any, x: tf.Tensor, y: tf.Tensor, weight: tf.Tensor) -> None:
        total = tf.reduce_sum(weight)
        ctx.emit_loss(self.path, 'squared', tf.reduce_sum(weight * tf.reduce_sum((x - y) ** 2, 1)),
                      total)
        ctx.emit_metric(self.path, 'error',
                        tf.reduce_sum(weight * tf.reduce_mean(tf.abs(x - y), 1)), total)

    def cost(self, x: Any, y: Any, weight: Any) -> Cost:
        return Cost(4 * x.shape.num_elements(), 0, None)


class Pairs(ArrayInput):
    """Examples with a random x, and a y that is a function of it."""

    class Params(ArrayInput.Params):
        dim: int = field(DIM, 'Channels.', least=1)
        num_examples: int = field(40, 'How many.')
        nan_at: tuple[int, ...] = field((), 'Examples that are nan.')

    params: Params

    def load(self) -> dict[str, np.ndarray]:
        x = np.random.default_rng(0).standard_normal(
            (self.params.num_examples, self.params.dim)).astype(np.float32)
        y = np.tanh(np.pad(x, ((0, 0), (1, 0)))[:, :-1])
        x[list(self.params.nan_at)] = np.nan
        return {'x': x, 'y': y}


@register
class Tiny:
    """Four dense layers learn a linear map.

    This takes a second.
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        layers = (*(Dense.Params(name=f'dense_{i}', dim=DIM) for i in range(4)),
                  SquaredError.Params(name='loss'))
        learner = Learner.Params(
            learning_rate=learning_rates.Linear.Params(rate=0.05, decay_steps=1000),
            optimizer=optimizers.SGD.Params(momentum=0.9), ema_decay=0.9)
        return Experiment.Params(
            task=Problem.Params(model=Sequential.Params(name='model', layers=layers),
                                learner=learner),
            train_input=Pairs.Params(batch_size=8),
            eval_inputs={'test': Pairs.Params(batch_size=8, num_examples=13, shuffle=False,
                                              num_epochs=1)},
            pipeline=PipelineParams(num_cells=2, num_micro_batches=2),
            train=TrainParams(num_steps=10, checkpoint_every_steps=1, summary_every_steps=5,
                              log_every_s=0))
