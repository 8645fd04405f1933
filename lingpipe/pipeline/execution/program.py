"""Program: a network on its devices, with its variables, training step and evaluation step.

    program = Program(network, batch_spec, pipeline_params, learner)
    program.train_step(batch, step)            -> {'loss': ..., 'gradient_norm': ..., ...}
    program.evaluator(batch_spec).step(batch)  -> {'loss': (sum, weight), ...}, {}

A training step runs the tasks of all micro-batches (step_graph.py) and then the update (update.py).
All sums are made in an order that does not depend on K.
"""
from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from lingpipe import cluster
from lingpipe.cluster import HOME
from lingpipe.cluster.client import wait_for_ops
from lingpipe.layers import nested
from lingpipe.layers.sequential import Sequential
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution.bad_ids import BadId, find_bad_id
from lingpipe.pipeline.execution.batch_checks import check_batch, explained, is_of_spec
from lingpipe.pipeline.execution.evaluator import Evaluator
from lingpipe.pipeline.execution.placed_network import PlacedNetwork
from lingpipe.pipeline.execution.replay import replay
from lingpipe.pipeline.execution.stamps import stamped_work, step_times
from lingpipe.pipeline.execution.traffic import (
    Traffic,
    backward_traffic,
    forward_traffic,
    norms_traffic,
    replicas_traffic,
    update_traffic,
)
from lingpipe.pipeline.execution.training_graph import (
    CompiledShape,
    Kind,
    Step,
    TrainedReplicas,
    build_step,
    compile_shape,
    trained_replicas,
)
from lingpipe.pipeline.execution.variables import Variables
from lingpipe.pipeline.execution.wire import Wire
from lingpipe.pipeline.planning.breakdown import StepTimes
from lingpipe.pipeline.planning.micro_batches import check_state
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.pipeline.planning.plan import Plan, make_plan, plan_like
from lingpipe.pipeline.replication.replicas import check_equal, check_replicated, copy_first


@dataclasses.dataclass(frozen=True, eq=False)
class _Shape:
    """One shape of mini-batches.

    All shapes share the partition and the variables; each has tasks of its own.
    """
    batch_spec: dict[str, Any]
    plan: Plan


