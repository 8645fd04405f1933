"""LanguageModel: a decoder alone, of the parts of LLaMA or of GPT-2.

LLaMA (Touvron et al., 2023, arXiv:2302.13971) has RMSNorm, rotary positions and SwiGLU. GPT-2
(Radford et al., 2019) has LayerNorm, learned positions and a feed-forward part with GELU. The kin
of LLaMA, such as Qwen3, OLMo 2 and Gemma 3, differ in fields of the Params.

It is one sequence of layers, which a pipeline may cut anywhere.

Shapes: b micro-batch, T tokens, D model, V vocabulary.

    layers                 reads                              writes
    embedding              target                             x         [b, T, D]
    positions (of GPT-2)   x, positions                       x         [b, T, D]
    attention_0, ffn_0     x, positions, documents            x         [b, T, D]
    ...
    norm                   x                                  x         [b, T, D]
    softmax                x                                  logits    [b, T, V]
    bytes_per_token        bytes, weight                      (nothing)
    loss                   logits, label, weight              (nothing)

The mini-batch is that of TextInput. All that a network needs of it are target, label, weight and,
unless has_bytes is False, bytes; without positions and documents, an example is one document.

A large vocabulary can be split into several layers (lingpipe/layers/shards.py). The softmax of
several shards writes `softmax`, a summary of the logits, in their place
(lingpipe/layers/streamed_softmax.py).

With adapters (lingpipe/layers/low_rank.py), they alone train.
"""
from __future__ import annotations

from typing import Any, Literal

from lingpipe import layers as lib
from lingpipe.hyperparams import REQUIRED, field
from lingpipe.layers.base import Layer
from lingpipe.layers.low_rank import Adaptable, Adapters, freeze_all_but_adapters
from lingpipe.layers.rotary import RotaryScaling
from lingpipe.layers.sequential import Sequential, with_layers
from lingpipe.layers.streamed_softmax import logits_of
from lingpipe.tasks.text.bytes_per_token import BytesPerToken
from lingpipe.tasks.text.hugging_face_config import FIELDS, config_of
from lingpipe.tasks.text.hugging_face_experts import NO_EXPERTS
from lingpipe.tasks.text.hugging_face_values import Config, check_counterparts
from lingpipe.wording.values import show


