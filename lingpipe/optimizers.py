"""Optimizers: Params for those of keras.optimizers.

The fields of a class are the arguments of the Keras class it names, so a new one is three lines and its fields:

    class Ftrl(Optimizer):
        keras_class = keras.optimizers.Ftrl
        class Params(Optimizer.Params):
            beta: float = field(0.0, 'As in Keras.')
"""
from __future__ import annotations

from typing import Any, ClassVar

import keras

from lingpipe.hyperparams import Configurable, field


class Optimizer(Configurable):
    """Makes the Keras optimizer that its Params describe. Learning rate and weight decay belong to the Learner."""

    keras_class: ClassVar[Any] = None

    def make(self) -> keras.optimizers.Optimizer:
        """A new optimizer, not built, of which only `update_step` is to be used: it has no learning rate of its own."""
        arguments = {name: getattr(self.params, name) for name in type(self.params)._fields()}
        # A function, since Keras would make a variable of a number.
        return self.keras_class(learning_rate=_given_by_learner, name='optimizer', **arguments)

    def check_decay(self, weight_decay: float) -> None:
        """Raises ValueError if the optimizer does not go with the learner's weight decay."""


def _given_by_learner() -> float:
    raise AssertionError('the Learner gives the rate to update_step')


class SGD(Optimizer):
    """Gradient descent; with momentum one slot, else none."""

    keras_class = keras.optimizers.SGD

    class Params(Optimizer.Params):
        """The arguments of keras.optimizers.SGD."""
        momentum: float = field(0.0, 'Part of the last update that the next one keeps, in [0, 1].',
                                least=0, most=1)
        nesterov: bool = field(False, 'Whether the momentum is Nesterov\'s.')


class RMSProp(Optimizer):
    """Tieleman and Hinton, 2012; the optimizer of AmoebaNet. One slot, one more each for momentum and centered."""

    keras_class = keras.optimizers.RMSprop

    class Params(Optimizer.Params):
        """The arguments of keras.optimizers.RMSprop."""
        rho: float = field(0.9, 'Decay of the moving average of squared gradients.',
                           least=0, below=1)
        momentum: float = field(0.0, 'Part of the last update that the next one keeps.',
                                least=0, most=1)
        epsilon: float = field(1e-7, 'Added to the average of squared gradients, inside the square root.',
                               above=0)
        centered: bool = field(False, 'Whether gradients are normalised by their variance, not their second moment.')


class Adam(Optimizer):
    """Kingma and Ba, arXiv:1412.6980. Two slots."""

    keras_class = keras.optimizers.Adam

    class Params(Optimizer.Params):
        """The arguments of keras.optimizers.Adam."""
        beta_1: float = field(0.9, 'Decay of the first moment.', least=0, below=1)
        beta_2: float = field(0.999, 'Decay of the second moment.', least=0, below=1)
        epsilon: float = field(1e-7, "Added to the square root of the second moment (the paper's epsilon hat).",
                               above=0)
        amsgrad: bool = field(False, 'Whether the largest second moment so far is used (one more slot).')


class AdamW(Adam):
    """Loshchilov and Hutter, arXiv:1711.05101: Adam with the Learner's weight_decay, which may then not be 0."""

    keras_class = keras.optimizers.AdamW

    def check_decay(self, weight_decay: float) -> None:
        """Raises ValueError for a weight decay of 0."""
        if not weight_decay:
            raise ValueError('AdamW with weight_decay=0 is Adam; set weight_decay of the learner (Keras: 0.004), or use Adam')


class Adafactor(Optimizer):
    """Shazeer and Stern, arXiv:1804.04235. In Keras 3 the second moment of a matrix is factored but stored whole too."""

    keras_class = keras.optimizers.Adafactor

    class Params(Optimizer.Params):
        """The arguments of keras.optimizers.Adafactor."""
        beta_2_decay: float = field(-0.8, 'Exponent of the step in the decay of the second moment.',
                                    most=0)
        epsilon_1: float = field(1e-30, 'Added to squared gradients.', above=0)
        epsilon_2: float = field(1e-3, 'Least root mean square of a weight that scales its updates.',
                                 above=0)
        clip_threshold: float = field(1.0, 'Largest root mean square of an update.', above=0)


class Lion(Optimizer):
    """Chen and others, arXiv:2302.06675. One slot."""

    keras_class = keras.optimizers.Lion

    class Params(Optimizer.Params):
        """The arguments of keras.optimizers.Lion."""
        beta_1: float = field(0.9, 'Part of the momentum in the update, in (0, 1].',
                              above=0, most=1)
        beta_2: float = field(0.99, 'Decay of the momentum.', least=0, below=1)
