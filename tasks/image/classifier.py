"""Classifiers: the problem of a network that writes logits, and the recipe that the GPipe paper trains one with.

Shapes: b micro-batch.
"""
from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lingpipe.hyperparams import field
from lingpipe.input import Input
from lingpipe.layers import CrossEntropyLoss, Dense, Sequential
from lingpipe.layers.context import Context
from lingpipe.layers.nested import NestedMap
from lingpipe.learning import learning_rates, optimizers
from lingpipe.learning.learner import Learner
from lingpipe.tasks.image.misclassified import Misclassified, picture
from lingpipe.tasks.image.mixup import MIXUP_READS, Mixup
from lingpipe.training.problem import Problem


class ImageClassification(Problem):
    """The problem of `classifier`: shows in TensorBoard what it trains on, and after an evaluation the images that it is wrong about."""

    class Params(Problem.Params):
        """Those of Problem."""

    def images(self, batch: dict[str, Any]) -> dict[str, Any]:
        return {'image': picture(np.asarray(batch['image'][:8]))} if 'image' in batch else {}

    def check_input(self, source: Input) -> None:
        """Raises ValueError for an input of more classes than the network has outputs."""
        num_classes = len(source.class_names)
        last = [layer for layer in self.network.elements() if isinstance(layer, Dense)][-1:]
        for layer in last:
            if num_classes > layer.params.units:
                raise ValueError(f'{type(source).__name__} has {num_classes} classes, and {layer.path} has {layer.params.units} outputs; '
                                 f'set num_classes of the network to {num_classes}, or choose fewer by subset.classes of the input.')

    def review(self, source: Input) -> Misclassified | None:
        return Misclassified(image='image', label='label', logits='x', class_names=source.class_names) if 'image' in source.spec() else None


class AuxiliaryLoss(CrossEntropyLoss):
    """The loss of an auxiliary head (Szegedy et al., 2014, arXiv:1409.4842, section 5): added in training, nothing in an evaluation."""

    class Params(CrossEntropyLoss.Params):
        is_auxiliary: bool = field(True)

    params: Params

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor, labels: tf.Tensor, weight: tf.Tensor,
              other_labels: tf.Tensor | None = None, share: tf.Tensor | None = None) -> None:
        if ctx.training:
            super().fprop(theta, ctx, x, labels, weight, other_labels, share)


def classifier(network: Any, learner: Learner.Params, label_smoothing: float = 0.1, has_top5: bool = False,
               auxiliary_weight: float = 0.4, preprocess: Sequence[Any] = ()) -> ImageClassification.Params:
    """A Problem: the network, which reads `image` and writes logits, and the loss, which reads `label` and `weight`.

    Args:
      network: Params of a Sequential that writes the logits [b, num_classes] as 'x'.
      learner: how it is trained.
      label_smoothing: part of the label that is spread over all classes.
      has_top5: whether the metric 'top5' is reported besides 'accuracy'.
      auxiliary_weight: factor on the loss of the auxiliary head, if the network has one (auxiliary_image_size is set). The loss is a
        layer right after the head: the label is sent to the head's cell, and nothing from there to the last one.
      preprocess: Params of layers before the network, Normalize and Mixup; with Mixup the losses are mixed too.
    """
    mixed = MIXUP_READS if any(isinstance(layer, Mixup.Params) for layer in preprocess) else {}
    loss = CrossEntropyLoss.Params(name='loss', label_smoothing=label_smoothing, has_top5=has_top5, reads={'labels': 'label', **mixed})
    if auxiliary_weight and getattr(network, 'auxiliary_image_size', 0):
        network = network.copy().set(auxiliary_loss=AuxiliaryLoss.Params(
            name='auxiliary_loss', scale=auxiliary_weight, label_smoothing=label_smoothing,
            reads={'x': 'auxiliary_logits', 'labels': 'label', **mixed}))
    return ImageClassification.Params(model=Sequential.Params(name='model', layers=(*preprocess, network, loss)), learner=learner,
                                      best_metric='accuracy', best_is_largest=True)


def imagenet_learner(batch_size: int, num_examples: int = 1_281_167) -> Learner.Params:
    """How AmoebaNet is trained on ImageNet.

    The GPipe paper (arXiv:1811.06965v1, section 4) names RMSProp, L2 and the staircase; the numbers are those of AmoebaNet's
    reference implementation: learning rate 0.015 for 32 examples, 3 epochs of warm-up, then x 0.97 every 2.4 epochs.
    """
    steps_an_epoch = num_examples / batch_size
    return Learner.Params(
        optimizer=optimizers.RMSProp.Params(rho=0.9, momentum=0.9, epsilon=1.),
        learning_rate=learning_rates.Exponential.Params(rate=0.015 * batch_size / 32, warmup_steps=round(3 * steps_an_epoch),
                                                   decay_steps=round(2.4 * steps_an_epoch), decay_factor=0.97, staircase=True),
        l2=4e-5, clip_norm=10., ema_decay=0.9999)


def initialized_but_last(*last: str, is_averaged: bool = False) -> tuple[tuple[str, str | None], ...]:
    """Rules of InitializeFrom for transfer: all layers start from the other network's, except those whose classes are others.

    Args:
      last: paths of the layers that start from scratch: the last one, and the auxiliary head's if there is one.
      is_averaged: whether the moving averages of weights are taken, where the other's learner kept them.
    """
    trained = r'ema/\1' if is_averaged else r'weights/\1'
    return (*((f'weights/{re.escape(path)}/.*', None) for path in last),
            (r'weights/(.*/moving_(?:mean|variance))', r'weights/\1'), ('weights/(.*)', trained))
