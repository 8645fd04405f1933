"""Traced network: a program, its evaluations and predictions, traced once however often used."""
from __future__ import annotations

import dataclasses

from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.execution.variables import TO_TRAIN, Contents
from lingpipe.training.evaluation import Evaluations
from lingpipe.training.experiment import Experiment
from lingpipe.training.predictions import Predictions
from lingpipe.training.site import Site


@dataclasses.dataclass(frozen=True)
class TracedNetwork:
    """What several calls of one process share: tracing a network takes long.

    Attributes:
      program: the network on its devices, with its variables.
      evaluations: on all eval inputs of the experiment.
      predictions: of any examples.
    """
    program: Program
    evaluations: Evaluations
    predictions: Predictions


def make_traced_network(experiment: Experiment, logdir: str, site: Site,
                        contents: Contents = TO_TRAIN) -> TracedNetwork:
    """Makes the variables of an experiment; each step is traced when it is first used.

    Args:
      experiment: makes the program.
      logdir: where the pictures of evaluations go.
      site: where the cells are.
      contents: what variables are made with.
    """
    program = experiment.make_program(site.devices, site.pipeline, contents)
    evaluations = Evaluations(program, experiment.eval_inputs, experiment.task, logdir)
    return TracedNetwork(program, evaluations, Predictions(program, experiment))
