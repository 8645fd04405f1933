"""Transformer: encoder and decoder (Vaswani et al., arXiv:1706.03762), or a decoder alone.

It is one sequence of layers, which a pipeline may cut anywhere.

Shapes: b micro-batch, S time of the source, T time of the target, D model.

    layers                       reads                    writes
    source_mask                  source                   source_mask      bool [b, S]
    source_embedding             source                   x                [b, S, D]
    encoder_0 ... encoder_norm   x, source_mask           x ... encoded    [b, S, D]
    target_embedding             target                   x                [b, T, D]
    decoder_0 ... decoder_norm   x, encoded, source_mask  x                [b, T, D]
    softmax                      x                        logits           [b, T, V]
    token_weight, loss           logits, label, weight    (nothing)

The encoder's output is a value that every layer of the decoder reads; it is sent once to each
device that has some of them. Ids, labels and weights go straight from the mini-batch to the
layers that read them. Without encoder layers the network is a language model, which reads no
source.

A mini-batch has source int32 [B, S], target int32 [B, T], label int32 [B, T], and weight [B] or
[B, T]. The decoder reads the target and predicts the label: label[t] = target[t + 1]. Padding comes
after the tokens. A position of the target sees itself and the positions before it, so padding there
needs no mask. Labels that are padding do not count.

Large vocabularies and feed-forward parts can be split into several layers
(lingpipe/layers/shards.py). The softmax of several shards writes `softmax`, a summary of the
logits, in place of the logits (lingpipe/layers/streamed_softmax.py).

Two things keep deep models stable (GPipe, arXiv:1811.06965, section 5): `divide_ffn_init_by_depth`
and `max_abs_logit`.
"""
from __future__ import annotations

from typing import Any, Literal

from lingpipe import layers as lib
from lingpipe.hyperparams import REQUIRED, field
from lingpipe.layers.base import Layer
from lingpipe.layers.low_rank import Adapters, freeze_all_but_adapters
from lingpipe.layers.sequential import Sequential, with_layers
from lingpipe.layers.streamed_softmax import logits_of
from lingpipe.tasks.text.hugging_face_values import Config, check_counterparts
from lingpipe.tasks.translation.hugging_face_config import FIELDS, RATES, config_of
from lingpipe.tasks.translation.padding import PaddingMask, TokenWeight


