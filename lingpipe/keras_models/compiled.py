"""Compiled: what model.compile says, as losses of a network and as a learner."""
from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
from absl import logging

from lingpipe.hyperparams import fields_of
from lingpipe.keras_models.keras_loss import KerasLoss, described
from lingpipe.keras_models.logits import Logits
from lingpipe.layers.keras_building import inner_layers
from lingpipe.learning import learning_rates, optimizers
from lingpipe.learning.learner import Learner
from lingpipe.wording.values import show

_ACCURACY = {'sparse_categorical_crossentropy': 'SparseCategoricalAccuracy',
             'SparseCategoricalCrossentropy': 'SparseCategoricalAccuracy',
             'categorical_crossentropy': 'CategoricalAccuracy',
             'CategoricalCrossentropy': 'CategoricalAccuracy',
             'binary_crossentropy': 'CategoricalAccuracy',
             'BinaryCrossentropy': 'CategoricalAccuracy',
             'categorical_focal_crossentropy': 'CategoricalAccuracy',
             'CategoricalFocalCrossentropy': 'CategoricalAccuracy',
             'binary_focal_crossentropy': 'CategoricalAccuracy',
             'BinaryFocalCrossentropy': 'CategoricalAccuracy'}
"""Loss -> what Keras takes 'accuracy' for, if the output has several channels."""

LABELS = 'labels'
"""What the loss of a model's only output reads, if nobody says another name."""

_NOT_HAD = {
    'clipnorm': 'compile with global_clipnorm, which is clip_norm of a Learner',
    'clipvalue': 'compile with global_clipnorm, which is clip_norm of a Learner',
    'use_ema': 'leave it out, and set ema_decay of the Learner, whose averages evaluations use',
    'loss_scale_factor': 'leave it out',
}
"""Argument of a Keras optimizer -> what to do without it."""


def has_logits(model: keras.Model, keras_names: Sequence[str]) -> list[bool]:
    """Whether each output has a cross-entropy, which Keras computes of logits where it sees them.

    It may be a loss or a metric. Keras does so too if it says from_logits=True and the output is a
    softmax or sigmoid.
    """
    config = _config(model)
    losses = _by_output(config.get('loss'), keras_names, is_for_all=True)
    metrics = [_by_output(config.get(name), keras_names, is_list=True)
               for name in ('metrics', 'weighted_metrics')]
    texts = [json.dumps(of_output).lower() for of_output in zip(losses, *metrics, strict=True)]
    return ['crossentropy' in text for text in texts]


def labels_of(outputs: Sequence[str], labels: str = LABELS) -> list[str]:
    """What the losses of a model with these outputs read as labels.

    Args:
      outputs: their names.
      labels: what the loss of a model's only output reads.

    Raises:
      ValueError: there are several outputs, and `labels` is given.
    """
    if len(outputs) == 1:
        return [labels]
    if labels != LABELS:
        raise ValueError(f'labels={labels!r} names the labels of one output, and the Keras model '
                         f'has {len(outputs)} ({", ".join(outputs)}), whose losses read '
                         f'{LABELS}_OUTPUT; leave labels out.')
    return [f'{LABELS}_{output}' for output in outputs]


