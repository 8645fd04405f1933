"""Optimizer: the base of the classes of optimizers.py, which makes the Keras optimizer."""
from __future__ import annotations

import math
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from lingpipe.hyperparams import Configurable, fields_of
from lingpipe.learning.rounded_slots import with_rounded_slots

# Methods in whose place the Learner acts. An optimizer that overrides one would give other numbers
# than in Keras.
_NOT_CALLED = ('apply', 'apply_gradients', '_backend_apply_gradients', 'scale_loss',
               'finalize_variable_values')

# Arguments of a Keras optimizer that have no effect here, since the methods that use them are not
# called -> the remedy.
_OF_THE_LEARNER = {
    'weight_decay': 'set weight_decay of the learner, or give the optimizer weight_decay=None',
    'clipnorm': 'leave it out, and set clip_norm of the learner, which is of all weights together',
    'global_clipnorm': 'leave it out, and set clip_norm of the learner',
    'clipvalue': 'leave it out, and set clip_norm of the learner, or clip in update_step',
    'use_ema': 'leave it out, and set ema_decay of the learner',
    'loss_scale_factor': 'leave it out: losses are not scaled',
    'gradient_accumulation_steps': 'leave it out, and set accumulate of the learner',
}

# Packages whose optimizers treat weights alike that have the same slots, whatever their paths.
_BLIND_TO_PATHS = frozenset(['keras', 'lingpipe'])


