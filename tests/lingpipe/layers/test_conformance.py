"""Every contract of a layer, run over one table of all layers.

To add a layer, add a line to TABLE. An input is (shape, kind), or a dict of inputs. The kind is
'float' for values of the network, which take the dtype under test; 'data' for floats of the
mini-batch, and for those that are always float32; 'mask' for zeros and ones; or an int n for ids
below n.
"""
from __future__ import annotations

import dataclasses
import functools
import json
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe import layers, pricing
from lingpipe.hyperparams import Params, field
from lingpipe.layers import static_shapes
from lingpipe.layers.base import Layer
from lingpipe.layers.context import Context
from lingpipe.layers.low_rank import Adapters
from lingpipe.layers.nested import flatten, map_leaves
from lingpipe.layers.rotary import RotaryScaling
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.pipeline.planning.planner import make_plan
from tests.support import traced

IMAGE = {'x': ((2, 7, 6, 4), 'float')}
SEQUENCE = {'x': ((2, 5, 8), 'float')}
MASK = {'mask': ((2, 5), 'mask')}
MEMORY = {'memory': ((2, 3, 6), 'float')}
PARTIAL = {'partial': ((2, 5, 8), 'float')}
SOFTMAX = {name: ((2, 5), kind) for name, kind in {'log_sum': 'data', 'max': 'data', 'argmax': 5,
                                                   'label': 'data', 'total': 'data'}.items()}
TOKENS = {'x': ((2, 5, 11), 'float'), 'labels': ((2, 5), 11), 'weight': ((2, 5), 'mask')}
ATTENTION: dict[str, Any] = {'input_dim': 8, 'num_heads': 2}
TRANSFORMER: dict[str, Any] = {'model_dim': 8, 'num_heads': 2, 'hidden_dim': 16}
DROPS: dict[str, Any] = {'dropout_rate': 0.3, 'attention_dropout_rate': 0.2,
                         'hidden_dropout_rate': 0.4}


def keras_layer(class_name: str, shape: tuple[int, ...], **config: Any) -> layers.KerasLayer.Params:
    return layers.KerasLayer.Params(class_name=class_name, config=json.dumps(config),
                                    input_shape=shape)


