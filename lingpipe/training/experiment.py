"""Experiment: all that a training is: task, inputs, pipeline, lengths and seed. Its Params, as text, are the whole description.

    p = registry.get('image.digits.AmoebaNet')
    p.override('pipeline.num_cells', '4')
    experiment = p.instantiate()              # layers, learner and inputs; no variable yet
    program = experiment.make_program()       # on its devices
"""
from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from absl import logging

from lingpipe import cluster
from lingpipe.hyperparams import REQUIRED, Configurable, Params, diff, field
from lingpipe.input import Input
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.planning import plan as plan_lib
from lingpipe.pipeline.planning.plan import PipelineParams, Plan
from lingpipe.training.loop import TrainLoop
from lingpipe.training.problem import Task

# What may differ when a training goes on: where and how long it runs, not what it learns.
MAY_CHANGE = re.compile(r'(pipeline(?!\.(num_micro_batches|num_replicas|sum_groups|cross_replica_batch_norm|wire_dtype)$)|train|'
                        r'eval_inputs|initialize_from)\b.*')


class InitializeFrom(Params):
    """The weights that a new training starts from; see checkpoint.initialize."""
    directory: str = field('', "Another experiment's logdir, its checkpoints, or one of them; empty: all weights start anew.")
    rules: tuple[tuple[str, str | None], ...] = field(
        (('weights/(.*)', r'weights/\1'),),
        "(regular expression, replacement) pairs; the first that matches the whole of a variable's key says which of theirs is taken "
        r"('weights/encoder/(.*)' -> 'weights/model/encoder/\1'); none takes nothing.")

    def check(self) -> None:
        """Raises ValueError for a rule that is no regular expression."""
        for pattern, _ in self.rules:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f'rules: {pattern!r} is not a regular expression: {error}; correct it') from error


class Experiment(Configurable):
    """Task and inputs, made; variables only in make_program.

    Attributes:
      task: the Task.
      train_input: the Input that is trained on.
      eval_inputs: name -> Input.
    """

    class Params(Configurable.Params):
        """The whole experiment; its text is LOGDIR/params.txt."""
        task: Task.Params = field(REQUIRED, 'Network and learner.')
        train_input: Input.Params = field(REQUIRED, 'What is trained on.')
        eval_inputs: dict[str, Input.Params] = field({}, 'What is evaluated on, by name.')
        pipeline: PipelineParams = field(PipelineParams(), 'Cells, micro-batches, schedule, recomputation.')
        train: TrainLoop.Params = field(TrainLoop.Params(), 'Number of steps, and how often there is a checkpoint, an evaluation, a line.')
        seed: int = field(0, 'Of initial weights and of all randomness in layers; inputs may have their own.')
        intra_op_threads: int = field(1, 'Threads of one op, 0: all processors. Sums are split among them, so they change the last bits.',
                                      least=0, most=1024)
        initialize_from: InitializeFrom = field(InitializeFrom(), "Another experiment's weights to start from.")

        def check(self) -> None:
            """Raises ValueError for an eval input that never ends or has no name for a directory."""
            for name, one in self.eval_inputs.items():
                if one.num_epochs is None:
                    raise ValueError(f'eval_inputs.{name}.num_epochs is none, so that an evaluation would not end; set it to 1')
                if not re.fullmatch(r'[\w.-]+', name):
                    raise ValueError(f'eval_inputs has the name {name!r}, which must do for a directory; use letters, digits, _ and -')

    params: Params

    def __init__(self, params: Any):
        super().__init__(params)
        p = self.params
        self.task: Task = p.task.instantiate()
        self.train_input: Input = p.train_input.instantiate()
        self.eval_inputs: Mapping[str, Input] = {name: one.instantiate() for name, one in p.eval_inputs.items()}

    @property
    def examples_per_step(self) -> int:
        """Examples that one update is made from."""
        return self.params.train_input.batch_size * self.params.task.learner.accumulate

    def check_recorded(self, text: str) -> None:
        """Raises ValueError if the training that recorded its Params as this text cannot go on as this experiment.

        A text that cannot be read, as that of a class that has another name now, costs a warning: the person who moved an unreadable
        params.txt away has said that it is the same experiment.
        """
        if text == self.params.to_text():
            return
        try:
            stored = Experiment.Params.from_text(text)
        except ValueError as error:
            logging.warning('the Params that the checkpoint holds cannot be read, so nothing tells whether they are those of this '
                            'experiment: %s', error)
            return
        check_resumable(stored, self.params)

    def make_program(self) -> Program:
        """The network on its devices, with its variables. cluster.configure comes before it."""
        p = self.params
        self.train_input.check_keys(self.task.network.reads().values())
        for source in (self.train_input, *self.eval_inputs.values()):
            self.task.check_input(source)
        return Program(self.task.network, self.train_input.specs(), p.pipeline, self.task.learner, p.seed)

    def make_plan(self) -> Plan:
        """The plan alone: no device is looked for and no variable made, however big the network is."""
        p, learner = self.params.pipeline, self.task.learner
        self.train_input.check_keys(self.task.network.reads().values())
        devices = p.devices or cluster.expected_devices(p.num_devices)
        return plan_lib.make_plan(self.task.network, self.train_input.spec(), p, devices, learner.is_frozen,
                                  learner.slot_bytes)


def check_resumable(stored: Any, now: Any) -> None:
    """Raises ValueError if a training that began with the Params `stored` cannot go on with `now`."""
    changed = [(path, a, b) for path, a, b in diff(stored, now) if not MAY_CHANGE.fullmatch(path)]
    if changed and not all(MAY_CHANGE.fullmatch(path) for path, _, _ in diff(_with_one_replica(stored), _with_one_replica(now))):
        raise ValueError(f'it holds a training whose {differences_text(changed)} differ; its checkpoints would not mean the same. Set them '
                         'back, or choose another logdir (initialize_from takes its weights along).')


def differences_text(changed: list[tuple[str, Any, Any]]) -> str:
    """The first differences that `diff` has found, as a part of a sentence."""
    listed = ', '.join(f'{path} (was {a!r}, is {b!r})' for path, a, b in changed[:5])
    return f'{listed}{" and others" if len(changed) > 5 else ""}'


def _with_one_replica(params: Any) -> Any:
    """The experiment, or the one that gives the same bits without replicas."""
    params = params.copy()
    p = params.pipeline
    if not (p.cross_replica_batch_norm and p.num_replicas > 1):
        p.set(num_micro_batches=p.num_replicas * p.num_micro_batches, sum_groups=p.num_replicas * p.sum_groups,
              num_replicas=1, cross_replica_batch_norm=False)
    return params
