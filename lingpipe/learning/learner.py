"""Learner: how gradients become new weights.

It joins optimizer, learning rate, decay, clipping, moving averages and frozen weights. The pipeline
sums the gradients of a mini-batch and then does, in one step and in this order:

    g = learner.regularized(path, g, w)          for every weight that is not frozen
    norm = global norm of all g, over all cells
    g = g * learner.clip_factor(norm)
    layer_learner.apply({path: g, ...})          for every layer, on its own device

There is one Keras optimizer for each layer, and not one for all. Its slots are created beside the
layer's weights, on whichever device they are, and a layer takes its slots along when another
partition puts it elsewhere.
"""
from __future__ import annotations

import functools
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import keras
import tensorflow as tf

from lingpipe.hyperparams import Configurable, field
from lingpipe.learning import learning_rates, optimizers

Gradient: TypeAlias = tf.Tensor | Callable[[], tf.Tensor | None] | None


class Learner(Configurable):
    """What is the same for all layers. It owns no variable; `for_layer` makes those that do."""

    class Params(Configurable.Params):
        """Optimizer, learning rate, decay, clipping, averages, frozen weights, accumulation."""
        optimizer: optimizers.Optimizer.Params = field(
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
        ema_decay: float | None = field(None, 'Decay of the moving average of weights used for '
                                              'evaluation; none: no average.', above=0, below=1)
        ema_warmup: bool = field(True, 'Whether the decay after n updates is at most '
                                       '(1 + n) / (10 + n), to forget the start.')
        frozen: str = field('', 'Regular expression, found in paths of weights that do not train; '
                                'empty: none.')
        accumulate: int = field(1, 'Mini-batches whose gradients are summed up for one update.',
                                least=1)
        max_nonfinite_steps: int = field(10, 'Steps in a row with an infinite or nan loss or '
                                             'gradient, which are skipped, that stop the '
                                             'training.', least=1)

        def check(self) -> None:
            """Raises ValueError for an expression that does not compile."""
            for name in ('no_decay', 'frozen'):
                try:
                    re.compile(getattr(self, name))
                except re.error as error:
                    raise ValueError(f'{name}={getattr(self, name)!r} is not a regular '
                                     f'expression: {error}; correct it') from error

    params: Params

    def __init__(self, params: Params):
        super().__init__(params)
        self._optimizer: optimizers.Optimizer = self.params.optimizer.instantiate()
        self._rate: learning_rates.Schedule = self.params.learning_rate.instantiate()
        self._optimizer.check_decay(self.params.weight_decay)
        self._for_matrix()  # What Keras refuses is refused now, not in the first step.

    def slot_bytes(self, dtype: tf.DType) -> int:
        """Bytes of slots and averages for one number in a matrix of `dtype`.

        The number itself and its gradient are not counted.
        """
        average_bytes = accumulator_dtype(dtype).size if self.params.ema_decay is not None else 0
        # Keras gives slots the dtype of the weight.
        return int(self._num_slots * dtype.size + average_bytes)

    @functools.cached_property
    def _num_slots(self) -> int:
        """The number of slots that the optimizer keeps for a matrix."""
        variables = self._for_matrix().variables()
        return sum(name.startswith('optimizer/') and variable.shape.rank == 2
                   for name, variable in variables.items())

    def _for_matrix(self) -> LayerLearner:
        """The learner of a small matrix, made to see what the optimizer does with one."""
        matrix = tf.Variable(tf.zeros([16, 16]))
        return LayerLearner(self, self._optimizer.make, 'layer', {'matrix': matrix})

    @property
    def copied_slots(self) -> Sequence[str]:
        """Slots that begin as copies of the weights, by their names in LayerLearner.variables."""
        return self._optimizer.copied_slots

    def is_frozen(self, path: str) -> bool:
        """Whether the weight does not train, so that its gradient need not be computed."""
        return _finds(self.params.frozen, path)

    def decays(self, path: str, rank: int) -> bool:
        """Whether weight_decay and l2 apply to the weight."""
        return (rank > 1 or self.params.decay_vectors) and not _finds(self.params.no_decay, path)

    def check_paths(self, paths: Iterable[str]) -> None:
        """Refuses a regular expression that no weight of the network matches: it is misspelt.

        Raises:
          ValueError: `frozen` or `no_decay` finds nothing, or `frozen` leaves nothing to train.
        """
        paths = list(paths)
        for name in ('frozen', 'no_decay'):
            pattern = getattr(self.params, name)
            if pattern and not any(_finds(pattern, path) for path in paths):
                raise ValueError(f'learner.{name}={pattern!r} is found in no path of the '
                                 f'{len(paths)} weights; paths look like {", ".join(paths[:3])}: '
                                 'correct it, or leave it empty.')
        if paths and all(map(self.is_frozen, paths)):
            raise ValueError(f'learner.frozen={self.params.frozen!r} freezes all {len(paths)} '
                             'weights; leave some to train.')

    def regularized(self, path: str, gradient: tf.Tensor | None,
                    weight: tf.Tensor) -> tf.Tensor | None:
        """gradient + l2 * weight; a gradient of None stays None."""
        if gradient is None or not self.params.l2 or not self.decays(path, weight.shape.rank):
            return gradient
        return gradient + self.params.l2 * tf.cast(weight, gradient.dtype)

    def clip_factor(self, global_norm: tf.Tensor) -> tf.Tensor:
        """The factor on every gradient: min(1, clip_norm / global_norm)."""
        if self.params.clip_norm is None:
            return tf.ones_like(global_norm)
        return tf.minimum(tf.ones_like(global_norm), self.params.clip_norm / global_norm)

    def learning_rate(self, step: tf.Tensor | int) -> tf.Tensor:
        """The rate of the update that comes after `step` updates."""
        return self._rate(step)

    def for_layer(self, layer_path: str, weights: Mapping[str, tf.Variable]) -> LayerLearner:
        """Makes the learner of one layer, with slots and averages on the weights' device.

        Args:
          layer_path: the layer's path.
          weights: its trainable weights, by path. Frozen ones may be among them; they get no slot
            and no average.

        Raises:
          ValueError: a weight cannot be trained.
        """
        trained = {path: weight for path, weight in weights.items() if not self.is_frozen(path)}
        for path, weight in trained.items():
            if not weight.dtype.is_floating:
                raise ValueError(f'{path} is {weight.dtype.name}, and only real floating-point '
                                 'weights can be trained; hold it as such (a complex weight as '
                                 'two), or declare it with is_trainable=False.')
            self._optimizer.check_weight(path, weight.shape, weight.dtype)
        return LayerLearner(self, self._optimizer.make, layer_path, trained)


class LayerLearner:
    """Slots, averages and updates of one layer. Made by Learner.for_layer.

    Attributes:
      weights: the weights that it trains, by path.
    """

    def __init__(self, learner: Learner, make_optimizer: Callable[[], keras.optimizers.Optimizer],
                 layer_path: str, weights: Mapping[str, tf.Variable]):
        self.weights = dict(weights)
        self._learner = learner
        self._layer_path = layer_path
        self._decaying = {path for path, weight in weights.items()
                          if learner.params.weight_decay
                          and learner.decays(path, weight.shape.rank)}
        self._optimizer: Any = None
        self._ema: dict[str, tf.Variable] = {}
        self._slots: dict[str, dict[str, tf.Variable]] = {}
        self._shared_slots: dict[str, tf.Variable] = {}
        if not weights:
            return

        with tf.device(next(iter(weights.values())).device):
            self._optimizer = make_optimizer()
            self._optimizer.build([_KerasWeight(weight, path) for path, weight in weights.items()])
            if learner.params.ema_decay is not None:
                self._ema = {path: tf.Variable(tf.cast(weight, accumulator_dtype(weight.dtype)),
                                               trainable=False, name=f'ema/{path}')
                             for path, weight in weights.items()}
        self._slots, self._shared_slots = self._named_slots()

    @property
    def kind(self) -> tuple[Any, ...]:
        """Equal for layers whose updates are the same computation on other variables."""
        return tuple((tuple(weight.shape), weight.dtype.name,
                      self._learner.decays(path, weight.shape.rank), tuple(self._slots[path]))
                     for path, weight in self.weights.items())

    def apply(self, gradients: Mapping[str, Gradient],
              learning_rate: tf.Tensor | None = None) -> tf.Tensor | None:
        """Updates weights, slots and averages once.

        It may be traced in a tf.function, also in a branch of tf.cond. It opens no tf.device, since
        layers on several devices may share one trace: the caller opens the device of the weights.

        Args:
          gradients: by path, already regularised and clipped, or functions that make them. Such a
            function is called when it is the weight's turn, so that its temporary tensors come and
            go too. A weight whose gradient is None or missing stays as it is, slots included.
            Gradients of frozen weights are ignored.
          learning_rate: that of this update; by default what the Params say for the number of
            updates made, which checkpoints restore.

        Returns:
          The number of updates made, available when all is done: a control dependency for the next
          layer's update. None if there are no weights.
        """
        if not self.weights:
            return None
        num_updates = tf.identity(self._optimizer.iterations.value)
        if learning_rate is None:
            learning_rate = self._learner.learning_rate(num_updates)
        ema_decay = self._ema_decay(num_updates) if self._ema else None

        # One weight after the other. Keras' own apply leaves the order to TensorFlow, which begins
        # with the first operation of all updates and so holds the temporary tensors of all weights
        # at once.
        done = [num_updates]
        with tf.control_dependencies(done):
            optimizers.begin_step(self._optimizer, learning_rate)
        for path in self.weights:
            with tf.control_dependencies(done):
                given = gradients.get(path)
                gradient = given() if callable(given) else given
                done = self._update_weight(path, gradient, learning_rate, ema_decay) or done
        with tf.control_dependencies(done):
            return self._optimizer.iterations.value.assign_add(1, read_value=True) + 0

    def _update_weight(self, path: str, gradient: tf.Tensor | None, learning_rate: tf.Tensor,
                       ema_decay: tf.Tensor | None) -> list[tf.Tensor]:
        """Updates one weight with its slots and average. Returns what is read after the last write.

        The list is empty if nothing is written.
        """
        weight = self.weights[path]
        if gradient is not None:
            rate = tf.cast(learning_rate, weight.dtype)
            if path in self._decaying:
                weight.assign_sub(weight * self._learner.params.weight_decay * rate)
            self._optimizer.update_step(tf.cast(gradient, weight.dtype), weight, rate)
        if path in self._ema:
            average = self._ema[path]
            value = tf.cast(weight, average.dtype)
            average.assign(value + tf.cast(ema_decay, average.dtype) * (average - value))
            return [average.read_value()]
        return [] if gradient is None else [weight.read_value()]

    def _ema_decay(self, num_updates: tf.Tensor) -> tf.Tensor:
        """The decay of the averages in the update after `num_updates`.

        That of the first update is 0, so that the initial weights are forgotten, as in Keras.
        """
        n = tf.cast(num_updates, tf.float32)
        decay = tf.constant(self._learner.params.ema_decay, tf.float32)
        if self._learner.params.ema_warmup:
            decay = tf.minimum(decay, (1. + n) / (10. + n))
        return tf.where(n > 0., decay, 0.)

    def follow_weights(self, but: Container[str] = ()) -> None:
        """Sets averages, and slots that begin as copies of the weights, to the weights.

        To be called when other code has assigned the weights.

        Args:
          but: names in `variables` of what that code has assigned too.
        """
        copies = [(f'ema/{path}', path, average) for path, average in self._ema.items()]
        copies += [(f'optimizer/{path}/{name}', path, slots[name])
                   for path, slots in self._slots.items()
                   for name in self._learner.copied_slots if name in slots]
        for name, path, variable in copies:
            if name not in but:
                variable.assign(tf.cast(self.weights[path], variable.dtype))

    def ema(self) -> dict[str, tf.Variable]:
        """The moving averages by path of the weight; empty if ema_decay is none."""
        return dict(self._ema)

    def variables(self) -> dict[str, tf.Variable]:
        """All that a checkpoint must hold besides the weights, by stable names:

            ema/<weight path>
            optimizer/<layer path>/iterations
            optimizer/<weight path>/<slot>            as velocities
            optimizer/<layer path>/<shared slot>
        """
        averages = {f'ema/{path}': average for path, average in self._ema.items()}
        if self._optimizer is None:
            return averages
        layer = f'optimizer/{self._layer_path}'
        return {
            **averages,
            f'{layer}/iterations': self._optimizer.iterations.value,
            **{f'optimizer/{path}/{name}': slot for path, slots in self._slots.items()
               for name, slot in slots.items()},
            **{f'{layer}/{name}': slot for name, slot in self._shared_slots.items()},
        }

    def _named_slots(self) -> tuple[dict[str, dict[str, tf.Variable]], dict[str, tf.Variable]]:
        """The optimizer's variables, by the names of its attributes without underscores.

        Returns:
          Weight path -> name -> slot, and name -> what it keeps for all of these weights together.

        Raises:
          ValueError: a variable has no such name.
        """
        slots: dict[str, dict[str, tf.Variable]] = {path: {} for path in self.weights}
        shared: dict[str, tf.Variable] = {}
        iterations = self._optimizer.iterations
        variables = [v for v in self._optimizer.variables if v is not iterations]
        named: list[keras.Variable] = []
        for attribute, value in vars(self._optimizer).items():
            name = attribute.strip('_')
            is_list_of_slots = (isinstance(value, list) and len(value) == len(self.weights)
                                and attribute not in ('_variables', '_trainable_variables'))
            if is_list_of_slots:  # Keras keeps a slot of all weights as one list.
                for path, slot in zip(self.weights, value, strict=True):
                    if _holds(variables, slot) and not _holds(named, slot):
                        slots[path][name] = slot.value
                        named.append(slot)
            elif _holds(variables, value) and not _holds(named, value):
                shared[name] = value.value
                named.append(value)

        unnamed = [variable.name for variable in variables if not _holds(named, variable)]
        if unnamed:
            raise ValueError(f'{type(self._optimizer).__name__} keeps variables '
                             f'({", ".join(unnamed)}) that are neither an attribute nor one of a '
                             'list with one for each weight, so that a checkpoint cannot name '
                             'them; keep them so, or use another optimizer.')
        return slots, shared


class _KerasWeight(keras.Variable):  # type: ignore[misc]  # Keras has no types.
    """A weight as a Keras optimizer sees it, under the path that it has here.

    It holds the given tf.Variable itself, not a copy.
    """

    def __init__(self, weight: tf.Variable, path: str):
        self._own_path = path
        # Keras forbids '/' in names.
        super().__init__(weight, dtype=weight.dtype.name, name=path.replace('/', '_'))
        assert self.value is weight

    @property
    def path(self) -> str:
        """Where Muon looks for Params.exclude_layers."""
        return self._own_path


def accumulator_dtype(dtype: tf.DType) -> tf.DType:
    """The dtype of sums and averages of values of a floating `dtype`: the same, or float32."""
    return tf.float32 if dtype.size < tf.float32.size else dtype


def _finds(pattern: str, path: str) -> bool:
    """Whether a regular expression, unless it is empty, is found in a path."""
    return bool(pattern) and re.search(pattern, path) is not None


def _holds(variables: Iterable[object], value: object) -> bool:
    """Whether the value is one of the variables, which have no == of their own."""
    return any(variable is value for variable in variables)
