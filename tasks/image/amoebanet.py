"""AmoebaNet (L, F): a stack of L normal blocks, found by evolution (Real et al., arXiv:1802.01548).

    stem     convolution, and for large images two reduction blocks of F/4 and F/2 filters
    body     L/3 normal blocks of F filters, reduction block, L/3 of 2F, reduction block, L/3 of 4F
    head     rectifier, mean over the image, dropout, dense

The paper calls a block a cell. Since a cell is a run of layers on one device in lingpipe, the word
is used for blocks only in the names of weights and values, and in the field `granularity`.

Every block reads the outputs of the two blocks before it. Block i writes the value `cell_i` and its
states `cell_i.s0`, `cell_i.s1`, ... Each is read by name by the layers that need it. So a pipeline
may cut between any two layers, even inside an operation, and sends exactly the values that are read
beyond the cut. `granularity` forbids cuts inside combinations or blocks; it changes no weight's
path and no bit of a result. This table has the mean cost of a cell divided by the largest, by
FLOPs, for K = 2, 4 and 8 cells of (18, 256) at 224 pixels:

    granularity  AmoebaNet-D          -A                   -B                   -C
    cell         0.965  0.902  0.869  0.977  0.895  0.845  0.967  0.911  0.867  0.974  0.891  0.845
    combination  0.999  0.970  0.982  0.999  0.985  0.976  0.998  0.978  0.962  0.997  0.988  0.977
    layer        0.999  0.970  0.982  0.999  0.994  0.991  0.998  0.978  0.983  0.997  0.993  0.979

The rest of the imbalance comes from the two 1x1 convolutions at the start of a block, from 4F
channels to F. In AmoebaNet-D, each of them has 29 % of the FLOPs of a block.

With 1000 classes, the networks have exactly these numbers of weights, which the GPipe paper rounds
(Table 1):

    AmoebaNet-D   (18, 208) 81,137,437   (18, 416) 317,541,696   (18, 544) 540,196,240
                  (36, 544) 1,053,293,776   (72, 512) 1,842,610,248
"""
from __future__ import annotations

import itertools
import math
from typing import Literal, NamedTuple

import tensorflow as tf

from lingpipe.hyperparams import REQUIRED, field
from lingpipe.layers.base import Layer
from lingpipe.layers.convolution import Conv2D
from lingpipe.layers.dense import Activation, Dense
from lingpipe.layers.dropout import Dropout
from lingpipe.layers.pooling import GlobalAvgPool2D
from lingpipe.layers.sequential import Sequential, with_layers
from lingpipe.tasks.image.amoeba_block import AmoebaBlock, State
from lingpipe.tasks.image.blocks import AUXILIARY_SIZE, AuxiliaryHead, ConvNorm, Norm


class Stem(ConvNorm):
    """The convolution that reads the images.

    It is the first layer to see their size, and refuses images that the blocks could not halve.
    """

    class Params(ConvNorm.Params):
        """The convolution, and the least size of the images."""
        min_size: int = field(1, 'Least height and width of the images.', least=1)

    params: Params

    def _check(self, x: tf.Tensor | tf.TensorSpec) -> None:
        least = self.params.min_size
        if x.shape.rank != 4 or min(x.shape[1:3]) < least:
            raise ValueError(
                f"{self.path}: the images are {x.shape}, but the network's strides need "
                f'[b, h, w, channels] with h and w of {least} or more; use larger images, or a '
                "stem that reduces them less: stem='small', stem_strides=1.")


