"""Results: losses and metrics of all devices, as (sum, weight) by name.

A training step divides the sums by the weights. An evaluation first adds them up over mini-batches.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import tensorflow as tf

from lingpipe.pipeline.execution.accumulators import Accumulators

# What a training step returns besides metrics.
STEP_RESULTS = ('loss', 'weight', 'gradient_norm', 'learning_rate', 'is_finite', 'stamps')

# kind of emission -> 'layer path\nname' -> a scalar, or (sum, weight) of a metric. A
# tf.function can return dicts with such keys.
Emitted: TypeAlias = dict[str, dict[str, tf.Tensor]]


def read(accumulators: Accumulators) -> Emitted:
    """Reads the losses, weights and metrics of one device."""
    merged = accumulators.merged()
    kinds = {'losses': merged.losses, 'weights': merged.weights, 'metrics': merged.metrics}
    return {kind: {'\n'.join(key): value for key, value in by_key.items()}
            for kind, by_key in kinds.items()}


def named_sums(emitted: Sequence[Emitted]) -> dict[str, tuple[tf.Tensor, tf.Tensor]]:
    """Returns (sum, weight) by name, summed over all devices.

    'loss' is the objective. If there are several losses, each also appears under its layer's path.

    Raises:
      ValueError: no layer, or more than one, gives a loss with a weight, or a metric has the name
        of another result.
    """
    losses, weights, metrics = ({key: value for one in emitted for key, value in one[kind].items()}
                                for kind in ('losses', 'weights', 'metrics'))
    if not weights:
        raise ValueError('0 layers give a loss with a weight (none); exactly one must, the main '
                         'loss: end the network with one, as layers.CrossEntropyLoss (a layer of '
                         'your own gives weight_sum to ctx.emit_loss). A Keras model has its loss '
                         'if it was compiled before from_keras.')
    if len(weights) != 1:
        layers = ', '.join(key.split('\n')[0] for key in weights)
        raise ValueError(
            f'{len(weights)} layers give a loss with a weight ({layers}); exactly one must, the '
            f'main loss, by which all are normalised: give weight_sum to ctx.emit_loss there and '
            f'nowhere else.')

    weight, = weights.values()
    total, *rest = losses.values()
    for value in rest:
        total = total + value

    named = {'loss': (total, weight)}
    if rest:
        named.update({'loss/' + key.replace('\n', '/'): (value, weight)
                      for key, value in losses.items()})

    names = [key.split('\n')[1] for key in metrics]
    for key, (value, metric_weight) in metrics.items():
        path, name = key.split('\n')
        if name in STEP_RESULTS:
            raise ValueError(f'{path} emits a metric named {name!r}, which is the name of a result '
                             f'of every step; give it another.')
        named[name if names.count(name) == 1 else f'{name}/{path}'] = (value, metric_weight)
    return named