TABLE: dict[str, tuple[Params, dict[str, Any]]] = {
    'Dense': (layers.Dense.Params(input_dim=8, units=6), SEQUENCE),
    'Dense relu': (layers.Dense.Params(input_dim=8, units=6, activation='relu', use_bias=False),
                   {'x': ((4, 8), 'float')}),
    'Dense gelu': (layers.Dense.Params(input_dim=8, units=6, activation='gelu'), SEQUENCE),
    'Dense silu': (layers.Dense.Params(input_dim=8, units=6, activation='silu'), SEQUENCE),
    'Dense with an adapter': (
        layers.Dense.Params(input_dim=8, units=6, adapters=Adapters(rank=3, dropout_rate=0.3)),
        SEQUENCE),
    'Activation gelu_tanh': (layers.Activation.Params(activation='gelu_tanh'), SEQUENCE),
    'Activation gelu': (layers.Activation.Params(activation='gelu'), SEQUENCE),
    'Activation softmax': (layers.Activation.Params(activation='softmax'), SEQUENCE),
    'LayerNorm': (layers.LayerNorm.Params(dim=8), SEQUENCE),
    'RMSNorm': (layers.RMSNorm.Params(dim=8), SEQUENCE),
    'RMSNorm, zero-centered': (layers.RMSNorm.Params(dim=8, is_zero_centered=True), SEQUENCE),
    'BatchNorm': (layers.BatchNorm.Params(dim=4), IMAGE),
    'BatchNorm of rows': (layers.BatchNorm.Params(dim=8), {'x': ((9, 8), 'float')}),
    'MultiHeadAttention': (layers.MultiHeadAttention.Params(**ATTENTION), SEQUENCE),
    'MultiHeadAttention masked': (
        layers.MultiHeadAttention.Params(**ATTENTION, is_causal=True, dropout_rate=0.3),
        SEQUENCE | MASK),
    'MultiHeadAttention with adapters': (
        layers.MultiHeadAttention.Params(**ATTENTION, is_causal=True,
                                         adapters=Adapters(rank=2, targets=('wk', 'wo'))),
        SEQUENCE | MASK),
    'MultiHeadAttention cross': (
        layers.MultiHeadAttention.Params(**ATTENTION, head_dim=5, memory_dim=6, use_bias=False),
        SEQUENCE | MEMORY | {'mask': ((2, 3), 'mask')}),
    'GroupedQueryAttention': (
        layers.GroupedQueryAttention.Params(input_dim=8, num_heads=4, num_groups=2), SEQUENCE),
    'GroupedQueryAttention of documents in blocks': (
        layers.GroupedQueryAttention.Params(input_dim=8, num_heads=2, head_dim=6, block_size=2),
        SEQUENCE | {'positions': ((2, 5), 9), 'documents': ((2, 5), 2)}),
    'GroupedQueryAttention with a window, in blocks': (
        layers.GroupedQueryAttention.Params(input_dim=8, num_heads=2, block_size=2, window=2),
        SEQUENCE | {'documents': ((2, 5), 2)}),
    'GroupedQueryAttention with biases of q, k and v and normalised projections': (
        layers.GroupedQueryAttention.Params(input_dim=8, num_heads=4, num_groups=2, biases='qkv',
                                            rotary_scaling=RotaryScaling(factor=8.),
                                            normalises_projections=True), SEQUENCE),
    'GroupedQueryAttention with all biases and normalised heads': (
        layers.GroupedQueryAttention.Params(input_dim=8, num_heads=2, num_groups=1, biases='all',
                                            normalises_heads=True), SEQUENCE),
    'GroupedQueryAttention with zero-centered, normalised heads and linear rotations': (
        layers.GroupedQueryAttention.Params(input_dim=8, num_heads=2, num_groups=1, score_dim=3,
                                            rotary_scaling=RotaryScaling(factor=8., is_linear=True),
                                            normalises_heads=True, is_zero_centered=True),
        SEQUENCE),
    'GroupedQueryAttention without rotations': (
        layers.GroupedQueryAttention.Params(input_dim=9, num_heads=3, biases='all',
                                            is_rotary=False),
        {'x': ((2, 5, 9), 'float')}),
    'GroupedQueryAttention with adapters': (
        layers.GroupedQueryAttention.Params(input_dim=8, num_heads=4, num_groups=2, biases='all',
                                            adapters=Adapters(rank=2, targets=('wq', 'wv'))),
        SEQUENCE),
    'FeedForward with adapters': (
        layers.FeedForward.Params(input_dim=8, hidden_dim=16, activation='gelu_tanh',
                                  adapters=Adapters(rank=4, alpha=2.)), SEQUENCE),
    'FeedForward': (layers.FeedForward.Params(input_dim=8, hidden_dim=16, dropout_rate=0.2),
                    SEQUENCE),
    'FeedForward shard': (
        layers.FeedForward.Params(input_dim=8, hidden_dim=16, shard=1, num_shards=3),
        SEQUENCE | PARTIAL),
    'SwiGLU': (layers.SwiGLU.Params(input_dim=8, hidden_dim=6), SEQUENCE),
    'SwiGLU with GELU': (
        layers.SwiGLU.Params(input_dim=8, hidden_dim=6, gate='gelu_tanh'), SEQUENCE),
    'SwiGLU with adapters': (
        layers.SwiGLU.Params(input_dim=8, hidden_dim=6, adapters=Adapters(rank=3)), SEQUENCE),
    'SwiGLU shard': (layers.SwiGLU.Params(input_dim=8, hidden_dim=7, shard=1, num_shards=2),
                     SEQUENCE | PARTIAL),
    'MixtureOfExperts': (
        layers.MixtureOfExperts.Params(input_dim=8, hidden_dim=6, num_experts=3,
                                       capacity_factor=0.7, balance=0.5),
        SEQUENCE | {'weight': ((2, 5), 'mask')}),
    'MixtureOfExperts, two chosen': (
        layers.MixtureOfExperts.Params(input_dim=8, hidden_dim=6, num_experts=3, num_chosen=2),
        SEQUENCE),
    'MixtureOfExperts without a capacity': (
        layers.MixtureOfExperts.Params(input_dim=8, hidden_dim=6, num_experts=3, num_chosen=2,
                                       capacity_factor=0., normalises_gates=False),
        SEQUENCE | {'weight': ((2, 5), 'mask')}),
    'PreNorm': (
        layers.PreNorm.Params(dim=8, body=layers.GroupedQueryAttention.Params(input_dim=8,
                                                                              num_heads=2)),
        SEQUENCE | {'documents': ((2, 5), 2)}),
    'PreNorm that normalises what its body gives': (
        layers.PreNorm.Params(dim=8, norms='after', body=layers.SwiGLU.Params(
            input_dim=8, hidden_dim=6)), SEQUENCE),
    'PreNorm that normalises both': (
        layers.PreNorm.Params(dim=8, norms='both', is_zero_centered=True,
                              body=layers.GroupedQueryAttention.Params(input_dim=8, num_heads=2)),
        SEQUENCE),
    'PreNorm of LayerNorm': (
        layers.PreNorm.Params(dim=8, norm='layer', body=layers.FeedForward.Params(
            input_dim=8, hidden_dim=6, activation='gelu_tanh')), SEQUENCE),
    'Residual': (layers.Residual.Params(dropout_rate=0.2),
                 SEQUENCE | {'branch': ((2, 5, 8), 'float')}),
    'TransformerEncoderLayer without feed-forward': (
        layers.TransformerEncoderLayer.Params(**TRANSFORMER | {'hidden_dim': 0}), SEQUENCE),
    'TransformerEncoderLayer': (layers.TransformerEncoderLayer.Params(**TRANSFORMER), SEQUENCE),
    'TransformerEncoderLayer drops': (
        layers.TransformerEncoderLayer.Params(**TRANSFORMER, **DROPS, activation='gelu'),
        SEQUENCE | MASK),
    'TransformerDecoderLayer': (layers.TransformerDecoderLayer.Params(**TRANSFORMER), SEQUENCE),
    'TransformerDecoderLayer cross': (
        layers.TransformerDecoderLayer.Params(**TRANSFORMER, memory_dim=6),
        SEQUENCE | MASK | MEMORY | {'memory_mask': ((2, 3), 'mask')}),
    'Conv2D': (layers.Conv2D.Params(input_dim=4, filters=5, activation='relu'), IMAGE),
    'Conv2D strided': (layers.Conv2D.Params(input_dim=4, filters=5, strides=2, kernel_size=(3, 2),
                                            padding='valid'),
                       IMAGE),
    'Conv2D strided by a pair': (layers.Conv2D.Params(input_dim=4, filters=5, strides=(1, 3),
                                                      kernel_initializer='he_normal_fan_out'),
                                 IMAGE),
    'Conv2D strided by a pair, valid': (layers.Conv2D.Params(input_dim=4, filters=5, strides=(3, 2),
                                                             kernel_size=(3, 2), padding='valid'),
                                        IMAGE),
    'Conv2D dilated': (layers.Conv2D.Params(input_dim=4, filters=5, dilation=2, use_bias=False),
                       IMAGE),
    'DepthwiseConv2D': (layers.DepthwiseConv2D.Params(input_dim=4, multiplier=2, strides=2), IMAGE),
    'DepthwiseConv2D strided by a pair': (
        layers.DepthwiseConv2D.Params(input_dim=4, strides=(2, 2), padding='valid'), IMAGE),
    'DepthwiseConv2D dilated': (
        layers.DepthwiseConv2D.Params(input_dim=4, dilation=2, padding='valid'), IMAGE),
    'SeparableConv2D': (layers.SeparableConv2D.Params(input_dim=4, filters=5, kernel_size=(5, 5)),
                        IMAGE),
    'SeparableConv2D strided': (
        layers.SeparableConv2D.Params(input_dim=4, filters=5, strides=(2, 2), use_bias=False),
        IMAGE),
    'MaxPool2D': (layers.MaxPool2D.Params(pool_size=(3, 3)), IMAGE),
    'AvgPool2D': (layers.AvgPool2D.Params(pool_size=(3, 3), strides=1), IMAGE),
    'AvgPool2D valid': (layers.AvgPool2D.Params(padding='valid'), IMAGE),
    'GlobalAvgPool2D': (layers.GlobalAvgPool2D.Params(), IMAGE),
    'Flatten': (layers.Flatten.Params(), IMAGE),
    'Reshape': (layers.Reshape.Params(shape=(14, 12)), IMAGE),
    'Dropout': (layers.Dropout.Params(rate=0.4), SEQUENCE),
    'DropPath': (layers.DropPath.Params(rate=0.4), SEQUENCE),
    'WordDropout': (layers.WordDropout.Params(rate=0.4), SEQUENCE),
    'Embedding': (layers.Embedding.Params(vocab_size=11, dim=8, is_scaled=True),
                  {'ids': ((2, 5), 11)}),
    'Embedding first shard': (layers.Embedding.Params(vocab_size=11, dim=8, num_shards=2),
                              {'ids': ((2, 5), 5)}),
    'Embedding shard': (
        layers.Embedding.Params(vocab_size=11, dim=8, is_scaled=True, shard=1, num_shards=2),
        {'ids': ((2, 5), 11)} | PARTIAL),
    'PositionEmbedding': (layers.PositionEmbedding.Params(dim=8), SEQUENCE),
    'PositionEmbedding from 2': (layers.PositionEmbedding.Params(dim=8, first=2), SEQUENCE),
    'PositionEmbedding learned': (
        layers.PositionEmbedding.Params(dim=8, kind='learned', max_length=7), SEQUENCE),
    'LearnedPositions': (layers.LearnedPositions.Params(dim=8, num_positions=7), SEQUENCE),
    'LearnedPositions of documents': (
        layers.LearnedPositions.Params(dim=8, num_positions=7),
        SEQUENCE | {'positions': ((2, 5), 7)}),
    'Cast': (layers.Cast.Params(dtype='float32'), SEQUENCE),
    'Logits': (layers.Logits.Params(input_dim=8, vocab_size=11), SEQUENCE),
    'Logits tied': (layers.Logits.Params(input_dim=8, vocab_size=11, transpose_w=True,
                                         use_bias=False, max_abs=1.),
                    SEQUENCE),
    'SoftmaxShard': (layers.SoftmaxShard.Params(input_dim=8, vocab_size=11, num_shards=2),
                     SEQUENCE | {'labels': ((2, 5), 5)}),
    'SoftmaxShard clipped': (
        layers.SoftmaxShard.Params(input_dim=8, vocab_size=11, shard=1, num_shards=2, max_abs=1.),
        SEQUENCE | {'labels': ((2, 5), 11), 'partial': SOFTMAX}),
    'StreamedCrossEntropyLoss': (
        layers.StreamedCrossEntropyLoss.Params(vocab_size=11, label_smoothing=0.1),
        {'softmax': SOFTMAX, 'labels': ((2, 5), 11), 'weight': ((2, 5), 'mask')}),
    'CrossEntropyLoss': (layers.CrossEntropyLoss.Params(has_top5=True), TOKENS),
    'CrossEntropyLoss smoothed': (
        layers.CrossEntropyLoss.Params(label_smoothing=0.1, scale=0.4, is_auxiliary=True),
        {'x': ((4, 11), 'float'), 'labels': ((4,), 11), 'weight': ((4,), 'mask')}),
    'CrossEntropyLoss of a second task': (
        layers.CrossEntropyLoss.Params(is_auxiliary=True, has_metrics=True), TOKENS),
    'CrossEntropyLoss mixed': (
        layers.CrossEntropyLoss.Params(reads={'other_labels': 'other_labels', 'share': 'share'}),
        {'x': ((4, 11), 'float'), 'labels': ((4,), 11), 'weight': ((4,), 'mask'),
         'other_labels': ((4,), 11), 'share': ((4,), 'data')}),
    'MeanSquaredErrorLoss': (layers.MeanSquaredErrorLoss.Params(),
                             {'x': ((2, 5), 'float'), 'target': ((2, 5), 'data')}),
    'MeanSquaredErrorLoss weighted': (layers.MeanSquaredErrorLoss.Params(),
                                      {'x': ((4, 5), 'float'), 'target': ((4, 5), 'data'),
                                       'weight': ((4,), 'mask')}),
    'SigmoidCrossEntropyLoss': (layers.SigmoidCrossEntropyLoss.Params(),
                                {'x': ((2, 3, 5), 'float'), 'target': ((2, 3, 5), 'mask')}),
    'SigmoidCrossEntropyLoss weighted': (
        layers.SigmoidCrossEntropyLoss.Params(is_auxiliary=True, scale=0.3),
        {'x': ((4, 5), 'float'), 'target': ((4, 5), 'mask'), 'weight': ((4,), 'mask')}),
    'KerasLayer Dense': (keras_layer('Dense', (8,), units=6, activation='tanh',
                                     activity_regularizer='l2'),
                         {'x': ((4, 8), 'float')}),
    'KerasLayer BatchNormalization': (keras_layer('BatchNormalization', (7, 6, 4)), IMAGE),
    'KerasLayer Dropout': (keras_layer('Dropout', (5, 8), rate=0.4), SEQUENCE),
    'KerasLayer GRU': (keras_layer('GRU', (5, 8), units=3, recurrent_dropout=0.2,
                                   return_sequences=True),
                       SEQUENCE),
    'Sequential streamed': (
        layers.Sequential.Params(layers=(
            *layers.split(layers.SoftmaxShard.Params(name='softmax', input_dim=8, vocab_size=11),
                          3),
            layers.StreamedCrossEntropyLoss.Params(vocab_size=11, label_smoothing=0.1))),
        SEQUENCE | {'labels': ((2, 5), 11), 'weight': ((2, 5), 'mask')}),
    'Sequential': (layers.Sequential.Params(layers=(
                       layers.Dense.Params(input_dim=8, units=6),
                       layers.Repeat.Params(body=layers.LayerNorm.Params(dim=6), times=2))),
                   SEQUENCE),
}

