"""KerasLoss: a loss of Keras, and metrics that are means, as the last layer of a pipeline."""
from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf
from keras.src.losses.losses import LossFunctionWrapper

from lingpipe.hyperparams import REQUIRED, field
from lingpipe.keras_models.likeness import difference, is_of_keras
from lingpipe.keras_models.probe import loss_mixes_when_called
from lingpipe.layers.context import Context
from lingpipe.layers.losses import Loss
from lingpipe.layers.nested import NestedMap
from lingpipe.layers.shapes import dims
from lingpipe.layers.weighting import expanded, total_weight
from lingpipe.wording.values import show

_MEANS = ('sum_over_batch_size', 'mean')
_SPARSE = ('sparse_categorical_crossentropy', 'SparseCategoricalCrossentropy')


class KerasLoss(Loss):
    """A loss of Keras for one output of a network, averaged over what counts.

    x is the output and labels what it should be, as the Keras loss takes them. Where x has a mask,
    positions that it leaves out do not count. `weight` is Keras' sample_weight: it multiplies the
    losses, and the sum is divided by their number, as in Keras, and not by the sum of the weights.
    What has weight 0 is not counted, since mini-batches are filled up so; Keras counts it.

    `logits` are those of which x is the softmax or sigmoid: cross-entropies are computed of them,
    as Keras does where it can see them, which is in float32.
    """

    mask_rule = 'takes'

    class Params(Loss.Params):
        """The Keras loss and metrics."""
        loss: str = field(REQUIRED, 'The loss as JSON: its name, or its class and configuration '
                                    'as keras.losses.serialize writes them.')
        metrics: tuple[str, ...] = field((), 'Metrics as JSON, as the loss is written. They are '
                                             'plain means of what has another weight than 0.')
        weighted_metrics: tuple[str, ...] = field((), 'Metrics as JSON that are weighted means.')
        metric_prefix: str = field('', 'What the names of metrics begin with.')
        is_mean_of_examples: bool = field(False, 'Whether each example counts as one, however many '
                                                 'of its positions count: so that several losses '
                                                 'add up.')
        has_logits_in_training: bool = field(
            True, 'Whether x is the softmax or sigmoid of the logits in training, too: it is not '
                  'behind a Dropout.')
        mixes_examples: bool = field(False, 'Whether the loss or a metric compares examples of the '
                                            'mini-batch, which then cannot be split. from_keras '
                                            'finds out.')

        def check(self) -> None:
            """Raises ValueError for a loss that is no mean, or a metric that is none."""
            loss_of(self.loss)
            for text in (*self.metrics, *self.weighted_metrics):
                metric_of(text)

        def is_mixing(self, output: keras.KerasTensor) -> bool:
            """Whether the loss or a metric, called with a few outputs, compares examples."""
            metrics = [metric_of(text) for text in (*self.metrics, *self.weighted_metrics)]
            functions = [loss_of(self.loss).call,
                         *(functools.partial(one._fn, **one._fn_kwargs) for one in metrics)]
            return any(loss_mixes_when_called(function, output) for function in functions)

    params: Params

    def __init__(self, params: Params, path: str = ''):
        super().__init__(params, path)
        self._loss = loss_of(self.params.loss)
        self._is_of_keras = all(map(is_of_keras, (
            type(self._loss), getattr(self._loss, 'fn', self._loss))))
        self._metrics = [metric_of(text) for text in self.params.metrics]
        self._weighted_metrics = [metric_of(text) for text in self.params.weighted_metrics]
        self.needs_whole_batch = self.params.mixes_examples
        self.whole_batch_remedy = (
            f'compile the Keras model with another loss than {self._loss.name} or other metrics, '
            'which give an example the same value whatever examples are beside it')

    def takes_masks(self, reads: Mapping[str, str]) -> dict[str, str]:
        """The mask of x."""
        return {'mask': reads['x']}

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor, labels: tf.Tensor,
              weight: tf.Tensor | None = None, mask: tf.Tensor | None = None,
              logits: tf.Tensor | None = None) -> None:
        """Emits the loss 'loss' and the metrics; x [b, ...], and labels as the loss takes them.

        Raises:
          ValueError: weight or labels do not fit, or the loss is one number for all examples.
        """
        if weight is not None and not self.needs_whole_batch:
            counts = expanded(weight, x.shape[:tf.TensorShape(weight.shape).rank], self.path) != 0
            x, labels = _where(counts, x, 1), _where(counts, labels, 0)
            logits = None if logits is None else _where(counts, logits, 0)
        prediction = tf.cast(tf.identity(x), tf.float32)
        is_of_logits = self.params.has_logits_in_training or not ctx.training
        if logits is not None and is_of_logits and x.dtype == prediction.dtype:
            prediction._keras_logits = tf.cast(logits, tf.float32)
        is_number = labels.dtype.is_floating or not self._is_of_keras
        targets = tf.cast(labels, tf.float32) if is_number else labels

        losses = self._losses(targets, prediction)
        if not losses.shape.rank:
            raise ValueError(f'{self.path}: the Keras loss {self._loss.name} gives one number for '
                             'all examples, which micro-batches cannot add up; use one that gives '
                             'a loss for each example (Dice and Tversky: with an axis).')
        counts = self._weights(losses, weight, mask)
        own_mask = getattr(losses, '_keras_mask', None)   # Of ignore_class.
        if own_mask is not None:
            counts = counts * tf.cast(own_mask, tf.float32)
        self._emit_mean(ctx, tf.cast(losses, tf.float32), counts)
        measured = tf.stop_gradient(prediction)
        if hasattr(prediction, '_keras_logits'):
            measured._keras_logits = tf.stop_gradient(prediction._keras_logits)
        self._emit_metrics(ctx, targets, measured, weight, mask)

    def _losses(self, targets: tf.Tensor, prediction: tf.Tensor) -> tf.Tensor:
        """The losses of all elements.

        Raises:
          ValueError: the Keras loss does not take these shapes.
        """
        try:
            return self._loss.call(targets, prediction)
        except (ValueError, tf.errors.InvalidArgumentError) as error:
            raise ValueError(
                f'{self.path}: the Keras loss does not take labels of shape {targets.shape} for an '
                f'output of shape {prediction.shape}; {self._remedy(targets)}.') from error

    def _remedy(self, targets: tf.Tensor) -> str:
        """What to do about shapes that do not fit."""
        if any(name in self.params.loss for name in _SPARSE):
            return ('it takes the number of the class; for one-hot labels, compile the model with '
                    'categorical_crossentropy')
        if 'rossentropy' in self.params.loss and targets.dtype.is_integer:
            return ('it takes one-hot labels; for numbers of classes, compile the model with '
                    'sparse_categorical_crossentropy')
        return 'give labels of the shape of the output'

    def _emit_metrics(self, ctx: Context, targets: tf.Tensor, prediction: tf.Tensor,
                      weight: tf.Tensor | None, mask: tf.Tensor | None) -> None:
        """Emits the metrics. A weighted one whose name is taken is called as in Keras."""
        names: list[str] = []
        for metric in [*self._metrics, *self._weighted_metrics]:
            values = tf.cast(metric._fn(targets, prediction, **metric._fn_kwargs), tf.float32)
            if not values.shape.rank:
                raise ValueError(f'{self.path}: the metric {metric.name} gives one number for all '
                                 'examples, which micro-batches cannot add up; use one that gives '
                                 'a value for each example.')
            weights = self._weights(values, weight, mask)
            if metric not in self._weighted_metrics:
                weights = _counted(weights)
            names.append(f'weighted_{metric.name}' if metric.name in names else metric.name)
            ctx.emit_metric(self.path, self.params.metric_prefix + names[-1],
                            tf.reduce_sum(values * weights), total_weight(weights, values))

    def id_ranges(self, **specs: tf.TensorSpec) -> dict[str, int]:
        """Labels of a sparse cross-entropy are below the number of classes."""
        is_sparse = any(name in self.params.loss for name in _SPARSE)
        return {'labels': specs['x'].shape[-1]} if is_sparse else {}

    def _weights(self, values: tf.Tensor, weight: tf.Tensor | None,
                 mask: tf.Tensor | None) -> tf.Tensor:
        """The weight of each value, of a shape that broadcasts to theirs."""
        weights = tf.ones([dims(values)[0], *[1] * (values.shape.rank - 1)])
        if weight is not None:
            weights = weights * expanded(weight, values.shape, self.path)
        if mask is not None:
            weights = weights * expanded(mask, values.shape, self.path)
        return weights

    def _emit_mean(self, ctx: Context, losses: tf.Tensor, weights: tf.Tensor) -> None:
        """Emits the weighted sum of the losses, and how many of them count."""
        if self.params.is_mean_of_examples and losses.shape.rank > 1:
            weights = tf.broadcast_to(weights, dims(losses))
            inner = list(range(1, losses.shape.rank))
            losses = tf.math.divide_no_nan(tf.reduce_sum(losses * weights, inner),
                                           tf.reduce_sum(_counted(weights), inner))
            weights = tf.reduce_max(_counted(weights), inner)
        self._emit(ctx, tf.reduce_sum(losses * weights), total_weight(_counted(weights), losses))


