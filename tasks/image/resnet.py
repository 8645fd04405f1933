"""ResNet: residual blocks (He et al., arXiv:1512.03385), with 18, 34, 50, 101 or 152 layers.

    stem     large: 7x7 convolution of stride 2, 3x3 max pool of stride 2; small: 3x3 convolution
    groups   blocks of F filters, of 2F, 4F, 8F; the first block of every group but the first
             halves the resolution
    head     mean over the image, dropout, dense

    block        basic (18, 34)         bottleneck (50, 101, 152)
    branch       3x3 F, 3x3 F           1x1 F, 3x3 F, 1x1 4F
    shortcut     the block's input; a 1x1 convolution of it where the size changes (option B)
    output       relu(branch + shortcut)

BatchNorm follows each convolution, and a rectifier stands between two convolutions of a branch.
`blocks_per_group` makes networks of other depths. By default the 3x3 convolution of a bottleneck
has its stride, which is known as v1.5; stride_in='1x1' gives the paper's network (Table 1).

Every convolution is a layer of its own, with the rectifier before it and BatchNorm after it, and so
is the sum. A block writes a value of its own name, and the projection of its input as
`<name>.shortcut`. The sum reads either by name. So the pipeline may cut inside a block, and sends
the shortcut straight to the device of the sum.

With 1000 classes, the numbers of weights are those of other implementations:

    18  11,689,512      34  21,797,672      50  25,557,032      101  44,549,160      152  60,192,808

Padding is TensorFlow's 'same': a stride of 2 on an even size pads below and to the right, where
PyTorch's windows begin a pixel earlier.
"""
from __future__ import annotations

from typing import Any, Literal

import tensorflow as tf

from lingpipe.hyperparams import REQUIRED, diff, field
from lingpipe.layers.base import Layer
from lingpipe.layers.batch_norm import BatchNorm
from lingpipe.layers.context import Context
from lingpipe.layers.cost import Cost
from lingpipe.layers.dense import Activation, Dense, activation_flops
from lingpipe.layers.dropout import Dropout
from lingpipe.layers.nested import NestedMap
from lingpipe.layers.pooling import GlobalAvgPool2D, MaxPool2D
from lingpipe.layers.sequential import Sequential, with_layers
from lingpipe.tasks.image.blocks import ConvNorm, Norm, conv_norm

# Depth -> the number of blocks in each group (Table 1 of the paper).
NUM_BLOCKS = {
    18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
EXPANSION = 4   # Output channels of a bottleneck for each of its filters.


class SilentNorm(Norm):
    """A Norm whose scale begins at 0, so that its branch adds nothing at first.

    See Goyal et al., arXiv:1706.02677, section 5.1.
    """

    def of(self, dim: int) -> BatchNorm.Params:
        """Returns the Params of a BatchNorm of `dim` channels."""
        return super().of(dim).set(scale_initializer='zeros')


class ResidualSum(Layer):
    """relu(x + shortcut), both [b, h, w, C]."""

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor, shortcut: tf.Tensor) -> tf.Tensor:
        """[b, h, w, C]."""
        return tf.nn.relu(x + shortcut)

    def cost(self, x: tf.TensorSpec, shortcut: tf.TensorSpec) -> Cost:
        """The addition and the rectifier. Raises ValueError unless both have the same shape."""
        if x.shape != shortcut.shape:
            raise ValueError(
                f'{self.path}: x is {x.shape} and shortcut is {shortcut.shape}, which cannot be '
                "added; give the convolution of the shortcut the branch's stride and filters.")
        flops = x.shape.num_elements() + activation_flops('relu', x)
        return Cost(flops, 0, tf.TensorSpec(x.shape, x.dtype))


class ResNet(Sequential):
    """The network; image [b, h, w, channels] -> logits [b, num_classes]. It can be cut anywhere."""

    class Params(Sequential.Params):
        """Depth, filters, stem and initial values."""
        layers: tuple[Layer.Params, ...] = field((), 'Made from the fields below; leave empty.')
        depth: Literal[18, 34, 50, 101, 152] = field(
            50, 'Number of layers, which says how many blocks there are; blocks are basic below '
                '50, and bottlenecks otherwise.')
        blocks_per_group: tuple[int, ...] = field(
            (), 'Blocks of each group, in place of those of `depth`; empty: as `depth` says.',
            least=1, most=10_000)
        num_filters: int = field(
            64, 'F, the filters of the stem and the first group; each group has twice as many as '
                'the one before it.', least=1)
        num_classes: int = field(REQUIRED, 'Number of classes.', least=1)
        image: str = field('image', 'Name of the value that holds the images.')
        image_channels: int = field(3, 'Channels of the images.', least=1)
        stem: Literal['large', 'small'] = field(
            'large', "'large': the stem divides the resolution by 4, for images of 160 pixels and "
                     "more; 'small': it keeps it, for images of 8 to 64 pixels.")
        stride_in: Literal['3x3', '1x1'] = field(
            '3x3', "The convolution of a bottleneck that has the stride: '3x3' is v1.5, '1x1' the "
                   'paper.')
        batch_norm: Norm = field(
            Norm(decay=0.9, epsilon=1e-5), 'The BatchNorm after every convolution.')
        is_branch_silent: bool = field(
            False, 'Whether the scale of the last BatchNorm of every branch begins at 0 '
                   '(zero-init).')
        kernel_initializer: str = field(
            'he_normal_fan_out', 'Name of the initializer of all convolutions.')
        dropout_rate: float = field(0., 'Dropout rate before the last layer.', least=0, below=1)

    params: Params

    def __init__(self, params: Params, path: str = ''):
        super().__init__(with_layers(params, _layers(params.validate())), path)


