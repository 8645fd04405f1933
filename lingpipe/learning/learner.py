"""Learner: how gradients become new weights. Optimizer, learning rate, decay, clipping, averages, frozen weights.

The pipeline sums the gradients of a mini-batch, and in one step does, in this order:

    g = learner.regularized(path, g, w)          every weight that is not frozen
    norm = global norm of all g, over all cells;  g = g * learner.clip_factor(norm)
    layer_learner.apply({path: g, ...})          every layer, called on its own device

There is one Keras optimizer for each layer, and not one for all: its slots are created beside the layer's weights,
whichever device they live on, and a layer takes its slots with it when another partition puts it elsewhere.
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
        """Optimizer, schedule, decay, clipping, moving average, frozen weights, accumulation."""
        optimizer: optimizers.Optimizer.Params = field(optimizers.SGD.Params(), 'The optimizer: see lingpipe/learning/optimizers.py.')
        learning_rate: learning_rates.Schedule.Params = field(
            learning_rates.Constant.Params(), 'The schedule: see lingpipe/learning/learning_rates.py.')
        weight_decay: float = field(0.0, 'Decoupled: every update also subtracts learning_rate * weight_decay * w.',
                                    least=0)
        l2: float = field(0.0, 'Coupled: l2 * w is added to the gradient before clipping, as if l2/2 * |w|^2 were in the loss; '
                               'a weight that the loss itself does not depend on stays as it is.',
                          least=0)
        no_decay: str = field('', 'Regular expression, found in paths of weights without weight_decay and l2; empty: none.')
        decay_vectors: bool = field(False, 'Whether weights of rank 0 and 1 (biases, scales of normalisation) decay too.')
        clip_norm: float | None = field(None, 'Largest global norm of the gradients of all weights; none: no clipping.',
                                        above=0)
        ema_decay: float | None = field(None, 'Decay of the moving average of weights used for evaluation; none: no average.',
                                        above=0, below=1)
        ema_warmup: bool = field(True, 'Whether the decay after n updates is at most (1 + n) / (10 + n), to forget the start.')
        frozen: str = field('', 'Regular expression, found in paths of weights that do not train; empty: none.')
        accumulate: int = field(1, 'Mini-batches whose gradients are summed up for one update.',
                                least=1)
        max_nonfinite_steps: int = field(10, 'Steps in a row with an infinite or nan loss or gradient, which are skipped, that '
                                             'stop the training.', least=1)

        def check(self) -> None:
            """Raises ValueError for an expression that does not compile."""
            for name in ('no_decay', 'frozen'):
                try:
                    re.compile(getattr(self, name))
                except re.error as error:
                    raise ValueError(f'{name}={getattr(self, name)!r} is not a regular expression: {error}; correct it') from error

    params: Params

    def __init__(self, params: Any):
        super().__init__(params)
        self._optimizer: optimizers.Optimizer = self.params.optimizer.instantiate()
        self._schedule: learning_rates.Schedule = self.params.learning_rate.instantiate()
        self._optimizer.check_decay(self.params.weight_decay)
        self._for_matrix()   # what is refused is refused now, not in the first step

    def slot_bytes(self, dtype: tf.DType) -> int:
        """Bytes of optimizer slots and averages that a number in a matrix of `dtype` takes, besides the number and its gradient."""
        average = accumulator_dtype(dtype).size if self.params.ema_decay is not None else 0
        return self._num_slots * dtype.size + average   # Keras gives slots the dtype of the weight

    @functools.cached_property
    def _num_slots(self) -> int:
        """Slots that the optimizer keeps for a matrix."""
        variables = self._for_matrix().variables()
        return sum(key.startswith('optimizer/') and v.shape.rank == 2 for key, v in variables.items())

    def _for_matrix(self) -> LayerLearner:
        return LayerLearner(self, self._optimizer.make, 'layer', {'matrix': tf.Variable(tf.zeros([16, 16]))})

    @property
    def copied_slots(self) -> Sequence[str]:
        """Slots that begin as copies of the weights, by their names in LayerLearner.variables."""
        return self._optimizer.copied_slots

    def is_frozen(self, path: str) -> bool:
        """Whether the weight does not train, so that no gradient need be computed."""
        return _finds(self.params.frozen, path)

    def decays(self, path: str, rank: int) -> bool:
        """Whether weight_decay and l2 reach the weight."""
        return (rank > 1 or self.params.decay_vectors) and not _finds(self.params.no_decay, path)

    def check_paths(self, paths: Iterable[str]) -> None:
        """Refuses a regular expression that no weight of the network matches, as it is surely misspelt.

        Raises:
          ValueError: `frozen` or `no_decay` finds nothing, or `frozen` leaves nothing to train.
        """
        paths = list(paths)
        for name in ('frozen', 'no_decay'):
            pattern = getattr(self.params, name)
            if pattern and not any(_finds(pattern, path) for path in paths):
                raise ValueError(f'learner.{name}={pattern!r} is found in no path of the {len(paths)} weights; paths look like '
                                 f'{", ".join(paths[:3])}: correct it, or leave it empty.')
        if paths and all(map(self.is_frozen, paths)):
            raise ValueError(f'learner.frozen={self.params.frozen!r} freezes all {len(paths)} weights; leave some to train.')

    def regularized(self, path: str, gradient: tf.Tensor | None, weight: tf.Tensor) -> tf.Tensor | None:
        """gradient + l2 * weight; a gradient of None stays None."""
        if gradient is None or not self.params.l2 or not self.decays(path, weight.shape.rank):
            return gradient
        return gradient + self.params.l2 * tf.cast(weight, gradient.dtype)

    def clip_factor(self, global_norm: tf.Tensor) -> tf.Tensor:
        """What every gradient is multiplied by: min(1, clip_norm / global_norm)."""
        if self.params.clip_norm is None:
            return tf.ones_like(global_norm)
        return tf.minimum(tf.ones_like(global_norm), self.params.clip_norm / global_norm)

    def learning_rate(self, step: tf.Tensor | int) -> tf.Tensor:
        """The rate of the update that comes after `step` updates."""
        return self._schedule(step)

    def for_layer(self, layer_path: str, weights: dict[str, tf.Variable]) -> LayerLearner:
        """The learner of one layer's trainable weights (by path). Slots and averages are created on the weights' device.

        Frozen weights may be among them; they get no slot and no average.

        Raises:
          ValueError: a weight that cannot be trained.
        """
        trained = {path: weight for path, weight in weights.items() if not self.is_frozen(path)}
        for path, weight in trained.items():
            if not weight.dtype.is_floating:
                raise ValueError(f'{path} is {weight.dtype.name}, and only real floating-point weights can be trained; hold it as such '
                                 f'(a complex weight as two), or declare it with is_trainable=False.')
            self._optimizer.check_weight(path, weight.shape, weight.dtype)
        return LayerLearner(self, self._optimizer.make, layer_path, trained)


class LayerLearner:
    """Slots, averages and updates of one layer. Made by Learner.for_layer.

    Attributes:
      weights: the weights that it trains, by path.
    """

    def __init__(self, learner: Learner, make_optimizer: Callable[[], Any], layer_path: str, weights: dict[str, tf.Variable]):
        self.weights = weights
        self._learner, self._layer_path = learner, layer_path
        self._decaying = {path for path, w in weights.items() if learner.params.weight_decay and learner.decays(path, w.shape.rank)}
        self._optimizer: Any = None
        self._ema: dict[str, tf.Variable] = {}
        self._slots: dict[str, dict[str, tf.Variable]] = {}
        self._shared_slots: dict[str, tf.Variable] = {}
        if not weights:
            return
        with tf.device(next(iter(weights.values())).device):
            self._optimizer = make_optimizer()
            self._optimizer.build([_KerasWeight(w, path) for path, w in weights.items()])
            if learner.params.ema_decay is not None:
                self._ema = {path: tf.Variable(tf.cast(w, accumulator_dtype(w.dtype)), trainable=False, name=f'ema/{path}')
                             for path, w in weights.items()}
        self._slots, self._shared_slots = self._named_slots()

    @property
    def kind(self) -> tuple[Any, ...]:
        """Equal for layers whose updates are the same computation on other variables."""
        return tuple((tuple(w.shape), w.dtype.name, self._learner.decays(path, w.shape.rank), tuple(self._slots[path]))
                     for path, w in self.weights.items())

    def apply(self, gradients: Mapping[str, Gradient], learning_rate: tf.Tensor | None = None) -> tf.Tensor | None:
        """One update of weights, slots and averages; may be traced in a tf.function, also in a branch of tf.cond.

        It opens no tf.device, since layers on several devices may share one trace: the caller opens the device of the weights.

        Args:
          gradients: by path, already regularised and clipped, or functions that make them and are called when it is the weight's
            turn, so that their temporary tensors come and go too. A weight whose gradient is None or missing stays as it is, slots
            included; gradients of frozen weights are ignored.
          learning_rate: of this update; default: the schedule at the number of updates made, which checkpoints restore.

        Returns:
          The number of updates made, known when all is done: a control dependency for the next layer's. None without weights.
        """
        if not self.weights:
            return None
        num_updates = tf.identity(self._optimizer.iterations.value)
        rate = self._learner.learning_rate(num_updates) if learning_rate is None else learning_rate
        ema_decay = self._ema_decay(num_updates) if self._ema else None
        # One weight after the other. Keras' own apply leaves the order to TensorFlow, which begins with the first operation of
        # all updates and so holds the temporary tensors of all weights at once.
        done = [num_updates]
        with tf.control_dependencies(done):
            optimizers.begin_step(self._optimizer, rate)
        for path, weight in self.weights.items():
            with tf.control_dependencies(done):
                given = gradients.get(path)
                gradient = given() if callable(given) else given
                if gradient is not None:
                    own_rate = tf.cast(rate, weight.dtype)
                    if path in self._decaying:
                        weight.assign_sub(weight * self._learner.params.weight_decay * own_rate)
                    self._optimizer.update_step(tf.cast(gradient, weight.dtype), weight, own_rate)
                if path in self._ema:
                    average = self._ema[path]
                    value = tf.cast(weight, average.dtype)
                    average.assign(value + tf.cast(ema_decay, average.dtype) * (average - value))
                    done = [average.read_value()]
                elif gradient is not None:
                    done = [weight.read_value()]
        with tf.control_dependencies(done):
            return self._optimizer.iterations.value.assign_add(1, read_value=True) + 0

    def _ema_decay(self, num_updates: tf.Tensor) -> tf.Tensor:
        """The decay of the average in the update after `num_updates`. The first forgets the initial weights, as in Keras."""
        n = tf.cast(num_updates, tf.float32)
        decay = tf.constant(self._learner.params.ema_decay, tf.float32)
        if self._learner.params.ema_warmup:
            decay = tf.minimum(decay, (1. + n) / (10. + n))
        return tf.where(n > 0., decay, 0.)

    def follow_weights(self, but: Container[str] = ()) -> None:
        """Makes averages, and slots that begin as copies of the weights, equal to the weights: to be called when other code has
        assigned the weights. `but`: keys of `variables` that it has assigned too."""
        copies = [(f'ema/{path}', path, average) for path, average in self._ema.items()]
        copies += [(f'optimizer/{path}/{name}', path, slots[name]) for path, slots in self._slots.items()
                   for name in self._learner.copied_slots if name in slots]
        for key, path, variable in copies:
            if key not in but:
                variable.assign(tf.cast(self.weights[path], variable.dtype))

    def ema(self) -> dict[str, tf.Variable]:
        """The moving averages by path of the weight; empty if ema_decay is none."""
        return dict(self._ema)

    def variables(self) -> dict[str, tf.Variable]:
        """All that a checkpoint must hold besides the weights, by stable names:

            optimizer/<weight path>/<slot>, as velocities;  optimizer/<layer path>/iterations;  ema/<weight path>
        """
        found = {f'ema/{path}': average for path, average in self._ema.items()}
        if self._optimizer is None:
            return found
        found[f'optimizer/{self._layer_path}/iterations'] = self._optimizer.iterations.value
        found.update({f'optimizer/{path}/{name}': slot for path, slots in self._slots.items() for name, slot in slots.items()})
        found.update({f'optimizer/{self._layer_path}/{name}': slot for name, slot in self._shared_slots.items()})
        return found

    def _named_slots(self) -> tuple[dict[str, dict[str, tf.Variable]], dict[str, tf.Variable]]:
        """(weight path -> attribute of the optimizer -> slot, attribute -> what it keeps for all of these weights together)."""
        rest = {id(v): v for v in self._optimizer.variables}
        rest.pop(id(self._optimizer.iterations))
        by_path: dict[str, dict[str, tf.Variable]] = {path: {} for path in self.weights}
        shared: dict[str, tf.Variable] = {}
        for attribute, value in vars(self._optimizer).items():
            if isinstance(value, list) and len(value) == len(self.weights) and attribute not in ('_variables', '_trainable_variables'):
                for path, slot in zip(self.weights, value, strict=True):   # Keras keeps a slot of all weights as one list
                    if rest.pop(id(slot), None) is not None:
                        by_path[path][attribute.strip('_')] = slot.value
            elif rest.pop(id(value), None) is not None:
                shared[attribute.strip('_')] = value.value
        if rest:
            listed = ', '.join(v.name for v in rest.values())
            raise ValueError(f'{type(self._optimizer).__name__} keeps variables ({listed}) that are neither an attribute nor one of a list '
                             f'with one for each weight, so that a checkpoint cannot name them; keep them so, or use another optimizer.')
        return by_path, shared


class _KerasWeight(keras.Variable):
    """A weight as an optimizer of Keras sees it: the given tf.Variable itself, not a copy, under the path that it has here."""

    def __init__(self, weight: tf.Variable, path: str):
        self._own_path = path
        super().__init__(weight, dtype=weight.dtype.name, name=path.replace('/', '_'))   # Keras forbids '/' in names
        assert self.value is weight

    @property
    def path(self) -> str:
        """What Muon.Params.exclude_layers is looked for in."""
        return self._own_path


def accumulator_dtype(dtype: tf.DType) -> tf.DType:
    """The dtype that sums and averages of values of a floating `dtype` have: the same, but float32 at least."""
    return tf.float32 if dtype.size < tf.float32.size else dtype


def _finds(pattern: str, path: str) -> bool:
    return bool(pattern) and re.search(pattern, path) is not None