def _counted(weights: tf.Tensor) -> tf.Tensor:
    """1 where a weight is not 0."""
    return tf.cast(weights != 0, tf.float32)


def loss_of(text: str) -> Any:
    """The Keras loss that a JSON text describes.

    Raises:
      ValueError: there is none, or it is no mean.
    """
    loss = _made(text, keras.losses.get, 'loss')
    if not isinstance(loss, keras.losses.Loss):
        loss = LossFunctionWrapper(loss, name=getattr(loss, '__name__', None))
    if type(loss).__call__ is not keras.losses.Loss.__call__:
        raise ValueError(f'the Keras loss {loss.name} has a __call__ of its own, which takes the '
                         'mean of a mini-batch; write call, which gives a loss for each example.')
    if loss.reduction not in _MEANS:
        raise ValueError(f'the Keras loss {loss.name} has reduction={loss.reduction!r}, but the '
                         "loss of a mini-batch is a mean; use 'sum_over_batch_size'.")
    if isinstance(loss, keras.losses.CTC) or getattr(loss, 'fn', None) is keras.losses.ctc:
        raise ValueError('the Keras loss CTC keeps state that TensorFlow makes in each call, which '
                         'no task of a pipeline may have; use another loss, or train this model '
                         'with Keras.')
    return loss


