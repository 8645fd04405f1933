"""Learning rates: the rate as a function of the number of updates made so far.

A step that is skipped, as one that is not finite, counts as an update here, but not for an
optimizer or a moving average.

All of them warm up in the same way, linearly over `warmup_steps` updates, and then follow a Keras
schedule:

    rate(s) = peak * (s + 1) / warmup_steps       for s < warmup_steps
    rate(s) = decay(s - warmup_steps)             from then on; decay(0) = peak

It is s + 1, so that the first update has an effect. `decay_steps` counts from the end of the
warm-up. Only Piecewise names steps of the run itself.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import keras
import tensorflow as tf

from lingpipe.hyperparams import REQUIRED, Configurable, field
from lingpipe.wording.counts import counted

keras_schedules = keras.optimizers.schedules

Decay: TypeAlias = Callable[[tf.Tensor], tf.Tensor]
"""Updates since the end of the warm-up -> rate; a Keras LearningRateSchedule is one."""


class IncompleteScheduleError(NotImplementedError):
    """A Schedule lacks what its base cannot know."""


class Schedule(Configurable):
    """The base of learning rates. Subclasses give `peak` and `decay`, or override `__call__`."""

    class Params(Configurable.Params):
        """The warm-up, which every learning rate has."""
        written_as = 'learning_rates.Constant.Params(rate=0.1)'
        warmup_steps: int = field(0, 'Updates of linear warm-up; 0: none.', least=0)

    params: Params

    @property
    def peak(self) -> float:
        """The rate at the end of the warm-up."""
        raise IncompleteScheduleError(f'the learning rate {type(self).__name__} has no peak, which '
                                      'a warm-up leads to; give it a property peak.')

    def decay(self) -> Decay:
        """The rate from the end of the warm-up on."""
        raise IncompleteScheduleError(f'the learning rate {type(self).__name__} has no decay; give '
                                      'it a method decay, which returns a function of the updates '
                                      'since the warm-up, or a method __call__ of its own.')

    def __call__(self, step: tf.Tensor | int) -> tf.Tensor:
        """The rate of the update after `step` updates, a float32 scalar, in a graph or outside."""
        s = tf.cast(step, tf.float32)
        if not self.params.warmup_steps:
            return tf.cast(self.decay()(s), tf.float32)
        warmup = float(self.params.warmup_steps)
        rate_after_warmup = self.decay()(tf.maximum(s - warmup, 0.))
        return tf.where(s < warmup, self.peak * (s + 1.) / warmup, rate_after_warmup)


class Constant(Schedule):
    """The same rate for all updates, after the warm-up."""

    class Params(Schedule.Params):
        """The rate."""
        rate: float = field(REQUIRED, 'The learning rate.', least=0)

    params: Params

    @property
    def peak(self) -> float:
        """The rate."""
        return self.params.rate

    def decay(self) -> Decay:
        """A function that returns the rate for every step."""
        return lambda s: tf.fill(tf.shape(s), self.peak)


class _Decaying(Schedule):
    """The fields of learning rates that fall from a peak in a given time."""

    class Params(Schedule.Params):
        """Where the decay begins and how long it takes."""
        rate: float = field(REQUIRED, 'The peak of the learning rate, where the decay begins.',
                            least=0)
        decay_steps: int = field(REQUIRED, 'Updates, after the warm-up, that the decay takes.',
                                 least=1)

    params: Params

    @property
    def peak(self) -> float:
        """The rate."""
        return self.params.rate


class Cosine(_Decaying):
    """Half a cosine from `rate` to `final_fraction * rate`.

    Loshchilov and Hutter, arXiv:1608.03983, without restarts.
    """

    class Params(_Decaying.Params):
        """Where the cosine ends."""
        final_fraction: float = field(0.0, 'The rate after the decay, as a fraction of the peak.',
                                      least=0)

    params: Params

    def decay(self) -> Decay:
        """Keras' CosineDecay."""
        p = self.params
        decay: Decay = keras_schedules.CosineDecay(p.rate, p.decay_steps, alpha=p.final_fraction)
        return decay


class Exponential(_Decaying):
    """rate * decay_factor^(s / decay_steps); in stairs, the exponent is rounded down."""

    class Params(_Decaying.Params):
        """The factor, and whether it comes at once."""
        decay_factor: float = field(REQUIRED, 'The factor that `decay_steps` updates multiply the '
                                              'rate by.', above=0)
        staircase: bool = field(False, 'Whether the rate falls once every decay_steps updates, '
                                       'not a little in each.')

    params: Params

    def decay(self) -> Decay:
        """Keras' ExponentialDecay."""
        p = self.params
        decay: Decay = keras_schedules.ExponentialDecay(
            p.rate, p.decay_steps, p.decay_factor, p.staircase)
        return decay


