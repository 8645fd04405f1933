"""Program: a network on its devices: variables, the training step and the evaluation step.

    program = Program(network, batch_spec, pipeline_params, learner)
    program.train_step(batch, step)     -> {'loss': ..., 'gradient_norm': ..., ...}
    program.evaluator(batch_spec).step(batch) -> {'loss': (sum, weight), ...}

A training step is the tasks of all micro-batches (step_graph.py), then the update (update.py). Everything that is added up is added in
an order that does not depend on K.
"""
from __future__ import annotations

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
from lingpipe.pipeline.execution.accumulators import Accumulators
from lingpipe.pipeline.execution.bad_ids import BadId, find_bad_id
from lingpipe.pipeline.execution.cell_trace import CellTracer
from lingpipe.pipeline.execution.compiled_task import CompiledTask
from lingpipe.pipeline.execution.evaluator import Evaluator
from lingpipe.pipeline.execution.mean_weight import MeanWeight, asked_for
from lingpipe.pipeline.execution.step_graph import (
    Ran,
    check_batch,
    explained,
    is_of_spec,
    run_tasks,
)
from lingpipe.pipeline.execution.traffic import (
    Traffic,
    backward_traffic,
    forward_traffic,
    norms_traffic,
    replicas_traffic,
    update_traffic,
)
from lingpipe.pipeline.execution.update import Update
from lingpipe.pipeline.execution.variables import Variables
from lingpipe.pipeline.execution.wire import Wire
from lingpipe.pipeline.planning import plan as plan_lib
from lingpipe.pipeline.planning.cell import Cell, Leaf, leaves_of
from lingpipe.pipeline.planning.drawing import Timeline
from lingpipe.pipeline.planning.plan import PipelineParams, Plan
from lingpipe.pipeline.replication.replicas import (
    Replica,
    check_equal,
    check_replicated,
    copy_first,
    groups_of,
    reduce,
)


class _Shape:
    """What is traced for mini-batches of one shape: the same partition and variables, other tasks."""

    def __init__(self, batch_spec: dict[str, Any], plan: Plan):
        self.batch_spec, self.plan = batch_spec, plan
        self.tasks: list[dict[tuple[str, int], CompiledTask]] = []  # of every replica
        self.mean_weight: MeanWeight | None = None  # where a task asks for it
        self.reached: frozenset[str] = frozenset()  # Update.reached
        self.steps: dict[tuple[str, frozenset[str]], Any] = {}  # by kind, and Update.reached of all mini-batches of the update
        self.timed_tasks: list[Any] = []


