"""Subjects: the small networks that are trained on the devices.

A Transformer has matrix products, and a convolution network what cuDNN computes: convolutions,
BatchNorm and pooling.
"""
from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lingpipe import layers
from lingpipe.layers.sequential import Sequential
from lingpipe.learning import learning_rates, optimizers
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.tools import stacks


@dataclasses.dataclass(frozen=True)
class Subject:
    """A network with a mini-batch.

    Attributes:
      name: for people.
      network: the layers, with the loss.
      batch: name -> tensor.
    """
    name: str
    network: Sequential.Params
    batch: dict[str, tf.Tensor]

    def program(self, devices: Sequence[str], **pipeline: Any) -> Program:
        """Returns a program.

        Args:
          devices: tf.device strings, one for each device that the plan needs.
          pipeline: other fields of PipelineParams.
        """
        learner = Learner.Params(optimizer=optimizers.RMSProp.Params(momentum=0.9),
                                 learning_rate=learning_rates.Constant.Params(rate=0.003))
        spec = {name: tf.TensorSpec(value.shape, value.dtype)
                for name, value in self.batch.items()}
        params = PipelineParams(devices=tuple(devices), **pipeline)
        return Program(self.network.instantiate('model'), spec, params, learner.instantiate())

    def arrays_after(self, program: Program, num_steps: int) -> dict[str, np.ndarray]:
        """Returns all variables after some steps."""
        for step in range(num_steps):
            program.train_step(self.batch, step)
        return {name: variable.numpy() for name, variable in program.variables().items()}

    def step_s(self, program: Program, num_steps: int, first_step: int = 0) -> list[float]:
        """Returns the seconds of some steps, each until its loss is here."""
        times_s = []
        for step in range(first_step, first_step + num_steps):
            start_s = time.perf_counter()
            program.train_step(self.batch, step)['loss'].numpy()
            times_s.append(time.perf_counter() - start_s)
        return times_s


def transformer(num_layers: int, dim: int, seq: int, batch: int) -> Subject:
    """Returns a Transformer stack with heads of 32 channels."""
    arrays = stacks.transformer_batch(batch, seq, dim)
    return Subject(f'Transformer ({num_layers} layers, d={dim}, T={seq})',
                   stacks.transformer(num_layers, dim, dim // 32), _tensors(arrays))


def convolutions(num_blocks: int, filters: int, size: int, batch: int) -> Subject:
    """Returns blocks of convolution, BatchNorm and ReLU, with pooling in the middle."""
    parts: list[Any] = []
    for i in range(num_blocks):
        channels = filters if i else 3
        parts += [
            layers.Conv2D.Params(name=f'conv_{i}', input_dim=channels, filters=filters,
                                 use_bias=False, reads={} if i else {'x': 'image'}),
            layers.BatchNorm.Params(name=f'norm_{i}', dim=filters),
            layers.Activation.Params(name=f'relu_{i}')]
        if i == num_blocks // 2:
            parts.append(layers.MaxPool2D.Params(name='pool'))
    parts += [layers.DepthwiseConv2D.Params(name='depthwise', input_dim=filters),
              layers.GlobalAvgPool2D.Params(name='mean'),
              layers.Dense.Params(name='logits', input_dim=filters, units=1000),
              layers.CrossEntropyLoss.Params(name='loss', reads={'labels': 'label'})]
    return Subject(f'convolutions ({num_blocks} blocks, {filters} filters, {size} x {size})',
                   Sequential.Params(name='model', layers=tuple(parts)),
                   _tensors(stacks.image_batch(batch, size)))


def _tensors(arrays: dict[str, np.ndarray]) -> dict[str, tf.Tensor]:
    with tf.device('/device:CPU:0'):
        return {name: tf.constant(value) for name, value in arrays.items()}
