"""Optimizers: Params for those of keras.optimizers.

The fields of a class are the arguments of the Keras class that it names, so a new one takes three
lines and its fields:

    class Ftrl(Optimizer):
        keras_class = keras.optimizers.Ftrl
        class Params(Optimizer.Params):
            beta: float = field(0.0, 'As in Keras.')

All of Keras' are here but two, which wrap other optimizers: the Learner itself scales, skips and
divides gradients.

An optimizer gives the numbers of `keras.Model.train_on_batch`, or is refused; docs/keras.md has two
exceptions. If an id occurs several times in a mini-batch, Keras 3 on TensorFlow gives optimizers
the gradient of each occurrence by itself, so that all but SGD and Lion add up the squares of each,
and not the square of their sum. A KerasLayer does so too, unless its keeps_gradient_rows is False;
the gradient of lingpipe's own Embedding is the sum, as that of any other weight.
"""
from __future__ import annotations

import keras
import tensorflow as tf

from lingpipe.hyperparams import field
from lingpipe.learning.factored_adafactor import FactoredAdafactor
from lingpipe.learning.fused_optimizers import (
    FUSED_DTYPES,
    FusedRMSprop,
    FusedSGD,
    fuses_rmsprop,
)
from lingpipe.learning.optimizer import Optimizer as Optimizer


class SGD(Optimizer):
    """Gradient descent; with momentum one slot, else none."""

    keras_class = keras.optimizers.SGD
    own_class = FusedSGD
    squares_gradients = False

    class Params(Optimizer.Params):
        """The arguments of keras.optimizers.SGD."""
        momentum: float = field(0.0, 'Part of the last update that the next one keeps, in [0, 1].',
                                least=0, most=1)
        nesterov: bool = field(False, 'Whether the momentum is Nesterov\'s.')

    params: Params

    def num_temporaries(self, dtype: tf.DType, has_rows: bool) -> int:
        """As in Optimizer."""
        is_fused = dtype in FUSED_DTYPES and not has_rows
        return 1 if is_fused or not self.params.momentum else 2 + self.params.nesterov


class RMSProp(Optimizer):
    """Tieleman and Hinton, 2012; the optimizer of AmoebaNet.

    One slot, and one more each for momentum and centered.
    """

    keras_class = keras.optimizers.RMSprop
    own_class = FusedRMSprop
    temporaries = 3

    class Params(Optimizer.Params):
        """The arguments of keras.optimizers.RMSprop."""
        rho: float = field(0.9, 'Decay of the moving average of squared gradients.',
                           least=0, below=1)
        momentum: float = field(0.0, 'Part of the last update that the next one keeps.',
                                least=0, most=1)
        epsilon: float = field(1e-7, 'Added to the average of squared gradients, inside the '
                                     'square root.', above=0)
        centered: bool = field(False, 'Whether gradients are normalised by their variance, not '
                                      'their second moment.')

    params: Params

    def why_exact_slots(self) -> str:
        """As in Optimizer."""
        # The difference may become negative; Keras takes its root.
        is_centered = self.params.centered
        return 'with centered=true subtracts a slot from another' if is_centered else ''

    def num_temporaries(self, dtype: tf.DType, has_rows: bool) -> int:
        """As in Optimizer."""
        is_fused = fuses_rmsprop(self.params) and dtype in FUSED_DTYPES and not has_rows
        return 1 if is_fused else self.temporaries


class Adam(Optimizer):
    """Kingma and Ba, arXiv:1412.6980. Two slots."""

    keras_class = keras.optimizers.Adam

    class Params(Optimizer.Params):
        """The arguments of keras.optimizers.Adam."""
        beta_1: float = field(0.9, 'Decay of the first moment.', least=0, below=1)
        beta_2: float = field(0.999, 'Decay of the second moment.', least=0, below=1)
        epsilon: float = field(1e-7, "Added to the square root of the second moment (the paper's "
                                     'epsilon hat).', above=0)
        amsgrad: bool = field(False, 'Whether the largest second moment so far is used (one more '
                                     'slot).')

    params: Params

    def why_exact_slots(self) -> str:
        """As in Optimizer."""
        # It would keep whatever was rounded up.
        return 'with amsgrad=true keeps the maximum of a slot' if self.params.amsgrad else ''


