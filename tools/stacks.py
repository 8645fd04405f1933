"""Stacks: the networks that benchmarks run, with their data, so that other frameworks can be given exactly the same work.

The Transformer stack is L pre-LN encoder layers over x [B, T, D], no embedding, no mask, no dropout, feed-forward of 4 D;
loss mean((x - target)^2). Its weights and data come from NumPy alone:

    rng = numpy.random.default_rng(1234)
    for each layer: for each of wq, wk, wv, wo [D, D], w1 [D, 4D], w2 [4D, D], in this order:
        w = (rng.standard_normal(shape) / sqrt(shape[0])).astype(float32)
    biases 0, LayerNorm gains 1 (epsilon 1e-5);  x, target = standard_normal of default_rng(1235), default_rng(1236)
"""
from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import tensorflow as tf

from lingpipe import layers
from lingpipe.hyperparams import REQUIRED, field
from lingpipe.layers.base import Layer
from lingpipe.layers.context import Context
from lingpipe.layers.cost import Cost
from lingpipe.layers.nested import NestedMap
from lingpipe.layers.sequential import Sequential
from lingpipe.pipeline.execution.program import Program
from lingpipe.tasks.image.amoebanet import AmoebaNet

SEED = 1234


class Delay(Layer):
    """A layer that does nothing for a while: an emulated device. Forward and backward each sleep without using a core."""

    class Params(Layer.Params):
        forward_ms: float = field(REQUIRED, 'Milliseconds of a forward.', least=0)
        backward_ms: float = field(REQUIRED, 'Milliseconds of a backward.', least=0)

    def __init__(self, params: Any, path: str = ''):
        super().__init__(params, path)
        self.add_weight('scale', [], 'ones')

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor) -> tf.Tensor:
        p = self.params

        @tf.custom_gradient
        def wait(x: tf.Tensor) -> Any:
            return sleep(x, p.forward_ms), lambda dy: sleep(dy, p.backward_ms)

        return wait(x * theta.scale)

    def cost(self, x: tf.TensorSpec) -> Cost:
        return Cost(self.params.forward_ms, self.num_weights, x)


def sleep(x: tf.Tensor, ms: float) -> tf.Tensor:
    """x, some milliseconds later; the op is stateless and uses no core, but one of the inter-op threads."""
    if not ms:
        return tf.identity(x)

    def wait(value: np.ndarray) -> np.ndarray:
        time.sleep(ms / 1e3)
        return value

    return tf.ensure_shape(tf.numpy_function(wait, [x], x.dtype, stateful=False), x.shape)  # an op, so that a cut graph knows it too


def delays(num_layers: int, forward_ms: float, backward_ms: float) -> Sequential.Params:
    """num_layers equal emulated layers on x [B, n]; loss of target [B, n]."""
    return Sequential.Params(name='model', layers=(
        *[Delay.Params(name=f'layer_{i}', forward_ms=forward_ms, backward_ms=backward_ms) for i in range(num_layers)],
        layers.MeanSquaredErrorLoss.Params(name='loss')))


def delay_batch(batch: int, width: int = 1) -> dict[str, np.ndarray]:
    """x and target [B, n], n = width."""
    return {'x': np.ones([batch, width], np.float32), 'target': np.zeros([batch, width], np.float32)}


def transformer(num_layers: int, dim: int, num_heads: int, dtype: str = 'float32') -> Sequential.Params:
    """The Transformer stack; activations in `dtype`, weights and loss in float32."""
    layer = layers.TransformerEncoderLayer.Params(model_dim=dim, num_heads=num_heads, hidden_dim=4 * dim)
    cast = (layers.Cast.Params(name='cast', dtype=dtype),) if dtype != 'float32' else ()
    return Sequential.Params(name='model', layers=(
        *cast, *[layer.copy().set(name=f'layer_{i}') for i in range(num_layers)], layers.MeanSquaredErrorLoss.Params(name='loss')))


def transformer_batch(batch: int, seq: int, dim: int) -> dict[str, np.ndarray]:
    """x and target [B, T, D]."""
    return {name: np.random.default_rng(SEED + 1 + i).standard_normal((batch, seq, dim)).astype(np.float32)
            for i, name in enumerate(('x', 'target'))}


def assign_transformer_weights(program: Program, num_layers: int, dim: int) -> None:
    """Gives the layers of a Transformer stack the NumPy weights of the file's first lines."""
    rng = np.random.default_rng(SEED)
    shapes = {'wq': (dim, dim), 'wk': (dim, dim), 'wv': (dim, dim), 'wo': (dim, dim), 'w1': (dim, 4 * dim), 'w2': (4 * dim, dim)}
    for i in range(num_layers):
        mine = {path.rsplit('/', 1)[1]: v for path, v in program.weights.items() if path.startswith(f'model/layer_{i}/')}
        for name, shape in shapes.items():
            mine[name].assign((rng.standard_normal(shape) / math.sqrt(shape[0])).astype(np.float32))


def amoebanet(num_layers: int, num_filters: int, dtype: str = 'float32') -> Sequential.Params:
    """AmoebaNet-D (L, F) as torchgpipe's benchmarks build it, 1000 classes, cross-entropy."""
    cast = (layers.Cast.Params(name='cast', dtype=dtype, reads={'x': 'image'}, writes='image'),) if dtype != 'float32' else ()
    return Sequential.Params(name='model', layers=(
        *cast, AmoebaNet.Params(name='amoebanet', num_layers=num_layers, num_filters=num_filters, num_classes=1000, is_torchgpipe=True),
        layers.CrossEntropyLoss.Params(name='loss', reads={'labels': 'label'})))


def image_batch(batch: int, size: int) -> dict[str, np.ndarray]:
    """image [B, size, size, 3] in [0, 1), label [B] below 1000, weight [B]."""
    rng = np.random.default_rng(SEED + 1)
    return {'image': rng.random((batch, size, size, 3), np.float32), 'label': rng.integers(0, 1000, batch).astype(np.int32),
            'weight': np.ones(batch, np.float32)}
