"""The layers. Each file is one idea; the names here are the public ones.

A name's file is imported when the name is first used. Pricing needs the base of all layers, and
some layers need pricing, so neither package could be imported if this one imported all its files.
"""
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # What `__getattr__` does, for type checkers and editors.
    from lingpipe.layers.attention import MultiHeadAttention as MultiHeadAttention
    from lingpipe.layers.batch_norm import BatchNorm as BatchNorm
    from lingpipe.layers.convolution import Conv2D as Conv2D
    from lingpipe.layers.convolution import DepthwiseConv2D as DepthwiseConv2D
    from lingpipe.layers.convolution import SeparableConv2D as SeparableConv2D
    from lingpipe.layers.dense import Activation as Activation
    from lingpipe.layers.dense import Dense as Dense
    from lingpipe.layers.dropout import Dropout as Dropout
    from lingpipe.layers.dropout import DropPath as DropPath
    from lingpipe.layers.dropout import WordDropout as WordDropout
    from lingpipe.layers.embedding import Embedding as Embedding
    from lingpipe.layers.embedding import PositionEmbedding as PositionEmbedding
    from lingpipe.layers.feed_forward import FeedForward as FeedForward
    from lingpipe.layers.feed_forward_shards import Residual as Residual
    from lingpipe.layers.feed_forward_shards import split_feed_forward as split_feed_forward
    from lingpipe.layers.grouped_query_attention import (
        GroupedQueryAttention as GroupedQueryAttention,
    )
    from lingpipe.layers.keras_layer import KerasLayer as KerasLayer
    from lingpipe.layers.layer_norm import LayerNorm as LayerNorm
    from lingpipe.layers.learned_positions import LearnedPositions as LearnedPositions
    from lingpipe.layers.losses import CrossEntropyLoss as CrossEntropyLoss
    from lingpipe.layers.losses import MeanSquaredErrorLoss as MeanSquaredErrorLoss
    from lingpipe.layers.losses import SigmoidCrossEntropyLoss as SigmoidCrossEntropyLoss
    from lingpipe.layers.mixture_of_experts import MixtureOfExperts as MixtureOfExperts
    from lingpipe.layers.pooling import AvgPool2D as AvgPool2D
    from lingpipe.layers.pooling import GlobalAvgPool2D as GlobalAvgPool2D
    from lingpipe.layers.pooling import MaxPool2D as MaxPool2D
    from lingpipe.layers.pre_norm import PreNorm as PreNorm
    from lingpipe.layers.reshape import Cast as Cast
    from lingpipe.layers.reshape import Flatten as Flatten
    from lingpipe.layers.reshape import Reshape as Reshape
    from lingpipe.layers.rms_norm import RMSNorm as RMSNorm
    from lingpipe.layers.sequential import Repeat as Repeat
    from lingpipe.layers.sequential import Sequential as Sequential
    from lingpipe.layers.shards import split as split
    from lingpipe.layers.softmax import Logits as Logits
    from lingpipe.layers.streamed_softmax import SoftmaxShard as SoftmaxShard
    from lingpipe.layers.streamed_softmax import (
        StreamedCrossEntropyLoss as StreamedCrossEntropyLoss,
    )
    from lingpipe.layers.swiglu import SwiGLU as SwiGLU
    from lingpipe.layers.transformer import TransformerDecoderLayer as TransformerDecoderLayer
    from lingpipe.layers.transformer import TransformerEncoderLayer as TransformerEncoderLayer

_NAMES_BY_FILE = {
    'attention': ['MultiHeadAttention'],
    'batch_norm': ['BatchNorm'],
    'convolution': ['Conv2D', 'DepthwiseConv2D', 'SeparableConv2D'],
    'dense': ['Activation', 'Dense'],
    'dropout': ['DropPath', 'Dropout', 'WordDropout'],
    'embedding': ['Embedding', 'PositionEmbedding'],
    'grouped_query_attention': ['GroupedQueryAttention'],
    'keras_layer': ['KerasLayer'],
    'layer_norm': ['LayerNorm'],
    'learned_positions': ['LearnedPositions'],
    'losses': ['CrossEntropyLoss', 'MeanSquaredErrorLoss', 'SigmoidCrossEntropyLoss'],
    'mixture_of_experts': ['MixtureOfExperts'],
    'pooling': ['AvgPool2D', 'GlobalAvgPool2D', 'MaxPool2D'],
    'pre_norm': ['PreNorm'],
    'reshape': ['Cast', 'Flatten', 'Reshape'],
    'rms_norm': ['RMSNorm'],
    'sequential': ['Repeat', 'Sequential'],
    'shards': ['split'],
    'softmax': ['Logits'],
    'feed_forward': ['FeedForward'],
    'feed_forward_shards': ['Residual', 'split_feed_forward'],
    'streamed_softmax': ['SoftmaxShard', 'StreamedCrossEntropyLoss'],
    'swiglu': ['SwiGLU'],
    'transformer': ['TransformerDecoderLayer', 'TransformerEncoderLayer'],
}
_FILE_OF = {name: file for file, names in _NAMES_BY_FILE.items() for name in names}

__all__ = list(_FILE_OF)

if not TYPE_CHECKING:  # With a __getattr__, type checkers would take every name for public.

    def __getattr__(name: str) -> object:
        """Imports a public name when it is first used."""
        if name not in _FILE_OF:
            raise AttributeError(f'module {__name__!r} has no attribute {name!r}; a layer of '
                                 'Keras is KerasLayer.Params(layer=keras.layers....)')
        module = importlib.import_module(f'{__name__}.{_FILE_OF[name]}')
        globals()[name] = getattr(module, name)  # The next use does not come here.
        return globals()[name]

    def __dir__() -> list[str]:
        """All names, whether they were used or not."""
        return sorted({*globals(), *__all__})
