"""Evaluator: runs a network forward only, pipelined over the devices of its cells."""
from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from lingpipe.cluster import HOME
from lingpipe.layers import nested
from lingpipe.layers.nested import Nested
from lingpipe.pipeline.execution import results
from lingpipe.pipeline.execution.accumulators import Accumulators
from lingpipe.pipeline.execution.bad_ids import BadId, find_bad_id
from lingpipe.pipeline.execution.batch_checks import check_batch, explained
from lingpipe.pipeline.execution.compiled_pipeline import CompiledPipeline, compile_pipeline
from lingpipe.pipeline.execution.emission_layout import EmissionLayout
from lingpipe.pipeline.execution.forward_trace import TracingOptions
from lingpipe.pipeline.execution.mean_weight import MeanWeight, asked_for
from lingpipe.pipeline.execution.placed import placed
from lingpipe.pipeline.execution.placed_network import PlacedNetwork
from lingpipe.pipeline.execution.replay import run_or_replay
from lingpipe.pipeline.execution.step_graph import AddedTasks, add_tasks
from lingpipe.pipeline.execution.task_values import ReplicaBatch
from lingpipe.pipeline.execution.traffic import Traffic, forward_traffic
from lingpipe.pipeline.execution.wire import Wire
from lingpipe.pipeline.planning.cell import Cell, Leaf, leaves_of
from lingpipe.pipeline.planning.forward_plan import make_forward_plan
from lingpipe.pricing import trace


@dataclasses.dataclass(frozen=True, eq=False)
class _EvaluationStep:
    """The traced parts of an evaluation step."""
    pipeline: CompiledPipeline
    mean_weight: MeanWeight | None
    run: Callable[..., Any]

    def given(self, batch: Mapping[str, Nested]) -> ReplicaBatch:
        """Returns what the tasks take: tensors of a graph or, eagerly, values."""
        return _given(batch, self.pipeline, self.mean_weight)


