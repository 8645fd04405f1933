"""Experiment: a problem, its inputs, a pipeline, lengths and a seed.

Its Params, as text, are the whole description.

    p = registry.get('image.digits.AmoebaNet')
    experiment = p.instantiate()              # problem, learner and inputs; no variable yet
    program = experiment.make_program()       # on its devices

An experiment only declares; the code that runs it, such as training/loop.py, is given it.
"""
from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence

from lingpipe import cluster
from lingpipe.hyperparams import REQUIRED, Configurable, field
from lingpipe.input import Input
from lingpipe.input.first_batch import check_keys
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.execution.variables import TO_TRAIN, Contents
from lingpipe.pipeline.planning.dataflow import check_gradient_rows
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.pipeline.planning.plan import Plan
from lingpipe.pipeline.planning.planner import make_plan
from lingpipe.training.hooks.hook import Hook
from lingpipe.training.initialize_from import InitializeFrom
from lingpipe.training.problem import Problem, with_keras_shapes
from lingpipe.training.train_params import TrainParams


class Experiment(Configurable):
    """A problem and inputs, made. Variables are made only by `make_program`.

    Attributes:
      task: the Problem.
      train_input: the Input that is trained on.
      eval_inputs: name -> Input.
    """

    class Params(Configurable.Params):
        """The whole experiment; its text is LOGDIR/params.txt."""
        task: Problem.Params = field(REQUIRED, 'Network and learner.')
        train_input: Input.Params = field(REQUIRED, 'What is trained on.')
        eval_inputs: dict[str, Input.Params] = field({}, 'What is evaluated on, by name.')
        pipeline: PipelineParams = field(
            PipelineParams(), 'Cells, micro-batches, schedule, recomputation.')
        train: TrainParams = field(
            TrainParams(), 'Number of steps, and how often it saves, evaluates and reports.')
        seed: int = field(0, 'Seeds the initial weights and all randomness in layers, not inputs.')
        intra_op_threads: int = field(
            1, 'Threads of one op, 0: all. They change the last bits of sums.', least=0, most=1024)
        hooks: tuple[Hook.Params, ...] = field(
            (), 'What is called while it trains, as hooks.CSV.Params(); it changes no result.')
        initialize_from: InitializeFrom = field(
            InitializeFrom(), "Another experiment's weights to start from.")

        def check(self) -> None:
            """Raises ValueError for an eval input that never ends or cannot name a directory."""
            for name, source in self.eval_inputs.items():
                if source.num_epochs is None:
                    raise ValueError(f'eval_inputs.{name}.num_epochs is none, so that an '
                                     f'evaluation would not end; set it to 1')
                if not re.fullmatch(r'[\w.-]+', name):
                    raise ValueError(f'eval_inputs has the name {name!r}, which must do for a '
                                     f'directory; use letters, digits, _ and -')

    params: Params

    def __init__(self, params: Params):
        super().__init__(params)
        p = self.params
        self.train_input: Input = p.train_input.instantiate()
        self.task: Problem = with_keras_shapes(p.task, self.train_input).instantiate()
        self.eval_inputs: Mapping[str, Input] = {
            name: source.instantiate() for name, source in p.eval_inputs.items()}

    @property
    def examples_per_step(self) -> int:
        """Examples that one update is made from."""
        return self.params.train_input.batch_size * self.params.task.learner.accumulate

    def lasting(self, num_steps: int) -> Experiment:
        """The same experiment with another train.num_steps; the problem and inputs are shared."""
        other = copy.copy(self)
        other.params = self.params.copy()
        other.params.train.num_steps = num_steps
        other.params.freeze()
        return other

    def make_program(self, devices: Sequence[str] = (), pipeline: PipelineParams | None = None,
                     contents: Contents = TO_TRAIN) -> Program:
        """The network on its devices, with its variables. cluster.configure comes before it.

        Args:
          devices: one tf.device string a cell; default: those that the Params name.
          pipeline: what these devices run; default: as the Params say.
          contents: what variables are made with.
        """
        check_keys(self.train_input, self.task.network.reads().values())
        for source in (self.train_input, *self.eval_inputs.values()):
            self.task.check_input(source)
        return Program(self.task.network, self.train_input.specs(),
                       self._pipeline_on(devices, pipeline), self.task.learner, self.params.seed,
                       contents=contents)

    def make_plan(self, devices: Sequence[str] = (),
                  pipeline: PipelineParams | None = None) -> Plan:
        """The plan alone: no variable is made. The arguments are those of `make_program`."""
        pipeline, learner = self._pipeline_on(devices, pipeline), self.task.learner
        check_keys(self.train_input, self.task.network.reads().values())
        plan = make_plan(self.task.network, self.train_input.spec(), pipeline,
                         pipeline.devices or cluster.expected_devices(pipeline.num_devices),
                         learner.is_frozen, learner.slot_bytes, learner.update_bytes)
        check_gradient_rows(plan.elements, learner.params.accumulate)
        return plan

    def _pipeline_on(self, devices: Sequence[str], given: PipelineParams | None) -> PipelineParams:
        """The pipeline's Params with the devices of this process; the experiment's stay as saved.

        Raises:
          ValueError: the pipeline cannot run on these devices.
        """
        if not devices:
            return self.params.pipeline
        placed = self.params.copy()
        placed.pipeline = (given or placed.pipeline).copy().set(
            devices=tuple(devices), cells_per_gpu=max(map(devices.count, devices)))
        return placed.validate().pipeline
