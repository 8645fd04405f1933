"""Context: all that fprop may know besides its weights and inputs, and where it puts what is not an output.

Nothing here is global: the pipeline makes one context for each call of a cell and reads the emissions when the
call returns. A recomputation gets a context with the same seeds, and its emissions are thrown away, so that
losses and statistics count exactly once: see "BatchNorm by micro-batch" and "Randomness from
position" in docs/how-it-works.md.
"""
from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf


@dataclasses.dataclass
class Emissions:
    """What layers emit during one call, each keyed by (layer path, name).

    Attributes:
      losses: float32 scalars, sums over the examples (or tokens) of the micro-batch; all are added up and divided
        by the mini-batch's total weight.
      weights: float32 scalars, the summed weight of the micro-batch; at most one layer of a network emits one.
      metrics: (sum, weight) pairs of float32 scalars; reported as sum / weight over the mini-batch.
      moments: (mean, variance, weight) of float32 tensors, the weight a scalar, over the micro-batch; merged over the mini-batch.
      means: (value, weight) of float32 tensors, the weight a scalar; averaged over the micro-batches.
      states: tensors of any dtype that are the same in every micro-batch; the last one's is taken, in its own dtype.
    """
    losses: dict[tuple[str, str], tf.Tensor] = dataclasses.field(default_factory=dict)
    weights: dict[tuple[str, str], tf.Tensor] = dataclasses.field(default_factory=dict)
    metrics: dict[tuple[str, str], tuple[tf.Tensor, tf.Tensor]] = dataclasses.field(default_factory=dict)
    moments: dict[tuple[str, str], tuple[tf.Tensor, tf.Tensor, tf.Tensor]] = dataclasses.field(default_factory=dict)
    means: dict[tuple[str, str], tuple[tf.Tensor, tf.Tensor]] = dataclasses.field(default_factory=dict)
    states: dict[tuple[str, str], tf.Tensor] = dataclasses.field(default_factory=dict)


