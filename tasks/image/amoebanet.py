"""AmoebaNet (L, F): a stack of L normal cells, found by evolution (Real et al., arXiv:1802.01548).

    stem     convolution, and for large images two reduction cells of F/4 and F/2 filters
    cells    L/3 normal cells of F filters, reduction cell, L/3 of 2F, reduction cell, L/3 of 4F
    head     rectifier, mean over the image, dropout, dense

Every cell reads the outputs of the two cells before it. Here cell i writes the value `cell_i` and its states `cell_i.s0`,
`cell_i.s1`, ...: each is read by name by whoever needs it, so the pipeline may cut between any two layers, inside an operation too, and
sends exactly what is read beyond the cut. `granularity` forbids it to cut inside combinations or cells; it changes no weight's
path and no bit of a result. Mean cost of a cell / the largest, by FLOPs, for K = 2, 4, 8 cells of (18, 256), 224 pixels:

    granularity    AmoebaNet-D             -A                      -B                      -C
    cell           0.965  0.902  0.869     0.977  0.895  0.845     0.967  0.911  0.867     0.974  0.891  0.845
    combination    0.999  0.970  0.982     0.999  0.985  0.976     0.998  0.978  0.962     0.997  0.988  0.977
    layer          0.999  0.970  0.982     0.999  0.994  0.991     0.998  0.978  0.983     0.997  0.993  0.979

What is left is due to the two 1x1 convolutions at the start of a cell, from 4F channels to F: each has 29 % of the FLOPs of a cell of -D.

The parameters that the GPipe paper counts (Table 1) are those of this build, with 1000 classes:

    AmoebaNet-D   (18, 208) 81,137,437   (18, 416) 317,541,696   (18, 544) 540,196,240   (36, 544) 1,053,293,776
                  (72, 512) 1,842,610,248
"""
from __future__ import annotations

import itertools
import math
from typing import Any, Literal

from lingpipe.hyperparams import REQUIRED, Params, field
from lingpipe.layers.base import Layer
from lingpipe.layers.convolution import Conv2D
from lingpipe.layers.dense import Activation, Dense
from lingpipe.layers.dropout import Dropout
from lingpipe.layers.pooling import GlobalAvgPool2D
from lingpipe.layers.sequential import Sequential
from lingpipe.tasks.image.blocks import AUXILIARY_SIZE, AuxiliaryHead, Concat, ConvNorm, FactorizedReduction, Norm, conv_norm, with_layers
from lingpipe.tasks.image.cells import ARCHITECTURES, CellTable
from lingpipe.tasks.image.operations import Combination, Operation


class State(Params):
    """A value that cells read: images with many channels."""
    name: str = field(REQUIRED, 'Name of the value.')
    dim: int = field(REQUIRED, 'Its channels.', least=1)
    reduction: int = field(REQUIRED, 'Pixels of the image to one of its own, per side.', least=1)


class Stem(ConvNorm):
    """The convolution that reads the images. It is the first to see their size, and refuses what the cells could not halve."""

    class Params(ConvNorm.Params):
        min_size: int = field(1, 'Least height and width of the images.', least=1)

    params: Params

    def _check(self, x: Any) -> None:
        if x.shape.rank != 4 or min(x.shape[1:3]) < self.params.min_size:
            raise ValueError(f"{self.path}: the images are {x.shape}, but the network's strides need [b, h, w, channels] with h and w "
                             f"of {self.params.min_size} or more; use larger images, or a stem that reduces them less: stem='small', "
                             'stem_strides=1.')


