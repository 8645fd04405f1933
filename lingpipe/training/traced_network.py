"""Traced network: an experiment's program and its evaluations, traced once however often used."""
from __future__ import annotations

import dataclasses

from lingpipe.pipeline.execution.program import Program
from lingpipe.training.evaluation import Evaluations
from lingpipe.training.experiment import Experiment
from lingpipe.training.site import Site


@dataclasses.dataclass(frozen=True)
class TracedNetwork:
    """What several calls of one process share: tracing a network takes long.

    Attributes:
      program: the network on its devices, with its variables.
      evaluations: on all eval inputs of the experiment.
    """
    program: Program
    evaluations: Evaluations


def make_traced_network(experiment: Experiment, logdir: str, site: Site) -> TracedNetwork:
    """Makes the variables of an experiment; each step is traced when it is first used.

    Args:
      experiment: makes the program.
      logdir: where the pictures of evaluations go.
      site: where the cells are.
    """
    program = experiment.make_program(site.devices)
    return TracedNetwork(
        program, Evaluations(program, experiment.eval_inputs, experiment.task, logdir))
