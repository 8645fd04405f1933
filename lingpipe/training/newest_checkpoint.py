"""Newest checkpoint: finds that of a logdir, and gives a program its weights."""
from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

from absl import logging

from lingpipe.checkpoint import Checkpointer
from lingpipe.checkpoint.chosen_step import NEWEST, step_named
from lingpipe.checkpoint.facts import DamagedError, Metadata, read_facts
from lingpipe.hyperparams import diff
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.execution.variables import Contents
from lingpipe.training.experiment import Experiment
from lingpipe.training.resumption import differences_text


def checkpoints_in(logdir: str) -> Checkpointer:
    """The checkpoints of a logdir, for reading."""
    return Checkpointer(os.path.join(logdir, 'checkpoints'), is_writer=False)


def newest_step(logdir: str) -> int | None:
    """The step of the newest checkpoint, or None."""
    return max(checkpoints_in(logdir).steps(), default=None)


def newest_whole_step(logdir: str) -> int | None:
    """The step of the newest checkpoint that is not damaged, or None."""
    checkpointer = checkpoints_in(logdir)
    for step in reversed(checkpointer.steps()):
        with contextlib.suppress(DamagedError):
            read_facts(checkpointer.path(step))
            return step
    return None


def step_of(logdir: str, checkpoint: str) -> int | None:
    """The step of the checkpoint that 'newest', 'best' or the text of a step means, if any."""
    step = step_named(checkpoints_in(logdir), checkpoint)
    return newest_step(logdir) if step is None else step


def restored(experiment: Experiment, logdir: str,
             devices: Sequence[str] = ()) -> tuple[Program, Metadata]:
    """A program with the weights of the newest checkpoint, and the checkpoint's metadata.

    It has no optimizer slots, and so cannot train.

    Args:
      experiment: makes the program.
      logdir: has the checkpoints.
      devices: one tf.device string a cell; default: those that the Params name.

    Raises:
      ValueError: there is no checkpoint, or it does not fit.
    """
    check_has_checkpoint(logdir)
    program = experiment.make_program(devices, contents=Contents(has_slots=False, is_initial=False))
    return program, restore(program, experiment, logdir)


def check_has_checkpoint(logdir: str) -> None:
    """Raises ValueError if a logdir has no checkpoint."""
    checkpointer = checkpoints_in(logdir)
    if not checkpointer.steps():
        raise ValueError(f'{checkpointer.directory} has no checkpoint; train first, or correct '
                         'the logdir.')


def facts_of(logdir: str, checkpoint: str) -> Metadata | None:
    """The facts of a checkpoint, which no other has; None if this cannot be said of them.

    Args:
      logdir: has the checkpoints.
      checkpoint: as that of `restore`.
    """
    checkpointer = checkpoints_in(logdir)
    step = step_named(checkpointer, checkpoint)
    for candidate in [step] if step is not None else reversed(checkpointer.steps()):
        with contextlib.suppress(DamagedError):   # `restore` says so.
            facts = read_facts(checkpointer.path(candidate))
            return facts if 'files' in facts else None
    return None


def restore(program: Program, experiment: Experiment, logdir: str,
            checkpoint: str = NEWEST) -> Metadata:
    """Gives a program the weights of a checkpoint; returns the checkpoint's metadata.

    Args:
      program: gets the weights.
      experiment: made the program.
      logdir: has the checkpoints.
      checkpoint: 'newest', which is the newest that is whole, 'best', or the text of a step.

    Raises:
      ValueError: there is no such checkpoint, or it does not fit.
    """
    check_has_checkpoint(logdir)
    checkpointer = checkpoints_in(logdir)
    program.replicas_may_differ()
    metadata = checkpointer.restore(program.variables(), step_named(checkpointer, checkpoint),
                                    reads_slots=program.placed.contents.has_slots)
    assert metadata is not None
    _warn_of_another_network(
        metadata.get('params', ''), experiment.params, checkpointer.directory)
    return metadata


def _warn_of_another_network(text: str, params: Experiment.Params, directory: str) -> None:
    """Says how the network differs from the one whose weights it got.

    Other differences, such as those of the learner and the inputs, are not reported.
    """
    try:
        stored = Experiment.Params.from_text(text)
    except ValueError:
        return
    changed = [difference for difference in diff(stored, params)
               if difference[0].startswith('task.model')]
    if changed:
        logging.warning('the checkpoints in %s are of a network whose %s differ; this one takes '
                        'their weights all the same', directory, differences_text(changed))
