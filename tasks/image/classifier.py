"""Classifiers: the Task of a network that writes logits, and the recipe that the GPipe paper trains one with."""
from __future__ import annotations

from typing import Any

from lingpipe import optimizers, schedules
from lingpipe.layers import CrossEntropyLoss, Sequential
from lingpipe.learner import Learner
from lingpipe.task import Task


def classifier(network: Any, learner: Learner.Params, label_smoothing: float = 0.1, has_top5: bool = False,
               auxiliary_weight: float = 0.) -> Task.Params:
    """A Task: the network, which reads `image` and writes logits, and the loss, which reads `label` and `weight`.

    Args:
      network: Params of a Sequential that writes the logits [b, num_classes] as 'x'.
      learner: how it is trained.
      label_smoothing: part of the label that is spread over all classes.
      has_top5: whether the metric 'top5' is reported besides 'accuracy'.
      auxiliary_weight: factor on the loss of `auxiliary_logits`; 0: the network writes none.
    """
    loss = CrossEntropyLoss.Params(name='loss', label_smoothing=label_smoothing, has_top5=has_top5, reads={'labels': 'label'})
    losses = [loss]
    if auxiliary_weight:
        losses.append(loss.copy().set(name='auxiliary_loss', scale=auxiliary_weight, is_auxiliary=True,
                                      reads={'x': 'auxiliary_logits', 'labels': 'label'}))
    return Task.Params(model=Sequential.Params(name='model', layers=(network, *losses)), learner=learner, best_metric='accuracy',
                       best_is_largest=True)


def imagenet_learner(batch_size: int, num_examples: int = 1_281_167) -> Learner.Params:
    """How AmoebaNet is trained on ImageNet.

    The GPipe paper (arXiv:1811.06965v1, section 4) names RMSProp, L2 and the staircase; the numbers are those of AmoebaNet's
    reference implementation: learning rate 0.015 for 32 examples, 3 epochs of warm-up, then x 0.97 every 2.4 epochs.
    """
    steps_an_epoch = num_examples / batch_size
    return Learner.Params(
        optimizer=optimizers.RMSProp.Params(rho=0.9, momentum=0.9, epsilon=1.),
        learning_rate=schedules.Exponential.Params(rate=0.015 * batch_size / 32, warmup_steps=round(3 * steps_an_epoch),
                                                   decay_steps=round(2.4 * steps_an_epoch), decay_factor=0.97, staircase=True),
        l2=4e-5, clip_norm=10., ema_decay=0.9999)
