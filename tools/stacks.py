"""Stacks: the networks that benchmarks run, with their data.

Other frameworks can be given exactly the same work. The Transformer stack is L pre-LN encoder
layers over x [B, T, D], with feed-forward parts of 4 D, without embedding, mask and dropout. The
loss is mean((x - target)^2). Its weights and data come from NumPy alone:

    rng = numpy.random.default_rng(1234)
    for each layer: for each of wq, wk, wv, wo [D, D], w1 [D, 4D], w2 [4D, D], in this order:
        w = (rng.standard_normal(shape) / sqrt(shape[0])).astype(float32)
    biases are 0, gains of LayerNorm are 1 (epsilon 1e-5)
    x = default_rng(1235).standard_normal([B, T, D])
    target = default_rng(1236).standard_normal([B, T, D])
"""
from __future__ import annotations

import collections
import math
import time
from collections.abc import Callable, Sequence

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
from lingpipe.process.graph_lifetime import custom_gradient
from lingpipe.tasks.image.amoebanet import AmoebaNet

SEED = 1234
CALL_S = 2e-4          # what an op that sleeps takes longer than its sleep
STRAIGHT_ON_S = 3e-4   # a device that begins so soon after a sleep has waited for nothing else


class Delay(Layer):
    """An emulated device: a layer whose passes sleep without using a core.

    The backward sleeps half its time for the gradient of the input and, after that, half for the
    gradient of the weight, so that a schedule may split it. It begins once the forward is done,
    even if that is repeated right before it.
    """

    is_traced_once = True

    class Params(Layer.Params):
        forward_ms: float = field(REQUIRED, 'Milliseconds of a forward.', least=0)
        backward_ms: float = field(REQUIRED, 'Milliseconds of a backward.', least=0)
        device: int = field(0, 'The number of the emulated device.', least=0)

    params: Params

    def __init__(self, params: Params, path: str = ''):
        super().__init__(params, path)
        self.add_weight('scale', [], 'ones')

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor) -> tf.Tensor:
        """Returns x * scale after forward_ms; the gradients take backward_ms."""
        forward_ms, backward_ms = self.params.forward_ms, self.params.backward_ms
        device = self.params.device

        @custom_gradient
        def wait(x: tf.Tensor, scale: tf.Tensor) -> tuple[
                tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]]:
            """Returns x * scale, and the function of its gradients; both take their time."""
            y = sleep(x * scale, forward_ms, device)

            def backward(dy: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                """Returns the gradients of x and of the scale, which is ready later."""
                dy = sleep(dy + 0 * y, backward_ms / 2, device)
                return dy * scale, sleep(tf.reduce_sum(dy * x), backward_ms / 2, device)

            return y, backward

        return wait(x, theta.scale)

    def cost(self, x: tf.TensorSpec) -> Cost:
        return Cost(self.params.forward_ms, self.num_weights, x)


class Sleeper:
    """An emulated device, which sleeps for what a real one would compute.

    A sleep ends late: when several devices wake up at once, they queue for few cores and for
    Python's lock. Real devices do not. So the next sleep is shorter by as much, if it begins
    directly after that one; if it does not, the device has waited for another one, and its own
    delay has cost nothing.
    """

    def __init__(self) -> None:
        self._ended_s = 0.0
        self._late_s = 0.0

    def sleep(self, seconds: float) -> None:
        """Returns when the device is done."""
        began_s = time.perf_counter()
        if began_s - self._ended_s > STRAIGHT_ON_S:
            self._late_s = 0.0

        due_s = began_s - self._late_s + seconds - CALL_S
        time.sleep(max(0.0, due_s - time.perf_counter()))
        self._ended_s = time.perf_counter()
        self._late_s = self._ended_s - due_s


_sleepers: dict[int, Sleeper] = collections.defaultdict(Sleeper)   # by number, in this process


def sleep(x: tf.Tensor, ms: float, device: int | None = None) -> tf.Tensor:
    """Returns x, some milliseconds later.

    The op is stateless. It uses no core, but occupies an inter-op thread. What it takes to call
    Python and to wake up is a part of the time.

    Args:
      x: any tensor.
      ms: how long the device is busy.
      device: its number; None: one that does nothing else.
    """
    if not ms:
        return tf.identity(x)

    sleeper = Sleeper() if device is None else _sleepers[device]

    def wait(value: np.ndarray) -> np.ndarray:
        sleeper.sleep(ms / 1e3)
        return value

    waited = tf.numpy_function(wait, [x], x.dtype, stateful=False)
    return tf.ensure_shape(waited, x.shape)   # an op, so that a cut graph knows the shape too


def delays(num_layers: int, forward_ms: float, backward_ms: float, layout: Sequence[int] = ()
           ) -> Sequential.Params:
    """Returns equal emulated layers on x [B, n], with a loss of target [B, n]; see `sleeping`."""
    return sleeping([(forward_ms, backward_ms)] * num_layers, layout)


def sleeping(times_ms: Sequence[tuple[float, float]], layout: Sequence[int] = ()
             ) -> Sequential.Params:
    """Returns emulated layers.

    Args:
      times_ms: forward and backward of each layer.
      layout: the device of each; by default each has a device of its own.
    """
    delay_layers = [
        Delay.Params(name=f'layer_{i}', forward_ms=forward_ms, backward_ms=backward_ms,
                     device=device if forward_ms or backward_ms else 0)
        for i, ((forward_ms, backward_ms), device) in enumerate(
            zip(times_ms, layout or range(len(times_ms)), strict=True))]
    loss = layers.MeanSquaredErrorLoss.Params(name='loss')
    return Sequential.Params(name='model', layers=(*delay_layers, loss))


def delay_batch(batch: int, width: int = 1) -> dict[str, np.ndarray]:
    """Returns x and target [B, n], n = width."""
    return {'x': np.ones([batch, width], np.float32),
            'target': np.zeros([batch, width], np.float32)}


def transformer(num_layers: int, dim: int, num_heads: int, dtype: str = 'float32'
                ) -> Sequential.Params:
    """Returns the Transformer stack: activations in `dtype`, weights and loss in float32."""
    layer = layers.TransformerEncoderLayer.Params(model_dim=dim, num_heads=num_heads,
                                                  hidden_dim=4 * dim)
    encoder_layers = [layer.copy().set(name=f'layer_{i}') for i in range(num_layers)]
    cast = (layers.Cast.Params(name='cast', dtype=dtype),) if dtype != 'float32' else ()
    loss = layers.MeanSquaredErrorLoss.Params(name='loss')
    return Sequential.Params(name='model', layers=(*cast, *encoder_layers, loss))


def transformer_batch(batch: int, seq: int, dim: int) -> dict[str, np.ndarray]:
    """Returns x and target [B, T, D]."""
    values = {}
    for i, name in enumerate(('x', 'target')):
        rng = np.random.default_rng(SEED + 1 + i)
        values[name] = rng.standard_normal((batch, seq, dim)).astype(np.float32)
    return values


def assign_transformer_weights(program: Program, num_layers: int, dim: int) -> None:
    """Assigns the NumPy weights, as the top of this file gives them, to a Transformer stack."""
    rng = np.random.default_rng(SEED)
    shapes = {'wq': (dim, dim), 'wk': (dim, dim), 'wv': (dim, dim), 'wo': (dim, dim),
              'w1': (dim, 4 * dim), 'w2': (4 * dim, dim)}
    for i in range(num_layers):
        layer_weights = {path.rsplit('/', 1)[1]: weight for path, weight in program.weights.items()
                         if path.startswith(f'model/layer_{i}/')}
        for name, shape in shapes.items():
            values = rng.standard_normal(shape) / math.sqrt(shape[0])
            layer_weights[name].assign(values.astype(np.float32))


def amoebanet(num_layers: int, num_filters: int, dtype: str = 'float32') -> Sequential.Params:
    """Returns AmoebaNet-D (L, F) as torchgpipe's benchmarks build it, with 1000 classes."""
    network = AmoebaNet.Params(name='amoebanet', num_layers=num_layers, num_filters=num_filters,
                               num_classes=1000, is_torchgpipe=True)
    loss = layers.CrossEntropyLoss.Params(name='loss', reads={'labels': 'label'})
    if dtype == 'float32':
        return Sequential.Params(name='model', layers=(network, loss))
    cast = layers.Cast.Params(name='cast', dtype=dtype, reads={'x': 'image'}, writes='image')
    return Sequential.Params(name='model', layers=(cast, network, loss))


def image_batch(batch: int, size: int) -> dict[str, np.ndarray]:
    """Returns image [B, size, size, 3] in [0, 1), label [B] below 1000, and weight [B]."""
    rng = np.random.default_rng(SEED + 1)
    return {'image': rng.random((batch, size, size, 3), np.float32),
            'label': rng.integers(0, 1000, batch).astype(np.int32),
            'weight': np.ones(batch, np.float32)}
