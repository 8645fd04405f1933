"""Compiled: what model.compile says of losses and metrics, as losses of a network."""
from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from absl import logging

from lingpipe.keras_models.keras_loss import KerasLoss, described
from lingpipe.keras_models.logits import Logits

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


def has_logits(model: keras.Model, keras_names: Sequence[str]) -> list[bool]:
    """Whether each output has a cross-entropy, which Keras computes of logits where it sees them.

    It may be a loss or a metric. Keras does so too if it says from_logits=True and the output is a
    softmax or sigmoid.
    """
    config = compile_config(model)
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
    config = compile_config(model)
    if not config.get('loss'):
        return []
    _check_methods(model)
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
        if has_several and getattr(tensors[i], '_keras_mask', None) is not None:
            _warn_of_mask(output)
        params[-1].check()
        params[-1].mixes_examples = params[-1].is_mixing(tensors[i])
    return params


def _check_methods(model: keras.Model) -> None:
    """Raises ValueError for a model that computes its loss in a way of its own."""
    for name in ('train_step', 'compute_loss', 'compute_metrics'):
        if getattr(type(model), name) is not getattr(keras.Model, name):
            raise ValueError(f'the model {type(model).__name__} {model.name!r} has a {name}() of '
                             'its own, which no pipeline runs; make a keras.Model of its inputs '
                             'and outputs and compile that, or write the loss as a Layer.')


def _warn_of_mask(output: str) -> None:
    """Warns that one of several losses counts otherwise than in Keras."""
    logging.warning(
        'the output %r of the Keras model has a mask, and there are several losses: here each '
        'example counts as one in its loss, however many of its positions count, and in Keras each '
        'position; so the loss and the trained weights differ from those of fit, unless all '
        'examples are equally long', output)


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


def compile_config(model: keras.Model) -> dict[str, Any]:
    """What compile was given, as configurations; {} if the model is not compiled."""
    config: dict[str, Any] = model.get_compile_config() if model.compiled else {}
    given = getattr(model, '_compile_config', None)
    if not config or given is None:   # A class of Keras models may have a config of its own.
        return config
    names = ('loss', 'metrics', 'weighted_metrics')
    return {**config, **{name: described(given.config[name]) for name in names}}


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