# In float32, truncation and rounding of central differences together stay below this part of
# the gradient's norm.
GRADIENT_TOLERANCE = 5e-3
# The norm of the difference as a part of the norm. A bfloat16 has 8 bits.
BFLOAT16_TOLERANCE = 0.03
# The same of a gradient, in which rounding moves some numbers over a kink.
BFLOAT16_GRADIENT_TOLERANCE = 0.1
JIT_TOLERANCE = 1e-5

# Relu, max pooling and clipping have kinks. A step this small rarely crosses one, and rounding
# still matters little.
STEP = 5e-4
# The outputs of these layers are float32, whatever their inputs are.
ALWAYS_FLOAT32 = ('Cast', 'SoftmaxShard', 'SoftmaxShard clipped', 'Sequential streamed')
# Keras leaves the generator of random numbers to TensorFlow, which has another one under XLA.
HAS_OTHER_NUMBERS_UNDER_XLA = ('KerasLayer Dropout', 'KerasLayer GRU')


@dataclasses.dataclass(frozen=True)
class Built:
    """A layer of the table with values for its weights, by path, and for its inputs, by name."""
    layer: Any
    weights: dict[str, tf.Tensor]
    inputs: dict[str, tf.Tensor]
    kinds: dict[str, Any]

    def specs(self) -> dict[str, tf.TensorSpec]:
        return map_leaves(static_shapes.as_spec, self.inputs)

    def variables(self) -> dict[str, tf.Tensor]:
        """The values to differentiate by: trainable weights and the floats of the network."""
        return {**{w.path: self.weights[w.path] for w in self.layer.weights() if w.is_trainable},
                **{name: t for name, t in self.inputs.items() if self.kinds[name] == 'float'}}

    def call(self, values: dict[str, tf.Tensor] | None = None, training: bool = True,
             micro_batch: int = 1) -> dict[str, tf.Tensor]:
        """Returns everything that fprop gives: outputs, losses, metrics and statistics, by name.

        `values` replace weights and inputs.
        """
        values = values or {}
        ctx = Context(training, 5, 7, micro_batch)
        inputs = {name: values.get(name, t) for name, t in self.inputs.items()}
        outputs = self.layer.fprop(self.layer.theta({**self.weights, **values}), ctx, **inputs)
        emitted = {f'{kind}/{"/".join(key)}/{i}': t
                   for kind in ('losses', 'weights', 'metrics', 'moments', 'means')
                   for key, value in getattr(ctx.emissions, kind).items()
                   for i, t in enumerate(value if isinstance(value, tuple) else [value])}
        return {**{f'outputs/{path}': t for path, t in flatten(outputs)}, **emitted}