class Evaluator:
    """The evaluation step of a network.

    It uses the moving averages of the weights where the learner keeps them. The constructor plans
    the step, and raises an error if the network cannot run on such mini-batches. The first call of
    `step` traces it.
    """

    def __init__(self, of: PlacedNetwork, batch_spec: dict[str, Nested], num_micro_batches: int = 0,
                 fetch: Sequence[str] = ()):
        """
        Args:
          of: the network to evaluate.
          batch_spec: of an evaluation mini-batch, which may have another size than in training.
          num_micro_batches: M; 0: that of training if it divides the batch, or else 1.
          fetch: names of the values to return for every example. If several values have the same
            name, the last one is returned.
        """
        self._of, self._batch_spec = of, batch_spec
        self._plan = make_forward_plan(of.plan, of.network, batch_spec, num_micro_batches, fetch)
        self._is_broken = False
        self._step: _EvaluationStep | None = None

    @property
    def counts_copies(self) -> bool:
        """Whether copies that fill up a mini-batch change losses or metrics despite weight 0."""
        layers = self._of.network.layers()
        return any(layer.counts_copies or layer.needs_whole_batch for layer in layers)

    def check(self, batch: dict[str, Nested]) -> BadId | None:
        """Returns an id in the mini-batch that a layer cannot use, or None.

        Raises:
          ValueError: the mini-batch has another spec.
        """
        return find_bad_id(self._plan.elements, check_batch(batch, self._batch_spec))

    def names_without(self, metric: str) -> list[str]:
        """Returns the names of all losses and metrics of `step`, or [] if `metric` is one of them.

        Each layer is traced by itself, until `metric` is found. The last layer, which most often
        emits it, comes first.
        """
        losses: list[str] = ['loss']
        metrics: list[tuple[str, str]] = []
        if metric == 'loss':
            return []
        for element in reversed(self._plan.elements):
            traced = trace(element.layer, training=False,
                           **{argument: value.spec for argument, value in element.reads.items()})
            losses += [f'loss/{path}/{name}' for path, name in traced.emissions.losses]
            metrics += traced.emissions.metrics
            if metric in losses or any(
                    metric in (name, f'{name}/{path}') for path, name in metrics):
                return []

        named = [name for _, name in metrics]
        return [*losses[:1 if len(losses) == 2 else None],  # a single loss is named 'loss' only
                *(name if named.count(name) == 1 else f'{name}/{path}' for path, name in metrics)]

    def step(self, batch: dict[str, Nested]) -> tuple[
            dict[str, tuple[tf.Tensor, tf.Tensor]], dict[str, Nested]]:
        """Runs one mini-batch.

        Returns:
          {name: (sum, weight)} of losses and metrics, and {name: value} of what is fetched, both
          for the whole mini-batch.
        """
        batch = check_batch(batch, self._batch_spec)
        if self._step is None:
            self._step = self._build()
        if self._is_broken:
            for accumulators in self._step.pipeline.accumulators:
                accumulators.reset()

        self._is_broken = True  # If the step fails, the accumulators hold partial sums.
        with explained(self._plan.elements, batch):
            step = self._step
            results = run_or_replay(
                lambda: step.run(*nested.leaves(batch)), [step.pipeline],
                lambda: [step.given(nested.map_leaves(tf.convert_to_tensor, batch))], Wire(None))
        self._is_broken = False
        return results['sums'], results['outputs']

    def sent_bytes(self) -> Traffic:
        """Returns the bytes that a step sends between devices; see traffic.py."""
        return forward_traffic(self._plan.cells, self._plan.num_micro_batches, HOME,
                               fetched=self._plan.fetched.values())

    def _build(self) -> _EvaluationStep:
        """Compiles the tasks of the plan, and traces the graph that calls them."""
        options = TracingOptions(False, self._of.seed,
                                 jit_compile=self._of.plan.params.jit_compile)
        pipeline = compile_pipeline(self._plan.schedule, self._plan.cells, self._of.variables,
                                    options, _no_gradients)
        mean_weight = None
        if asked_for(pipeline.tasks.values()):
            mean_weight = MeanWeight(self._plan.elements, training=False)

        def body(*flat: tf.Tensor) -> dict[str, Nested]:
            """Runs one mini-batch through all cells, and returns what the layers emitted."""
            batch = nested.pack_like(self._batch_spec, list(flat))
            added = add_tasks(pipeline, _given(batch, pipeline, mean_weight), Wire(None))
            outputs = self._outputs(added)
            emitted = _emitted(pipeline, added)
            with tf.device(HOME):
                return {'sums': results.named_sums(emitted), 'outputs': outputs}

        run = tf.compat.v1.wrap_function(body, nested.leaves(self._batch_spec))
        return _EvaluationStep(pipeline, mean_weight, run)

    def _outputs(self, added: AddedTasks) -> dict[str, Nested]:
        """Returns the fetched values by name, for the whole mini-batch."""
        def whole(leaf: Leaf) -> tf.Tensor:
            parts = [added.values.leaf(leaf, m) for m in range(self._plan.num_micro_batches)]
            return tf.concat(parts, 0)

        with tf.device(HOME):
            return {name: nested.pack_like(value.spec, [whole(leaf) for leaf in leaves_of([value])])
                    for name, value in self._plan.fetched.items()}


def _given(batch: Mapping[str, Nested], pipeline: CompiledPipeline,
           mean_weight: MeanWeight | None) -> ReplicaBatch:
    with tf.device(HOME):
        weight = mean_weight and mean_weight.of(dict(batch), pipeline.schedule.num_micro_batches)
    return ReplicaBatch(batch, tf.constant(0, tf.int64), tf.constant(0), weight)


def _no_gradients(cell: Cell, layout: EmissionLayout) -> Accumulators:
    return Accumulators(cell.device, [], layout)


def _emitted(pipeline: CompiledPipeline, added: AddedTasks) -> list[results.Emitted]:
    """Reads what each cell has emitted, [K], and resets the accumulators."""
    emitted = []
    for cell, accumulators, last in zip(pipeline.cells, pipeline.accumulators, added.last,
                                        strict=True):
        with tf.device(cell.device), tf.control_dependencies([last]):
            emitted.append(placed(functools.partial(_read_and_reset, accumulators))())
    return emitted


def _read_and_reset(accumulators: Accumulators) -> results.Emitted:
    read: results.Emitted = tf.nest.map_structure(tf.identity, results.read(accumulators))
    accumulators.reset()
    return read
