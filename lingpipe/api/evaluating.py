"""Evaluating: the weights of a checkpoint on every eval input.

Of the logdir, only summaries and pictures are written.
"""
from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator

from absl import logging

from lingpipe.checkpoint.files import Metadata
from lingpipe.training.evaluation import Evaluations, Metrics, metrics_text
from lingpipe.training.experiment import Experiment
from lingpipe.training.reporting.summaries import Summaries
from lingpipe.training.site import Site


def check_inputs(experiment: Experiment) -> None:
    """Raises ValueError if an experiment has nothing to evaluate on."""
    if not experiment.eval_inputs:
        raise ValueError('eval_inputs is empty; give the experiment one to evaluate on.')


def evaluate_all(site: Site, experiment: Experiment, evaluations: Evaluations,
                 metadata: Metadata, directory: str,
                 say: Callable[[str], object]) -> dict[str, Metrics]:
    """Evaluates the weights as they are, and returns the metrics by eval input.

    Args:
      site: is told what happens.
      experiment: has the inputs.
      evaluations: of the program, with the weights of a checkpoint.
      metadata: of the checkpoint.
      directory: the logdir, which gets summaries and pictures.
      say: shows a line.
    """
    step = metadata['step']
    site.begin('the look at the inputs')
    for name, source in experiment.eval_inputs.items():
        experiment.task.check_facts(metadata.get('task', {}), source)
        evaluations.check(name)

    metrics_by_input: dict[str, Metrics] = {}
    for name in experiment.eval_inputs:
        site.begin(f'the evaluation of step {step} on {name}')
        evaluation = evaluations.run(name)
        assert evaluation is not None
        metrics_by_input[name] = evaluation.metrics
        say(f'step {step} on {name}: {metrics_text(evaluation.metrics)}')
        summaries = Summaries(os.path.join(directory, 'tensorboard', f'eval_{name}'))
        picture = evaluations.write(
            name, step, evaluation, summaries, functools.partial(_optional, name))
        summaries.close()
        if picture:
            say(f'{picture.text}: {picture.path}')
    return metrics_by_input


@contextlib.contextmanager
def _optional(name: str, what: str) -> Iterator[None]:
    """A context for writing files of an evaluation that a person can do without."""
    try:
        yield
    except OSError as error:
        logging.warning('the files of the evaluation of %s cannot be written: %s', name, error)