class Program:
    """A network on its devices.

    Attributes:
      batch_spec: the first one, if there are several.
      plan: the plan for mini-batches of that shape, which determine the partition.
      placed: weights, slots and averages of the first replica.
    """

    def __init__(self, network: Sequential, batch_spec: dict[str, Any] | Sequence[dict[str, Any]],
                 params: PipelineParams, learner: Learner, seed: int = 0,
                 devices: Sequence[str] = ()):
        """Plans the steps and creates all variables; nothing is traced yet.

        Args:
          network: the layers.
          batch_spec: name -> nested tf.TensorSpec of a training mini-batch, with a known batch
            size. Or several such specs, the largest first: a mini-batch may then have any of these
            shapes (buckets of sentence lengths, say), and each is traced when it first occurs.
          params: K, M, schedule, recomputation.
          learner: the optimizer, the learning rate, clipping and averages.
          seed: seeds the initial weights and all randomness in layers.
          devices: [R K] tf.device strings, replica after replica; default: params.devices, or else
            cluster.default_devices.
        """
        cluster.set_graph_optimizer(params.use_graph_optimizer)
        devices = list(devices or params.devices or cluster.default_devices(params.num_devices))
        cluster.check_devices(devices)
        check_replicated(params, devices)
        if params.sum_groups > 1 and learner.params.accumulate > 1:
            raise ValueError(
                f'sum_groups={params.sum_groups}, but the learner accumulates '
                f'{learner.params.accumulate} mini-batches, whose sums are not grouped; set one of '
                f'the two to 1.')
        check_state(network, learner.params.accumulate)

        self.network, self.learner, self.seed = network, learner, seed
        specs = [batch_spec] if isinstance(batch_spec, dict) else list(batch_spec)
        self.batch_spec = specs[0]
        self.plan = make_plan(network, specs[0], params, devices, learner.is_frozen,
                              learner.slot_bytes)
        self._shapes = [_Shape(specs[0], self.plan)]
        self._shapes += [_Shape(spec, plan_like(self.plan, network, spec, learner.is_frozen))
                         for spec in specs[1:]]
        self._variables = [Variables(network, cells, learner, seed) for cells in self.plan.replicas]
        self.placed = self._variables[0]

        # Traced parts, made when they are first needed: by the number of a shape, what its
        # mini-batches run; for all shapes together, the accumulators and the update.
        self._compiled: dict[int, CompiledShape] = {}
        self._trained: TrainedReplicas | None = None
        self._steps: dict[tuple[Kind, int, frozenset[str]], Step] = {}

        # What the last step has left behind.
        self._is_broken = self._is_synchronised = False
        self._reached: frozenset[str] = frozenset()  # weights, by mini-batches so far accumulated

    @property
    def weights(self) -> dict[str, tf.Variable]:
        """path -> variable, of every owned weight."""
        return self.placed.weights

    def variables(self) -> dict[str, tf.Variable]:
        """All variables of a checkpoint, by keys that do not depend on the partition."""
        return self.placed.by_key()

    # Training.

    def train_step(self, batch: dict[str, Any], step: int, index: int = 0) -> dict[str, tf.Tensor]:
        """Runs a mini-batch and updates the weights.

        Args:
          batch: nested tensors that match batch_spec, or one of several.
          step: number of earlier updates, which determines seeds and the learning rate.
          index: number of mini-batches accumulated before this one for the same update.

        Returns:
          Scalars by name: 'loss', every emitted loss and metric, 'weight' (the mini-batch's total
          weight), 'gradient_norm', 'learning_rate' and 'is_finite' (False: nothing was updated).
        """
        return self._call('train', batch, step, index)

    def accumulate(self, batch: dict[str, Any], step: int, index: int) -> None:
        """Runs mini-batch `index` of an update, and adds its gradients to the accumulators.

        The last mini-batch of the update goes to `train_step`.
        """
        self._call('accumulate', batch, step, index)

    def timed_step(self, batch: dict[str, Any], step: int,
                   index: int = 0) -> tuple[dict[str, tf.Tensor], StepTimes]:
        """Runs a train_step, and also measures when every task and the update ran.

        Once the step of this shape is built, `StepTimes.call_s` is the time of this call.
        """
        start_s = time.perf_counter()
        results = dict(self._call('timed', batch, step, index))
        stamps = results.pop('stamps').numpy()
        call_s = time.perf_counter() - start_s

        pipeline = self._compiled[self._number_of(batch)].pipelines[0]
        works = stamped_work(pipeline, has_replicas=self.plan.params.num_replicas > 1)
        return results, step_times(stamps, works, pipeline.schedule, call_s)

    def check(self, batch: dict[str, Any]) -> BadId | None:
        """Returns an id in the mini-batch that a layer cannot use, or None.

        Raises:
          ValueError: the mini-batch matches no batch_spec.
        """
        return find_bad_id(self._shapes[self._number_of(batch)].plan.elements, batch)

    def has_traced(self, batch: dict[str, Any]) -> bool:
        """Whether a mini-batch of this shape has run before, so that this one needs no tracing."""
        return self._number_of(batch) in self._compiled

    def _number_of(self, batch: dict[str, Any]) -> int:
        """Returns the index of the mini-batch's shape."""
        for number, shape in enumerate(self._shapes[1:], start=1):
            if is_of_spec(batch, shape.batch_spec):
                return number
        check_batch(batch, self._shapes[0].batch_spec)
        return 0

    def _call(self, kind: Kind, batch: dict[str, Any], step: int,
              index: int) -> dict[str, tf.Tensor]:
        number = self._number_of(batch)
        shape = self._shapes[number]
        batch = {name: batch[name] for name in shape.batch_spec}
        compiled, trained = self._compile(number)
        reached = compiled.reached | (self._reached if index else frozenset())
        run = self._step(kind, number, reached)
        self._make_ready(trained, step, index)

        p = self.plan.params
        position = (tf.constant(step, tf.int64),
                    tf.constant(index * p.num_replicas * p.num_micro_batches, tf.int32))
        self._is_broken = True  # If the step fails, the accumulators hold partial sums.
        with explained(shape.plan.elements, batch):
            try:
                results: dict[str, tf.Tensor] = run(*nested.leaves(batch), *position)
            except tf.errors.CancelledError:  # often the only error; see replay.py
                if not compiled.waits:
                    tensors = nested.map_leaves(tf.convert_to_tensor, batch)
                    replay(compiled.pipelines, compiled.split(tensors, *position), self.make_wire())
                raise
        self._is_broken, self._reached = False, reached
        return results

    def _make_ready(self, trained: TrainedReplicas, step: int, index: int) -> None:
        """Prepares the variables for the first step, and for the one after a failed step."""
        must_wait = self._is_broken or not self._is_synchronised
        if self._is_broken:
            if index:
                raise ValueError(
                    f'mini-batch {index} of the update of step {step} comes after one that failed, '
                    f'and with it those before were lost; begin the update again with index 0.')
            for replica in trained.replicas:
                for accumulators in replica.accumulators:
                    accumulators.reset()

        if not self._is_synchronised:  # the first replica may have come from a checkpoint
            copy_first(self._variables)
            self._is_synchronised = True

        if must_wait:
            wait_for_ops(variable.read_value() for replica in trained.replicas for variable in
                         (*replica.placed.by_key().values(),
                          *(v for one in replica.accumulators for v in one.variables())))

    def _compile(self, number: int) -> tuple[CompiledShape, TrainedReplicas]:
        """Traces the tasks of a shape, unless they exist; the first shape makes accumulators."""
        if number not in self._compiled:
            shape, trained = self._shapes[number], self._trained
            accumulators = [replica.accumulators for replica in trained.replicas] if trained else []
            compiled = compile_shape(
                shape.batch_spec, shape.plan, self._variables, self.seed, accumulators)
            if trained is None:
                trained = trained_replicas(
                    self.plan, compiled.pipelines, self._variables, self.learner)
                _warn_of_unreached(trained.updates[0].gradients.unreached(compiled.reached))

            # Both are set together, and only after nothing failed: if a layer raises an error, the
            # next step traces everything again.
            self._compiled[number], self._trained = compiled, trained
        assert self._trained is not None
        return self._compiled[number], self._trained

    def _step(self, kind: Kind, number: int, reached: frozenset[str]) -> Step:
        """Returns the step for mini-batches of a shape, built at first use; see `build_step`."""
        if (kind, number, reached) not in self._steps:
            compiled, trained = self._compile(number)
            self._steps[kind, number, reached] = build_step(
                kind, compiled, trained, reached, self.make_wire())
        return self._steps[kind, number, reached]

    def make_wire(self) -> Wire:
        """Makes what carries values between devices in one step; subclasses may override it."""
        return Wire(self._wire_dtype)

    @property
    def _wire_dtype(self) -> tf.DType | None:
        return tf.bfloat16 if self.plan.params.wire_dtype == 'bfloat16' else None

    def step_graph(self) -> tf.Graph:
        """Returns the graph of a training step of the first batch_spec, built if necessary."""
        compiled, _ = self._compile(0)
        return self._step('train', 0, compiled.reached).graph

    def sent_bytes(self) -> Traffic:
        """Returns all bytes that a training step sends between devices; see traffic.py."""
        self.step_graph()
        compiled, trained = self._compile(0)
        params = self.plan.params

        accumulators = [replica.accumulators for replica in trained.replicas]
        traffic = norms_traffic(self.plan.cells) + replicas_traffic(
            self.plan.replicas, accumulators, params.replica_reduction,
            [call for pipeline in compiled.pipelines for call in pipeline.calls()])

        for replica in trained.replicas:
            cells, m = replica.cells, params.num_micro_batches
            traffic += forward_traffic(cells, m, HOME, self._wire_dtype)
            traffic += backward_traffic(cells, m, self._wire_dtype)
            traffic += update_traffic(cells, replica.accumulators)
        return traffic

    @property
    def replicas(self) -> Sequence[Variables]:
        """[R] the weights, slots and averages of every replica."""
        return self._variables

    def check_replicas(self) -> None:
        """Raises ArithmeticError unless the variables of all replicas are bitwise identical."""
        check_equal(self._variables)

    # Evaluation.

    def evaluator(self, batch_spec: dict[str, Any], num_micro_batches: int = 0,
                  fetch: Sequence[str] = ()) -> Evaluator:
        """Makes an evaluator, which runs the network forward only, pipelined.

        It uses the moving averages of the weights where the learner keeps them.

        Args:
          batch_spec: of an evaluation mini-batch, which may have another size than in training.
          num_micro_batches: M; 0: that of training if it divides the batch, or else 1.
          fetch: names of the values to return for every example. If several values have the same
            name, the last one is returned.
        """
        of = PlacedNetwork(self.network, self.placed, self.plan, self.seed)
        return Evaluator(of, batch_spec, num_micro_batches, fetch)


def _warn_of_unreached(paths: Sequence[str]) -> None:
    if not paths:
        return
    them, they_are = ('them', 'they are') if len(paths) > 1 else ('it', 'it is')
    logging.warning('the loss does not depend on %s, so that training leaves %s as %s; correct the '
                    'network, or freeze %s with learner.frozen',
                    ', '.join(paths), them, they_are, them)
