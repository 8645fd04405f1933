"""Image classification: the problem of a network that writes logits, and the GPipe paper's recipe.

Shapes: b micro-batch.
"""
from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from lingpipe.hyperparams import field
from lingpipe.input import Input
from lingpipe.layers import CrossEntropyLoss, Dense, Sequential
from lingpipe.layers.base import Layer
from lingpipe.layers.context import Context
from lingpipe.layers.nested import NestedMap
from lingpipe.learning import learning_rates, optimizers
from lingpipe.learning.learner import Learner
from lingpipe.tasks.image.misclassified import Misclassified, pictures
from lingpipe.tasks.image.mixup import MIXUP_READS, Mixup
from lingpipe.tasks.image.normalize import Normalize
from lingpipe.training.problem import Problem
from lingpipe.wording.counts import counted


class ImageClassification(Problem):
    """The problem that `classifier` makes.

    TensorBoard shows some of the images it trains on and, after an evaluation, images that the
    network is wrong about.
    """

    class Params(Problem.Params):
        """The Params of Problem."""

    params: Params

    def images(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Returns the first 8 images of a mini-batch."""
        has_images = 'image' in batch and _is_of_images(batch['image'].shape)
        return {'image': pictures(np.asarray(batch['image'][:8]))} if has_images else {}

    def check_input(self, source: Input) -> None:
        """Warns of floats that Normalize would scale once more.

        Raises:
          ValueError: the input has more classes than the network has outputs.
        """
        first = next(iter(self.network.elements()))
        if isinstance(first, Normalize):   # Others need no spec, for which an input may read files.
            _warn_of_floats(first, source)
        num_classes = len(source.class_names)
        dense_layers = [layer for layer in self.network.elements() if isinstance(layer, Dense)]
        if not dense_layers:
            return
        last = dense_layers[-1]
        if num_classes > last.params.units:
            raise ValueError(
                f'{type(source).__name__} has {counted(num_classes, "class")}, and {last.path} has '
                f'{counted(last.params.units, "output")}; set num_classes of the network to '
                f'{num_classes}, or choose fewer by subset.classes of the input.')

    def review(self, source: Input) -> Misclassified | None:
        """Returns the review that finds misclassified images.

        It is None if the input has no images, or if its labels are not the numbers of classes, as
        one-hot labels are not.
        """
        spec, reads = source.spec(), self._loss_reads()
        label = reads['labels'] if reads['labels'] in spec else 'label'
        if not {'image', label} <= spec.keys() or not _is_of_images(spec['image'].shape):
            return None   # The check of the input reports a missing label.
        if not spec[label].dtype.is_integer or spec[label].shape[1:].num_elements() != 1:
            return None
        # A loss of Keras computes of the logits where its x is their softmax.
        return Misclassified(image='image', label=label, logits=reads.get('logits', reads['x']),
                             class_names=source.class_names)

    def _loss_reads(self) -> dict[str, str]:
        """Argument of the last loss -> name of the value that it reads."""
        losses = [reads for layer in self.network.elements()
                  if (reads := layer.reads()).keys() >= {'x', 'labels'}]
        return losses[-1] if losses else {'x': 'x', 'labels': 'label'}


class AuxiliaryLoss(CrossEntropyLoss):
    """The loss of an auxiliary head (Szegedy et al., 2014, arXiv:1409.4842, section 5).

    It is added in training. An evaluation leaves it out.
    """

    class Params(CrossEntropyLoss.Params):
        """Those of CrossEntropyLoss."""
        is_auxiliary: bool = field(True)

    params: Params

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor, labels: tf.Tensor,
              weight: tf.Tensor, other_labels: tf.Tensor | None = None,
              share: tf.Tensor | None = None) -> None:
        """Adds the loss of logits [b, num_classes] in training."""
        if ctx.training:
            super().fprop(theta, ctx, x, labels, weight, other_labels, share)


def _is_of_images(shape: Sequence[int]) -> bool:
    """Whether a value of a mini-batch is [B, h, w, C] or [B, h, w], and not a row of numbers."""
    return len(shape) in (3, 4)


def _warn_of_floats(normalize: Normalize, source: Input) -> None:
    """Warns if the layer would scale numbers from 0 to 1 once more."""
    spec = source.spec().get(normalize.reads()['x'])
    if spec is not None and spec.dtype.is_floating:
        logging.warning(
            '%s divides by 255, as bytes need it, and %s gives %s; if these are numbers from 0 to '
            '1 already, divide mean and std of its Params by 255, or leave it out',
            normalize.path, type(source).__name__, spec.dtype.name)


def classifier(network: Any, learner: Learner.Params, label_smoothing: float = 0.1,
               has_top5: bool = False, auxiliary_weight: float = 0.4,
               preprocess: Sequence[Layer.Params] = ()) -> ImageClassification.Params:
    """Returns a Problem: a network that reads `image`, and a loss that reads `label` and `weight`.

    Args:
      network: Params of a Sequential that writes the logits [b, num_classes] as 'x'.
      learner: how it is trained.
      label_smoothing: part of the label that is spread over all classes.
      has_top5: whether the metric 'top5' is reported besides 'accuracy'.
      auxiliary_weight: factor on the loss of the auxiliary head, if the network has one
        (auxiliary_image_size is set). The loss is a layer right after the head, so that the label
        is sent to the head's cell, and nothing from there to the last one.
      preprocess: Params of layers before the network, such as Normalize and Mixup. With Mixup the
        losses are mixed too.
    """
    has_mixup = any(isinstance(layer, Mixup.Params) for layer in preprocess)
    reads = {'labels': 'label', **(MIXUP_READS if has_mixup else {})}
    if auxiliary_weight and getattr(network, 'auxiliary_image_size', 0):
        auxiliary_loss = AuxiliaryLoss.Params(
            name='auxiliary_loss', scale=auxiliary_weight, label_smoothing=label_smoothing,
            reads={'x': 'auxiliary_logits', **reads})
        network = network.copy().set(auxiliary_loss=auxiliary_loss)
    loss = CrossEntropyLoss.Params(
        name='loss', label_smoothing=label_smoothing, has_top5=has_top5, reads=reads)

    return ImageClassification.Params(
        model=Sequential.Params(name='model', layers=(*preprocess, network, loss)),
        learner=learner, best_metric='accuracy', best_is_largest=True)


def imagenet_learner(batch_size: int, num_examples: int = 1_281_167) -> Learner.Params:
    """Returns the learner that trains AmoebaNet on ImageNet.

    The GPipe paper (arXiv:1811.06965v1, section 4) names RMSProp, L2 and a learning rate that falls
    in steps. The numbers are those of AmoebaNet's reference implementation: a learning rate of
    0.015 for 32 examples, 3 epochs of warm-up, then a factor of 0.97 every 2.4 epochs.
    """
    steps_per_epoch = num_examples / batch_size
    return Learner.Params(
        optimizer=optimizers.RMSProp.Params(rho=0.9, momentum=0.9, epsilon=1.),
        learning_rate=learning_rates.Exponential.Params(
            rate=0.015 * batch_size / 32, warmup_steps=round(3 * steps_per_epoch),
            decay_steps=round(2.4 * steps_per_epoch), decay_factor=0.97, staircase=True),
        l2=4e-5, clip_norm=10., ema_decay=0.9999)


def initialized_but_last(*last: str,
                         is_averaged: bool = False) -> tuple[tuple[str, str | None], ...]:
    """Returns rules of InitializeFrom for transfer to other classes.

    All layers start from the other network's, except the ones whose outputs are classes.

    Args:
      last: paths of the layers that start from scratch: the last one, and the auxiliary head's if
        there is one.
      is_averaged: whether to take the moving averages of weights, where the other run has them.
    """
    from_scratch = [(f'weights/{re.escape(path)}/.*', None) for path in last]
    weights = r'ema/\1' if is_averaged else r'weights/\1'
    return (*from_scratch,
            (r'weights/(.*/moving_(?:mean|variance))', r'weights/\1'), ('weights/(.*)', weights))