class AmoebaNet(Sequential):
    """The network; image [b, h, w, channels] -> logits [b, num_classes]."""

    class Params(Sequential.Params):
        """Sizes, stem, drop path, auxiliary head, and where a pipeline may cut."""
        layers: tuple[Layer.Params, ...] = field((), 'Made from the fields below; leave empty.')
        architecture: Literal['A', 'B', 'C', 'D'] = field(
            'D', 'The kind of AmoebaNet, by its name in block_tables.py.')
        num_layers: int = field(
            REQUIRED, 'L, the number of normal blocks, which are divided into three parts.',
            least=3, most=10_000)
        num_filters: int = field(
            REQUIRED, 'F, the filters of the first part; the others have 2F and 4F.', least=1)
        num_classes: int = field(REQUIRED, 'Number of classes.', least=1)
        image: str = field('image', 'Name of the value that holds the images.')
        image_channels: int = field(3, 'Channels of the images.', least=1)
        stem: Literal['large', 'small'] = field(
            'large', "'large': the stem divides the resolution by 8, for images of 224 pixels and "
                     "more; 'small': it divides it by stem_strides, for images of 8 to 64 pixels.")
        stem_filters: int = field(32, "Filters of the stem's convolution.", least=1)
        stem_strides: int = field(
            1, "Stride of the small stem's convolution; the large stem's is 2.", least=1)
        batch_norm: Norm = field(Norm(), 'The BatchNorm after every convolution.')
        drop_path_keep: float = field(
            1., 'Probability that training keeps an operation for an example.', above=0, most=1)
        drop_path_schedule: Literal['constant', 'v1', 'v2', 'v3'] = field(
            'constant', 'Where and when drop_path_keep is reached; the names are those of the '
                        "reference implementation. 'constant': everywhere, always; 'v1': the "
                        'probability falls linearly from 1 in drop_path_steps updates; '
                        "'v2': it falls linearly with the depth of the block, down to the last "
                        "block's; 'v3': both.")
        drop_path_steps: int = field(
            0, "Updates in which the probability falls, for 'v1' and 'v3'; the reference takes "
               'all updates of the run.', least=0)
        dropout_rate: float = field(0., 'Dropout rate before the last layer.', least=0, below=1)
        auxiliary_image_size: int = field(
            0, 'Height and width of the images, for an auxiliary head that writes '
               '`auxiliary_logits`; 0: no such head.', least=0)
        auxiliary_loss: Layer.Params | None = field(
            None, 'The layer that reads `auxiliary_logits`, right after them; see classifier.py.')
        granularity: Literal['cell', 'combination', 'layer'] = field(
            'layer', "What a pipeline may cut between: 'cell': blocks; 'combination': "
                     "combinations of operations; 'layer': any two layers.")
        is_torchgpipe: bool = field(
            False, "Whether to build the model of torchgpipe's benchmarks: a stem of F/4, F/2 and "
                   'F filters, no state that is read as it is, an average pool where the table '
                   'says max_pool_3x3, and a factorized reduction for a strided none.')

        def check(self) -> None:
            """Raises ValueError for a drop path without an end, or too small images."""
            is_ramped = self.drop_path_schedule in ('v1', 'v3')
            if (self.drop_path_steps > 0) != is_ramped:
                raise ValueError(
                    f'drop_path_schedule={self.drop_path_schedule!r} with '
                    f'drop_path_steps={self.drop_path_steps}; v1 and v3 need the number of updates '
                    'in which the probability falls, constant and v2 have none: set it, or to 0.')

            image_size = self.auxiliary_image_size
            if image_size and (size := _auxiliary_size(self, image_size)) < AUXILIARY_SIZE:
                enough = _least_image_size(self, AUXILIARY_SIZE)
                raise ValueError(
                    f'auxiliary_image_size={image_size} leaves {size}x{size} pixels to the '
                    f'auxiliary head, which averages windows of {AUXILIARY_SIZE}x{AUXILIARY_SIZE}; '
                    f'use images of {enough} pixels or more, or auxiliary_image_size=0: no such '
                    'head.')

    params: Params

    def __init__(self, params: Params, path: str = ''):
        super().__init__(with_layers(params, _network_layers(params.validate())), path)


