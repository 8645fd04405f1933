"""AmoebaNet's two kinds of blocks in a small network: a whole AmoebaNet has five, and is slow."""
from __future__ import annotations

from lingpipe import layers
from lingpipe.tasks.image.amoeba_block import AmoebaBlock, State
from lingpipe.tasks.image.blocks import Norm, conv_norm


def two_blocks(granularity: str = 'layer', drop_path_steps: int = 0) -> layers.Sequential.Params:
    """Returns a network from images with one channel to 10 logits.

    The second block reads the first and, as the block before that, the stem.

    Args:
      granularity: what a pipeline may cut between, as of AmoebaNet.
      drop_path_steps: updates in which the rate of the drop path grows; 0: it is constant.
    """
    norm = Norm(decay=0.9)
    stem = State(name='stem', dim=4, reduction=1)
    shared = {'is_unit': granularity == 'cell', 'batch_norm': norm, 'drop_path_rate': 0.3,
              'drop_path_steps': drop_path_steps, 'before_previous': stem,
              'has_whole_combinations': granularity == 'combination'}
    block = AmoebaBlock.Params(name='cell', dim=4, previous=stem, is_first=True, **shared)
    reduction = AmoebaBlock.Params(name='reduction_cell', is_reduction=True, dim=8,
                                   previous=AmoebaBlock.output(block), **shared)
    return layers.Sequential.Params(name='amoebanet', layers=(
        conv_norm(1, 4, norm, name='stem', reads={'x': 'image'}, writes='stem'), block, reduction,
        layers.GlobalAvgPool2D.Params(name='mean', reads={'x': 'reduction_cell'}),
        layers.Dropout.Params(name='dropout', rate=0.2),
        layers.Dense.Params(name='dense', input_dim=AmoebaBlock.output(reduction).dim, units=10)))