def metric_of(text: str) -> Any:
    """The Keras metric that a JSON text describes, which is a mean of a function.

    Raises:
      ValueError: there is none, or it is no such mean.
    """
    metric = _made(text, keras.metrics.get, 'metric')
    if not isinstance(metric, keras.metrics.Metric):
        metric = keras.metrics.MeanMetricWrapper(metric, name=metric.__name__)
    config = json.loads(text)
    if isinstance(config, str):   # Keras calls a metric as compile does: 'mae'.
        metric.name = config
    wrapper = keras.metrics.MeanMetricWrapper
    is_mean = isinstance(metric, wrapper) and all(
        getattr(type(metric), name) is getattr(wrapper, name)
        for name in ('update_state', 'result'))
    if not is_mean:
        raise ValueError(f'the Keras metric {type(metric).__name__} is no mean over examples of a '
                         'function of labels and predictions, as metrics of a pipeline are: give '
                         'such a function, or a keras.metrics.MeanMetricWrapper without an '
                         'update_state or result of its own; or leave the metric out of compile, '
                         'and compute it of the predictions.')
    return metric


def described(given: Any) -> Any:
    """The configurations of losses or metrics, as compile was given them.

    The configurations that Keras writes lack some arguments, as the delta of Huber.
    """
    if isinstance(given, dict):
        return {name: described(one) for name, one in given.items()}
    if isinstance(given, (list, tuple)):
        return [described(one) for one in given]
    if inspect.isfunction(given):
        _check_name(given)
    try:
        config = keras.saving.serialize_keras_object(given)
    except TypeError as error:
        raise ValueError(f'{show(given)} of compile cannot be written as a configuration: {error}; '
                         'write a function with @keras.saving.register_keras_serializable() above '
                         'it.') from error
    arguments = getattr(given, '_fn_kwargs', {})
    known = inspect.signature(type(given).__init__).parameters
    missing = {name: value for name, value in arguments.items()
               if name in known and name not in config['config']}
    if missing:
        config['config'].update(keras.saving.serialize_keras_object(missing))
    if isinstance(config, dict) and isinstance(given, (keras.losses.Loss, keras.metrics.Metric)):
        _check_remade(given, config)
    return config


def _check_name(function: Any) -> None:
    """Raises ValueError for a function of somebody's own that has the name of one of Keras."""
    name = function.__name__
    if is_of_keras(function) or keras.saving.get_registered_name(function) != name:
        return
    if _is_name(name, keras.losses.get) or _is_name(name, keras.metrics.get):
        raise ValueError(f'the function {name!r} of {function.__module__} has the name of one of '
                         'Keras, which would be taken in its place; rename it, and write '
                         '@keras.saving.register_keras_serializable() above it.')


def _is_name(name: str, get: Any) -> bool:
    """Whether Keras knows a loss or metric of this name."""
    try:
        get(name)
    except (ValueError, TypeError):
        return False
    return True


def _check_remade(given: Any, config: Any) -> None:
    """Raises ValueError if Keras makes another loss or metric of a configuration."""
    try:
        remade = keras.saving.deserialize_keras_object(config)
    except (ValueError, TypeError):   # Which is said where it is made.
        return
    text = difference(given, remade)
    if text:
        raise ValueError(f'{type(given).__name__} {given.name!r} is not what its configuration '
                         f'says: {text}; correct its get_config.')


def _made(text: str, get: Any, what: str) -> Any:
    config = json.loads(text)
    names = 'keras.losses' if what == 'loss' else 'keras.metrics'
    is_function = isinstance(config, dict) and config.get('class_name') == 'function'
    is_of_keras = is_function and '>' not in config['config']   # Not 'package>name'.
    try:
        return get(config['config'] if is_of_keras else config)
    except (ValueError, TypeError) as error:
        if not isinstance(config, dict):
            raise ValueError(f'{text} is no {what} of Keras ({error}); name one of {names}.'
                             ) from error
        own = config['config'] if config['class_name'] == 'function' else config['class_name']
        called = '<lambda>' if own == '__lambda__' else own
        raise ValueError(
            f'the {what} {called!r} cannot be made again from its configuration, which is all that '
            f'an experiment holds; use one of {names}, or your own function or class with '
            '@keras.saving.register_keras_serializable() above it.') from error


def _where(counts: tf.Tensor, value: tf.Tensor, other: float) -> tf.Tensor:
    """The value, and `other` where an example does not count."""
    missing = value.shape.rank - counts.shape.rank
    shape = [*dims(counts), *[1] * max(0, missing)]
    return tf.where(tf.reshape(counts, shape), value, tf.cast(other, value.dtype))

