"""Translators: the problem of a Transformer, and the recipe that trains it."""
from __future__ import annotations

from lingpipe.learning import learning_rates, optimizers
from lingpipe.learning.learner import Learner
from lingpipe.tasks.translation.task import Translation
from lingpipe.tasks.translation.transformer import Transformer


def translator(network: Transformer.Params, learner: Learner.Params) -> Translation.Params:
    """Returns the problem of a Transformer, whose loss is a part of the network.

    The best checkpoint is the one with the smallest loss.
    """
    return Translation.Params(model=network.copy().set(name='model'), learner=learner)


def translation_learner(model_dim: int, warmup_steps: int = 4000, rate: float = 1.,
                        clip_norm: float | None = None) -> Learner.Params:
    """Returns Adam with the learning rate of Vaswani et al. (arXiv:1706.03762, section 5.3).

    The learning rate rises linearly, then falls with the inverse square root of the step.

    Args:
      model_dim: D; the peak of the learning rate is rate * (D * warmup_steps)^-0.5.
      warmup_steps: updates up to the peak.
      rate: factor on the paper's learning rate.
      clip_norm: largest global norm of the gradients, or none.
    """
    return Learner.Params(
        optimizer=optimizers.Adam.Params(beta_1=0.9, beta_2=0.98, epsilon=1e-9),
        learning_rate=learning_rates.InverseSquareRoot.Params(
            rate=rate * (model_dim * warmup_steps) ** -0.5, warmup_steps=warmup_steps),
        clip_norm=clip_norm)