class Program:
    """A network on its devices.

    Attributes:
      batch_spec: the first, or only, one.
      plan: of mini-batches of that shape, which decide where cells end.
      placed: weights, slots and averages, of the first replica.
    """

    def __init__(self, network: Sequential, batch_spec: dict[str, Any] | Sequence[dict[str, Any]], params: PipelineParams, learner: Learner,
                 seed: int = 0, devices: Sequence[str] = ()):
        """Plans, and makes all variables; nothing is traced yet.

        Args:
          network: the layers.
          batch_spec: name -> nested tf.TensorSpec of a training mini-batch, its size known; or several, the largest first: a mini-batch
            may then be of any of these shapes (buckets of sentence lengths, say), each traced when it first comes.
          params: K, M, schedule, recomputation.
          learner: optimizer and all that goes with it.
          seed: of the experiment: initial weights and all randomness in layers follow from it.
          devices: [R K] tf.device strings, replica after replica; default: params.devices, or else cluster.default_devices.
        """
        cluster.set_graph_optimizer(params.use_graph_optimizer)
        devices = list(devices or params.devices or cluster.default_devices(params.num_devices))
        cluster.check_devices(devices)
        check_replicated(params, devices)
        if params.sum_groups > 1 and learner.params.accumulate > 1:
            raise ValueError(f'sum_groups={params.sum_groups}, but the learner accumulates {learner.params.accumulate} mini-batches, whose '
                             f'sums are not grouped; set one of the two to 1.')
        plan_lib.check_state(network, learner.params.accumulate)
        self.network, self.learner, self.seed = network, learner, seed
        specs = [batch_spec] if isinstance(batch_spec, dict) else list(batch_spec)
        self.batch_spec = specs[0]
        self.plan = plan_lib.make_plan(network, specs[0], params, devices, learner.is_frozen, learner.slot_bytes)
        self._shapes = [_Shape(specs[0], self.plan), *[_Shape(spec, self._plan_like(spec)) for spec in specs[1:]]]
        self._replicas = [self._replica(r, cells) for r, cells in enumerate(self.plan.replicas)]
        self.placed = self._replicas[0].placed
        self._updates = [Update(one.cells, one.accumulators, one.placed, learner) for one in self._replicas]
        self._wire_dtype = tf.bfloat16 if params.wire_dtype == 'bfloat16' else None
        self._waits = params.cross_replica_batch_norm and params.num_replicas > 1  # for other replicas, in the tasks
        self._is_broken = self._is_synchronised = False
        self._reached: frozenset[str] = frozenset()  # by the mini-batches accumulated so far

    def _replica(self, index: int, cells: Sequence[Cell]) -> Replica:
        p = self.plan.params
        accumulators = [Accumulators(cell.device, [w for e in cell.elements for w in e.trained], p.num_micro_batches,
                                     p.sum_groups) for cell in cells]
        return Replica(index, cells, Variables(self.network, cells, self.learner, self.seed), accumulators)

    def _plan_like(self, batch_spec: dict[str, Any]) -> Plan:
        """The plan of another mini-batch, cut at the same places."""
        params = self.plan.params.copy()
        params.layers_per_cell = tuple(len(cell.elements) for cell in self.plan.cells)
        devices = [cell.device for cells in self.plan.replicas for cell in cells]
        return plan_lib.make_plan(self.network, batch_spec, params, devices, self.learner.is_frozen, self.learner.slot_bytes)

    @property
    def weights(self) -> dict[str, tf.Variable]:
        """path -> variable, of every weight that is owned."""
        return self.placed.weights

    def variables(self) -> dict[str, tf.Variable]:
        """All that a checkpoint keeps, by keys that do not depend on the partition."""
        return self.placed.by_key()

    # Training.

    def train_step(self, batch: dict[str, Any], step: int, index: int = 0) -> dict[str, tf.Tensor]:
        """Runs a mini-batch and updates the weights.

        Args:
          batch: nested tensors of batch_spec, or of one of them.
          step: number of updates made before; seeds and schedules follow from it.
          index: how many mini-batches were accumulated before this one for the same update.

        Returns:
          Scalars by name: 'loss', every emitted loss and metric, 'weight' (the mini-batch's total weight),
          'gradient_norm', 'learning_rate', 'is_finite' (False: nothing was updated).
        """
        return self._call('train', batch, step, index)

    def accumulate(self, batch: dict[str, Any], step: int, index: int) -> None:
        """Runs mini-batch `index` of an update and only adds to the accumulators; train_step takes the last one."""
        self._call('accumulate', batch, step, index)

    def timed_step(self, batch: dict[str, Any], step: int, index: int = 0) -> tuple[dict[str, tf.Tensor], Timeline]:
        """A train_step that also measures when every task ran."""
        results = dict(self._call('timed', batch, step, index))
        shape = self._shape_of(batch)
        stamps = results.pop('stamps').numpy()
        spans = {task: (float(a), float(b)) for task, (a, b) in zip(shape.timed_tasks, stamps - stamps.min(), strict=True)}
        return results, Timeline(spans, self.plan.schedule.device_of)

    def check(self, batch: dict[str, Any]) -> BadId | None:
        """Raises ValueError for a mini-batch that is of no batch_spec; returns an id in it that a layer cannot use, if there is one."""
        return find_bad_id(self._shape_of(batch).plan.elements, batch)

    def has_traced(self, batch: dict[str, Any]) -> bool:
        """Whether a step of this shape was made before, so that this one is as quick as most."""
        return bool(self._shape_of(batch).tasks)

    def _shape_of(self, batch: dict[str, Any]) -> _Shape:
        for shape in self._shapes[1:]:
            if is_of_spec(batch, shape.batch_spec):
                return shape
        check_batch(batch, self._shapes[0].batch_spec)
        return self._shapes[0]

    def _call(self, kind: str, batch: dict[str, Any], step: int, index: int) -> Any:
        shape = self._shape_of(batch)
        batch = {name: batch[name] for name in shape.batch_spec}
        self._trace(shape)
        reached = shape.reached | (self._reached if index else frozenset())
        run = self._step(kind, shape, reached)
        must_wait = self._is_broken or not self._is_synchronised
        if self._is_broken:
            if index:
                raise ValueError(f'mini-batch {index} of the update of step {step} comes after one that failed, and with it those before '
                                 f'were lost; begin the update again with index 0.')
            for replica in self._replicas:
                for accumulators in replica.accumulators:
                    accumulators.reset()
        if not self._is_synchronised:  # the first may have been restored from a checkpoint
            copy_first(self._replicas)
            self._is_synchronised = True
        if must_wait:
            wait_for_ops(variable.read_value() for replica in self._replicas for variable in
                         (*replica.placed.by_key().values(), *(v for one in replica.accumulators for v in one.variables())))
        p = self.plan.params
        position = (tf.constant(step, tf.int64), tf.constant(index * p.num_replicas * p.num_micro_batches, tf.int32))
        self._is_broken = True  # unless it comes to its end, its tasks have added what the next step must not see
        with explained(shape.plan.elements, batch):
            try:
                results = run(*nested.leaves(batch), *position)
            except tf.errors.CancelledError:  # what devices say that were cut off when another failed, and often all that is said
                if not self._waits:  # one by one, up to the one that fails
                    self._run_tasks(shape, nested.map_leaves(tf.convert_to_tensor, batch), *position)
                raise
        self._is_broken, self._reached = False, reached
        return results

    def _trace(self, shape: _Shape) -> None:
        """Traces the tasks of a shape, unless they are there."""
        if shape.tasks:
            return
        tasks = [self._traced_tasks(replica, cells, shape.plan) for replica, cells in
                 zip(self._replicas, shape.plan.replicas, strict=True)]
        if asked_for(tasks[0].values()):
            shape.mean_weight = MeanWeight(shape.plan.elements, training=True)
        shape.reached = self._updates[0].reached(tasks[0])
        still = self._updates[0].unreached(shape.reached)
        if still and not any(other.tasks for other in self._shapes):
            logging.warning('the loss does not depend on %s, so that training leaves %s as %s; correct the network, or freeze '
                            '%s with learner.frozen', ', '.join(still), *(('them', 'they are', 'them') if len(still) > 1 else
                                                                           ('it', 'it is', 'it')))
        shape.tasks = tasks  # all or none: a layer that fails is asked again by the next step

    def _step(self, kind: str, shape: _Shape, reached: frozenset[str]) -> Any:
        """The step of mini-batches of a shape, of which and of those accumulated before `reached` have gradients."""
        if (kind, reached) not in shape.steps:
            shape.steps[kind, reached] = self._build(kind, shape, reached)
        return shape.steps[kind, reached]

    def _build(self, kind: str, shape: _Shape, reached: frozenset[str]) -> Any:
        specs = [*nested.leaves(shape.batch_spec), tf.TensorSpec([], tf.int64), tf.TensorSpec([], tf.int32)]

        def body(*args: tf.Tensor) -> Any:
            """The tasks of all replicas, then the update unless `kind` only accumulates."""
            *flat, step, first = args
            ran = self._run_tasks(shape, nested.pack_like(shape.batch_spec, flat), step, first, is_timed=kind == 'timed')
            if kind == 'accumulate':
                with tf.control_dependencies([op for one in ran for op in one.last]):
                    return {'done': tf.constant(True)}
            last = reduce(self._replicas, [one.last for one in ran], self.plan.params.replica_reduction)
            foreign = [update.foreign_gradients(ops) for update, ops in zip(self._updates, last, strict=True)]
            decision = self._updates[0].decide(last[0], foreign[0], step, reached)
            done = [tensor for update, ops, given in zip(self._updates, last, foreign, strict=True)
                    for tensor in update.apply(decision, ops, given, reached)]
            with tf.device(self.plan.cells[0].device), tf.control_dependencies(done):
                results = {name: tf.identity(value) for name, value in decision.results.items()}
            if kind == 'timed':
                results['stamps'] = ran[0].stamps
                shape.timed_tasks = ran[0].slots
            return results

        return tf.compat.v1.wrap_function(body, specs)

    def _run_tasks(self, shape: _Shape, batch: dict[str, Any], step: tf.Tensor, first: tf.Tensor, is_timed: bool = False) -> list[Ran]:
        """Runs the tasks of all replicas, each on its part of the mini-batch; the first replica's are timed."""
        p, ran = self.plan.params, []
        with tf.device(HOME):   # where the mini-batch is
            mean_weight = shape.mean_weight and shape.mean_weight.of(batch, p.num_replicas * p.num_micro_batches)
            parts = [tf.split(tensor, p.num_replicas) for tensor in nested.leaves(batch)]
        for replica, cells, tasks in zip(self._replicas, shape.plan.replicas, shape.tasks, strict=True):
            mine = nested.pack_like(batch, [part[replica.index] for part in parts])
            ran.append(run_tasks(shape.plan.schedule, cells, tasks, mine, step, first + replica.index * p.num_micro_batches,
                                 replica.placed.shared_reader(replica.placed.weights), self._wire(), is_timed and not replica.index,
                                 replica.accumulators, mean_weight))
        return ran

    def _wire(self) -> Wire:
        """What carries values between a replica's devices in one step."""
        return Wire(self._wire_dtype)

    def _traced_tasks(self, replica: Replica, cells: Sequence[Cell], plan: Plan) -> dict[tuple[str, int], CompiledTask]:
        available: set[Leaf] = set()
        groups = groups_of(self.plan.replicas)
        tasks: dict[tuple[str, int], CompiledTask] = {}
        for cell in reversed(cells):
            tracer = CellTracer(cell, replica.placed.reader(cell, replica.placed.weights), replica.accumulators[cell.index], self.seed,
                                plan.params.recompute, training=True,
                                gather=groups[cell.index].gatherer(replica.index) if self._waits else None,
                                jit_compile=plan.params.jit_compile)
            gradients_in = [leaf for leaf in leaves_of([*cell.inputs, *cell.outputs]) if leaf in available]
            forward, backward = tracer.trace(gradients_in, is_fused=cell is cells[-1])
            if forward is not None:
                tasks['F', cell.index] = forward
            if backward is not None:
                tasks['B', cell.index] = backward
                available.update(backward.gradients_out)
        return tasks

    def sent_bytes(self) -> Traffic:
        """All that crosses between devices in a training step, which is built for it; see traffic.py."""
        shape, p = self._shapes[0], self.plan.params
        self._trace(shape)
        self._step('train', shape, shape.reached)
        traffic = norms_traffic(self.plan.cells) + replicas_traffic(
            self.plan.replicas, [one.accumulators for one in self._replicas], p.replica_reduction, shape.tasks, p.num_micro_batches)
        for replica in self._replicas:
            traffic += forward_traffic(replica.cells, p.num_micro_batches, HOME, self._wire_dtype)
            traffic += backward_traffic(replica.cells, p.num_micro_batches, self._wire_dtype)
            traffic += update_traffic(replica.cells, replica.accumulators)
        return traffic

    def check_replicas(self) -> None:
        """Raises ArithmeticError unless the weights, slots and averages of all replicas are equal to the last bit."""
        check_equal(self._replicas)

    # Evaluation.

    def evaluator(self, batch_spec: dict[str, Any], num_micro_batches: int = 0, fetch: Sequence[str] = ()) -> Evaluator:
        """Forward only, pipelined, with the moving averages of the weights where the learner keeps them.

        Args:
          batch_spec: of an evaluation mini-batch; its size may differ from training's.
          num_micro_batches: default: training's if it divides the batch, or else 1.
          fetch: names of values to return for every example (the last value of that name).
        """
        return Evaluator(self, batch_spec, num_micro_batches, fetch)
