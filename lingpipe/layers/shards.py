"""Shards: a layer as several layers in sequence, between which the network can be cut.

Some layers are too large for a device, or for the balance of a pipeline. This is the GPipe paper's
way with a large matrix product (arXiv:1811.06965, footnote 3): every shard adds its part to
`partial`, the result of the shards before.

    Embedding      x = where(id is one of the shard's rows, its row, partial)
    FeedForward    y = partial + activation(x @ w1[:, shard] + b1[shard]) @ w2[shard]
    SoftmaxShard   softmax = partial, updated with the logits x @ w[:, shard] + b[shard]

An Embedding and a SoftmaxShard have a part of the vocabulary, a FeedForward a part of the hidden
units. Sizes in Params are those of the whole. Shard i of n has the rows or columns from
size * i // n to size * (i + 1) // n, and its initial values have the whole's distribution. The sums
of a split layer are those of the whole one, in another order.
"""
from __future__ import annotations

import math
from typing import TypeVar

import keras

from lingpipe.hyperparams import field
from lingpipe.layers.base import Layer


class Shardable(Layer):
    """The base of layers that can be one of several shards."""

    class Params(Layer.Params):
        """The number of the shard; `split` sets it."""
        shard: int = field(0, 'The index of this shard among num_shards, from 0.', least=0)
        num_shards: int = field(1, 'How many layers the whole is split into; 1: it is the whole.',
                                least=1, most=10_000)

        def check(self) -> None:
            """Raises ValueError if there is no such shard."""
            super().check()
            if self.shard >= self.num_shards:
                raise ValueError(f'shard={self.shard} is none of num_shards={self.num_shards}; '
                                 'count from 0, or leave it to split().')

    params: Params

    @property
    def is_whole(self) -> bool:
        """Whether nothing is split."""
        return bool(self.params.num_shards == 1)

    def part(self, size: int, what: str) -> range:
        """Returns which of `size` rows or columns this shard has.

        Raises:
          ValueError: there are fewer than shards; the message calls their number `what`.
        """
        i, n = self.params.shard, self.params.num_shards
        if size < n:
            raise ValueError(f'{self.path}: num_shards={n} is more than {what}={size}, so that a '
                             'shard would be empty; use fewer.')
        return range(size * i // n, size * (i + 1) // n)

    def check_partial(self, partial: object) -> None:
        """Raises ValueError if a later shard reads no partial result, or the first one does."""
        if (partial is None) != (self.params.shard == 0):
            raise ValueError(f'{self.path}: shard={self.params.shard}, but '
                             f'{"no" if partial is None else "a"} partial result is read; the '
                             "first shard reads none, all others reads={'partial': what the one "
                             'before writes}: use split().')


P = TypeVar('P', bound=Shardable.Params)


def split(params: P, num_shards: int) -> tuple[P, ...]:
    """Returns the Params of the shards of a Shardable, in order.

    Each shard reads as `partial` what the one before it writes, under the same name. The names are
    params.name with _0, _1, ... behind. If there is one shard, it is `params` as they are.

    Raises:
      ValueError: num_shards is below 1.
    """
    if num_shards < 1:
        raise ValueError(f'num_shards={num_shards}; a layer has at least 1 shard, itself.')
    if num_shards == 1:
        return (params,)
    return tuple(params.copy().set(name=f'{params.name}_{i}', shard=i, num_shards=num_shards,
                                   reads={**params.reads,
                                          **({'partial': params.writes} if i else {})})
                 for i in range(num_shards))


def glorot_uniform(rows: int, columns: int, scale: float = 1.) -> keras.initializers.Initializer:
    """Keras' glorot_uniform of a matrix [rows, columns], for any part of that matrix.

    `scale` is a factor on the variance.
    """
    limit = math.sqrt(6. * scale / (rows + columns))
    return keras.initializers.RandomUniform(-limit, limit)
