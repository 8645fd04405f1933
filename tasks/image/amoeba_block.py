"""AmoebaBlock: one block of an AmoebaNet, as layers between which a pipeline may cut."""
from __future__ import annotations

from typing import Literal

from lingpipe.hyperparams import REQUIRED, Params, field
from lingpipe.layers.base import Layer
from lingpipe.layers.sequential import Sequential, with_layers
from lingpipe.tasks.image.block_tables import ARCHITECTURES, BlockTable
from lingpipe.tasks.image.blocks import Concat, FactorizedReduction, Norm, conv_norm
from lingpipe.tasks.image.operations import Combination, Operation


class State(Params):
    """A value that blocks read: [b, h, w, dim]."""
    name: str = field(REQUIRED, 'Name of the value.')
    dim: int = field(REQUIRED, 'Channels of the value.', least=1)
    reduction: int = field(REQUIRED, 'Height of the image divided by the height of the value.',
                           least=1)


class AmoebaBlock(Sequential):
    """One block of an AmoebaNet.

    It reads two values. It writes its states and, under its own name, its output
    [b, h, w, states * F].
    """

    class Params(Sequential.Params):
        """Table, filters, inputs and drop path."""
        layers: tuple[Layer.Params, ...] = field((), 'Made from the fields below; leave empty.')
        architecture: Literal['A', 'B', 'C', 'D'] = field(
            'D', 'The kind of AmoebaNet, by its name in block_tables.py.')
        is_reduction: bool = field(
            False, 'Whether it is a reduction block, which halves the resolution.')
        dim: int = field(REQUIRED, 'F, the filters of every state.', least=1)
        previous: State = field(REQUIRED, 'The output of the block before.')
        before_previous: State = field(REQUIRED, 'The output of the block before that.')
        is_first: bool = field(
            False, 'Whether only one block or stem precedes it; before_previous is then read '
                   'as it is.')
        batch_norm: Norm = field(Norm(), 'The BatchNorm after every convolution.')
        drop_path_rate: float = field(
            0., 'Probability that training drops an operation for an example.', least=0, below=1)
        drop_path_steps: int = field(
            0, 'Updates in which that rate grows from 0; 0: it is constant.', least=0)
        has_whole_combinations: bool = field(
            False, 'Whether a pipeline must not cut inside a combination.')
        is_torchgpipe: bool = field(
            False, "Whether to build torchgpipe's variant; see AmoebaNet.Params.")

    params: Params

    def __init__(self, params: Params, path: str = ''):
        super().__init__(with_layers(params, _block_layers(params)), path)

    @staticmethod
    def table(p: Params) -> BlockTable:
        """Returns the table of the block that the Params describe."""
        architecture = ARCHITECTURES[p.architecture]
        return architecture.reduction if p.is_reduction else architecture.normal

    @classmethod
    def output(cls, p: Params) -> State:
        """Returns the output of the block that the Params describe."""
        return State(name=p.name, dim=p.dim * len(cls.table(p).outputs),
                     reduction=_output_reduction(p))


def _output_reduction(p: AmoebaBlock.Params) -> int:
    return p.previous.reduction * (2 if p.is_reduction else 1)


def _block_layers(p: AmoebaBlock.Params) -> list[Layer.Params]:
    """Returns the layers of a block: inputs, combinations and output."""
    layers, states = _input_layers(p)

    reduction = _output_reduction(p)
    for i, combination in enumerate(AmoebaBlock.table(p).combinations):
        (left, left_kind), (right, right_kind) = combination
        result = State(name=f'{p.name}.s{i + 2}', dim=p.dim, reduction=reduction)
        layers.append(Combination.Params(
            name=f'combination_{i}', is_unit=p.has_whole_combinations,
            reads={'left': states[left].name, 'right': states[right].name}, writes=result.name,
            left=_operation(p, left_kind, states[left], reduction),
            right=_operation(p, right_kind, states[right], reduction)))
        states.append(result)

    return [*layers, *_output_layers(p, states)]


def _input_layers(p: AmoebaBlock.Params) -> tuple[list[Layer.Params], list[State]]:
    """Returns the layers that make states 0 and 1 from the two inputs, and these states."""
    newer = p.previous
    older = p.before_previous
    state_0 = State(name=f'{p.name}.s0', dim=p.dim, reduction=newer.reduction)
    layers = [_resized(p, 'previous', newer, state_0)]

    has_other_dim = older.dim != p.dim and not p.is_first
    if older.reduction == newer.reduction and not has_other_dim:
        return layers, [state_0, older]
    state_1 = State(name=f'{p.name}.s1', dim=p.dim, reduction=newer.reduction)
    layers.append(_resized(p, 'before_previous', older, state_1))
    return layers, [state_0, state_1]


def _output_layers(p: AmoebaBlock.Params, states: list[State]) -> list[Layer.Params]:
    """Returns the layers that bring the output states to one size and concatenate them."""
    reduction = _output_reduction(p)
    layers: list[Layer.Params] = []
    reads = {}
    for i in AmoebaBlock.table(p).outputs:
        state = states[i]
        if (state.dim, state.reduction) != (p.dim, reduction):
            resized = State(name=f'{p.name}.reduced_s{i}', dim=p.dim, reduction=reduction)
            layers.append(_resized(p, f'reduced_s{i}', state, resized, has_relu=False))
            state = resized
        reads[f's{i}'] = state.name
    return [*layers, Concat.Params(name='output', reads=reads, writes=p.name)]


def _operation(p: AmoebaBlock.Params, kind: str, state: State,
               reduction: int) -> Operation.Params:
    """Returns an operation on a state, which it brings to the size of the block."""
    return Operation.Params(
        kind=kind, input_dim=state.dim, dim=p.dim, stride=reduction // state.reduction,
        batch_norm=p.batch_norm, drop_path_rate=p.drop_path_rate,
        drop_path_steps=p.drop_path_steps, is_torchgpipe=p.is_torchgpipe)


def _resized(p: AmoebaBlock.Params, name: str, old: State, new: State,
             has_relu: bool = True) -> Layer.Params:
    """Returns the layer that reads a state and writes it with another size and channels."""
    if old.reduction != new.reduction:
        return FactorizedReduction.Params(
            name=name, input_dim=old.dim, dim=new.dim, batch_norm=p.batch_norm,
            has_relu=has_relu, reads={'x': old.name}, writes=new.name)
    return conv_norm(old.dim, new.dim, p.batch_norm, name=name, has_relu=has_relu,
                     reads={'x': old.name}, writes=new.name)
