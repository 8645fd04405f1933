"""Evaluate: the newest checkpoint on every eval input; reads the logdir and writes only summaries and pictures."""
from __future__ import annotations

import os
from typing import Any

from absl import logging

from lingpipe.cluster.watchdog import Watchdog
from lingpipe.training import logdir
from lingpipe.training.evaluation import Evaluations, metrics_text
from lingpipe.training.reporting.summaries import Summaries


def evaluate(params: Any, values: Any, watchdog: Watchdog | None) -> int:
    """Evaluates and prints; the devices are set up already."""
    experiment = params.instantiate()
    if not experiment.eval_inputs:
        raise ValueError('eval_inputs is empty; give the experiment one to evaluate on.')
    program, metadata = logdir.restored(experiment, values.logdir)
    step = metadata['step']
    evaluations = Evaluations(program, experiment.eval_inputs, experiment.task, values.logdir)
    if watchdog:
        watchdog.begin('the look at the inputs')
    for name, source in experiment.eval_inputs.items():
        experiment.task.check_facts(metadata.get('task', {}), source)
        evaluations.check(name)
    for name in experiment.eval_inputs:
        if watchdog:
            watchdog.begin(f'the evaluation of step {step} on {name}')
        evaluation = evaluations.run(name)
        assert evaluation is not None
        print(f'step {step} on {name}: {metrics_text(evaluation.metrics)}', flush=True)
        picture = None
        try:
            picture = evaluations.draw(name, step, evaluation)
            summaries = Summaries(os.path.join(values.logdir, 'tensorboard', f'eval_{name}'))
            summaries.scalars(step, evaluation.metrics)
            if picture:
                summaries.png(step, picture.name, picture.path)
            summaries.close()
        except OSError as error:
            logging.warning('the files of the evaluation of %s cannot be written: %s', name, error)
        if picture:
            print(f'{picture.text}: {picture.path}')
    return 0