class AdamW(Adam):
    """Loshchilov and Hutter, arXiv:1711.05101: Adam with the Learner's weight_decay, not 0."""

    keras_class = keras.optimizers.AdamW

    def check_decay(self, weight_decay: float) -> None:
        """Raises ValueError for a weight decay of 0."""
        if not weight_decay:
            raise ValueError('AdamW with weight_decay=0 is Adam; set weight_decay of the learner '
                             '(Keras: 0.004), or use Adam')


class Adafactor(Optimizer):
    """Shazeer and Stern, arXiv:1804.04235: a slot for rows and one for columns.

    The second moment of a matrix is not kept; Keras' own class keeps it too, without using it. The
    numbers are the same, and learner.learning_rate is the paper's upper bound of rho, 0.01 there.
    """

    keras_class = keras.optimizers.Adafactor
    own_class = FactoredAdafactor

    class Params(Optimizer.Params):
        """The arguments of keras.optimizers.Adafactor, and three that it does not have."""
        beta_2_decay: float = field(-0.8, 'Exponent of the step in the decay of the second moment.',
                                    most=0)
        epsilon_1: float = field(1e-30, 'Added to squared gradients.', above=0)
        epsilon_2: float = field(1e-3, 'Least root mean square of a weight that scales its '
                                       'updates.', above=0)
        clip_threshold: float = field(1.0, 'Largest root mean square of an update.', above=0)
        beta_1: float = field(0.0, 'Decay of the average of updates that is subtracted, which '
                                   'takes one more slot; 0: none.', least=0, below=1)
        bounds_rate: bool = field(True, 'Whether the learning rate is at most 1 / sqrt(step), as '
                                        'always in Keras.')
        scales_by_weight: bool = field(True, 'Whether an update is multiplied by the root mean '
                                             'square of the weight.')


class Lion(Optimizer):
    """Chen and others, arXiv:2302.06675. One slot."""

    keras_class = keras.optimizers.Lion
    temporaries = 3
    squares_gradients = False

    class Params(Optimizer.Params):
        """The arguments of keras.optimizers.Lion."""
        beta_1: float = field(0.9, 'Part of the momentum in the update, in (0, 1].',
                              above=0, most=1)
        beta_2: float = field(0.99, 'Decay of the momentum.', least=0, below=1)


class Adadelta(Optimizer):
    """Zeiler, arXiv:1212.5701. Two slots."""

    keras_class = keras.optimizers.Adadelta
    temporaries = 3

    class Params(Optimizer.Params):
        """The arguments of keras.optimizers.Adadelta."""
        rho: float = field(0.95, 'Decay of the averages of squared gradients and squared updates.',
                           least=0, below=1)
        epsilon: float = field(1e-7, 'Added to both averages, inside the square roots.', above=0)


class Adagrad(Optimizer):
    """Duchi, Hazan and Singer, 2011. One slot."""

    keras_class = keras.optimizers.Adagrad

    class Params(Optimizer.Params):
        """The arguments of keras.optimizers.Adagrad."""
        initial_accumulator_value: float = field(0.1, 'What the sum of squared gradients begins '
                                                      'with.', least=0)
        epsilon: float = field(1e-7, 'Added to that sum, inside the square root.', above=0)


class Adamax(Optimizer):
    """Kingma and Ba, arXiv:1412.6980, section 7: Adam with the infinity norm. Two slots."""

    keras_class = keras.optimizers.Adamax

    class Params(Optimizer.Params):
        """The arguments of keras.optimizers.Adamax."""
        beta_1: float = field(0.9, 'Decay of the first moment.', least=0, below=1)
        beta_2: float = field(0.999, 'Decay of the infinity norm.', least=0, below=1)
        epsilon: float = field(1e-7, 'Added to the infinity norm.', above=0)


class Nadam(Optimizer):
    """Dozat, 2015: Adam with Nesterov's momentum. Two slots."""

    keras_class = keras.optimizers.Nadam

    class Params(Optimizer.Params):
        """The arguments of keras.optimizers.Nadam."""
        beta_1: float = field(0.9, 'Decay of the first moment.', least=0, below=1)
        beta_2: float = field(0.999, 'Decay of the second moment.', least=0, below=1)
        epsilon: float = field(1e-7, 'Added to the square root of the second moment.', above=0)


