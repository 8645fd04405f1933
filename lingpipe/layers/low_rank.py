"""Low rank: adapters of projections, which train in place of the weights of a network.

A network that was trained before learns something new with few weights (Hu et al., 2021, LoRA,
arXiv:2106.09685, section 4.1): each projection w [D, U] stays as it is, and beside it there is a
product of two narrow matrices, which is 0 at first:

    y = x @ w + alpha / rank * (dropout(x) @ a) @ b          a [D, rank], b [rank, U]

The layer's own weights get no gradient, no sums of gradients and no optimizer slots. A layer that
is `Adaptable` says which of its weights are projections, and gives each that is chosen a child, a
LowRank, whose weights have paths of their own: model/hidden/w_adapter/a beside model/hidden/w.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from lingpipe.hyperparams import REQUIRED, Params, field
from lingpipe.layers.base import Layer
from lingpipe.layers.context import Context
from lingpipe.layers.cost import Cost
from lingpipe.layers.dropout import drop, drop_flops
from lingpipe.layers.nested import NestedMap
from lingpipe.layers.projection import project, projection_flops
from lingpipe.layers.shapes import as_rows, check_last_dim, num_rows
from lingpipe.layers.static_shapes import static_shape
from lingpipe.layers.weight import Initializer

_SUFFIX = '_adapter'   # of a projection's name: the name of the child


class Adapters(Params):
    """Low-rank adapters: their rank, and which projections have one."""
    rank: int = field(8, 'Columns of a and rows of b, the narrow matrices.', least=1)
    alpha: float = field(16., 'The product of the two is multiplied by alpha / rank.', above=0)
    dropout_rate: float = field(0., 'Probability that a channel of what an adapter reads becomes '
                                    'zero in training.', least=0, below=1)
    targets: tuple[str, ...] = field((), "Names of the projections that have one, as 'wq'; none: "
                                         'all that there are.')

    def check_targets(self, projections: Sequence[str], owner: str) -> None:
        """Raises ValueError if there is a target that is none of `projections`, or no projection.

        Args:
          projections: names of weights.
          owner: what has them, for the message.
        """
        known = ', '.join(projections)
        if not projections:
            raise ValueError(f'{owner} has no projections for adapters; leave adapters out.')
        if unknown := [target for target in self.targets if target not in projections]:
            raise ValueError(f'adapters.targets has {unknown[0]!r}, but the projections of {owner} '
                             f'are {known}; name some of these, or none for all of them.')

    def of(self, projections: Sequence[str]) -> Adapters | None:
        """Returns the same adapters for one layer with these projections; None: it has none."""
        targets = tuple(name for name in projections if name in (self.targets or projections))
        return self.copy().set(targets=targets) if targets else None


class LowRank(Layer):
    """alpha / rank * (dropout(x) @ a) @ b; x [..., D] -> [rows, U]."""

    is_traced_once = True

    class Params(Layer.Params):
        """Sizes of the two matrices, the factor and the dropout."""
        input_dim: int = field(REQUIRED, 'D, the channels of the input.', least=1)
        units: int = field(REQUIRED, 'U, the channels of the output.', least=1)
        rank: int = field(REQUIRED, 'Columns of a and rows of b.', least=1)
        alpha: float = field(REQUIRED, 'See Adapters.', above=0)
        dropout_rate: float = field(0., 'See Adapters.', least=0, below=1)

    params: Params

    def __init__(self, params: Params, path: str = ''):
        super().__init__(params, path)
        p = self.params
        least = min(p.input_dim, p.units)
        if p.rank > least:
            raise ValueError(f'{self.path.removesuffix(_SUFFIX)} [{p.input_dim}, {p.units}] has '
                             f'adapters of rank={p.rank}, but no matrix of this shape has a rank '
                             f'above {least}; use at most {least}, or leave it out of '
                             'adapters.targets.')
        # a is uniform up to 1 / sqrt(D), as the authors' program and peft have it.
        self.add_weight('a', [p.input_dim, p.rank],
                        keras.initializers.VarianceScaling(1 / 3, 'fan_in', 'uniform'))
        self.add_weight('b', [p.rank, p.units], 'zeros')

    @property
    def scale(self) -> float:
        """The factor on a @ b."""
        return float(self.params.alpha / self.params.rank)

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor) -> tf.Tensor:
        """[..., D] -> [rows, U] in the dtype of x."""
        p = self.params
        check_last_dim(x, p.input_dim, self.path)
        rows = as_rows(x)
        if ctx.training and p.dropout_rate:
            rows = drop(rows, p.dropout_rate, ctx.seed(self.path))
        return project(project(rows, theta.a) * self.scale, theta.b)

    def cost(self, x: tf.TensorSpec) -> Cost:
        """Two narrow products, the factor and the dropout."""
        p = self.params
        check_last_dim(x, p.input_dim, self.path)
        static_shape(x, self.path, 'x')
        rows = num_rows(x, self.path)
        flops = (projection_flops(rows, p.input_dim, p.rank, has_bias=True)   # 1 for the factor.
                 + projection_flops(rows, p.rank, p.units, has_bias=False)
                 + drop_flops(x, p.dropout_rate))
        return Cost(flops, self.num_weights, tf.TensorSpec([rows, p.units], x.dtype))


class Adaptable(Layer):
    """The base of layers whose projections may have adapters, which then train in their place.

    A subclass names its projections, which are weights [D, U], and computes with them by `project`.
    """

    projections: tuple[str, ...] = ()

    class Params(Layer.Params):
        """The adapters."""
        adapters: Adapters | None = field(None, 'Low-rank adapters, which train in place of the '
                                                "layer's own weights; none: these train.")

        def check(self) -> None:
            """Raises ValueError for adapters of projections that the layer does not have."""
            super().check()
            if self.adapters is not None:
                owner = type(self).owner
                self.adapters.check_targets(owner.projections, owner.__name__)

    params: Params

    def add_weight(self, name: str, shape: Sequence[int],
                   initializer: Initializer = 'glorot_uniform', *,
                   is_trainable: bool = True, dtype: tf.DType = tf.float32) -> None:
        """Declares theta.<name>, which does not train if there are adapters, and its adapter."""
        adapters = self.params.adapters
        super().add_weight(name, shape, initializer,
                           is_trainable=is_trainable and adapters is None, dtype=dtype)
        if adapters is not None and name in (adapters.targets or self.projections):
            if len(shape) != 2:
                raise ValueError(f'{self.path}/{name} {list(shape)} is named in projections, but '
                                 'an adapter stands beside a matrix; declare it as one [D, U], or '
                                 f'take it out of {type(self).__name__}.projections.')
            input_dim, units = shape
            self.add_child(LowRank.Params(
                input_dim=input_dim, units=units, rank=adapters.rank, alpha=adapters.alpha,
                dropout_rate=adapters.dropout_rate), f'{name}{_SUFFIX}')

    def project(self, theta: NestedMap, ctx: Context, x: tf.Tensor, name: str,
                bias: str = '') -> tf.Tensor:
        """x @ theta.<name> + theta.<bias>, if it is there, and what an adapter adds: [rows, U].

        Raises:
          ValueError: the layer has adapters, and its class does not name this projection.
        """
        if self.params.adapters is not None and name not in self.projections:
            raise ValueError(f'{self.path}: fprop projects by {name!r}, which '
                             f'{type(self).__name__}.projections = {self.projections} does not '
                             'name, so that it has no adapter and would never train; name it '
                             'there.')
        y = project(x, theta[name], theta.get(bias))
        adapter = self.children.get(f'{name}{_SUFFIX}')
        return y if adapter is None else y + adapter.fprop(theta[f'{name}{_SUFFIX}'], ctx, x)

    def adapter_flops(self, rows: int, dtype: tf.DType, names: Sequence[str] = ()) -> float:
        """FLOPs of the adapters of some projections, or of all.

        Args:
          rows: those that each adapter reads, and adds.
          dtype: of the rows.
          names: of the projections; none: all.
        """
        return sum((adapter.cost(tf.TensorSpec([rows, adapter.params.input_dim], dtype)).flops
                    + rows * adapter.params.units for path, adapter in adapters_of(self)
                    if path.rpartition('/')[2] in (names or self.projections)), 0.)


def adapters_of(layer: Layer) -> Iterator[tuple[str, LowRank]]:
    """Yields the path of each weight that has an adapter, here and in layers below, with that."""
    for one in layer.layers():
        if isinstance(one, LowRank):
            yield one.path.removesuffix(_SUFFIX), one


def scales_of(layer: Layer) -> dict[str, float]:
    """Returns the path of each weight that has an adapter -> the factor on a @ b."""
    return {path: adapter.scale for path, adapter in adapters_of(layer)}


def adapter_facts(layer: Layer) -> dict[str, dict[str, Any]]:
    """Returns what is kept beside weights, to know later what the adapters among them belong to.

        adapter_scales    what scales_of returns
        tied_adapters     the path of each such weight that is another layer's -> the path of that

    What would be empty is left out.
    """
    tied = {weight.path: weight.shared_with for one in layer.layers()
            for name, weight in one.own_weights.items()
            if weight.shared_with and isinstance(one.children.get(f'{name}{_SUFFIX}'), LowRank)}
    facts: dict[str, dict[str, Any]] = {'adapter_scales': scales_of(layer), 'tied_adapters': tied}
    return {name: entries for name, entries in facts.items() if entries}


def freeze_all_but_adapters(layer: Layer) -> None:
    """Lets no weight of a layer, and of those below it, train but those of adapters."""
    for one in layer.layers():
        if not isinstance(one, LowRank):
            one.own_weights = {name: dataclasses.replace(weight, is_trainable=False)
                               for name, weight in one.own_weights.items()}
