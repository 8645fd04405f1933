"""Program: a network on its devices, with its variables, training step and evaluation step.

    program = Program(network, batch_spec, pipeline_params, learner)
    program.train_step(batch, step)            -> {'loss': ..., 'gradient_norm': ..., ...}
    program.evaluator(batch_spec).step(batch)  -> {'loss': (sum, weight), ...}, {}
    program.predict(examples)                  -> {'x': array [N, ...]}, the outputs by name

A training step runs the tasks of all micro-batches (step_graph.py) and then the update (update.py).
All sums are made in an order that does not depend on K.
"""
from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from lingpipe import cluster
from lingpipe.layers import nested
from lingpipe.layers.sequential import Sequential
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution.bad_ids import BadId, find_bad_id
from lingpipe.pipeline.execution.batch_checks import explained
from lingpipe.pipeline.execution.built_steps import BuiltSteps, Shape
from lingpipe.pipeline.execution.evaluator import Evaluator
from lingpipe.pipeline.execution.placed_network import PlacedNetwork
from lingpipe.pipeline.execution.predictor import Predictor
from lingpipe.pipeline.execution.readiness import Readiness
from lingpipe.pipeline.execution.replay import run_or_replay
from lingpipe.pipeline.execution.stamps import stamped_work, step_times
from lingpipe.pipeline.execution.task_values import ReplicaBatch
from lingpipe.pipeline.execution.traffic import Traffic, step_traffic
from lingpipe.pipeline.execution.training_graph import Kind
from lingpipe.pipeline.execution.variables import Variables
from lingpipe.pipeline.execution.wire import Wire
from lingpipe.pipeline.planning.breakdown import StepTimes
from lingpipe.pipeline.planning.micro_batches import check_state
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.pipeline.planning.plan import make_plan, plan_like
from lingpipe.pipeline.replication.replicas import check_equal, check_replicated


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
        plans = [self.plan, *(plan_like(self.plan, network, spec, learner.is_frozen)
                              for spec in specs[1:])]
        self._variables = [Variables(network, cells, learner, seed) for cells in self.plan.replicas]
        self.placed = self._variables[0]
        self._steps = BuiltSteps(list(map(Shape, specs, plans)), self._variables, learner, seed,
                                 self.make_wire)

        self._predictors: dict[tuple[str, ...], Predictor] = {}   # by outputs
        self._readiness = Readiness(self._variables)
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

        pipeline = self._steps.compiled(self._steps.number_of(batch))[0].pipelines[0]
        works = stamped_work(pipeline, has_replicas=self.plan.params.num_replicas > 1)
        return results, step_times(stamps, works, pipeline.schedule, call_s)

    def check(self, batch: dict[str, Any]) -> BadId | None:
        """Returns an id in the mini-batch that a layer cannot use, or None.

        Raises:
          ValueError: the mini-batch matches no batch_spec.
        """
        shape = self._steps.shapes[self._steps.number_of(batch)]
        return find_bad_id(shape.plan.elements, batch)

    def has_traced(self, batch: dict[str, Any]) -> bool:
        """Whether a mini-batch of this shape has run before, so that this one needs no tracing."""
        return self._steps.is_compiled(self._steps.number_of(batch))

    def _call(self, kind: Kind, batch: dict[str, Any], step: int,
              index: int) -> dict[str, tf.Tensor]:
        number = self._steps.number_of(batch)
        shape = self._steps.shapes[number]
        batch = {name: batch[name] for name in shape.batch_spec}
        compiled, trained = self._steps.compiled(number)
        reached = compiled.reached | (self._reached if index else frozenset())
        run = self._steps.step(kind, number, reached)
        self._readiness.prepare(trained, step, index)

        p = self.plan.params
        position = (tf.constant(step, tf.int64),
                    tf.constant(index * p.num_replicas * p.num_micro_batches, tf.int32))

        def parts() -> list[ReplicaBatch]:
            return compiled.split(nested.map_leaves(tf.convert_to_tensor, batch), *position)

        # Tasks that wait for those of other replicas cannot run one by one.
        pipelines = () if compiled.waits else compiled.pipelines
        with self._readiness.running(), explained(shape.plan.elements, batch):
            results: dict[str, tf.Tensor] = run_or_replay(
                lambda: run(*nested.leaves(batch), *position), pipelines, parts, self.make_wire())
        self._reached = reached
        return results

    def make_wire(self) -> Wire:
        """Makes what carries values between devices in one step; subclasses may override it."""
        return Wire(self._wire_dtype)

    @property
    def _wire_dtype(self) -> tf.DType | None:
        return tf.bfloat16 if self.plan.params.wire_dtype == 'bfloat16' else None

    def step_graph(self) -> tf.Graph:
        """Returns the graph of a training step of the first batch_spec, built if necessary."""
        compiled, _ = self._steps.compiled(0)
        return self._steps.step('train', 0, compiled.reached).graph

    def sent_bytes(self) -> Traffic:
        """Returns all bytes that a training step sends between devices; see traffic.py."""
        self.step_graph()
        compiled, trained = self._steps.compiled(0)
        return step_traffic(self.plan, [replica.accumulators for replica in trained.replicas],
                            [call for pipeline in compiled.pipelines for call in pipeline.calls()],
                            self._wire_dtype)

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
        return Evaluator(self._placed_network, batch_spec, num_micro_batches, fetch)

    def predictor(self, batch_spec: Mapping[str, Any], num_micro_batches: int = 0,
                  outputs: Sequence[str] = ()) -> Predictor:
        """Makes a predictor, which computes the outputs of examples and needs no labels.

        It uses the moving averages of the weights where the learner keeps them.

        Args:
          batch_spec: of a mini-batch, whose size is that of the largest step.
          num_micro_batches: M; 0: that of training if it divides the batch, or else 1.
          outputs: names of values; (): those that the network names or, if it names none, all that
            the last layer writes that is not a loss.
        """
        return Predictor(self._placed_network, batch_spec, num_micro_batches, outputs)

    def predict(self, examples: Any, outputs: Sequence[str] = ()) -> dict[str, Any]:
        """Computes the outputs of any number of examples, in mini-batches as in training.

        Args:
          examples: arrays [N, ...] by the name of the input, or the array itself if the network
            needs only one. Labels and other values that the outputs do not need are ignored.
          outputs: as of `predictor`.

        Returns:
          Name -> NumPy array [N, ...] of every output.
        """
        key = tuple(outputs)
        if key not in self._predictors:
            self._predictors[key] = self.predictor(self.batch_spec, outputs=outputs)
        return self._predictors[key].predict(examples)

    @property
    def _placed_network(self) -> PlacedNetwork:
        return PlacedNetwork(self.network, self.placed, self.plan, self.seed)