def objective(results: dict[str, tf.Tensor]) -> tf.Tensor:
    """Returns a float64 scalar that depends on all losses and on all float outputs.

    Each element of an output has a weight of its own.
    """
    total = tf.constant(0., tf.float64)
    for name, value in results.items():
        if name.startswith('losses/'):
            total += tf.cast(value, tf.float64)
        elif name.startswith('outputs/') and value.dtype.is_floating:
            total += tf.reduce_sum(
                tf.cast(value, tf.float64)
                * np.cos(1.7 * np.arange(np.prod(value.shape))).reshape(value.shape))
    return total


@functools.cache
def build(name: str) -> Built:
    params, inputs = TABLE[name]
    layer = params.instantiate()
    rng = np.random.default_rng(0)

    def value(shape: tuple[int, ...], kind: Any) -> tf.Tensor:
        if isinstance(kind, int):
            return tf.constant(rng.integers(0, kind, shape), tf.int32)
        return tf.constant(rng.integers(0, 2, shape) if kind == 'mask' else rng.normal(size=shape),
                           tf.float32)

    def made(spec: Any) -> Any:
        return ({n: made(inner) for n, inner in spec.items()}
                if isinstance(spec, dict)
                else value(*spec))

    # Biases begin at 0 and scales at 1, where errors in them hide.
    weights = {w.path: w.initial_value(3) + 0.1 * rng.normal(size=w.shape) ** 2
               for w in layer.weights()}
    return Built(layer, weights, made(inputs),
                 {n: 'nested' if isinstance(spec, dict) else spec[1] for n, spec in inputs.items()})


