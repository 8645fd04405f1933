"""Small run: three dense layers on the digits, slowly enough to be disturbed at any step."""
from __future__ import annotations

import time
from collections.abc import Mapping

from lingpipe.hyperparams import field
from lingpipe.learning import learning_rates
from lingpipe.params.image.digits import Dense
from lingpipe.tasks.image.inputs import DigitsInput
from lingpipe.training.experiment import Experiment
from lingpipe.training.hooks import Hook, HookedRun
from lingpipe.training.registry import register


class Rest(Hook):
    """Rests after each step, so that a run that lasts for an hour makes few steps.

    The undisturbed run, which must make as many, then does not take an hour too.
    """

    class Params(Hook.Params):
        """How long it rests."""
        seconds: float = field(0.03, 'Seconds after a step.', least=0, most=10)

    params: Params

    def on_step(self, run: HookedRun, step: int, results: Mapping[str, float]) -> None:
        """Sleeps."""
        time.sleep(self.params.seconds)


@register
class SmallRun:
    """Trains three dense layers on the digits, in 2 cells, for as long as one wants.

    The images are moved by up to a pixel and the learning rate never falls, so that every step
    changes the weights, and none can be left out unnoticed.
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        """Returns the Params of the experiment."""
        p = Dense.params()
        p.task.learner.learning_rate = learning_rates.Constant.Params(rate=0.003)
        p.train_input = DigitsInput.Params(batch_size=128, max_shift=1)
        p.hooks = (Rest.Params(),)
        return p
