"""Evaluating: the weights of a checkpoint on every eval input, or on the examples of a caller.

Of the logdir, only summaries and pictures are written.
"""
from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable, Iterator

from absl import logging

from lingpipe.checkpoint.facts import Metadata
from lingpipe.layers.nested import Nested
from lingpipe.process.error_text import reason
from lingpipe.training.evaluation import GIVEN, Evaluations, Metrics, metrics_text
from lingpipe.training.experiment import Experiment
from lingpipe.training.reporting.summaries import Summaries
from lingpipe.training.site import Site
from lingpipe.training.traced_network import TracedNetwork


def check_inputs(experiment: Experiment) -> None:
    """Raises ValueError if an experiment has nothing to evaluate on."""
    if not experiment.eval_inputs:
        raise ValueError('eval_inputs is empty; give the experiment one to evaluate on.')


@dataclasses.dataclass(frozen=True)
class Evaluating:
    """Evaluates the weights of a program as they are.

    Attributes:
      site: is told what happens.
      experiment: has the inputs.
      evaluations: of the program, with the weights of a checkpoint.
      directory: the logdir, which gets summaries and pictures.
      say: shows a line.
    """
    site: Site
    experiment: Experiment
    evaluations: Evaluations
    directory: str
    say: Callable[[str], object]

    def check(self, metadata: Metadata) -> None:
        """Raises ValueError if the inputs do not fit the checkpoint that has this metadata."""
        self.site.begin('the look at the inputs')
        for name, source in self.experiment.eval_inputs.items():
            self.experiment.task.check_facts(metadata.get('task', {}), source)
            self.evaluations.check(name)

    def on_all(self, metadata: Metadata) -> dict[str, Metrics]:
        """Returns the metrics by eval input, given the metadata of the checkpoint."""
        self.check(metadata)
        metrics_by_input: dict[str, Metrics] = {}
        for name in self.experiment.eval_inputs:
            metrics = self.on(name, metadata['step'])
            assert metrics is not None
            metrics_by_input[name] = metrics
        return metrics_by_input

    def on(self, name: str, step: int, is_stopping: Callable[[], bool] = lambda: False
           ) -> Metrics | None:
        """Returns the metrics on one eval input; None if is_stopping() became true before."""
        self.site.begin(f'the evaluation of step {step} on {name}')
        evaluation = self.evaluations.run(name, is_stopping)
        if evaluation is None:
            return None
        self.say(f'step {step} on {name}: {metrics_text(evaluation.metrics)}')
        summaries = Summaries(os.path.join(self.directory, 'tensorboard', f'eval_{name}'))
        picture = self.evaluations.write(
            name, step, evaluation, summaries, functools.partial(_optional, name))
        summaries.close()
        if picture:
            self.say(f'{picture.text}: {picture.path}')
        return evaluation.metrics


def metrics_on_examples(site: Site, network: TracedNetwork,
                        examples: tuple[Nested, Nested, Nested], step: int) -> Metrics:
    """Returns the metrics on examples that belong to no eval input.

    Args:
      site: is told what happens.
      network: with the weights of a checkpoint.
      examples: x, y and sample_weight, as Run.evaluate takes them.
      step: that of the checkpoint.
    """
    site.begin(f'an evaluation with the checkpoint of step {step}')
    source = network.predictions.examples().input(*examples)
    evaluations = network.evaluations.of_examples(source)
    evaluations.check(GIVEN)
    evaluation = evaluations.run(GIVEN)
    assert evaluation is not None
    return evaluation.metrics


@contextlib.contextmanager
def _optional(name: str, what: str) -> Iterator[None]:
    """A context for writing files of an evaluation that a person can do without."""
    try:
        yield
    except OSError as error:
        logging.warning('the files of the evaluation of %s cannot be written: %s', name,
                        reason(error))