@functools.cache
def with_gradients(name: str, jit_compile: bool = False) -> Any:
    """Compiles a function from values to (results, objective, gradients)."""
    built = build(name)

    @tf.function(jit_compile=jit_compile, autograph=False)
    def fn(values: dict[str, tf.Tensor]) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(values)
            results = built.call(values)
            total = objective(results)
        gradients = tape.gradient(total, values, unconnected_gradients='zero')
        return results, total, {n: tf.convert_to_tensor(g) for n, g in gradients.items()}

    return fn


@functools.cache
def results(name: str) -> dict[str, tf.Tensor]:
    return with_gradients(name)(build(name).variables())[0]   # No second trace of the forward.


@pytest.fixture(params=TABLE)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def test_the_table_has_every_layer() -> None:
    covered = {type(params).owner.__name__ for params, _ in TABLE.values()} | {'Repeat'}
    assert covered == {name for name in layers.__all__ if isinstance(getattr(layers, name), type)}


def test_params_survive_their_text(name: str) -> None:
    params, _ = TABLE[name]
    assert type(params).from_text(params.to_text()) == params


def test_cost_predicts_shapes_and_weights(name: str) -> None:
    built = build(name)
    cost = pricing.price(built.layer, **built.specs())
    real = {path: static_shapes.as_spec(t)
            for path, t in results(name).items() if path.startswith('outputs/')}
    assert ({f'outputs/{path}': static_shapes.as_spec(spec) for path, spec in flatten(cost.outputs)}
            == real)
    assert cost.num_weights == sum(int(tf.size(built.weights[w.path]))
                                   for w in built.layer.weights() if w.is_trainable)