class LanguageModel(Sequential):
    """The network with its loss.

    Weights are tied by path, so `path` must be the path under which the network is built.
    """

    class Params(Sequential.Params):
        """Sizes, attention, experts, tied tables, shards."""
        layers: tuple[Layer.Params, ...] = field((), 'Made from the fields below; leave empty.')
        family: Literal['llama', 'gpt2'] = field('llama', 'Whose normalisation, positions and '
                                                          'feed-forward parts the layers have.')
        num_positions: int = field(0, 'Positions that gpt2 learns; no text is longer.', least=0)
        vocab_size: int = field(REQUIRED, 'V, the number of ids.', least=1)
        num_layers: int = field(REQUIRED, 'Layers, each of attention and feed-forward part.',
                                least=1, most=10_000)
        model_dim: int = field(REQUIRED, 'D, the channels between layers.', least=1)
        hidden_dim: int = field(REQUIRED, 'Hidden units of a feed-forward part, or of an expert.',
                                least=1)
        num_heads: int = field(REQUIRED, 'Heads of queries.', least=1)
        num_groups: int = field(0, 'Heads of keys and values; 0: num_heads.', least=0)
        head_dim: int = field(0, 'Channels of a head; 0: model_dim / num_heads.', least=0)
        rotary_base: float = field(10_000., 'See GroupedQueryAttention.', least=1)
        rotary_scaling: RotaryScaling = field(RotaryScaling(), 'Slower rotations for longer texts.')
        window_rotary_base: float = field(0., 'Base of the layers with the window, which then have '
                                              'no rotary_scaling; 0: as the others.', least=0)
        unrotated_layers: tuple[int, ...] = field(
            (), 'Layers without rotary positions, in order and counted from 0.', least=0)
        score_dim: int = field(0, 'See GroupedQueryAttention.', least=0)
        biases: Literal['none', 'qkv', 'all'] = field('none', 'See GroupedQueryAttention.')
        window: int = field(0, 'Tokens that a token sees at most, itself among them; 0: all '
                               'before it.', least=0)
        full_layers: tuple[int, ...] = field((), 'Layers that the window leaves out, counted from '
                                                 '0.', least=0)
        norms: Literal['before', 'after', 'both'] = field('before', 'See PreNorm.')
        is_zero_centered: bool = field(False, 'Whether what normalises is scaled by 1 plus the '
                                              'weight; see RMSNorm.')
        normalises_heads: bool = field(False, 'See GroupedQueryAttention.')
        normalises_projections: bool = field(False, 'See GroupedQueryAttention.')
        epsilon: float = field(1e-5, 'Added to the mean of squares or the variance by all that '
                                     'normalises.', least=0)
        block_size: int = field(256, 'Tokens of a block of the attention.', least=1)
        gate: Literal['silu', 'gelu_tanh'] = field('silu', 'See SwiGLU.')
        num_experts: int = field(0, 'Experts of a feed-forward part; 0: it is not a mixture.',
                                 least=0)
        num_chosen: int = field(2, 'Experts that a token is sent to.', least=1)
        capacity_factor: float = field(1.25, 'See MixtureOfExperts.', least=0)
        normalises_gates: bool = field(True, 'See MixtureOfExperts.')
        balance: float = field(0.01, 'Factor on the auxiliary loss of the experts.', least=0)
        is_tied: bool = field(False, 'Whether embedding and softmax share a table.')
        is_scaled: bool = field(True, 'Whether the vectors of ids are multiplied by sqrt(D).')
        dtype: Literal['float32', 'bfloat16'] = field(
            'float32', 'Type of the activations; weights and the loss are float32.')
        has_bytes: bool = field(True, 'Whether the mini-batch has `bytes`, for bits per byte.')
        vocabulary_shards: int = field(1, 'Layers that the embedding, and the softmax, is split '
                                          'into.', least=1, most=10_000)
        adapters: Adapters | None = field(None, 'Low-rank adapters of projections, which train '
                                                'alone; none: all weights train.')

        def check(self) -> None:
            """Raises ValueError for parts of the other family, and for adapters of no part."""
            super().check()
            if self.adapters is not None:
                self.adapters.check_targets(
                    [name for body in _bodies(self, 0) for name in _projections(body)],
                    'this LanguageModel')
            if (self.family == 'gpt2') != (self.num_positions > 0):
                raise ValueError(f'num_positions={self.num_positions} with family={self.family!r}, '
                                 'but gpt2 learns 1 or more positions, and llama none; set both '
                                 'or neither.')
            of_llama = {'num_experts': 0, 'rotary_base': 10_000., 'rotary_scaling.factor': 1.,
                        'gate': 'silu', 'is_zero_centered': False, 'unrotated_layers': ()}
            foreign = [f'{name}={f"{value:g}" if isinstance(value, float) else show(value)}'
                       for name, default in of_llama.items() if (value := self[name]) != default]
            if self.family == 'gpt2' and foreign:
                raise ValueError(f'{", ".join(foreign)} with family=\'gpt2\', but only llama has '
                                 'experts, rotary positions, gates and RMSNorm; leave it out.')
            if self.num_experts and self.gate != 'silu':
                raise ValueError(f'gate={self.gate!r} with num_experts={self.num_experts}, but '
                                 'experts have silu; leave one of them out.')
            # Of one network, one spelling, since networks are compared by their fields.
            if not self._names_layers(self.unrotated_layers):
                raise ValueError(f'unrotated_layers={self.unrotated_layers}, but they name some of '
                                 f'the layers 0 to {self.num_layers - 1}, in this order; correct '
                                 'them.')
            if not self._names_layers(self.full_layers) or self.full_layers and (
                    not self.window or len(self.full_layers) == self.num_layers):
                raise ValueError(f'full_layers={self.full_layers} with window={self.window}, but '
                                 'they name some, not all, of the layers 0 to '
                                 f'{self.num_layers - 1} of a network with a window, in this '
                                 'order; correct them, or leave them out.')
            if self.window_rotary_base and not self.window:
                raise ValueError(f'window_rotary_base={self.window_rotary_base:g} without a '
                                 'window, but it is the base of layers that have one; set window, '
                                 'or leave it out.')

        def _names_layers(self, numbers: tuple[int, ...]) -> bool:
            """Whether these are numbers of layers, each once and in order."""
            return list(numbers) == [i for i in range(self.num_layers) if i in numbers]

    params: Params

    def __init__(self, params: Params, path: str = ''):
        p = params.validate()
        layers = _layers(p, path or p.name or 'languagemodel')
        super().__init__(with_layers(params, layers), path)
        if p.adapters is not None:
            freeze_all_but_adapters(self)

    def output_names(self) -> tuple[str, ...]:
        """The logits. Raises ValueError if the softmax is in shards, which never make them."""
        return logits_of(self.path, self.params.vocabulary_shards)

    def fields_of_hugging_face(self) -> dict[str, Any]:
        """What config.json of Hugging Face says of a network, as fields of its Params.

        Raises:
          ValueError: the network has parts that no model of Hugging Face has that is known here.
        """
        p = self.params
        check_counterparts(p, {'vocabulary_shards': 1})
        return {**{name: getattr(p, name) for name in FIELDS},
                **({'normalises_gates': p.normalises_gates and p.num_chosen > 1} if p.num_experts
                   else NO_EXPERTS),
                'num_groups': p.num_groups or p.num_heads,
                'head_dim': (head_dim := p.head_dim or p.model_dim // p.num_heads),
                'score_dim': p.score_dim or head_dim}

    def hugging_face_config(self, source: Config, dtype: str = 'float32') -> dict[str, Any]:
        """Returns a config.json of Hugging Face that describes the network.

        Args:
          source: that with which the weights came, or {}.
          dtype: the type of the weights that go with it.

        Raises:
          ValueError: no model of Hugging Face that is known here computes the same.
        """
        return config_of(self.fields_of_hugging_face(), source, dtype)


def _layers(p: LanguageModel.Params, path: str) -> list[Layer.Params]:
    tables = lib.split(lib.Embedding.Params(
        name='embedding', vocab_size=p.vocab_size, dim=p.model_dim, dtype=p.dtype,
        is_scaled=p.is_scaled, reads={'ids': 'target'}), p.vocabulary_shards)
    is_gpt2 = p.family == 'gpt2'
    positions = [lib.LearnedPositions.Params(
        name='positions', dim=p.model_dim, num_positions=p.num_positions)] if is_gpt2 else []

    layers: list[Layer.Params] = [*tables, *positions]
    for i in range(p.num_layers):
        for name, body in zip(('attention', 'ffn'), _bodies(p, i), strict=True):
            layers.append(lib.PreNorm.Params(
                name=f'{name}_{i}', dim=p.model_dim, body=_adapted(body, p.adapters),
                norm='layer' if is_gpt2 else 'rms', norms=p.norms, epsilon=p.epsilon,
                is_zero_centered=p.is_zero_centered))
    layers.append(
        lib.LayerNorm.Params(name='norm', dim=p.model_dim, epsilon=p.epsilon) if is_gpt2 else
        lib.RMSNorm.Params(name='norm', dim=p.model_dim, epsilon=p.epsilon,
                           is_zero_centered=p.is_zero_centered))
    layers += _output(p, [f'{path}/{table.name}/w' for table in tables])
    return layers


def _bodies(p: LanguageModel.Params, i: int) -> tuple[Layer.Params, Layer.Params]:
    """Attention and feed-forward part of layer i, without adapters."""
    window = 0 if i in p.full_layers else p.window
    has_own_base = window > 0 and p.window_rotary_base > 0
    attention = lib.GroupedQueryAttention.Params(
        input_dim=p.model_dim, num_heads=p.num_heads, num_groups=p.num_groups,
        head_dim=p.head_dim, score_dim=p.score_dim,
        is_rotary=p.family != 'gpt2' and i not in p.unrotated_layers,
        rotary_base=p.window_rotary_base if has_own_base else p.rotary_base,
        rotary_scaling=RotaryScaling() if has_own_base else p.rotary_scaling, biases=p.biases,
        normalises_heads=p.normalises_heads, normalises_projections=p.normalises_projections,
        is_zero_centered=p.is_zero_centered, window=window, epsilon=p.epsilon,
        block_size=p.block_size)
    return attention, _feed_forward(p)


def _feed_forward(p: LanguageModel.Params) -> Layer.Params:
    if p.family == 'gpt2':
        return lib.FeedForward.Params(input_dim=p.model_dim, hidden_dim=p.hidden_dim,
                                      activation='gelu_tanh')
    if not p.num_experts:
        return lib.SwiGLU.Params(input_dim=p.model_dim, hidden_dim=p.hidden_dim, gate=p.gate)
    return lib.MixtureOfExperts.Params(
        input_dim=p.model_dim, hidden_dim=p.hidden_dim, num_experts=p.num_experts,
        num_chosen=p.num_chosen, capacity_factor=p.capacity_factor,
        normalises_gates=p.normalises_gates, balance=p.balance)


def _projections(body: Layer.Params) -> tuple[str, ...]:
    """The names of the weights of a layer that may have adapters."""
    return body.owner.projections if isinstance(body, Adaptable.Params) else ()


def _adapted(body: Layer.Params, adapters: Adapters | None) -> Layer.Params:
    """The layer with those of the adapters that are its own."""
    own = adapters.of(_projections(body)) if adapters is not None else None
    return body if own is None else body.set(adapters=own)


def _output(p: LanguageModel.Params, tables: list[str]) -> list[Layer.Params]:
    """The softmax, the metric of bytes, and the loss; `tables` are the paths of the embedding."""
    fields: dict[str, Any] = {'name': 'softmax', 'input_dim': p.model_dim, 'use_bias': False,
                              'vocab_size': p.vocab_size, 'transpose_w': p.is_tied}
    if p.vocabulary_shards == 1:
        softmax: list[Any] = [lib.Logits.Params(**fields, writes='logits')]
        loss: Layer.Params = lib.CrossEntropyLoss.Params(
            name='loss', reads={'x': 'logits', 'labels': 'label'})
    else:
        shard = lib.SoftmaxShard.Params(**fields, reads={'labels': 'label'})
        softmax = list(lib.split(shard, p.vocabulary_shards))
        loss = lib.StreamedCrossEntropyLoss.Params(
            name='loss', vocab_size=p.vocab_size, reads={'labels': 'label'})
    if p.is_tied:
        softmax = [layer.set(share={'w': table})
                   for layer, table in zip(softmax, tables, strict=True)]
    metric = [BytesPerToken.Params(name='bytes_per_token')] if p.has_bytes else []
    return [*softmax, *metric, loss]
