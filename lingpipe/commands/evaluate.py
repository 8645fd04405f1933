"""Evaluate: the newest checkpoint on every eval input.

Of the logdir, only summaries and pictures are written.
"""
from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator

from absl import logging

from lingpipe.commands.recovery import Recovery
from lingpipe.commands.run_options import RunOptions
from lingpipe.training import logdir
from lingpipe.training.evaluation import Evaluations, Metrics, metrics_text
from lingpipe.training.experiment import Experiment
from lingpipe.training.reporting.summaries import Summaries
from lingpipe.training.site import Site


def evaluate(params: Experiment.Params, options: RunOptions) -> dict[str, Metrics]:
    """Evaluates, prints, and returns the metrics by eval input.

    This process is replaced by another if a worker is lost.
    """
    return Recovery(options).run(
        params, lambda site: evaluate_at(site, params.instantiate(), options.logdir))


def evaluate_at(site: Site, experiment: Experiment, directory: str) -> dict[str, Metrics]:
    """As `evaluate`, with devices that are set up already."""
    if not experiment.eval_inputs:
        raise ValueError('eval_inputs is empty; give the experiment one to evaluate on.')
    program, metadata = logdir.restored(experiment, directory, site.devices)
    step = metadata['step']
    evaluations = Evaluations(program, experiment.eval_inputs, experiment.task, directory)

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
        print(f'step {step} on {name}: {metrics_text(evaluation.metrics)}', flush=True)
        summaries = Summaries(os.path.join(directory, 'tensorboard', f'eval_{name}'))
        picture = evaluations.write(
            name, step, evaluation, summaries, functools.partial(_optional, name))
        summaries.close()
        if picture:
            print(f'{picture.text}: {picture.path}')
    return metrics_by_input


@contextlib.contextmanager
def _optional(name: str, what: str) -> Iterator[None]:
    """A context for writing files of an evaluation that a person can do without."""
    try:
        yield
    except OSError as error:
        logging.warning('the files of the evaluation of %s cannot be written: %s', name, error)