class Optimizer(Configurable):
    """Makes the Keras optimizer that its Params describe.

    The learning rate and weight decay belong to the Learner.
    """

    keras_class: ClassVar[Any] = None

    # A class of lingpipe that is made in place of keras_class, and takes its arguments and more.
    own_class: ClassVar[Any] = None

    # Slots that begin as copies of the weights, as LayerLearner.variables names them.
    copied_slots: ClassVar[tuple[str, ...]] = ()

    # Whether an update squares gradients. If so, it squares each row of a gradient that is rows,
    # and several rows make another update than their sum.
    squares_gradients: ClassVar[bool] = True

    # What num_temporaries returns: measured, see "Temporaries of the update" in docs/benchmarks.md.
    temporaries: ClassVar[int] = 2

    def make(self, has_rounded_slots: bool = False) -> keras.optimizers.Optimizer:
        """Returns a new optimizer, not built, that has no learning rate of its own.

        In a step, `begin_step` is called and then its `update_step` for each weight.

        Args:
          has_rounded_slots: whether its slots are in bfloat16; see `RoundedSlots`.

        Raises:
          ValueError: Keras refuses the Params, has no such optimizer, or would do more than these
            two in a step.
        """
        if self.keras_class is None:
            raise ValueError(f'Keras {keras.__version__} has no optimizer {type(self).__name__}; '
                             'install a newer Keras, or use another optimizer; one of your own '
                             'names its keras_class, which extends keras.optimizers.Optimizer.')
        for name in _NOT_CALLED:
            if getattr(self.keras_class, name) is not getattr(keras.optimizers.Optimizer, name):
                raise ValueError(f'{_shown(self.keras_class)} has a method {name} of its own, in '
                                 'whose place the Learner scales, skips and divides gradients; use '
                                 'the optimizer that it wraps, or write its update_step alone.')
        arguments = {name: getattr(self.params, name) for name in fields_of(self.params)}
        # The rate is a function, since Keras would make a variable of a number.
        made_class = self.own_class or self.keras_class
        if has_rounded_slots:
            if reason := self.why_exact_slots():
                raise ValueError(f'{type(self).__name__} {reason}, for which bfloat16 is too '
                                 'coarse; set bfloat16_slots=false of the learner, or use another '
                                 'optimizer. A run that began with them must start from scratch.')
            made_class = with_rounded_slots(made_class)
        try:
            return made_class(learning_rate=_given_by_learner, name='optimizer', **arguments)
        except (TypeError, ValueError) as error:
            if self.keras_class.__module__.split('.')[0] in _BLIND_TO_PATHS:
                raise
            raise ValueError(f'{_shown(self.keras_class)} is made with learning_rate, name and the '
                             f'fields {", ".join(arguments) or "(none)"} of '
                             f'{type(self).__name__}.Params, and refuses them: {error}; its '
                             '__init__ must take them all.') from error

    def why_exact_slots(self) -> str:
        """What it does with its slots that needs all their digits, as 'keeps ...'; '' if nothing.

        A rounded slot is right in the mean, but not each time.
        """
        return 'keeps weights in a slot' if self.copied_slots else ''

    def num_temporaries(self, dtype: tf.DType, has_rows: bool) -> int:
        """Tensors of a weight's size that its update holds at once, the gradient among them.

        Args:
          dtype: that of the weight.
          has_rows: whether the gradient is rows.
        """
        return self.temporaries

    def check_decay(self, weight_decay: float) -> None:
        """Raises ValueError if the optimizer does not go with the learner's weight decay."""

    def check_arguments(self, weight_decay: float) -> None:
        """Refuses arguments of a user's own optimizer in whose place the Learner acts.

        A Keras class has some by default, as the weight decay of keras.optimizers.AdamW.

        Args:
          weight_decay: the learner's, which takes the place of the optimizer's.

        Raises:
          ValueError: the Keras optimizer has one of them, which would be ignored.
        """
        declaring = next(one for one in type(self).__mro__ if 'keras_class' in vars(one))
        if declaring.__module__.split('.')[0] in _BLIND_TO_PATHS:
            return
        optimizer = self.make()
        for name, remedy in _OF_THE_LEARNER.items():
            value = getattr(optimizer, name, None)
            if value and not (name == 'weight_decay' and weight_decay):
                raise ValueError(f'the optimizer {_shown(self.keras_class)} has {name}={value}, '
                                 'which would be ignored, since the Learner acts in its place; '
                                 f'{remedy}.')

    def check_weight(self, path: str, shape: tf.TensorShape, dtype: tf.DType) -> None:
        """Raises ValueError if the optimizer cannot train such a weight.

        Keras keeps slots, and computes, in the dtype of the weight. With a field that becomes 0, 1
        or infinity in that dtype, the weight would not train.
        """
        for name in fields_of(self.params):
            value = getattr(self.params, name)
            if not isinstance(value, float):
                continue
            with np.errstate(over='ignore', under='ignore'):
                rounded = float(dtype.as_numpy_dtype(value))
            if rounded != value and rounded in (0., 1., math.inf):
                raise ValueError(f'{path} is {dtype.name}, in which {name}={value} of '
                                 f'{type(self).__name__} is {rounded:g}, so that it would not '
                                 f'train; use another {name}, or weights of a more exact dtype.')


def begin_step(optimizer: keras.optimizers.Optimizer, rate: tf.Tensor) -> None:
    """Updates what an optimizer, such as Nadam, keeps for all weights together.

    To be called before the update_step of the first weight.
    """
    # Keras has no public way to it.
    if type(optimizer)._backend_update_step is not keras.optimizers.Optimizer._backend_update_step:
        optimizer._backend_update_step([], [], rate)


def is_of_a_user(optimizer: keras.optimizers.Optimizer) -> bool:
    """Whether its class, or one that it extends, is a user's own.

    Such a class may treat some weights otherwise than others, for example by their paths.
    """
    classes = type(optimizer).__mro__
    above = classes.index(keras.optimizers.Optimizer)
    return any(one.__module__.split('.')[0] not in _BLIND_TO_PATHS for one in classes[:above])


def _shown(keras_class: type) -> str:
    """The name of the class of an optimizer, as a user writes it."""
    is_of_keras = keras_class.__module__.split('.')[0] == 'keras'
    return f'{"keras.optimizers." if is_of_keras else ""}{keras_class.__name__}'


def _given_by_learner() -> float:
    raise AssertionError('the Learner gives the rate to update_step')