class AmoebaCell(Sequential):
    """One cell; reads two values, and writes its states and, under its name, its output [b, h, w, states * F]."""

    class Params(Sequential.Params):
        """The table, filters, inputs, drop path."""
        layers: tuple[Layer.Params, ...] = field((), 'Made from the fields below; leave empty.')
        architecture: Literal['A', 'B', 'C', 'D'] = field('D', 'Which AmoebaNet; see cells.py.')
        is_reduction: bool = field(False, 'Whether it is a reduction cell, which halves the resolution.')
        dim: int = field(REQUIRED, 'F, the filters of every state.', least=1)
        previous: State = field(REQUIRED, 'The output of the cell before.')
        before_previous: State = field(REQUIRED, 'The output of the cell before that.')
        is_first: bool = field(False, 'Whether there is no cell before the one before: before_previous is then read as it is.')
        batch_norm: Norm = field(Norm(), 'Of every convolution.')
        drop_path_rate: float = field(0., 'Probability that an operation is left out for an example in training.',
                                      least=0, below=1)
        drop_path_steps: int = field(0, 'Updates in which that rate grows from 0; 0: it is constant.',
                                     least=0)
        has_whole_combinations: bool = field(False, 'Whether a pipeline must not cut inside a combination.')
        is_torchgpipe: bool = field(False, 'See AmoebaNet.Params.')

    params: Params

    def __init__(self, params: Params, path: str = ''):
        super().__init__(with_layers(params, _cell_layers(params)), path)

    @staticmethod
    def table(p: AmoebaCell.Params) -> CellTable:
        """The table of the cell that the Params describe."""
        architecture = ARCHITECTURES[p.architecture]
        return architecture.reduction if p.is_reduction else architecture.normal

    @classmethod
    def output(cls, p: AmoebaCell.Params) -> State:
        """What the cell writes."""
        return State(name=p.name, dim=p.dim * len(cls.table(p).outputs), reduction=p.previous.reduction * (2 if p.is_reduction else 1))


class AmoebaNet(Sequential):
    """The network; image [b, h, w, channels] -> logits [b, num_classes]."""

    class Params(Sequential.Params):
        """Sizes, stem, drop path, auxiliary head, and where it may be cut."""
        layers: tuple[Layer.Params, ...] = field((), 'Made from the fields below; leave empty.')
        architecture: Literal['A', 'B', 'C', 'D'] = field('D', 'Which AmoebaNet; see cells.py.')
        num_layers: int = field(REQUIRED, 'L, the number of normal cells, in three groups.',
                                least=3, most=10_000)
        num_filters: int = field(REQUIRED, 'F, the filters of the first group; the others have 2F and 4F.',
                                 least=1)
        num_classes: int = field(REQUIRED, 'Number of classes.', least=1)
        image: str = field('image', 'Name of the value that holds the images.')
        image_channels: int = field(3, 'Channels of the images.', least=1)
        stem: Literal['large', 'small'] = field('large', "'large': the stem divides the resolution by 8, for images of 224 pixels and "
                                                         "more; 'small': by stem_strides, for images of 8 to 64 pixels.")
        stem_filters: int = field(32, "Filters of the stem's convolution.", least=1)
        stem_strides: int = field(1, "For the small stem: pixels of the image to one of its output, per side; the large one has 2.",
                                  least=1)
        batch_norm: Norm = field(Norm(), 'Of every convolution.')
        drop_path_keep: float = field(1., 'Probability that an operation is kept for an example in training.',
                                      above=0, most=1)
        drop_path_schedule: Literal['constant', 'v1', 'v2', 'v3'] = field(
            'constant', "Where and when it is so low; the names are the reference implementation's. 'v1': it falls linearly from 1 in "
                        "drop_path_steps updates; 'v2': it falls linearly with the depth of the cell, and only the last cell has it; "
                        "'v3': both.")
        drop_path_steps: int = field(0, "For 'v1' and 'v3': updates in which it falls; the reference takes all of the training.",
                                     least=0)
        dropout_rate: float = field(0., 'Dropout rate before the last layer.', least=0, below=1)
        auxiliary_image_size: int = field(0, 'Height and width of the images, for an auxiliary head that writes `auxiliary_logits`; 0: no '
                                             'such head.', least=0)
        auxiliary_loss: Layer.Params | None = field(None, 'The layer that reads `auxiliary_logits`, right after them; see classifier.py.')
        granularity: Literal['cell', 'combination', 'layer'] = field('layer', "What a pipeline may cut between; 'layer': anywhere.")
        is_torchgpipe: bool = field(False, "Whether to build the model of torchgpipe's benchmarks: a stem of F/4, F/2 and F filters, no "
                                           'state that is read as it is, an average pool where the table says max_pool_3x3, and a '
                                           'factorized reduction for a strided none.')

        def check(self) -> None:
            """Raises ValueError for a drop path that has no end, or images too small for the auxiliary head."""
            if (self.drop_path_steps > 0) != (self.drop_path_schedule in ('v1', 'v3')):
                raise ValueError(f'drop_path_schedule={self.drop_path_schedule!r} with drop_path_steps={self.drop_path_steps}; v1 and v3 '
                                 'need the number of updates in which the probability falls, constant and v2 have none: set it, or to 0.')
            if self.auxiliary_image_size and (size := _auxiliary_size(self, self.auxiliary_image_size)) < AUXILIARY_SIZE:
                enough = next(n for n in itertools.count(1) if _auxiliary_size(self, n) >= AUXILIARY_SIZE)
                raise ValueError(f'auxiliary_image_size={self.auxiliary_image_size} leaves {size}x{size} pixels to the auxiliary head, '
                                 f'which averages windows of {AUXILIARY_SIZE}x{AUXILIARY_SIZE}; use images of {enough} pixels or more, or '
                                 'auxiliary_image_size=0: no such head.')

    params: Params

    def __init__(self, params: Params, path: str = ''):
        super().__init__(with_layers(params, _network_layers(params.validate())), path)