def losses_of(model: keras.Model, keras_names: Sequence[str], outputs: Sequence[str],
              labels: Sequence[str], logits: Logits) -> list[KerasLoss.Params]:
    """Returns the losses of a compiled model; none for a model that has no loss.

    Args:
      model: it.
      keras_names: what Keras calls the outputs.
      outputs: the values that these are.
      labels: what the loss of each output reads as labels.
      logits: those of which outputs are the softmax or sigmoid.

    Raises:
      ValueError: a loss or a metric is not to be had in a pipeline.
    """
    config = _config(model)
    if not config.get('loss'):
        return []
    for name in ('train_step', 'compute_loss', 'compute_metrics'):
        if getattr(type(model), name) is not getattr(keras.Model, name):
            raise ValueError(f'the model {type(model).__name__} {model.name!r} has a {name}() of '
                             'its own, which no pipeline runs; make a keras.Model of its inputs '
                             'and outputs and compile that, or write the loss as a Layer.')
    losses = _by_output(config['loss'], keras_names, is_for_all=True)
    factors = _factors(config['loss_weights'], keras_names)
    metrics, weighted = (_by_output(config[name], keras_names, is_list=True)
                         for name in ('metrics', 'weighted_metrics'))
    tensors = keras.tree.flatten(model.outputs)
    params: list[KerasLoss.Params] = []
    has_several = sum(loss is not None for loss in losses) > 1
    for i, output in enumerate(outputs):
        if losses[i] is None:
            _refuse_metrics(keras_names[i], metrics[i] or weighted[i])
            continue
        reads = {'x': output, 'labels': labels[i]}
        if output in logits.read:
            reads['logits'] = logits.read[output]
        own, own_weighted = (
            tuple(json.dumps(_metric(one, losses[i], tensors[i])) for one in _listed(some[i]))
            for some in (metrics, weighted))
        params.append(KerasLoss.Params(
            name=f'loss_{output}' if has_several else 'loss', reads=reads,
            loss=json.dumps(losses[i]), metrics=own, weighted_metrics=own_weighted,
            metric_prefix=f'{output}_' if has_several else '',
            scale=factors[i],
            has_logits_in_training=output not in logits.in_evaluations,
            is_auxiliary=bool(params), is_mean_of_examples=has_several))
        params[-1].check()
        params[-1].mixes_examples = params[-1].is_mixing(tensors[i])
    return params


def _factors(config: Any, keras_names: Sequence[str]) -> list[float]:
    """The factor on the loss of each output.

    Raises:
      ValueError: loss_weights of compile is something else.
    """
    factors = _by_output(config, keras_names)
    wrong = [one for one in factors if not isinstance(one, (int, float, np.number, type(None)))]
    if wrong:
        raise ValueError(f'compile has loss_weights={config}, but the weight of a loss is a '
                         'number. The third argument of compile is loss_weights in Keras 3; give '
                         'metrics by name, as model.compile(optimizer, loss, '
                         "metrics=['accuracy']).")
    return [1. if one is None else float(one) for one in factors]


def _refuse_metrics(output: str, metrics: Any) -> None:
    """Raises ValueError if an output without a loss has metrics."""
    if metrics:
        raise ValueError(f'compile has metrics of the output {output!r}, which has no loss and so '
                         'no labels here; leave them out, or compute them of the predictions.')


def learner_from_keras(model: keras.Model) -> Learner.Params:
    """Returns the learner that does what the optimizer of a compiled Keras model does.

    Raises:
      TypeError: it is no model.
      ValueError: the model is not compiled, or its optimizer has no equal in lingpipe.
    """
    if not isinstance(model, keras.Model):
        raise TypeError(f'{show(model)} is no model of Keras; give the compiled model, of which '
                        'the optimizer is taken.')
    if not model.compiled:
        raise ValueError(f'the Keras model {model.name!r} is not compiled, so that it has no '
                         "optimizer; call model.compile(optimizer='adam', loss=...) first.")
    optimizer = model.optimizer
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        raise ValueError('Keras scales the loss of this model for float16, and lingpipe does not; '
                         "use the policy 'mixed_bfloat16', or compile with auto_scale_loss=False "
                         'and an optimizer that is no LossScaleOptimizer.')
    with warnings.catch_warnings():   # Of functions, which are refused.
        warnings.simplefilter('ignore')
        arguments = optimizer.get_config()
    _refuse_arguments(optimizer, arguments)
    own = next((one for one in vars(optimizers).values()
                if getattr(one, 'keras_class', None) is type(optimizer)), None)
    if own is None:
        raise ValueError(f'there is no optimizers.{type(optimizer).__name__}; compile the model '
                         'with another optimizer of Keras.')

    steps = int(optimizer.iterations)
    if steps:
        logging.warning('the optimizer of the Keras model %r has trained already (its step: %d); '
                        'the learner begins anew, without its slots and at step 0 of its learning '
                        'rate', model.name, steps)
    rate = _rate(arguments['learning_rate'])
    accumulate = arguments.get('gradient_accumulation_steps') or 1
    if accumulate > 1:
        _refuse_accumulation(model, accumulate, rate)

    values = {name: arguments[name] for name in fields_of(own.Params) if name in arguments}
    return Learner.Params(
        optimizer=own.Params(**values), learning_rate=rate,
        weight_decay=arguments.get('weight_decay') or 0., decay_vectors=True,
        clip_norm=arguments.get('global_clipnorm'),
        accumulate=accumulate)


