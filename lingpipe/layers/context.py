"""Context: what fprop knows besides its weights and inputs, and where it puts what is no output.

Nothing here is global. The pipeline makes one context for each call of a cell and reads the
emissions when the call returns. A recomputation gets a context with the same seeds, and its
emissions are discarded, so that losses and statistics count exactly once: see "BatchNorm by
micro-batch" and "Randomness from position" in docs/how-it-works.md.
"""
from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable
from typing import TypeAlias, TypeVar

import tensorflow as tf

V = TypeVar('V')

Key: TypeAlias = tuple[str, str]
"""The path of a layer, and the name of what it emits."""


@dataclasses.dataclass
class Emissions:
    """What layers emit during one call.

    Attributes:
      losses: float32 scalars, sums over the examples (or tokens) of the micro-batch. All of them
        are added up and divided by the mini-batch's total weight.
      weights: float32 scalars, the summed weight of the micro-batch. At most one layer of a network
        emits one.
      metrics: (sum, weight) pairs of float32 scalars. What is reported is the sum divided by the
        weight, over the mini-batch.
      moments: (mean, variance, weight) of the micro-batch, float32 tensors, the weight a scalar.
        They are merged over the mini-batch.
      means: (value, weight), float32 tensors, the weight a scalar. They are averaged over the
        micro-batches.
      states: tensors of any dtype that are the same in every micro-batch. That of the last one is
        taken, in its own dtype.
    """
    losses: dict[Key, tf.Tensor] = dataclasses.field(default_factory=dict)
    weights: dict[Key, tf.Tensor] = dataclasses.field(default_factory=dict)
    metrics: dict[Key, tuple[tf.Tensor, tf.Tensor]] = dataclasses.field(default_factory=dict)
    moments: dict[Key, tuple[tf.Tensor, tf.Tensor, tf.Tensor]] = dataclasses.field(
        default_factory=dict)
    means: dict[Key, tuple[tf.Tensor, tf.Tensor]] = dataclasses.field(default_factory=dict)
    states: dict[Key, tf.Tensor] = dataclasses.field(default_factory=dict)

    def tensors(self) -> list[tf.Tensor]:
        """Every tensor of them."""
        values = [value for kind in dataclasses.fields(self)
                  for value in getattr(self, kind.name).values()]
        return [tensor for value in values
                for tensor in (value if isinstance(value, tuple) else (value,))]


class Context:
    """The context of one call of fprop.

    Attributes:
      training: whether dropout drops and BatchNorm uses the micro-batch's own statistics.
      step: the number of updates made before this one, an int64 scalar tensor; outside training
        always 0, however long the weights have trained.
      emissions: what the call emits.
      mean_weight: the mean weight of a micro-batch, a float32 scalar: the sum of the main loss's
        weights, over all replicas, divided by R M.
      gather: None, or a function [...] -> [R, ...] if batch statistics are those of all R replicas.
        It returns what each replica has at this place for the micro-batch of the same index, in the
        order of replicas. It has no gradient.
    """

    def __init__(self, training: bool = False, experiment_seed: int = 0,
                 step: tf.Tensor | int = 0, micro_batch: tf.Tensor | int = 0,
                 gather: Callable[[tf.Tensor], tf.Tensor] | None = None,
                 mean_weight: tf.Tensor | float = 1.,
                 make_seed_key: Callable[[str, str], tf.Tensor] | None = None):
        """
        Args:
          training, step, gather, mean_weight: see the class.
          experiment_seed: seeds all randomness in layers.
          micro_batch: the index of the micro-batch in the mini-batch, over all replicas.
          make_seed_key: (path, name) -> the int64 scalar that `seed_key` gives, as a tensor; by
            default a constant.
        """
        self.training = training
        self.gather = gather
        self.mean_weight = mean_weight
        self.step = tf.cast(step, tf.int64)
        self.emissions = Emissions()
        self._experiment_seed, self._micro_batch = experiment_seed, micro_batch
        self._make_seed_key = make_seed_key or self._constant_seed_key

    def seed(self, path: str, name: str = '') -> tf.Tensor:
        """An int64 [2] seed for tf.random.stateless_*, the same in forward and recomputation.

        It depends on the experiment's seed, the step, the micro-batch and the layer's path, and on
        the name for a layer that draws more than once. It does not depend on the partition.
        """
        # 2^20 micro-batches a step and 2^43 steps have distinct positions. They are computed here,
        # since most layers draw nothing.
        position = self.step * (1 << 20) + tf.cast(self._micro_batch, tf.int64)
        return tf.stack([self._make_seed_key(path, name), position])

    def _constant_seed_key(self, path: str, name: str) -> tf.Tensor:
        return tf.constant(seed_key(self._experiment_seed, path, name), tf.int64)

    def emit_loss(self, path: str, name: str, loss_sum: tf.Tensor,
                  weight_sum: tf.Tensor | None = None) -> None:
        """Adds a loss, summed over the micro-batch. The network's main loss gives weight_sum too.

        The objective of a mini-batch is (sum of all losses) / (sum of the main loss's weights). So
        a loss must be a sum over examples. One that compares examples sees only those of its
        micro-batch, and its layer says needs_whole_batch.
        """
        _put(self.emissions.losses, path, name, _scalar(path, name, loss_sum))
        if weight_sum is not None:
            _put(self.emissions.weights, path, name, _scalar(path, name, weight_sum))

    def emit_penalty(self, path: str, name: str, value: tf.Tensor) -> None:
        """Adds the mean of a scalar over the micro-batches to the objective of the mini-batch.

        The weights of examples do not matter. So an L2 term of the weights counts once, as it is,
        and a mean over the examples of a micro-batch becomes that of the mini-batch. (When several
        mini-batches are accumulated, each counts in proportion to its weight.) A layer whose
        penalty depends on the examples says `counts_copies` (layer_traits.py).
        """
        self.emit_loss(path, name, tf.cast(value, tf.float32) * self.mean_weight)

    def emit_metric(self, path: str, name: str, value_sum: tf.Tensor,
                    weight_sum: tf.Tensor) -> None:
        """Reports value_sum / weight_sum over the mini-batch under `name`."""
        sums = _scalar(path, name, value_sum), _scalar(path, name, weight_sum)
        _put(self.emissions.metrics, path, name, sums)

    def emit_moments(self, path: str, name: str, mean: tf.Tensor, variance: tf.Tensor,
                     weight: tf.Tensor | float = 1.) -> None:
        """Emits a micro-batch's mean and variance for moving averages.

        Once a step, Layer.updated_state gets those of the mini-batch as (mean, variance), with
        `name`. `weight` is a scalar, how much they count for: the number of rows that they describe
        if that varies. Outside training, nothing is updated, and so they are left out.
        """
        if not self.training:
            return
        mean, variance = _average(path, name, mean), _average(path, name, variance)
        if mean.shape != variance.shape:
            raise ValueError(f'{path} emits as {name!r} a mean of shape {mean.shape} and a '
                             f'variance of shape {variance.shape}; give both the same shape.')
        _put(self.emissions.moments, path, name, (mean, variance, _scalar(path, name, weight)))

    def emit_mean(self, path: str, name: str, value: tf.Tensor,
                  weight: tf.Tensor | float = 1.) -> None:
        """Averages `value` over a mini-batch's micro-batches for Layer.updated_state, once a step.

        `weight` is a scalar, how much the value counts for: the number of examples, since
        mini-batches of several sizes may be accumulated. Outside training, it is left out.
        """
        if self.training:
            _put(self.emissions.means, path, name,
                 (_average(path, name, value), _scalar(path, name, weight)))

    def emit_state(self, path: str, name: str, value: tf.Tensor) -> None:
        """Hands a value that is the same in every micro-batch to Layer.updated_state, once a step.

        The value keeps its dtype. Outside training, it is left out.
        """
        if self.training:
            _put(self.emissions.states, path, name,
                 _of_known_shape(path, name, tf.convert_to_tensor(value)))


