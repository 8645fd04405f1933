"""KerasState: what becomes of a Keras layer's state when a mini-batch is split into micro-batches.

Keras updates moving averages, counters and the like in the forward pass of a mini-batch. A pipeline
makes M forward passes of micro-batches, all with the state before the mini-batch. The values that
they would assign are of three kinds:

    moments     BatchNormalization: means and variances are merged over the mini-batch. Then Keras'
                own update runs, once, with the merged moments in place of those that the layer
                would compute.
    constant    The new value depends on no example (a counter of steps): that of any micro-batch is
                right, in its own dtype.
    data        The new value depends on the examples. Nobody knows how to merge those of several
                micro-batches, so there must be one micro-batch, unless Params.averages_state says
                that the mean is right.

Keras has no public name for the moments of BatchNormalization (`_moments`).
"""
from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from lingpipe.layers.context import Context
from lingpipe.layers.keras_building import inner_layers
from lingpipe.layers.nested import NestedMap

_MOMENTS = 'moments'


class Moments(NamedTuple):
    """What one call of a BatchNormalization computes.

    Attributes:
      norm: the index of the BatchNormalization in its KerasState.
      mean, variance: [C].
      weight: the number of rows, a scalar.
    """
    norm: int
    mean: tf.Tensor
    variance: tf.Tensor
    weight: tf.Tensor


class KerasState:
    """The non-trainable weights of a Keras layer.

    Attributes:
      names: the names of the weights that are neither trained nor moved by a BatchNormalization.
    """

    def __init__(self, path: str, class_name: str, keras_layer: keras.layers.Layer,
                 variables: Mapping[str, keras.Variable], averages: bool):
        """
        Args:
          path: the path of the KerasLayer, for errors.
          class_name: of the Keras layer, for errors.
          keras_layer: the Keras layer, built.
          variables: name -> Keras variable, for all its weights.
          averages: whether floating-point state that depends on the examples becomes its mean over
            the micro-batches.

        Raises:
          ValueError: a BatchNormalization is `synchronized`.
        """
        self._path, self._class_name, self._averages = path, class_name, averages
        self._norms = [layer for layer in inner_layers(keras_layer) if _has_known_moments(layer)]
        self._variables = dict(variables)
        self._names_of_norms = [_names_of(norm.non_trainable_variables, variables)
                                for norm in self._norms]
        moved = {name for names in self._names_of_norms for name in names}
        self.names = [name for name, variable in variables.items()
                      if not variable.trainable and name not in moved]
        if any(norm.synchronized for norm in self._norms):
            raise ValueError(
                f'{path}: a BatchNormalization with synchronized=True takes its moments over the '
                'replicas of Keras, which are not those of a pipeline; use layers.BatchNorm and '
                'pipeline.cross_replica_batch_norm, or synchronized=False.')

    @contextlib.contextmanager
    def recorded(self) -> Iterator[list[Moments]]:
        """Yields a list that receives BatchNormalizations' moments, in the order of their calls."""
        moments: list[Moments] = []

        def recorder(index: int, norm: keras.layers.BatchNormalization
                     ) -> Callable[..., tuple[tf.Tensor, tf.Tensor]]:
            """Returns a function that computes the norm's moments as Keras does, and notes them."""
            def record(inputs: tf.Tensor, mask: tf.Tensor | None) -> tuple[tf.Tensor, tf.Tensor]:
                mean, variance = type(norm)._moments(norm, inputs, mask)
                num_channels = inputs.shape[norm.axis]
                num_rows = (tf.size(inputs) // num_channels if mask is None
                            else tf.math.count_nonzero(mask))
                moments.append(Moments(index, mean, variance, tf.cast(num_rows, tf.float32)))
                return mean, variance
            return record

        with contextlib.ExitStack() as stack:
            for index, norm in enumerate(self._norms):
                stack.enter_context(_computing_moments_by(norm, recorder(index, norm)))
            yield moments

    def emit_moments(self, ctx: Context, moments: Iterable[Moments]) -> None:
        """Emits what was recorded.

        Raises:
          ValueError: a BatchNormalization runs inside a loop, or its moments are asked for over all
            replicas.
        """
        for call, (index, mean, variance, weight) in enumerate(moments):
            if ctx.gather is not None:
                raise ValueError(
                    f"{self._path}: cross_replica_batch_norm does not reach Keras' "
                    'BatchNormalization; use layers.BatchNorm, or set '
                    'pipeline.cross_replica_batch_norm=False.')
            _check_is_outside_loops(self._path, mean)
            ctx.emit_moments(self._path, f'{_MOMENTS}_{call}_{index}', mean, variance, weight)

    def emit_assigned(self, ctx: Context, assigned: Mapping[str, tf.Tensor],
                      data_names: Collection[str], sources: Sequence[tf.Tensor],
                      num_examples: int | tf.Tensor) -> None:
        """Emits what a call would assign to weights that no BatchNormalization moves.

        Args:
          ctx: where it is emitted.
          assigned: name of a weight -> the value that it would have.
          data_names: the weights whose new values depend on the examples.
          sources: the tensors that differ between micro-batches.
          num_examples: how many examples the micro-batch has.

        Raises:
          ValueError: a pipeline cannot follow the change.
        """
        for name, value in assigned.items():
            _check_is_outside_loops(self._path, value)
            if self._variables[name].trainable:
                raise ValueError(f'{self._path}: {self._class_name} assigns to its weight '
                                 f'{name} in its forward pass, but gradients train that weight; '
                                 'write the layer as a function of its weights.')
            if name not in self.names:
                continue  # A moving average, for which the moments are emitted.
            depends_on_data = name in data_names
            if depends_on_data and self.is_averaged(name):
                ctx.emit_mean(self._path, name, value, num_examples)
                continue
            if (not depends_on_data and not tf.executing_eagerly()
                    and depends_on(value, sources)):
                raise ValueError(f'{self._path}: with a mask, {self._class_name} changes its '
                                 f'state {name} in another way than without; use a layer that '
                                 'does not, or drops_mask=True in the layer before.')
            ctx.emit_state(self._path, name, value)

    def is_averaged(self, name: str) -> bool:
        """Whether a state that depends on the examples becomes its mean over the micro-batches."""
        return self._averages and bool(tf.as_dtype(self._variables[name].dtype).is_floating)

    def updated(self, name: str, state: NestedMap, value: Any) -> dict[str, tf.Tensor]:
        """As Layer.updated_state."""
        if not isinstance(value, tuple):
            return {name: tf.cast(value, state[name].dtype)}

        index = int(name.rpartition('_')[2])
        norm, names = self._norms[index], self._names_of_norms[index]
        shape = [1] * norm.input_spec.ndim
        shape[norm.axis] = norm.moving_mean.shape[0]
        mapping = [(variable, state[own]) for own, variable in self._variables.items()]
        if norm.compute_dtype == 'float64':   # Otherwise Keras computes moments in float32.
            value = tuple(tf.cast(moment, tf.float64) for moment in value)
        with _computing_moments_by(norm, lambda inputs, mask: value), \
                keras.StatelessScope(mapping, initialize_variables=False) as scope:
            norm(tf.zeros(shape), training=True)
        return {own: scope.get_current_value(self._variables[own]) for own in names}


