"""The layers. Each file is one idea; the names here are the public ones."""
from lingpipe.layers.attention import MultiHeadAttention
from lingpipe.layers.batch_norm import BatchNorm
from lingpipe.layers.convolution import Conv2D, DepthwiseConv2D, SeparableConv2D
from lingpipe.layers.dense import Activation, Dense
from lingpipe.layers.dropout import Dropout, DropPath, WordDropout
from lingpipe.layers.embedding import Embedding, PositionEmbedding
from lingpipe.layers.keras_layer import KerasLayer
from lingpipe.layers.layer_norm import LayerNorm
from lingpipe.layers.losses import CrossEntropyLoss, MeanSquaredErrorLoss
from lingpipe.layers.pooling import AvgPool2D, GlobalAvgPool2D, MaxPool2D
from lingpipe.layers.reshape import Cast, Flatten, Reshape
from lingpipe.layers.sequential import Repeat, Sequential
from lingpipe.layers.shards import split
from lingpipe.layers.softmax import Logits
from lingpipe.layers.split_feed_forward import Residual, split_feed_forward
from lingpipe.layers.streamed_softmax import SoftmaxShard, StreamedCrossEntropyLoss
from lingpipe.layers.transformer import FeedForward, TransformerDecoderLayer, TransformerEncoderLayer

__all__ = [
    'Activation', 'AvgPool2D', 'BatchNorm', 'Cast', 'Conv2D', 'CrossEntropyLoss', 'Dense', 'DepthwiseConv2D', 'DropPath', 'Dropout',
    'Embedding', 'FeedForward', 'Flatten', 'GlobalAvgPool2D', 'KerasLayer', 'LayerNorm', 'Logits', 'MaxPool2D', 'MeanSquaredErrorLoss',
    'MultiHeadAttention', 'PositionEmbedding', 'Repeat', 'Reshape', 'Residual', 'SeparableConv2D', 'Sequential', 'SoftmaxShard',
    'StreamedCrossEntropyLoss', 'TransformerDecoderLayer', 'TransformerEncoderLayer', 'WordDropout', 'split', 'split_feed_forward']