class Ftrl(Optimizer):
    """McMahan and others, 2013: follow the regularized leader. Two slots."""

    keras_class = keras.optimizers.Ftrl
    temporaries = 4

    class Params(Optimizer.Params):
        """The arguments of keras.optimizers.Ftrl."""
        learning_rate_power: float = field(-0.5, 'Exponent of the sum of squared gradients, 0 or '
                                                 'less; 0: a constant rate.', least=-1, most=0)
        initial_accumulator_value: float = field(0.1, 'What the sum of squared gradients begins '
                                                      'with.', least=0)
        l1_regularization_strength: float = field(0.0, "The paper's lambda 1.", least=0)
        l2_regularization_strength: float = field(0.0, "The paper's lambda 2.", least=0)
        l2_shrinkage_regularization_strength: float = field(
            0.0, 'An L2 term on the weights themselves.', least=0)
        beta: float = field(0.0, "The paper's beta.", least=0)

    def why_exact_slots(self) -> str:
        """As in Optimizer."""
        return 'computes weights from a slot alone'


class Lamb(Optimizer):
    """You and others, arXiv:1904.00962: Adam whose updates are as long as the weight. Two slots."""

    keras_class = keras.optimizers.Lamb

    class Params(Optimizer.Params):
        """The arguments of keras.optimizers.Lamb."""
        beta_1: float = field(0.9, 'Decay of the first moment.', least=0, below=1)
        beta_2: float = field(0.999, 'Decay of the second moment.', least=0, below=1)
        epsilon: float = field(1e-7, 'Added to the square root of the second moment.', above=0)


class Muon(Optimizer):
    """Jordan and others, 2024, as in arXiv:2502.16982: matrices by orthogonal updates.

    Matrices have one slot. Other weights are trained by Adam and have two. Keras' weight_decay and
    adam_weight_decay are both the Learner's.
    """

    keras_class = getattr(keras.optimizers, 'Muon', None)  # An older Keras has none.
    temporaries = 6

    class Params(Optimizer.Params):
        """The arguments of keras.optimizers.Muon."""
        adam_beta_1: float = field(0.9, "Decay of Adam's first moment.", least=0, below=1)
        adam_beta_2: float = field(0.999, "Decay of Adam's second moment.", least=0, below=1)
        epsilon: float = field(1e-7, "Added to the square root of Adam's second moment.", above=0)
        exclude_layers: tuple[str, ...] = field((), 'Regular expressions, found in paths of '
                                                    'matrices that Adam trains.')
        exclude_embeddings: bool = field(True, "Whether Adam trains matrices with 'embedding' in "
                                               'their path.')
        muon_a: float = field(3.4445, 'First coefficient of the Newton-Schulz iteration.')
        muon_b: float = field(-4.7750, 'Second coefficient.')
        muon_c: float = field(2.0315, 'Third coefficient.')
        adam_lr_ratio: float = field(1.0, "Adam's learning rate, as a part of the learner's.",
                                     least=0)
        momentum: float = field(0.95, 'Part of the momentum that stays.', least=0, below=1)
        ns_steps: int = field(5, 'Newton-Schulz iterations.', least=1, most=100)
        nesterov: bool = field(True, "Whether the momentum is Nesterov's.")
        rms_rate: float | None = field(0.2, 'Factor on sqrt(max(rows, columns)), which scales '
                                            'updates of matrices; none: no scaling.', above=0)

    def check_weight(self, path: str, shape: tf.TensorShape, dtype: tf.DType) -> None:
        """Raises ValueError for a matrix that is not of float32."""
        super().check_weight(path, shape, dtype)
        if shape.rank == 2 and dtype != tf.float32:
            raise ValueError(f"{path} is {dtype.name}, and Keras' Muon multiplies matrices with "
                             'float32 numbers; use float32 weights, or another optimizer.')


class ScheduleFreeAdamW(Optimizer):
    """Defazio and others, arXiv:2405.15682: Adam that averages its weights. Two slots.

    It needs no decay of the learning rate. As in Keras, all steps count the same in the average,
    where the paper weighs them by the square of the learning rate, and evaluations use the weights
    that gradients are taken at, where the paper uses the average.
    """

    keras_class = getattr(keras.optimizers, 'ScheduleFreeAdamW', None)  # An older Keras has none.
    copied_slots = ('momentums',)

    class Params(Optimizer.Params):
        """The arguments of keras.optimizers.ScheduleFreeAdamW."""
        beta_1: float = field(0.9, 'Part of the average in the weights that gradients are taken '
                                   'at.', above=0, most=1)
        beta_2: float = field(0.999, 'Decay of the second moment.', least=0, below=1)
        epsilon: float = field(1e-8, 'Added to the square root of the second moment.', above=0)
        warmup_steps: int = field(0, "Updates of the optimizer's own linear warm-up; 0: none.",
                                  least=0)
