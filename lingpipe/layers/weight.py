"""Weight: what a layer declares, and how its initial value is made."""
from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Callable, Container, Sequence
from typing import Any, TypeAlias

import keras
import tensorflow as tf

from lingpipe.wording.values import show

Initializer: TypeAlias = str | keras.initializers.Initializer

# Packages whose initializers give the same values in each call, once they have a seed.
_REPEATABLE = frozenset(['keras', 'tensorflow', 'lingpipe'])


def initializer_named(name: Initializer) -> keras.initializers.Initializer:
    """Returns the initializer with this name; an initializer is returned as it is.

    Besides Keras' names there is 'he_normal_fan_out'. It preserves the variance of gradients, where
    Keras' he_normal, whose fan is the number of inputs, preserves that of activations (He et al.,
    2015, arXiv:1502.01852, equations 14 and 10). It is the usual choice for ImageNet.

    Raises:
      ValueError: there is no such initializer.
    """
    if isinstance(name, str) and name == 'he_normal_fan_out':
        return keras.initializers.VarianceScaling(2., 'fan_out', 'truncated_normal')
    try:
        return keras.initializers.get(name)
    except ValueError:
        raise ValueError(f'{show(name)} is no initializer; write he_normal, he_normal_fan_out, '
                         'glorot_uniform, zeros, or another name in keras.initializers.') from None


def check_name(path: str, name: str, taken: Container[str]) -> None:
    """Raises ValueError unless a layer may give this name to a new weight or child.

    Args:
      path: of the layer.
      name: the name.
      taken: those of its weights and children so far.
    """
    if not name:
        raise ValueError(f'{path}: a child has no name; set name of its Params, or give it one by '
                         'add_child(params, name).')
    if name in taken:
        raise ValueError(f'{path} has a weight or a child {name!r} already; give this one another '
                         'name.')


def whole_numbers(path: str, name: str, shape: Sequence[int]) -> tuple[int, ...]:
    """Returns the shape of a weight of the layer at `path`.

    Raises:
      ValueError: it is no list of whole numbers, or one is negative.
    """
    try:
        sizes = tuple(int(n) for n in shape)
    except (TypeError, ValueError):
        sizes = (-1,)
    if min(sizes, default=0) < 0:
        raise ValueError(f'{path}: the shape of {name!r} is {show(shape)}, but must be a list of '
                         'whole numbers; write [8] for a vector of 8.')
    return sizes


@dataclasses.dataclass(frozen=True)
class Weight:
    """A weight that a layer declares; no memory is allocated for it.

    Attributes:
      path: the layer's path, a slash and the name. It names the weight in checkpoints, summaries
        and regular expressions.
      shape: its dimensions.
      dtype: float32, unless the weight is not a number to be trained.
      initializer: a Keras initializer or a function of a shape and a dtype, or a name for
        `initializer_named`. `initial_value` sets its seed.
      is_trainable: whether gradients update it. If not, Layer.updated_state may.
      shared_with: the path of the weight that is used in its place (tied weights), or None.
    """
    path: str
    shape: tuple[int, ...]
    initializer: Initializer
    dtype: tf.DType = tf.float32
    is_trainable: bool = True
    shared_with: str | None = None

    @property
    def size(self) -> int:
        """The number of scalars."""
        return math.prod(self.shape)

    def initial_value(self, experiment_seed: int) -> tf.Tensor:
        """The initial value, which depends on the experiment's seed and the path alone.

        Raises:
          ValueError: the initializer gives other values in each call.
        """
        initializer = initializer_named(self.initializer)
        config = initializer.get_config() if hasattr(initializer, 'get_config') else {}
        if 'seed' in config:
            config['seed'] = zlib.crc32(f'{experiment_seed}/{self.path}'.encode()) & 0x7fffffff
            initializer = type(initializer).from_config(config)

        value = self._value_of(initializer)
        is_of_a_user = type(initializer).__module__.split('.')[0] not in _REPEATABLE
        if is_of_a_user and 'seed' not in config:
            again = self._value_of(initializer)
            if value.numpy().tobytes() != again.numpy().tobytes():
                raise ValueError(
                    f'{self.path}: its initializer gives other values in each call, but a weight '
                    'begins alike in every process and for every number of cells; let its '
                    '__init__ take a seed, its get_config return it, and draw with this seed.')
        return value

    def _value_of(self, initializer: Callable[..., Any]) -> tf.Tensor:
        is_real = self.dtype in (tf.float32, tf.bfloat16, tf.float16)
        value = initializer(self.shape, dtype='float32' if is_real else self.dtype.name)
        return tf.cast(tf.convert_to_tensor(value), self.dtype)