def _cell_layers(p: AmoebaCell.Params) -> list[Layer.Params]:
    table = AmoebaCell.table(p)
    newer, older = p.previous, p.before_previous
    states = [State(name=f'{p.name}.s0', dim=p.dim, reduction=newer.reduction), older]
    layers = [_resized(p, 'previous', newer, states[0])]
    if older.reduction != newer.reduction or older.dim != p.dim and not p.is_first:
        states[1] = State(name=f'{p.name}.s1', dim=p.dim, reduction=newer.reduction)
        layers.append(_resized(p, 'before_previous', older, states[1]))
    reduction = newer.reduction * (2 if p.is_reduction else 1)
    for i, combination in enumerate(table.combinations):
        (left, left_kind), (right, right_kind) = combination
        name = f'{p.name}.s{i + 2}'
        layers.append(Combination.Params(
            name=f'combination_{i}', is_unit=p.has_whole_combinations,
            reads={'left': states[left].name, 'right': states[right].name}, writes=name,
            left=_operation(p, left_kind, states[left], reduction), right=_operation(p, right_kind, states[right], reduction)))
        states.append(State(name=name, dim=p.dim, reduction=reduction))
    outputs = {}
    for i in table.outputs:
        outputs[f's{i}'] = states[i].name
        if (states[i].dim, states[i].reduction) != (p.dim, reduction):
            output = State(name=f'{p.name}.reduced_s{i}', dim=p.dim, reduction=reduction)
            outputs[f's{i}'] = output.name
            layers.append(_resized(p, f'reduced_s{i}', states[i], output, has_relu=False))
    return [*layers, Concat.Params(name='output', reads=outputs, writes=p.name)]


def _operation(p: AmoebaCell.Params, kind: str, state: State, reduction: int) -> Operation.Params:
    return Operation.Params(kind=kind, input_dim=state.dim, dim=p.dim, stride=reduction // state.reduction, batch_norm=p.batch_norm,
                            drop_path_rate=p.drop_path_rate, drop_path_steps=p.drop_path_steps, is_torchgpipe=p.is_torchgpipe)


def _resized(p: AmoebaCell.Params, name: str, old: State, new: State, has_relu: bool = True) -> Layer.Params:
    """The layer that reads a state and writes it with the channels and the size of another."""
    fields: dict[str, Any] = {'name': name, 'has_relu': has_relu, 'reads': {'x': old.name}, 'writes': new.name}
    if old.reduction != new.reduction:
        return FactorizedReduction.Params(input_dim=old.dim, dim=new.dim, batch_norm=p.batch_norm, **fields)
    return conv_norm(old.dim, new.dim, p.batch_norm, **fields)