class Polynomial(_Decaying):
    """(rate - final_rate) * (1 - s / decay_steps)^power + final_rate; then final_rate."""

    class Params(_Decaying.Params):
        """Where the curve ends, and its form."""
        final_rate: float = field(0.0, 'The rate after the decay.', least=0)
        power: float = field(1.0, 'The exponent; 1 is a straight line.', above=0)

    params: Params

    def decay(self) -> Decay:
        """Keras' PolynomialDecay."""
        p = self.params
        decay: Decay = keras_schedules.PolynomialDecay(p.rate, p.decay_steps, p.final_rate, p.power)
        return decay


class Linear(_Decaying):
    """A straight line from `rate` to `final_rate`."""

    class Params(_Decaying.Params):
        """Where the line ends."""
        final_rate: float = field(0.0, 'The rate after the decay.', least=0)

    params: Params

    def decay(self) -> Decay:
        """Keras' PolynomialDecay of power 1."""
        p = self.params
        decay: Decay = keras_schedules.PolynomialDecay(p.rate, p.decay_steps, p.final_rate)
        return decay


class InverseSquareRoot(Schedule):
    """rate * min((s+1) / warmup_steps, sqrt(warmup_steps / (s+1))).

    This is the Transformer's (arXiv:1706.03762, equation 3). The paper's own peak is
    (model_dim * warmup_steps)^-0.5.
    """

    class Params(Schedule.Params):
        """The peak, and a warm-up that is not 0."""
        rate: float = field(REQUIRED, 'The peak of the learning rate, at the end of the warm-up.',
                            least=0)
        warmup_steps = field(4000, 'Updates of linear warm-up.', least=1)

    params: Params

    def __call__(self, step: tf.Tensor | int) -> tf.Tensor:
        s, warmup = tf.cast(step, tf.float32) + 1., float(self.params.warmup_steps)
        return self.params.rate * tf.minimum(s / warmup, tf.sqrt(warmup / s))


class Piecewise(Schedule):
    """rates[0] at first, and rates[i + 1] from step boundaries[i] on.

    Steps count from the start of the run.
    """

    class Params(Schedule.Params):
        """The rates, and the steps between them."""
        boundaries: tuple[int, ...] = field(REQUIRED, 'Numbers of updates after which the rate '
                                                      'changes, growing.', least=1)
        rates: tuple[float, ...] = field(REQUIRED, 'The rates: one more than boundaries.', least=0)

        def check(self) -> None:
            """Raises ValueError unless boundaries and rates go together.

            The boundaries grow, begin after the warm-up, and are one fewer than the rates.
            """
            super().check()
            if len(self.rates) != len(self.boundaries) + 1 or not self.boundaries:
                raise ValueError(f'{counted(len(self.boundaries), "boundary")} and '
                                 f'{counted(len(self.rates), "rate")}: give one boundary or more, '
                                 'and one rate more than boundaries (for a single rate, use '
                                 'Constant)')
            is_growing = list(self.boundaries) == sorted(set(self.boundaries))
            if not is_growing or self.boundaries[0] <= self.warmup_steps:
                raise ValueError(f'boundaries={list(self.boundaries)} must grow and be above '
                                 f'warmup_steps={self.warmup_steps}')

    params: Params

    @property
    def peak(self) -> float:
        """The first rate."""
        return self.params.rates[0]

    def __call__(self, step: tf.Tensor | int) -> tf.Tensor:
        """The rate of the update after `step` updates, a float32 scalar.

        Steps are compared as whole numbers. Keras compares them in float32, which has not all
        whole numbers above 2^24.
        """
        p = self.params
        step = tf.cast(step, tf.int64)
        is_passed = tf.expand_dims(step, -1) >= tf.constant(p.boundaries, tf.int64)
        number = tf.reduce_sum(tf.cast(is_passed, tf.int32), -1)
        rate = tf.gather(tf.constant(p.rates, tf.float32), number)
        if not p.warmup_steps:
            return rate
        warming_up = self.peak * (tf.cast(step, tf.float32) + 1.) / float(p.warmup_steps)
        return tf.where(step < p.warmup_steps, warming_up, rate)