class Transformer(Sequential):
    """The network with its loss.

    Weights are tied by path, so `path` must be the path under which the network is built.
    """

    class Params(Sequential.Params):
        """Sizes, tied tables, dropout, stability, shards."""
        layers: tuple[Layer.Params, ...] = field((), 'Made from the fields below; leave empty.')
        num_encoder_layers: int = field(
            6, 'Layers of the encoder; 0: there is none, and nothing reads `source` (a language '
               'model).', least=0, most=10_000)
        num_decoder_layers: int = field(6, 'Layers of the decoder.', least=1, most=10_000)
        vocab_size: int = field(REQUIRED, 'V, the ids of source and target, padding included.',
                                least=1)
        model_dim: int = field(1024, 'D, the channels between layers.', least=1)
        hidden_dim: int = field(REQUIRED, 'F, the hidden units of a feed-forward part.', least=1)
        num_heads: int = field(REQUIRED, 'Attention heads.', least=1)
        head_dim: int = field(0, 'Channels of a head; 0: model_dim / num_heads.', least=0)
        activation: str = field(
            'relu', "Activation of the hidden units: a name in keras.activations, or 'gelu_tanh'.")
        positions: Literal['sinusoidal', 'learned'] = field(
            'sinusoidal', 'Position embeddings that are added to those of the ids.')
        max_length: int = field(0, 'The largest S and T, for learned positions.', least=0)
        first_position: int = field(0, 'The number of the first position; see PositionEmbedding.',
                                    least=0)
        padding_id: int = field(0, 'The id of padding, in sources and labels.', least=0)
        tied: Literal['none', 'embeddings', 'all'] = field(
            'none', "The tables that are shared: 'none'; 'embeddings': those of source and target; "
                    "'all': these and the weights of the softmax.")
        is_scaled: bool = field(True, 'Whether the vectors of ids are multiplied by sqrt(D).')
        has_softmax_bias: bool = field(True, 'Whether the softmax adds a bias.')
        dtype: Literal['float32', 'bfloat16'] = field(
            'float32', 'Type of the activations; weights and the loss are float32.')
        dropout_rate: float = field(
            0., 'Dropout rate of the embeddings and of what every part of a layer adds.',
            least=0, below=1)
        attention_dropout_rate: float = field(
            0., 'Dropout rate of the attention weights.', least=0, below=1)
        hidden_dropout_rate: float = field(
            0., 'Dropout rate of the hidden units.', least=0, below=1)
        source_word_dropout_rate: float = field(
            0., 'Share of whole words of the source that are dropped in training.',
            least=0, below=1)
        target_word_dropout_rate: float = field(
            0., 'Share of whole words read by the decoder that are dropped in training, so that it '
                'does not learn sentences by heart.', least=0, below=1)
        label_smoothing: float = field(
            0.1, 'The part of a label that is spread over the vocabulary.', least=0, below=1)
        divide_ffn_init_by_depth: bool = field(
            False, 'Whether the initial values of all feed-forward weights are divided by the '
                   'number of layers of the encoder or decoder that they are in.')
        max_abs_logit: float = field(
            0., 'Logits are clipped to [-max_abs_logit, max_abs_logit]; 0: they are not.', least=0)
        vocabulary_shards: int = field(
            1, 'Layers that each embedding, and the softmax, is split into.',
            least=1, most=10_000)
        feed_forward_shards: int = field(1, 'Layers that each feed-forward part is split into.',
                                         least=1, most=10_000)
        adapters: Adapters | None = field(None, 'Low-rank adapters of projections, which train '
                                                'alone; none: all weights train.')

        def check(self) -> None:
            """Raises ValueError for a tied source that is not there, and for adapters of no part.
            """
            if self.adapters is not None:
                self.adapters.check_targets(lib.TransformerDecoderLayer.projections,
                                            'this Transformer')
            if self.tied == 'embeddings' and not self.num_encoder_layers:
                raise ValueError(
                    "tied='embeddings', but without encoder layers there is one embedding only; "
                    "use 'none', or 'all' to share it with the softmax.")

    params: Params

    def __init__(self, params: Params, path: str = ''):
        p = params.validate()
        layers = _layers(p, path or p.name or 'transformer')
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
        check_counterparts(p, {'vocabulary_shards': 1, 'feed_forward_shards': 1})
        return {**{name: getattr(p, name) for name in FIELDS},
                'head_dim': p.head_dim or p.model_dim // p.num_heads}

    def hugging_face_config(self, source: Config, dtype: str = 'float32') -> dict[str, Any]:
        """Returns a config.json of Hugging Face that describes the network.

        Args:
          source: that with which the weights came, or {}.
          dtype: the type of the weights that go with it.

        Raises:
          ValueError: no model of Hugging Face that is known here computes the same.
        """
        rates = {name: getattr(self.params, name) for name in RATES}
        return config_of(self.fields_of_hugging_face(), rates, source, dtype)


def _layers(p: Transformer.Params, path: str) -> list[Layer.Params]:
    """Returns the layers of encoder and decoder, or of the decoder alone."""
    if not p.num_encoder_layers:
        return [*_table(p, 'target', 'x'), *_decoder(p), *_output(p, path)]
    mask = PaddingMask.Params(name='source_mask', padding_id=p.padding_id,
                              reads={'ids': 'source'}, writes='source_mask')
    source = _table(p, 'source', 'x')
    target = _table(p, 'target', 'x' if p.tied == 'none' else 'target_embedded')
    if p.tied == 'none':
        return [mask, *source, *_encoder(p), *target, *_decoder(p), *_output(p, path)]
    # Both lookups of a table stand together, so that the decoder is sent rows, not the table.
    both = []
    for ours, theirs in zip(source, target, strict=True):
        both += [ours, theirs.set(share={'w': f'{path}/{ours.name}/w'})]
    return [mask, *both, *_encoder(p), *_decoder(p), *_output(p, path)]


def _table(p: Transformer.Params, what: str, writes: str) -> list[Any]:
    """Returns the shards of the embedding of `source` or `target`."""
    embedding = lib.Embedding.Params(
        name=f'{what}_embedding', vocab_size=p.vocab_size, dim=p.model_dim, dtype=p.dtype,
        is_scaled=p.is_scaled, reads={'ids': what}, writes=writes)
    return list(lib.split(embedding, p.vocabulary_shards))


def _encoder(p: Transformer.Params) -> list[Layer.Params]:
    """Returns the layers that write `encoded`."""
    body = lib.TransformerEncoderLayer.Params(
        **_fields(p, p.num_encoder_layers), reads={'mask': 'source_mask'})
    return [*_input(p, 'source', 'x'),
            *_stack(p, 'encoder', body, p.num_encoder_layers),
            lib.LayerNorm.Params(name='encoder_norm', dim=p.model_dim, writes='encoded')]


def _decoder(p: Transformer.Params) -> list[Layer.Params]:
    """Returns the layers of the decoder, which reads `encoded` if there is an encoder."""
    has_memory = bool(p.num_encoder_layers)
    body = lib.TransformerDecoderLayer.Params(
        **_fields(p, p.num_decoder_layers), memory_dim=p.model_dim * has_memory,
        reads={'memory': 'encoded', 'memory_mask': 'source_mask'} if has_memory else {})
    value = 'target_embedded' if has_memory and p.tied != 'none' else 'x'
    return [*_input(p, 'target', value), *_stack(p, 'decoder', body, p.num_decoder_layers),
            lib.LayerNorm.Params(name='decoder_norm', dim=p.model_dim)]


def _input(p: Transformer.Params, what: str, value: str) -> list[Layer.Params]:
    """Returns word dropout, positions and dropout of an embedding; they read `value`, write x."""
    layers: list[Layer.Params] = []
    rate = getattr(p, f'{what}_word_dropout_rate')
    if rate:
        layers.append(lib.WordDropout.Params(
            name=f'{what}_word_dropout', rate=rate, reads={'x': value}, writes='x'))
        value = 'x'
    layers.append(lib.PositionEmbedding.Params(
        name=f'{what}_position', dim=p.model_dim, kind=p.positions, max_length=p.max_length,
        first=p.first_position, reads={'x': value}))
    if p.dropout_rate:
        layers.append(lib.Dropout.Params(name=f'{what}_dropout', rate=p.dropout_rate))
    return layers


def _fields(p: Transformer.Params, depth: int) -> dict[str, Any]:
    """Returns the fields that all layers of a stack of `depth` have in common."""
    names = ('model_dim', 'hidden_dim', 'num_heads', 'head_dim', 'activation', 'dropout_rate',
             'attention_dropout_rate', 'hidden_dropout_rate', 'adapters')
    variance_scale = depth ** -2. if p.divide_ffn_init_by_depth else 1.
    return {**{name: getattr(p, name) for name in names}, 'ffn_init_scale': variance_scale}


def _stack(p: Transformer.Params, name: str, body: Any, depth: int) -> list[Layer.Params]:
    """Returns `depth` copies of a layer, each with its feed-forward part in shards."""
    return [lib.split_feed_forward(body.copy().set(name=f'{name}_{i}'), p.feed_forward_shards)
            for i in range(depth)]


def _output(p: Transformer.Params, path: str) -> list[Layer.Params]:
    """Returns the softmax, the weights of tokens and the loss."""
    fields: dict[str, Any] = {
        'name': 'softmax', 'input_dim': p.model_dim, 'vocab_size': p.vocab_size,
        'use_bias': p.has_softmax_bias, 'max_abs': p.max_abs_logit, 'transpose_w': p.tied == 'all'}
    weight = TokenWeight.Params(
        name='token_weight', padding_id=p.padding_id, reads={'labels': 'label'})
    reads = {'labels': 'label', 'weight': 'token_weight'}
    if p.vocabulary_shards == 1:
        softmax: list[Any] = [lib.Logits.Params(**fields, writes='logits')]
        loss: Layer.Params = lib.CrossEntropyLoss.Params(
            name='loss', label_smoothing=p.label_smoothing, reads={**reads, 'x': 'logits'})
    else:
        shard = lib.SoftmaxShard.Params(**fields, reads={'labels': 'label'})
        softmax = list(lib.split(shard, p.vocabulary_shards))
        loss = lib.StreamedCrossEntropyLoss.Params(
            name='loss', vocab_size=p.vocab_size, label_smoothing=p.label_smoothing, reads=reads)
    if p.tied == 'all':
        tables = _table(p, 'source' if p.num_encoder_layers else 'target', 'x')
        softmax = [layer.set(share={'w': f'{path}/{table.name}/w'})
                   for layer, table in zip(softmax, tables, strict=True)]
    return [*softmax, weight, loss]