@pytest.mark.parametrize('dtype', [tf.float32, tf.bfloat16])
def test_cost_predicts_flops_of_the_graph(name: str, dtype: tf.DType) -> None:
    built = build(name)
    specs = {n: tf.TensorSpec(s.shape, dtype) if built.kinds[n] == 'float' else s
             for n, s in built.specs().items()}
    cost, traced = pricing.price(built.layer, **specs), pricing.traced_cost(built.layer, **specs)
    assert cost.flops == pytest.approx(traced.flops, rel=0.05)


def test_gradients_agree_with_differences(name: str) -> None:
    fn, values = with_gradients(name), build(name).variables()
    gradients = fn(values)[2]
    rng = np.random.default_rng(1)
    for path, value in values.items():
        direction = rng.normal(size=value.shape).astype(np.float32)
        up, down = (float(fn({**values, path: value + sign * STEP * direction})[1])
                    for sign in (1, -1))
        expected = (up - down) / (2 * STEP)
        norm = float(tf.norm(gradients[path]))
        assert np.sum(gradients[path] * direction) == pytest.approx(
            expected, abs=GRADIENT_TOLERANCE * (norm + 1)), path


def test_bfloat16_comes_out_of_bfloat16(name: str) -> None:
    built = build(name)
    halves = {n: tf.cast(t, tf.bfloat16)
              for n, t in built.inputs.items() if built.kinds[n] == 'float'}
    found = tf.function(built.call, autograph=False)(halves)
    for path, expected in results(name).items():
        is_output = path.startswith('outputs/') and bool(halves) and name not in ALWAYS_FLOAT32
        assert found[path].dtype == (tf.bfloat16 if is_output else expected.dtype), path
        # argmax says which of two near logits is larger.
        if not path.startswith('metrics/') and not path.endswith('argmax'):
            difference = tf.norm(tf.cast(found[path], tf.float32) - expected)
            assert difference <= BFLOAT16_TOLERANCE * (tf.norm(expected) + 1e-3), path


