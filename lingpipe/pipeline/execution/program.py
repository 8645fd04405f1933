"""Program: a network on its devices, with its variables, training step and evaluation step.

    program = Program(network, batch_spec, pipeline_params, learner)
    program.train_step(batch, step)            -> {'loss': ..., 'gradient_norm': ..., ...}
    program.evaluator(batch_spec).step(batch)  -> {'loss': (sum, weight), ...}, {}
    program.predict(examples)                  -> {'x': array [N, ...]}, the outputs by name

Its training steps are in program_steps.py, its evaluation steps in evaluator.py.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence

import tensorflow as tf

from lingpipe import cluster
from lingpipe.layers.nested import Nested
from lingpipe.layers.sequential import Sequential
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution.built_steps import Shape
from lingpipe.pipeline.execution.evaluator import Evaluator
from lingpipe.pipeline.execution.placed_network import PlacedNetwork
from lingpipe.pipeline.execution.predictor import Predictor
from lingpipe.pipeline.execution.program_steps import ProgramSteps
from lingpipe.pipeline.execution.traffic import Traffic, step_traffic
from lingpipe.pipeline.execution.variables import TO_TRAIN, Contents
from lingpipe.pipeline.planning.dataflow import check_gradient_rows
from lingpipe.pipeline.planning.micro_batches import check_state
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.pipeline.planning.planner import make_plan, plan_like
from lingpipe.pipeline.replication.collectives import check_replicated
from lingpipe.pipeline.replication.equal_replicas import check_equal
from lingpipe.pipeline.replication.sharded_variables import placed_replicas


class Program(ProgramSteps):
    """A network on its devices.

    Attributes:
      network: the layers.
      learner: what the weights are updated by.
      seed: the seed of the experiment.
      batch_spec: the first one, if there are several.
      placed: weights, slots and averages of the first replica.
    """

    def __init__(self, network: Sequential,
                 batch_spec: dict[str, Nested] | Sequence[dict[str, Nested]],
                 params: PipelineParams, learner: Learner, seed: int = 0,
                 devices: Sequence[str] = (), contents: Contents = TO_TRAIN):
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
          contents: what variables are made with.
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
        plan = make_plan(network, specs[0], params, devices, learner.is_frozen, learner.slot_bytes,
                         learner.update_bytes)
        plans = [plan, *(plan_like(plan, network, spec, learner.is_frozen) for spec in specs[1:])]
        check_gradient_rows(plan.elements, learner.params.accumulate)
        replicas = placed_replicas(plan, network, learner, seed, contents)
        self.placed = replicas[0]
        self._predictors: dict[tuple[str, ...], Predictor] = {}   # by outputs
        super().__init__(list(map(Shape, specs, plans)), replicas, learner, seed)

    @property
    def weights(self) -> dict[str, tf.Variable]:
        """path -> variable, of every owned weight."""
        return self.placed.weights

    def evaluated_weights(self) -> dict[str, tf.Tensor]:
        """path -> value that evaluation uses: the moving average where the learner keeps one."""
        return self.placed.evaluated()

    def variables(self) -> dict[str, tf.Variable]:
        """All variables of a checkpoint, by keys that do not depend on the partition."""
        return self.placed.by_key()

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

    def replicas_may_differ(self) -> None:
        """Tells that `variables()` are set, as from a checkpoint, which sets the first replica."""
        self._readiness.replicas_may_differ()

    def make_replicas_equal(self) -> None:
        """Prepares an evaluation on all replicas, as a training step does for itself."""
        self._readiness.make_equal()

    def check_replicas(self) -> None:
        """Raises ArithmeticError unless the variables of all replicas are bitwise identical."""
        check_equal(self.replicas)

    def evaluator(self, batch_spec: dict[str, Nested], num_micro_batches: int = 0,
                  fetch: Sequence[str] = ()) -> Evaluator:
        """Makes an evaluator, which runs the network forward only, pipelined.

        It uses the moving averages of the weights where the learner keeps them.

        Args:
          batch_spec: of an evaluation mini-batch, which may have another size than in training.
          num_micro_batches: 0: R M of training, or M, if that divides the batch, or else 1.
          fetch: names of the values to return for every example. If several values have the same
            name, the last one is returned.
        """
        return Evaluator(self._placed_network, batch_spec, num_micro_batches, fetch)

    def predictor(self, batch_spec: Mapping[str, Nested], num_micro_batches: int = 0,
                  outputs: Sequence[str] = ()) -> Predictor:
        """Makes a predictor, which computes the outputs of examples and needs no labels.

        It uses the moving averages of the weights where the learner keeps them.

        Args:
          batch_spec: of a mini-batch, whose size is that of the largest step.
          num_micro_batches: 0: R M of training, or M, if that divides the batch, or else 1.
          outputs: names of values; (): those that the network names or, if it names none, all that
            the last layer writes that is not a loss.
        """
        return Predictor(self._placed_network, batch_spec, num_micro_batches, outputs)

    def predict(self, examples: Nested, outputs: Sequence[str] = ()) -> dict[str, Nested]:
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
        return PlacedNetwork(self.network, self.replicas, self.plan, self.seed)