def _layers(p: ResNet.Params) -> list[Layer.Params]:
    """Returns the stem, the groups of blocks and the classifier."""
    layers = _stem(p)
    value = 'stem'
    dim = p.num_filters
    for group, num_blocks in enumerate(p.blocks_per_group or NUM_BLOCKS[p.depth]):
        for i in range(num_blocks):
            stride = 2 if group and not i else 1
            filters = p.num_filters * 2 ** group
            block, dim = _block(p, f'group_{group}_block_{i}', value, dim, filters, stride)
            layers.append(block)
            value = block.name

    layers.append(GlobalAvgPool2D.Params(name='mean', reads={'x': value}))
    if p.dropout_rate:
        layers.append(Dropout.Params(name='dropout', rate=p.dropout_rate))
    layers.append(Dense.Params(name='dense', input_dim=dim, units=p.num_classes))
    return layers


def _stem(p: ResNet.Params) -> list[Layer.Params]:
    """Returns the layers that write `stem`.

    It is [b, h / 4, w / 4, F] for a large stem and [b, h, w, F] for a small one.
    """
    kernel, stride = (7, 2) if p.stem == 'large' else (3, 1)
    conv = _conv(p, 'stem', p.image_channels, p.num_filters, kernel, stride, has_relu=False,
                 reads={'x': p.image})
    relu = Activation.Params(name='stem_relu', activation='relu')
    if p.stem == 'small':
        return [conv, relu.set(writes='stem')]
    pool = MaxPool2D.Params(name='stem_pool', pool_size=(3, 3), strides=2, writes='stem')
    return [conv, relu, pool]


def _block(p: ResNet.Params, name: str, value: str, input_dim: int, filters: int,
           stride: int) -> tuple[Sequential.Params, int]:
    """Returns a block that reads `value`, of input_dim channels, and its output channels."""
    convs = _convs_of_branch(p, filters, stride)
    dim = convs[-1][0]
    layers: list[Layer.Params] = []
    shortcut = value
    if stride > 1 or input_dim != dim:
        shortcut = f'{name}.shortcut'
        layers.append(_conv(p, 'shortcut', input_dim, dim, 1, stride, has_relu=False,
                            reads={'x': value}, writes=shortcut))

    conv_input_dim = input_dim
    for i, (conv_filters, kernel, conv_stride) in enumerate(convs):
        conv = _conv(p, f'conv_{i}', conv_input_dim, conv_filters, kernel, conv_stride,
                     has_relu=i > 0, reads={} if i else {'x': value})
        if p.is_branch_silent and i == len(convs) - 1:
            changes = {path: changed for path, _, changed in diff(Norm(), p.batch_norm)}
            conv.batch_norm = SilentNorm().set(**changes)
        layers.append(conv)
        conv_input_dim = conv_filters

    layers.append(ResidualSum.Params(name='sum', reads={'shortcut': shortcut}, writes=name))
    return Sequential.Params(name=name, layers=tuple(layers)), dim


def _convs_of_branch(p: ResNet.Params, filters: int, stride: int) -> list[tuple[int, int, int]]:
    """Returns (output channels, kernel size, stride) of the convolutions of a block's branch."""
    if p.depth < 50:
        return [(filters, 3, stride), (filters, 3, 1)]
    stride_1x1, stride_3x3 = (1, stride) if p.stride_in == '3x3' else (stride, 1)
    return [(filters, 1, stride_1x1), (filters, 3, stride_3x3), (filters * EXPANSION, 1, 1)]


def _conv(p: ResNet.Params, name: str, input_dim: int, dim: int, kernel: int, stride: int,
          **fields: Any) -> ConvNorm.Params:
    """Returns a convolution with the initializer and the BatchNorm of this network."""
    layer = conv_norm(input_dim, dim, p.batch_norm, (kernel, kernel), stride, name=name, **fields)
    return layer.set(**{'conv.kernel_initializer': p.kernel_initializer})