class DecodingContext(Context):
    """The context of one position of decoding.

    Attributes:
      position: the position, counted from 0, an int32 scalar tensor.
      starts: the position where each sentence begins, int32 [n]; what is before it is padding,
        which nothing may see. None: all begin at 0.
      num_hypotheses: k, the hypotheses of each sentence.
      num_candidates: how many of the best next ids are wanted for each hypothesis.
      max_length: every position, counted from the start of its sentence, is below this.
    """

    def __init__(self, position: tf.Tensor | int, num_hypotheses: int, num_candidates: int,
                 max_length: int, starts: tf.Tensor | None = None):
        super().__init__()
        self.position = position
        self.starts = starts
        self.num_hypotheses = num_hypotheses
        self.num_candidates = num_candidates
        self.max_length = max_length


def seed_key(experiment_seed: int, path: str, name: str) -> int:
    """Returns the part of a seed that does not depend on step and micro-batch."""
    return zlib.crc32(f'{experiment_seed}/{path}/{name}'.encode())


def _put(emitted: dict[Key, V], path: str, name: str, value: V) -> None:
    """Enters what a layer emits.

    Raises:
      ValueError: it has emitted something of that name already.
    """
    if (path, name) in emitted:
        raise ValueError(f'{path} emits {name!r} twice in one call, and only one would count; add '
                         'them up first, or give them two names.')
    emitted[path, name] = value


def _scalar(path: str, name: str, value: tf.Tensor | float) -> tf.Tensor:
    """The value as a float32 scalar.

    Raises:
      ValueError: it has dimensions.
    """
    value = tf.cast(value, tf.float32)
    if value.shape.rank != 0:
        raise ValueError(f'{path} emits {name!r} of shape {value.shape}, but losses, metrics and '
                         'their weights are scalars, sums over the micro-batch; use '
                         'tf.reduce_sum.')
    return value


def _average(path: str, name: str, value: tf.Tensor) -> tf.Tensor:
    """What is averaged over micro-batches, in float32, of a shape that is known."""
    return _of_known_shape(path, name, tf.cast(value, tf.float32))


def _of_known_shape(path: str, name: str, value: tf.Tensor) -> tf.Tensor:
    """The value. Raises ValueError if its shape may differ from one micro-batch to the next."""
    if not value.shape.is_fully_defined():
        raise ValueError(f'{path} emits {name!r} of shape {value.shape}, but what updated_state '
                         'gets has the same shape in every micro-batch; reduce the dimension that '
                         'is not known, or set it with tf.ensure_shape.')
    return value