@contextlib.contextmanager
def _computing_moments_by(norm: keras.layers.BatchNormalization,
                          function: Callable[..., Any]) -> Iterator[None]:
    """Within it, a BatchNormalization takes its moments from function(inputs, mask)."""
    vars(norm)['_moments'] = function
    try:
        yield
    finally:
        del vars(norm)['_moments']


def depends_on(tensor: tf.Tensor, sources: Iterable[tf.Tensor]) -> bool:
    """Whether a tensor of a graph is a function of one of the sources."""
    wanted = {source.name for source in sources}
    seen_ops: set[str] = set()
    stack = [tensor]
    while stack:
        ancestor = stack.pop()
        if ancestor.name in wanted:
            return True
        if ancestor.op.name not in seen_ops:
            seen_ops.add(ancestor.op.name)
            stack.extend(ancestor.op.inputs)
    return False


def _check_is_outside_loops(path: str, tensor: tf.Tensor) -> None:
    """Raises ValueError if a tensor was made in a loop's body, outside of which it has no value."""
    if not tf.executing_eagerly() and tensor.graph is not tf.compat.v1.get_default_graph():
        raise ValueError(
            f'{path}: the Keras layer changes its state inside a loop over time, of which a '
            'pipeline sees only the end; use a layer that does not, such as one '
            'BatchNormalization for all positions.')


def _has_known_moments(layer: Any) -> bool:
    base = keras.layers.BatchNormalization
    return (isinstance(layer, base) and type(layer).call is base.call
            and type(layer)._moments is base._moments)


def _names_of(variables: Iterable[keras.Variable], named: Mapping[str, Any]) -> list[str]:
    return [name for name, variable in named.items() if any(variable is one for one in variables)]
