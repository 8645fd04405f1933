"""Learner: how gradients become new weights.

It joins optimizer, learning rate, decay, clipping, moving averages and frozen weights. The pipeline
sums the gradients of a mini-batch and then does, in one step and in this order:

    g = learner.regularized(path, g, w)          for every weight that is not frozen
    norm = global norm of all g, over all cells
    g = g * learner.clip_factor(norm)
    layer_learner.apply({path: g, ...})          for every layer, on its own device
"""
from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Mapping

import tensorflow as tf

from lingpipe.hyperparams import Configurable, field
from lingpipe.layers.weight import Weight
from lingpipe.learning import learning_rates, optimizers
from lingpipe.learning.averaged_layer import AveragedLayer
from lingpipe.learning.gradient import Gradient, added
from lingpipe.learning.layer_learner import LayerLearner
from lingpipe.learning.optimizer import Optimizer
from lingpipe.learning.rate_check import check_rate
from lingpipe.learning.slot_kinds import slots_of_weight
from lingpipe.learning.trained_layer import TrainedLayer
from lingpipe.learning.update_check import check_update
from lingpipe.learning.update_rule import UpdateRule
from lingpipe.wording.counts import counted


class Learner(Configurable):
    """What is the same for all layers. It owns no variable; `for_layer` makes those that do."""

    class Params(Configurable.Params):
        """Optimizer, learning rate, decay, clipping, averages, frozen weights, accumulation."""
        optimizer: Optimizer.Params = field(
            optimizers.SGD.Params(), 'The optimizer: see lingpipe/learning/optimizers.py.')
        learning_rate: learning_rates.Schedule.Params = field(
            learning_rates.Constant.Params(),
            'The learning rate: see lingpipe/learning/learning_rates.py.')
        weight_decay: float = field(0.0, 'Decoupled: every update also subtracts '
                                         'learning_rate * weight_decay * w.', least=0)
        l2: float = field(0.0, 'Coupled: l2 * w is added to the gradient before clipping, as if '
                               'l2/2 * |w|^2 were in the loss; a weight that the loss itself does '
                               'not depend on stays as it is.', least=0)
        no_decay: str = field('', 'Regular expression, found in paths of weights without '
                                  'weight_decay and l2; empty: none.')
        decay_vectors: bool = field(False, 'Whether weights of rank 0 and 1 (biases, scales of '
                                           'normalisation) decay too.')
        clip_norm: float | None = field(None, 'Largest global norm of the gradients of all '
                                              'weights; none: no clipping.', above=0)
        rate_factors: tuple[tuple[str, float], ...] = field(
            (), 'Pairs (regular expression, factor): the factor on the learning rate of weights in '
                'whose paths the expression is found; an empty one is found in all. The first that '
                'is found counts.', above=0)
        ema_decay: float | None = field(None, 'Decay of the moving average of weights used for '
                                              'evaluation; none: no average.', above=0, below=1)
        ema_warmup: bool = field(True, 'Whether the decay in the update after n others is at most '
                                       '(1 + n) / (10 + n), to forget the start. In the first '
                                       'update it is 0 in any case, as in Keras.')
        frozen: str = field('', 'Regular expression, found in paths of weights that do not train; '
                                'empty: none. A BatchNorm whose weights are frozen still moves '
                                'its averages.')
        bfloat16_slots: bool = field(False, 'Whether slots of the shape of a weight are kept in '
                                            'bfloat16 and rounded stochastically, which changes '
                                            'results. Averages stay as they are.')
        accumulate: int = field(1, 'Mini-batches whose gradients are summed up for one update.',
                                least=1)
        max_nonfinite_steps: int = field(10, 'Steps in a row with an infinite or nan loss or '
                                             'gradient, which are skipped, that stop the '
                                             'training.', least=1)

        def check(self) -> None:
            """Raises ValueError for an expression that does not compile."""
            for name, pattern in self.patterns():
                try:
                    re.compile(pattern)
                except re.error as error:
                    raise ValueError(f'{name}={pattern!r} is not a regular expression: {error}; '
                                     'correct it') from error

        def patterns(self) -> list[tuple[str, str]]:
            """The field's name and the expression, for each regular expression of weights."""
            return [('no_decay', self.no_decay), ('frozen', self.frozen),
                    *(('rate_factors', pattern) for pattern, _ in self.rate_factors)]

    params: Params

    def __init__(self, params: Params):
        super().__init__(params)
        self._optimizer: Optimizer = self.params.optimizer.instantiate()
        self._rate: learning_rates.Schedule = self.params.learning_rate.instantiate()
        check_rate(self._rate, type(self._rate).__name__)
        self._optimizer.check_decay(self.params.weight_decay)
        self._optimizer.check_arguments(self.params.weight_decay)
        self._rule = UpdateRule(
            functools.partial(self._optimizer.make, self.params.bfloat16_slots),
            self._optimizer.copied_slots, self.learning_rate, self._rate_factor,
            self.params.weight_decay, self.decays, self.params.ema_decay, self.params.ema_warmup)
        self._slots_of = functools.cache(functools.partial(slots_of_weight, self._rule))
        check_update(self._rule)
        self._slots_of(2, tf.float32)  # What Keras refuses is refused now, not in the first step.

    def slot_bytes(self, weight: Weight | tf.Variable) -> int:
        """Bytes of the slots and the average of a weight that trains.

        The weight itself and its gradient are not counted, nor is what an optimizer keeps for all
        weights of a layer together.
        """
        sizes = tuple(weight.shape)
        slots = self._slots_of(len(sizes), weight.dtype)
        return sum(math.prod(sizes[axis] for axis in slot.axes) * slot.dtype.size for slot in slots)

    def update_bytes(self, weight: Weight | tf.Variable, has_rows: bool = False) -> int:
        """Bytes of what the update of a weight that trains holds besides what it updates.

        Weights are updated one after the other, so a device needs this for one weight only. With
        `has_rows`, the optimizer is given rows of a gradient.
        """
        sizes: tuple[int, ...] = tuple(weight.shape)
        dtype = weight.dtype
        num_tensors = self._optimizer.num_temporaries(dtype, has_rows)
        if (self.params.l2 or self.params.weight_decay) and self.decays(weight.path, len(sizes)):
            num_tensors = max(num_tensors, 2)
        if self.params.bfloat16_slots:
            num_tensors = 3 + 2 * len(self._slots_of(len(sizes), dtype))
        dtype_size: int = dtype.size
        return math.prod(sizes) * (max(dtype_size, 4) + (num_tensors - 1) * dtype_size)

    def is_frozen(self, path: str) -> bool:
        """Whether the weight does not train, so that its gradient need not be computed."""
        return _finds(self.params.frozen, path)

    def squares_rows(self) -> bool:
        """Whether several rows of a gradient and their sum give a weight different updates.

        Most optimizers of Keras, and the global norm, square each row by itself.
        """
        return self._optimizer.squares_gradients or self.params.clip_norm is not None

    def decays(self, path: str, rank: int) -> bool:
        """Whether weight_decay and l2 apply to the weight."""
        return (rank > 1 or self.params.decay_vectors) and not _finds(self.params.no_decay, path)

    def check_paths(self, paths: Iterable[str], all_paths: Iterable[str] = ()) -> None:
        """Refuses a regular expression that counts for no weight: it is misspelt, or idle.

        Args:
          paths: of the weights that would train without `frozen`.
          all_paths: of all weights, those included that adapters train in place of.

        Raises:
          ValueError: one of them finds nothing, `frozen` leaves nothing to train, or a factor
            counts nowhere.
        """
        paths = list(paths)
        for name, pattern in self.params.patterns():
            if not pattern or any(_finds(pattern, path) for path in paths):
                continue
            remedy = 'leave the pair out' if name == 'rate_factors' else 'leave it empty'
            if path := next((path for path in all_paths if _finds(pattern, path)), ''):
                raise ValueError(f'learner.{name}={pattern!r} is found only in paths of weights '
                                 'that do not train anyway or are tied to others, such as '
                                 f'{path}; {remedy}, or name weights that train, such as '
                                 f'{", ".join(paths[:3])}.')
            raise ValueError(f'learner.{name}={pattern!r} is found in no path of the '
                             f'{counted(len(paths), "weight")}; paths look like '
                             f'{", ".join(paths[:3])}: correct it, or {remedy}.')
        if paths and all(map(self.is_frozen, paths)):
            raise ValueError(f'learner.frozen={self.params.frozen!r} freezes '
                             f'{counted(len(paths), "weight")}, which is all; leave some to train.')
        counting = {self._pair_of(path) for path in paths}
        for pair in self.params.rate_factors:
            if paths and pair not in counting:
                raise ValueError(f'learner.rate_factors has {pair[0]!r} behind pairs that are '
                                 'found in all of its paths, and the first that is found counts; '
                                 'put it before them, or leave the pair out.')

    def regularized(self, path: str, gradient: Gradient | None,
                    weight: tf.Tensor) -> Gradient | None:
        """gradient + l2 * weight, which is dense; a gradient of None stays None."""
        if gradient is None or not self.params.l2 or not self.decays(path, weight.shape.rank):
            return gradient
        return added(gradient, self.params.l2 * tf.cast(weight, gradient.dtype))

    def clip_factor(self, global_norm: tf.Tensor) -> tf.Tensor:
        """The factor on every gradient: min(1, clip_norm / global_norm)."""
        if self.params.clip_norm is None:
            return tf.ones_like(global_norm)
        return tf.minimum(tf.ones_like(global_norm), self.params.clip_norm / global_norm)

    def learning_rate(self, step: tf.Tensor | int) -> tf.Tensor:
        """The rate of the update that comes after `step` updates."""
        return self._rate(step)

    def _rate_factor(self, path: str) -> float:
        """The factor on the rate of a weight."""
        pair = self._pair_of(path)
        return pair[1] if pair else 1.

    def _pair_of(self, path: str) -> tuple[str, float] | None:
        """The pair of rate_factors that counts for a weight."""
        return next((pair for pair in self.params.rate_factors if re.search(pair[0], path)), None)

    def trained(self, weights: Mapping[str, tf.Variable]) -> TrainedLayer:
        """Returns what trains of one layer, given its weights by path."""
        return TrainedLayer({path: weight for path, weight in weights.items()
                             if not self.is_frozen(path)}, self.decays)

    def averaged(self, weights: Mapping[str, tf.Variable]) -> AveragedLayer:
        """Makes the averages of one layer, without slots; `weights` are those of `for_layer`."""
        return AveragedLayer(self._rule, self.trained(weights).weights)

    def for_layer(self, layer_path: str, weights: Mapping[str, tf.Variable],
                  experiment_seed: int = 0) -> LayerLearner:
        """Makes the learner of one layer, with slots and averages on the weights' device.

        Args:
          layer_path: the layer's path.
          weights: its trainable weights, by path. Frozen ones may be among them; they get no slot
            and no average.
          experiment_seed: determines how slots are rounded, if they are.

        Raises:
          ValueError: a weight cannot be trained.
        """
        trained = self.trained(weights).weights
        for path, weight in trained.items():
            if not weight.dtype.is_floating:
                raise ValueError(f'{path} is {weight.dtype.name}, and only real floating-point '
                                 'weights can be trained; hold it as such (a complex weight as '
                                 'two), or declare it with is_trainable=False.')
            self._optimizer.check_weight(path, weight.shape, weight.dtype)
        return LayerLearner(self._rule, layer_path, trained, experiment_seed)


def _finds(pattern: str, path: str) -> bool:
    """Whether a regular expression, unless it is empty, is found in a path."""
    return bool(pattern) and re.search(pattern, path) is not None
