"""Compiled learner: the learner that does what the optimizer of model.compile does."""
from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from absl import logging

from lingpipe.hyperparams import fields_of
from lingpipe.keras_models.compiled import compile_config
from lingpipe.layers.keras_building import inner_layers
from lingpipe.learning import learning_rates, optimizers
from lingpipe.learning.learner import Learner
from lingpipe.wording.values import show

_NOT_HAD = {
    'clipnorm': 'compile with global_clipnorm, which is clip_norm of a Learner',
    'clipvalue': 'compile with global_clipnorm, which is clip_norm of a Learner',
    'use_ema': 'leave it out, and set ema_decay of the Learner, whose averages evaluations use',
    'loss_scale_factor': 'leave it out',
}
"""Argument of a Keras optimizer -> what to do without it."""


def learner_from_keras(model: keras.Model,
                       learning_rate: learning_rates.Schedule.Params | None = None,
                       ) -> Learner.Params:
    """Returns the learner that does what the optimizer of a compiled Keras model does.

    Args:
      model: the model.
      learning_rate: one of lp.learning_rates in place of the optimizer's own, which may then be one
        that has no equal in lingpipe.

    Raises:
      TypeError: it is no model, or the learning rate is none of lingpipe's.
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
    if not isinstance(learning_rate, learning_rates.Schedule.Params | None):
        raise TypeError(f'learning_rate={show(learning_rate)} is none of lp.learning_rates; give '
                        'one, as lp.learning_rates.Constant.Params(rate=0.1).')
    with warnings.catch_warnings():   # Of functions, which are refused.
        warnings.simplefilter('ignore')
        arguments = optimizer.get_config()
    _refuse_arguments(optimizer, arguments)
    own = _own_class(optimizer)
    steps = int(optimizer.iterations)
    if steps:
        logging.warning('the optimizer of the Keras model %r has trained already (its step: %d); '
                        'the learner begins anew, without its slots and at step 0 of its learning '
                        'rate', model.name, steps)
    rate = _rate(arguments['learning_rate']) if learning_rate is None else learning_rate
    accumulate = arguments.get('gradient_accumulation_steps') or 1
    if accumulate > 1:
        _refuse_accumulation(model, accumulate, rate)

    values = {name: arguments[name] for name in fields_of(own.Params) if name in arguments}
    return Learner.Params(
        optimizer=own.Params(**values), learning_rate=rate,
        weight_decay=arguments.get('weight_decay') or 0., decay_vectors=True,
        clip_norm=arguments.get('global_clipnorm'),
        accumulate=accumulate)


def _own_class(optimizer: keras.optimizers.Optimizer) -> type[optimizers.Optimizer]:
    """The class of lp.optimizers that makes such an optimizer. Raises ValueError if none does."""
    name = type(optimizer).__name__
    for one in vars(optimizers).values():
        if getattr(one, 'keras_class', None) is type(optimizer):
            own: type[optimizers.Optimizer] = one
            return own
    raise ValueError(f'there is no optimizers.{name}; compile the model with another optimizer of '
                     'Keras, or write a Learner with a class of lp.optimizers.Optimizer whose '
                     f'keras_class is {name} (see "An optimizer or a learning rate" in '
                     'docs/your-own.md).')


def _refuse_accumulation(model: keras.Model, accumulate: int,
                         rate: learning_rates.Schedule.Params) -> None:
    """Raises ValueError if mini-batches that are accumulated teach something else in Keras."""
    norms = [layer.name for layer in inner_layers(model)
             if isinstance(layer, keras.layers.BatchNormalization) and layer.trainable]
    has_mask = any(getattr(output, '_keras_mask', None) is not None
                   for output in keras.tree.flatten(model.outputs))
    ignored = re.search('"ignore_class": [^n]', json.dumps(compile_config(model).get('loss')))
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
                         'compile with a number or one of keras.optimizers.schedules, or give '
                         'learner_from_keras a learning_rate=, one of lp.learning_rates.')
    if name == 'CosineDecay' and (values['warmup_target'] is None or not values['warmup_steps']):
        target = values['warmup_target']   # Without warm-up steps, Keras begins there at once.
        return learning_rates.Cosine.Params(
            rate=values['initial_learning_rate'] if target is None else target,
            decay_steps=values['decay_steps'], final_fraction=values['alpha'])
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
            'elsewhere and ends an update earlier; give learner_from_keras '
            f'learning_rate=lp.learning_rates.Cosine.Params(rate={values["warmup_target"]}, '
            f'decay_steps={values["decay_steps"]}, final_fraction={values["alpha"]}, '
            f'warmup_steps={values["warmup_steps"]}), which begins with rate / warmup_steps.')
    raise ValueError(f'the learning rate {name}({shown}) has no equal in lingpipe; give '
                     'learner_from_keras a learning_rate=, one of lp.learning_rates, which have '
                     'warmup_steps: Constant, Cosine, Exponential, Polynomial, Linear, Piecewise, '
                     'InverseSquareRoot.')