class Context:
    """The explicit context of one call of fprop.

    Attributes:
      training: whether dropout drops and BatchNorm uses the micro-batch's own statistics.
      step: int64 scalar tensor, the number of updates made before this one.
      emissions: see Emissions.
      mean_weight: float32 scalar, the mean weight of a micro-batch: the sum of the main loss's weights, over all replicas,
        divided by R M.
      gather: None, or, if batch statistics are to be those of all R replicas: [...] -> [R, ...], what each has at this place for the
        micro-batch of the same index, in the order of replicas. It has no gradient.
    """

    def __init__(self, training: bool = False, experiment_seed: int = 0, step: tf.Tensor | int = 0,
                 micro_batch: tf.Tensor | int = 0, gather: Callable[[tf.Tensor], tf.Tensor] | None = None,
                 mean_weight: tf.Tensor | float = 1.):
        """micro_batch: the index of the micro-batch in the whole mini-batch, over all replicas (int scalar)."""
        self.training, self.gather, self.mean_weight = training, gather, mean_weight
        self.step = tf.cast(step, tf.int64)
        self.emissions = Emissions()
        self._experiment_seed = experiment_seed
        # 2^20 micro-batches a step and 2^43 steps have distinct keys.
        self._position = self.step * (1 << 20) + tf.cast(micro_batch, tf.int64)

    def seed(self, path: str, name: str = '') -> tf.Tensor:
        """An int64 [2] seed for tf.random.stateless_*: equal in forward and recomputation, whatever the partition.

        It depends on the experiment's seed, the step, the micro-batch and the layer's path (and name, for a layer
        that draws more than once), and on nothing else.
        """
        key = zlib.crc32(f'{self._experiment_seed}/{path}/{name}'.encode())
        return tf.stack([tf.constant(key, tf.int64), self._position])

    def emit_loss(self, path: str, name: str, loss_sum: tf.Tensor, weight_sum: tf.Tensor | None = None) -> None:
        """Adds a loss: a sum over the micro-batch. The network's main loss gives weight_sum too; others leave it out.

        The objective of a mini-batch is (sum of all losses) / (sum of the main loss's weights). So a loss must be a sum over examples:
        one that compares examples sees those of its micro-batch only, and its layer says needs_whole_batch.
        """
        _put(self.emissions.losses, path, name, _scalar(path, name, loss_sum))
        if weight_sum is not None:
            _put(self.emissions.weights, path, name, _scalar(path, name, weight_sum))

    def emit_penalty(self, path: str, name: str, value: tf.Tensor) -> None:
        """Adds to the objective of the mini-batch the mean of `value`, a scalar, over the micro-batches, whatever examples weigh.

        So an L2 term of the weights counts once, as it is, and a mean over examples is that of the mini-batch. (Of mini-batches that
        are accumulated, the mean is weighted with what each weighs.) A layer whose penalty depends
        on the examples says `counts_copies` (base.py).
        """
        self.emit_loss(path, name, tf.cast(value, tf.float32) * self.mean_weight)

    def emit_metric(self, path: str, name: str, value_sum: tf.Tensor, weight_sum: tf.Tensor) -> None:
        """Reports value_sum / weight_sum over the mini-batch under `name`."""
        _put(self.emissions.metrics, path, name, (_scalar(path, name, value_sum), _scalar(path, name, weight_sum)))

    def emit_moments(self, path: str, name: str, mean: tf.Tensor, variance: tf.Tensor, weight: tf.Tensor | float = 1.) -> None:
        """Hands a micro-batch's mean and variance to the moving averages, which see the mini-batch's, once a step.

        `name` is given to Layer.updated_state with the merged (mean, variance). `weight` is how much they count for, a scalar: the
        number of rows of which they are, if that differs.
        """
        values = tf.cast(mean, tf.float32), tf.cast(variance, tf.float32), _scalar(path, name, weight)
        _put(self.emissions.moments, path, name, values)

    def emit_mean(self, path: str, name: str, value: tf.Tensor, weight: tf.Tensor | float = 1.) -> None:
        """Averages `value` over the micro-batches of a mini-batch; Layer.updated_state gets the average, once a step.

        `weight` is how much it counts for, a scalar: the number of examples, since mini-batches of several sizes may be accumulated.
        """
        _put(self.emissions.means, path, name, (tf.cast(value, tf.float32), _scalar(path, name, weight)))

    def emit_state(self, path: str, name: str, value: tf.Tensor) -> None:
        """Hands over a value that is the same in every micro-batch, in its own dtype; Layer.updated_state gets it once a step."""
        _put(self.emissions.states, path, name, value)


class DecodingContext(Context):
    """The context of one position of decoding.

    Attributes:
      position: int32 scalar tensor, from 0.
      num_hypotheses: k, of each sentence.
      num_candidates: how many of the best next ids are asked for, of each hypothesis.
      max_length: no position is as large as this.
    """

    def __init__(self, position: tf.Tensor | int, num_hypotheses: int, num_candidates: int, max_length: int):
        super().__init__()
        self.position = position
        self.num_hypotheses, self.num_candidates, self.max_length = num_hypotheses, num_candidates, max_length


def _put(emitted: dict[tuple[str, str], Any], path: str, name: str, value: Any) -> None:
    if (path, name) in emitted:
        raise ValueError(f'{path} emits {name!r} twice in one call, and only one would count; add them up first, or give them two names.')
    emitted[path, name] = value


def _scalar(path: str, name: str, value: Any) -> tf.Tensor:
    value = tf.cast(value, tf.float32)
    if value.shape.rank != 0:
        raise ValueError(f'{path} emits {name!r} of shape {value.shape}, but losses, metrics and their weights are scalars, sums over '
                         f'the micro-batch; use tf.reduce_sum.')
    return value