def test_gradients_in_bfloat16_add_up_over_many_rows(name: str) -> None:
    """Sums in bfloat16 stop growing at 256, since 256 + 1 is 256: those of biases did."""
    built, num_copies = build(name), 512
    weights = {w.path: built.weights[w.path] for w in built.layer.weights() if w.is_trainable}

    def gradients(inputs: dict[str, tf.Tensor], copies: int) -> dict[str, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(weights)
            total = tf.constant(0., tf.float64)
            for path, value in built.call({**weights, **inputs}, training=False).items():
                if path.startswith('losses/'):
                    total += tf.cast(value, tf.float64)
                elif path.startswith('outputs/') and value.dtype.is_floating:
                    by_copy = tf.reshape(tf.cast(value, tf.float64), [copies, -1])
                    total += tf.reduce_sum(by_copy * (1.5 + np.cos(np.arange(by_copy.shape[1]))))
        found = tape.gradient(total, weights, unconnected_gradients='zero')
        return {path: tf.convert_to_tensor(gradient) for path, gradient in found.items()}

    copies = {n: map_leaves(lambda t: tf.concat([t] * num_copies, 0), t)
              for n, t in built.inputs.items()}
    halves = {n: tf.cast(t, tf.bfloat16) if built.kinds[n] == 'float' else t
              for n, t in copies.items()}
    many = gradients(halves, num_copies)
    for path, gradient in gradients({}, 1).items():
        difference = tf.norm(many[path] / num_copies - gradient)
        assert difference <= BFLOAT16_GRADIENT_TOLERANCE * (tf.norm(gradient) + 1), path


def test_unknown_batch_size_runs_but_has_no_cost(name: str) -> None:
    built = build(name)
    specs = map_leaves(lambda t: tf.TensorSpec([None, *t.shape[1:]], t.dtype), built.inputs)
    found = tf.function(lambda inputs: built.call(inputs), input_signature=[specs],
                        autograph=False)(built.inputs)
    tf.nest.map_structure(np.testing.assert_array_equal, found, results(name))
    with pytest.raises(ValueError, match=r'is \[\?.*\], but every dimension must be known .*; give '
                                         r'the shape of one micro-batch'):
        pricing.price(built.layer, **specs)


def test_xla_agrees_forward_and_backward(name: str) -> None:
    values = build(name).variables()
    if name in HAS_OTHER_NUMBERS_UNDER_XLA:
        assert np.isfinite(with_gradients(name, jit_compile=True)(values)[1])
        return
    plain, compiled = with_gradients(name)(values), with_gradients(name, jit_compile=True)(values)
    for expected, found in zip(tf.nest.flatten(plain), tf.nest.flatten(compiled), strict=True):
        np.testing.assert_allclose(found, expected,
                                   atol=JIT_TOLERANCE * (1 + np.max(np.abs(expected))), rtol=0)


def test_no_op_is_stateful_forward_or_backward(name: str) -> None:
    graph = with_gradients(name).get_concrete_function(build(name).variables()).graph
    assert [kind for op in graph.get_operations() for kind in pricing.stateful_types(op)] == []


def test_evaluation_is_deterministic(name: str) -> None:
    built = build(name)   # Its tensors are no part of a trace.
    evaluate = tf.function(
        lambda micro_batch: built.call(training=False, micro_batch=micro_batch),
        autograph=False)
    tf.nest.map_structure(np.testing.assert_array_equal, evaluate(tf.constant(0)),
                          evaluate(tf.constant(3)))


class Gain(Layer):
    """Multiplies a float of the mini-batch by a weight, so that the result carries a gradient."""

    def __init__(self, params: Any, path: str = ''):
        super().__init__(params, path)
        self.add_weight('gain', [], 'ones')

    def fprop(self, theta: Any, ctx: Any, x: tf.Tensor) -> tf.Tensor:
        return x * tf.cast(theta.gain, x.dtype)


class Objective(Layer):
    """Emits the sum of squares of all floats in x as a loss."""

    class Params(Layer.Params):
        writes: str | dict[str, str] = field({})

    def fprop(self, theta: Any, ctx: Any, x: Any) -> None:
        floats = [tf.cast(t, tf.float32) for _, t in flatten(x) if t.dtype.is_floating]
        ctx.emit_loss(self.path, 'objective', tf.add_n([tf.reduce_sum(t ** 2) for t in floats]))


def test_the_forecast_holds_what_the_backward_task_takes_over(name: str) -> None:
    """The layer is a cell of its own, between two others.

    One gives its inputs a gradient, and the other gives its outputs one.
    """
    params, _ = TABLE[name]
    built = build(name)
    floats = [argument for argument, kind in built.kinds.items() if kind == 'float']
    gains = [Gain.Params(name=f'gain_{argument}', reads={'x': argument}, writes=argument)
             for argument in floats]
    layer = params.copy().set(name='layer')
    if not isinstance(built.layer, layers.Sequential):
        layer.set(reads={argument: argument for argument in built.inputs})
    written = ([] if pricing.price(built.layer, **built.specs()).outputs is None
               else [Objective.Params(name='objective')])
    padding = layers.Reshape.Params(name='padding', shape=(1,), reads={'x': 'pad'}, writes='pad')
    network = layers.Sequential.Params(
        name='model', layers=(padding, *gains, layer, *written, padding.copy().set(name='end')))
    num_own = len(list(built.layer.elements())) if isinstance(built.layer, layers.Sequential) else 1
    pipeline = PipelineParams(num_cells=3, recompute='none',
                              layers_per_cell=(1 + len(gains), num_own, len(written) + 1))
    batch = next(iter(flatten(built.specs())))[1].shape[0]
    plan = make_plan(network.instantiate('model'),
                     {**built.specs(), 'pad': tf.TensorSpec([batch, 1])}, pipeline,
                     ['/device:CPU:0'] * 3)
    held, _ = traced.held_and_handed_bytes(plan.cells[1:], plan.forecast.recomputation,
                                           is_split=False)
    assert plan.forecast.footprints[1].residual == pytest.approx(held[0], rel=0.02)