def _refuse_accumulation(model: keras.Model, accumulate: int,
                         rate: learning_rates.Schedule.Params) -> None:
    """Raises ValueError if mini-batches that are accumulated teach something else in Keras."""
    norms = [layer.name for layer in inner_layers(model)
             if isinstance(layer, keras.layers.BatchNormalization) and layer.trainable]
    has_mask = any(getattr(output, '_keras_mask', None) is not None
                   for output in keras.tree.flatten(model.outputs))
    ignored = re.search('"ignore_class": [^n]', json.dumps(_config(model).get('loss')))
    if not isinstance(rate, learning_rates.Constant.Params):
        what = 'a schedule of the learning rate'
        why = 'Keras counts mini-batches for it, and a Learner updates'
    elif norms:
        what = f'the BatchNormalization {norms[0]!r}'
        why = 'Keras moves its averages with every mini-batch, and a pipeline with every update'
    elif has_mask or ignored:
        what = 'an output with a mask' if has_mask else 'a loss with ignore_class'
        why = ('Keras takes the mean of the means of mini-batches, and a Learner that of all that '
               'counts')
    else:
        return
    raise ValueError(f'the optimizer {type(model.optimizer).__name__} has '
                     f'gradient_accumulation_steps={accumulate} beside {what}: {why}; compile '
                     'without accumulation (a schedule then counts updates), and set accumulate of '
                     'the Learner.')


def _refuse_arguments(optimizer: keras.optimizers.Optimizer, arguments: Mapping[str, Any]) -> None:
    """Raises ValueError for arguments of an optimizer that no Learner has."""
    for name, remedy in _NOT_HAD.items():
        if arguments.get(name):
            raise ValueError(f'the optimizer {type(optimizer).__name__} has {name}='
                             f'{arguments[name]}, which no Learner has; {remedy}.')
    if arguments.get('weight_decay') and _excludes_weights(optimizer):
        raise ValueError(f'the optimizer {type(optimizer).__name__} excludes weights from its '
                         'weight decay, which is no part of its configuration; write a Learner, '
                         'whose decay_vectors=False excludes vectors.')
    decay = arguments.get('weight_decay') or 0.
    if (arguments.get('adam_weight_decay', decay) or 0.) != decay:
        raise ValueError(f'the optimizer {type(optimizer).__name__} has weight_decay={decay} and '
                         f'adam_weight_decay={arguments["adam_weight_decay"]}, and a Learner has '
                         'one weight decay for all weights; compile with both equal.')


def _config(model: keras.Model) -> dict[str, Any]:
    """What compile was given, as configurations; {} if the model is not compiled."""
    config: dict[str, Any] = model.get_compile_config() if model.compiled else {}
    given = getattr(model, '_compile_config', None)
    if not config or given is None:   # A class of Keras models may have a config of its own.
        return config
    names = ('loss', 'metrics', 'weighted_metrics')
    return {**config, **{name: described(given.config[name]) for name in names}}


def _excludes_weights(optimizer: keras.optimizers.Optimizer) -> bool:
    """Whether exclude_from_weight_decay was called, of which Keras keeps no public trace."""
    return bool(getattr(optimizer, '_exclude_from_weight_decay', None)
                or getattr(optimizer, '_exclude_from_weight_decay_pattern', None))