def _network_layers(p: AmoebaNet.Params) -> list[Layer.Params]:
    layers, outputs = _stem(p)
    plan = _cell_plan(p)
    for depth, (name, dim, is_reduction) in enumerate(plan):
        keep_loss = (1 - p.drop_path_keep) * ((depth + 1) / len(plan) if p.drop_path_schedule in ('v2', 'v3') else 1.)
        is_first = len(outputs) == 1 and not p.is_torchgpipe
        cell = AmoebaCell.Params(name=name, is_unit=p.granularity == 'cell', architecture=p.architecture, is_reduction=is_reduction,
                                 dim=dim, previous=outputs[-1], before_previous=outputs[-2:][0], is_first=is_first, batch_norm=p.batch_norm,
                                 drop_path_rate=keep_loss, drop_path_steps=p.drop_path_steps,
                                 has_whole_combinations=p.granularity == 'combination', is_torchgpipe=p.is_torchgpipe)
        layers.append(cell)
        outputs.append(AmoebaCell.output(cell))
        if p.auxiliary_image_size and name == f'cell_{2 * p.num_layers // 3 - 1}':
            layers.append(AuxiliaryHead.Params(
                name='auxiliary_head', input_dim=outputs[-1].dim, num_classes=p.num_classes,
                input_size=_auxiliary_size(p, p.auxiliary_image_size), batch_norm=p.batch_norm, reads={'x': outputs[-1].name},
                writes='auxiliary_logits'))
            if p.auxiliary_loss is not None:
                layers.append(p.auxiliary_loss)
    return [*layers,
            Activation.Params(name='relu', activation='relu', reads={'x': outputs[-1].name}),
            GlobalAvgPool2D.Params(name='mean'),
            *([Dropout.Params(name='dropout', rate=p.dropout_rate)] if p.dropout_rate else []),
            Dense.Params(name='dense', input_dim=outputs[-1].dim, units=p.num_classes)]


def _stem(p: AmoebaNet.Params) -> tuple[list[Layer.Params], list[State]]:
    is_large = p.stem == 'large'
    strides = 2 if is_large else p.stem_strides
    filters = p.num_filters // 4 if p.is_torchgpipe and is_large else p.stem_filters
    conv = Conv2D.Params(input_dim=p.image_channels, filters=filters, kernel_size=(3, 3), strides=strides,
                         padding='valid' if is_large and not p.is_torchgpipe else 'same', use_bias=False)
    enough = next(n for n in itertools.count(1) if _auxiliary_size(p, n) >= 2)  # the last reduction cell has something to halve
    stem = Stem.Params(name='stem', conv=conv, batch_norm=p.batch_norm, has_relu=False, min_size=enough, reads={'x': p.image},
                       writes='stem')
    return [stem], [State(name='stem', dim=filters, reduction=strides)]


def _cell_plan(p: AmoebaNet.Params) -> list[tuple[str, int, bool]]:
    """(name, filters, whether it is a reduction cell) of all cells in order."""
    plan = []
    if p.stem == 'large':
        scale = 2 if p.is_torchgpipe else 1
        plan = [(f'stem_cell_{i}', p.num_filters * scale // (4, 2)[i], True) for i in range(2)]
    bounds = [p.num_layers // 3, 2 * p.num_layers // 3]
    dim = p.num_filters
    for i in range(p.num_layers):
        if i in bounds:
            dim *= 2
            plan.append((f'reduction_cell_{bounds.index(i)}', dim, True))
        plan.append((f'cell_{i}', dim, False))
    return plan


def _auxiliary_size(p: AmoebaNet.Params, image_size: int) -> int:
    """Height and width of what the auxiliary head, and the last reduction cell, read."""
    if p.stem == 'small':
        return math.ceil(math.ceil(image_size / p.stem_strides) / 2)
    after_stem = math.ceil(image_size / 2) if p.is_torchgpipe else (image_size - 1) // 2
    return math.ceil(after_stem / 8)  # two stem cells, one reduction cell
