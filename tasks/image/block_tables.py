"""The four architectures that AmoebaNets are stacks of, as tables.

They were found by Real, Aggarwal, Huang and Le, "Regularized Evolution for Image Classifier
Architecture Search" (arXiv:1802.01548). The tables are those of its reference implementation
(github.com/tensorflow/tpu, models/official/amoeba_net). They differ from the figures of the paper
in the output states of AmoebaNet-D's normal block; GPipe's parameter counts agree with the tables.

A block, which the paper calls a cell, keeps a list of states. States 0 and 1 are made from its two
inputs: the output of the block before, and that of the block before that. Combination i applies an
operation to each of two states and adds the results, which gives state 2 + i:

    state    0 ---- 1x7_7x1 --+
                              +--> state 3       Combination(left=(1, 'none'), right=(0, '1x7_7x1'))
    state    1 ---- none -----+

The block's output is the concatenation of `outputs`.
"""
from __future__ import annotations

from typing import NamedTuple


class Combination(NamedTuple):
    """Two operations, each with the index of the state that it is applied to."""
    left: tuple[int, str]
    right: tuple[int, str]


class BlockTable(NamedTuple):
    """The five combinations of a block, and the indices of the states in its output."""
    combinations: tuple[Combination, ...]
    outputs: tuple[int, ...]


class Architecture(NamedTuple):
    """The two kinds of blocks in a network."""
    normal: BlockTable
    reduction: BlockTable


def _table(*rows: tuple[int, str, int, str], outputs: tuple[int, ...]) -> BlockTable:
    combinations = tuple(Combination((left_state, left), (right_state, right))
                         for left_state, left, right_state, right in rows)
    return BlockTable(combinations, outputs)


AMOEBA_NET_A = Architecture(
    normal=_table(
        (0, 'avg_pool_3x3', 0, 'max_pool_3x3'),
        (1, 'separable_3x3_2', 1, 'none'),
        (0, 'none', 1, 'avg_pool_3x3'),
        (0, 'separable_3x3_2', 2, 'separable_5x5_2'),
        (5, 'avg_pool_3x3', 0, 'separable_3x3_2'),
        outputs=(1, 3, 4, 6)),
    reduction=_table(
        (1, 'separable_3x3_2', 0, 'avg_pool_3x3'),
        (0, 'max_pool_3x3', 2, 'separable_7x7_2'),
        (1, 'max_pool_3x3', 0, 'max_pool_3x3'),
        (4, 'separable_3x3_2', 0, '1x7_7x1'),
        (1, 'avg_pool_3x3', 0, 'separable_7x7_2'),
        outputs=(2, 3, 4, 5, 6)))

AMOEBA_NET_B = Architecture(
    normal=_table(
        (1, '1x1', 1, 'max_pool_3x3'),
        (1, 'none', 0, 'separable_3x3_2'),
        (1, '1x1', 0, 'separable_3x3_2'),
        (2, '1x1', 2, 'none'),
        (1, 'avg_pool_3x3', 5, '1x1'),
        outputs=(0, 3, 4, 6)),
    reduction=_table(
        (0, 'max_pool_2x2', 0, 'max_pool_3x3'),
        (2, 'none', 1, '3x3'),
        (2, 'dil_2_separable_5x5_2', 2, 'max_pool_3x3'),
        (3, 'none', 1, 'separable_3x3_2'),
        (4, 'avg_pool_3x3', 3, '1x1'),
        outputs=(5, 6)))

AMOEBA_NET_C = Architecture(
    normal=_table(
        (0, 'avg_pool_3x3', 0, 'separable_3x3_2'),
        (0, 'none', 0, 'separable_3x3_2'),
        (2, 'avg_pool_3x3', 1, 'separable_3x3_2'),
        (0, 'none', 1, 'separable_3x3_2'),
        (3, 'avg_pool_3x3', 0, 'separable_3x3_2'),
        outputs=(1, 2, 4, 5, 6)),
    reduction=_table(
        (0, 'max_pool_3x3', 0, 'max_pool_3x3'),
        (2, 'separable_7x7_2', 0, 'separable_3x3_2'),
        (0, 'separable_7x7_2', 1, 'max_pool_3x3'),
        (4, 'separable_5x5_2', 4, 'separable_5x5_2'),
        (1, 'max_pool_3x3', 1, 'separable_3x3_2'),
        outputs=(0, 2, 3, 4, 5, 6)))

AMOEBA_NET_D = Architecture(
    normal=_table(
        (1, '1x1', 1, 'max_pool_3x3'),
        (1, 'none', 0, '1x7_7x1'),
        (0, '1x1', 0, '1x7_7x1'),
        (2, 'max_pool_3x3', 2, 'none'),
        (1, 'avg_pool_3x3', 5, '1x1'),
        outputs=(0, 3, 4, 6)),
    reduction=_table(
        (0, 'max_pool_2x2', 0, 'max_pool_3x3'),
        (2, 'none', 1, '3x3'),
        (2, '1x7_7x1', 2, 'max_pool_3x3'),
        (3, 'none', 1, 'max_pool_2x2'),
        (2, 'avg_pool_3x3', 3, '1x1'),
        outputs=(4, 5, 6)))

ARCHITECTURES = {'A': AMOEBA_NET_A, 'B': AMOEBA_NET_B, 'C': AMOEBA_NET_C, 'D': AMOEBA_NET_D}