def _rate(config: Any) -> learning_rates.Schedule.Params:
    """The learning rate of a Keras optimizer.

    Raises:
      ValueError: its schedule has no equal in lingpipe.
    """
    if isinstance(config, (int, float)):
        return learning_rates.Constant.Params(rate=float(str(np.float32(config))))
    name, values = config['class_name'], config['config']
    if config.get('module') != 'keras.optimizers.schedules':   # It may be called as one of Keras'.
        name = config.get('registered_name') or name
    if not isinstance(values, dict) or name == '__lambda__':
        raise ValueError('the learning rate is a Python function, which no configuration can hold; '
                         'compile with a number or one of keras.optimizers.schedules, or set '
                         'learning_rate of the Learner to one of lp.learning_rates.')
    if name == 'CosineDecay' and (values['warmup_target'] is None or not values['warmup_steps']):
        return learning_rates.Cosine.Params(
            rate=values['initial_learning_rate'], decay_steps=values['decay_steps'],
            final_fraction=values['alpha'])
    if name == 'ExponentialDecay':
        return learning_rates.Exponential.Params(
            rate=values['initial_learning_rate'], decay_steps=values['decay_steps'],
            decay_factor=values['decay_rate'], staircase=values['staircase'])
    if name == 'PolynomialDecay' and not values['cycle']:
        return learning_rates.Polynomial.Params(
            rate=values['initial_learning_rate'], decay_steps=values['decay_steps'],
            final_rate=values['end_learning_rate'], power=values['power'])
    if name == 'PiecewiseConstantDecay' and all(int(b) == b >= 0 for b in values['boundaries']):
        return learning_rates.Piecewise.Params(   # Keras changes the rate after a boundary.
            boundaries=tuple(int(b) + 1 for b in values['boundaries']),
            rates=tuple(values['values']))
    shown = ', '.join(f'{key}={value}' for key, value in values.items() if key != 'name')
    if name == 'CosineDecay':
        raise ValueError(
            f'the learning rate {name}({shown}) has no equal in lingpipe, whose warm-up begins '
            'elsewhere and ends an update earlier; set learning_rate of the Learner to '
            f'learning_rates.Cosine.Params(rate={values["warmup_target"]}, '
            f'decay_steps={values["decay_steps"]}, final_fraction={values["alpha"]}, '
            f'warmup_steps={values["warmup_steps"]}), which begins with rate / warmup_steps.')
    raise ValueError(f'the learning rate {name}({shown}) has no equal in lingpipe; set '
                     'learning_rate of the Learner to one of lp.learning_rates, which have '
                     'warmup_steps: Constant, Cosine, Exponential, Polynomial, Linear, Piecewise, '
                     'InverseSquareRoot.')


def _by_output(config: Any, names: Sequence[str], is_for_all: bool = False,
               is_list: bool = False) -> list[Any]:
    """What compile says for each output.

    Args:
      config: a list or dict with what each output has; or, if there is one output, that.
      names: of the outputs in Keras.
      is_for_all: whether one thing may be meant for every output.
      is_list: whether an output has a list.

    Raises:
      ValueError: it is nothing of this.
    """
    is_list_of_outputs = isinstance(config, (list, tuple)) and not (is_list and len(names) == 1)
    if config is None:
        return [None] * len(names)
    if isinstance(config, dict) and 'class_name' not in config:
        unknown = [name for name in config if name not in names]
        if unknown:
            raise ValueError(f'compile names the output {unknown[0]!r}, but the Keras model has '
                             f'{", ".join(names)}; correct the name.')
        return [config.get(name) for name in names]
    if is_list_of_outputs and len(config) == len(names):
        return list(config)
    if not is_list_of_outputs and (is_for_all or len(names) == 1):
        return [config] * len(names)
    raise ValueError(f'compile gives {config} for the outputs {", ".join(names)}; give a dict, or '
                     'a list with one item for each output.')


def _listed(config: Any) -> list[Any]:
    return [] if config is None else list(config) if isinstance(config, (list, tuple)) else [config]


def _metric(config: Any, loss: Any, output: keras.KerasTensor) -> Any:
    """A metric of compile, where 'accuracy' is the one that Keras takes for the output.

    Raises:
      ValueError: none does.
    """
    if str(config).lower() not in ('accuracy', 'acc'):
        return config
    name = loss['class_name'] if isinstance(loss, dict) else loss
    num_channels = output.shape[-1]
    if name not in _ACCURACY:
        choices = (['BinaryAccuracy'] if num_channels == 1 else
                   ['CategoricalAccuracy', 'SparseCategoricalAccuracy'])
        remedy = " or keras.metrics.".join(f"{one}(name='{config}')" for one in choices)
        raise ValueError(f"compile has metrics=['{config}'], and which accuracy that is depends on "
                         f'labels that nobody has seen, with the loss {name}; name it, as '
                         f'keras.metrics.{remedy}.')
    accuracy = 'BinaryAccuracy' if num_channels == 1 else _ACCURACY[name]
    return {'class_name': accuracy, 'config': {'name': config}}