def _network_layers(p: AmoebaNet.Params) -> list[Layer.Params]:
    """Returns the stem, the blocks and the classifier."""
    stem, stem_output = _stem(p)
    layers: list[Layer.Params] = [stem]
    outputs = [stem_output]
    sizes = _block_sizes(p)
    for depth, size in enumerate(sizes):
        is_by_depth = p.drop_path_schedule in ('v2', 'v3')
        block = AmoebaBlock.Params(
            name=size.name, is_unit=p.granularity == 'cell', architecture=p.architecture,
            is_reduction=size.is_reduction, dim=size.dim,
            previous=outputs[-1], before_previous=outputs[-2:][0],
            is_first=len(outputs) == 1 and not p.is_torchgpipe, batch_norm=p.batch_norm,
            drop_path_rate=(1 - p.drop_path_keep) * (
                (depth + 1) / len(sizes) if is_by_depth else 1.),
            drop_path_steps=p.drop_path_steps,
            has_whole_combinations=p.granularity == 'combination', is_torchgpipe=p.is_torchgpipe)
        layers.append(block)
        outputs.append(AmoebaBlock.output(block))
        if p.auxiliary_image_size and size.name == f'cell_{2 * p.num_layers // 3 - 1}':
            layers += _auxiliary_layers(p, outputs[-1])

    layers += [
        Activation.Params(name='relu', activation='relu', reads={'x': outputs[-1].name}),
        GlobalAvgPool2D.Params(name='mean')]
    if p.dropout_rate:
        layers.append(Dropout.Params(name='dropout', rate=p.dropout_rate))
    layers.append(Dense.Params(name='dense', input_dim=outputs[-1].dim, units=p.num_classes))
    return layers


def _stem(p: AmoebaNet.Params) -> tuple[Stem.Params, State]:
    """Returns the stem's convolution and its output."""
    is_large = p.stem == 'large'
    strides = 2 if is_large else p.stem_strides
    filters = p.num_filters // 4 if p.is_torchgpipe and is_large else p.stem_filters
    conv = Conv2D.Params(
        input_dim=p.image_channels, filters=filters, kernel_size=(3, 3), strides=strides,
        padding='valid' if is_large and not p.is_torchgpipe else 'same', use_bias=False)
    # With 2 pixels, the last reduction block has something to halve.
    stem = Stem.Params(
        name='stem', conv=conv, batch_norm=p.batch_norm, has_relu=False,
        min_size=_least_image_size(p, 2), reads={'x': p.image}, writes='stem')
    return stem, State(name='stem', dim=filters, reduction=strides)


def _auxiliary_layers(p: AmoebaNet.Params, state: State) -> list[Layer.Params]:
    """Returns the auxiliary head, which reads the state, and its loss if there is one."""
    head = AuxiliaryHead.Params(
        name='auxiliary_head', input_dim=state.dim, num_classes=p.num_classes,
        input_size=_auxiliary_size(p, p.auxiliary_image_size), batch_norm=p.batch_norm,
        reads={'x': state.name}, writes='auxiliary_logits')
    return [head] if p.auxiliary_loss is None else [head, p.auxiliary_loss]


class _BlockSize(NamedTuple):
    name: str
    dim: int
    is_reduction: bool


def _block_sizes(p: AmoebaNet.Params) -> list[_BlockSize]:
    """Returns the name and the filters of each block, in order."""
    sizes = []
    if p.stem == 'large':
        scale = 2 if p.is_torchgpipe else 1
        sizes = [_BlockSize(f'stem_cell_{i}', p.num_filters * scale // divisor, True)
                 for i, divisor in enumerate((4, 2))]

    starts_of_parts = [p.num_layers // 3, 2 * p.num_layers // 3]
    dim = p.num_filters
    for i in range(p.num_layers):
        if i in starts_of_parts:
            dim *= 2
            sizes.append(_BlockSize(f'reduction_cell_{starts_of_parts.index(i)}', dim, True))
        sizes.append(_BlockSize(f'cell_{i}', dim, False))
    return sizes


def _auxiliary_size(p: AmoebaNet.Params, image_size: int) -> int:
    """Returns the height of what the auxiliary head and the last reduction block read."""
    if p.stem == 'small':
        return math.ceil(math.ceil(image_size / p.stem_strides) / 2)
    after_stem = math.ceil(image_size / 2) if p.is_torchgpipe else (image_size - 1) // 2
    return math.ceil(after_stem / 8)  # Two blocks of the stem and one reduction block.


def _least_image_size(p: AmoebaNet.Params, auxiliary_size: int) -> int:
    """Returns the least size of images for which `_auxiliary_size` is at least auxiliary_size."""
    return next(n for n in itertools.count(1) if _auxiliary_size(p, n) >= auxiliary_size)
