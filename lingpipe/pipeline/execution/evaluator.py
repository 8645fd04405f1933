"""Evaluator: runs a network forward only, pipelined over the devices of its cells.

Every replica runs a mini-batch of its own at the same time as the others.
"""
from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from lingpipe.cluster import HOME
from lingpipe.input.unread_batch import UnreadBatch
from lingpipe.layers import nested
from lingpipe.layers.nested import Nested
from lingpipe.pipeline.execution import results
from lingpipe.pipeline.execution.accumulators import Accumulators, without_gradients
from lingpipe.pipeline.execution.alike_cells import TracedCell
from lingpipe.pipeline.execution.bad_ids import BadId, find_bad_id
from lingpipe.pipeline.execution.batch_checks import check_batch, explained
from lingpipe.pipeline.execution.batch_source import BatchSource, GivenBatches, ReadBatches
from lingpipe.pipeline.execution.compiled_pipeline import CompiledPipeline, compile_pipeline
from lingpipe.pipeline.execution.forward_trace import TracingOptions
from lingpipe.pipeline.execution.mean_weight import MeanWeight, asked_for
from lingpipe.pipeline.execution.placed import placed
from lingpipe.pipeline.execution.placed_network import PlacedNetwork
from lingpipe.pipeline.execution.reading_hosts import reading_hosts
from lingpipe.pipeline.execution.replay import run_or_replay
from lingpipe.pipeline.execution.step_graph import AddedTasks, add_tasks
from lingpipe.pipeline.execution.task_values import ReplicaBatch
from lingpipe.pipeline.execution.traffic import Traffic, forward_traffic
from lingpipe.pipeline.execution.wire import Wire
from lingpipe.pipeline.planning.cell import Leaf, leaves_of
from lingpipe.pipeline.planning.forward_plan import make_forward_plan
from lingpipe.pricing import trace
from lingpipe.process import tensorflow_settings
from lingpipe.process.graph_lifetime import wrap_function

# {name: (sum, weight)} of losses and metrics, and {name: value} of what is fetched, for a whole
# mini-batch.
Evaluated: TypeAlias = tuple[dict[str, tuple[tf.Tensor, tf.Tensor]], dict[str, Nested]]


@dataclasses.dataclass(frozen=True, eq=False)
class _EvaluationStep:
    """The traced parts of an evaluation step, which takes a mini-batch for each pipeline.

    Attributes:
      pipelines: of the first replicas.
      sources: where each gets its mini-batch from.
      mean_weight: computes Context.mean_weight; None if no task uses it.
      run: takes the arguments of all sources.
    """
    pipelines: Sequence[CompiledPipeline]
    sources: Sequence[BatchSource]
    mean_weight: MeanWeight | None
    run: Callable[..., Any]

    def args(self, batches: Sequence[Mapping[str, Nested]]) -> list[Any]:
        """Returns the arguments of `run` for a mini-batch for each pipeline."""
        return [arg for source, batch in zip(self.sources, batches, strict=True)
                for arg in source.args(batch)]

    def given(self, args: Sequence[Any]) -> list[ReplicaBatch]:
        """Returns what the tasks take, by pipeline: tensors of a graph or, eagerly, values."""
        return _given(args, self.pipelines, self.sources, self.mean_weight)


class Evaluator:
    """The evaluation step of a network.

    It uses the moving averages of the weights where the learner keeps them. The constructor plans
    the step, and raises an error if the network cannot run on such mini-batches. The first call of
    `steps` for a number of mini-batches traces it.
    """

    def __init__(self, of: PlacedNetwork, batch_spec: dict[str, Nested], num_micro_batches: int = 0,
                 fetch: Sequence[str] = ()):
        """
        Args:
          of: the network to evaluate.
          batch_spec: of an evaluation mini-batch, which may have another size than in training.
          num_micro_batches: 0: R M of training, or M, if that divides the batch, or else 1.
          fetch: names of the values to return for every example. If several values have the same
            name, the last one is returned.
        """
        self._of, self._batch_spec = of, batch_spec
        self._plan = make_forward_plan(of.plan, of.network, batch_spec, num_micro_batches, fetch)
        self._is_broken = False
        self._pipelines: list[CompiledPipeline] = []   # of the first replicas, as far as needed
        self._templates: dict[Hashable, TracedCell] = {}
        # By the number of mini-batches, and the text of the input that is read on workers, or ''.
        self._steps: dict[tuple[int, str], _EvaluationStep] = {}

    @property
    def num_at_once(self) -> int:
        """How many mini-batches `steps` takes: R."""
        return len(self._of.replicas)

    @property
    def reading_hosts(self) -> list[str]:
        """The processes that make an UnreadBatch; see reading_hosts.py."""
        return reading_hosts([self._plan.on(devices).cells
                              for devices in self._of.plan.placement.devices])

    @property
    def counts_copies(self) -> bool:
        """Whether copies that fill up a mini-batch change losses or metrics despite weight 0."""
        layers = self._of.network.layers()
        return any(layer.counts_copies or layer.needs_whole_batch for layer in layers)

    def check(self, batch: Mapping[str, Nested]) -> BadId | None:
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

    def step(self, batch: Mapping[str, Nested]) -> Evaluated:
        """Runs one mini-batch, on the first replica, and returns its results."""
        return self.steps([batch])[0]

    def steps(self, batches: Sequence[Mapping[str, Nested]]) -> list[Evaluated]:
        """Runs up to `num_at_once` mini-batches at the same time, each on a replica of its own.

        Args:
          batches: nested tensors; or all of them are an UnreadBatch, of one input.

        Returns:
          The results of each, which are those of `step` to the last bit.

        Raises:
          ValueError: a mini-batch has another spec, or cannot be read.
        """
        text = batches[0].source.params.to_text() if isinstance(batches[0], UnreadBatch) else ''
        if not text:
            batches = [check_batch(batch, self._batch_spec) for batch in batches]
        step = self._step_of(len(batches), text)
        args = step.args(batches)
        if self._is_broken:
            for pipeline in self._pipelines:
                for accumulators in pipeline.accumulators:
                    accumulators.reset()

        self._is_broken = True  # If the step fails, the accumulators hold partial sums.
        with contextlib.ExitStack() as explanations:
            # The innermost, that of the first, looks first.
            for batch, source in zip(reversed(batches), reversed(step.sources), strict=True):
                explanations.enter_context(explained(self._plan.elements, batch))
                explanations.enter_context(source.explained(batch))
            results = run_or_replay(lambda: step.run(*args), step.pipelines,
                                    lambda: step.given(args), Wire(None))
        self._is_broken = False
        return [(result['sums'], result['outputs']) for result in results]

    def sent_bytes(self) -> Traffic:
        """Returns the bytes that a given mini-batch sends between devices; see traffic.py."""
        return forward_traffic(self._plan.cells, self._plan.num_micro_batches, HOME,
                               fetched=self._plan.fetched.values())

    def _step_of(self, num_batches: int, text: str) -> _EvaluationStep:
        """Returns the step for a number of mini-batches, traced at first use.

        Args:
          num_batches: one for each of the first replicas.
          text: of the Params of their input, if workers read it, or ''.
        """
        if (num_batches, text) not in self._steps:
            tensorflow_settings.set_graph_optimizer(self._of.plan.params.use_graph_optimizer)
            for replica in range(len(self._pipelines), num_batches):
                self._pipelines.append(self._pipeline(replica))
            self._steps[num_batches, text] = self._build(self._pipelines[:num_batches], text)
        return self._steps[num_batches, text]

    def _pipeline(self, replica: int) -> CompiledPipeline:
        """Compiles the tasks of the plan on the devices of a replica."""
        of, plan = self._of, self._plan.on(self._of.plan.placement.devices[replica])
        options = TracingOptions(False, of.seed, jit_compile=of.plan.params.jit_compile)
        return compile_pipeline(
            plan.schedule, plan.cells, of.replicas[replica], options, without_gradients,
            templates=self._templates, weights=of.evaluated_on(replica))

    def _build(self, pipelines: Sequence[CompiledPipeline], text: str) -> _EvaluationStep:
        """Traces the graph that calls the tasks of some pipelines; `text` as of `_step_of`."""
        mean_weight = None
        if asked_for(pipelines[0].tasks.values()):
            mean_weight = MeanWeight(self._plan.elements, training=False)
        names = mean_weight.names if mean_weight else ()
        sources: list[BatchSource] = [
            ReadBatches(text, self._batch_spec, [pipeline.cells], names) if text
            else GivenBatches(self._batch_spec) for pipeline in pipelines]

        def result(pipeline: CompiledPipeline, batch: ReplicaBatch) -> dict[str, Nested]:
            """Runs a mini-batch through all cells, and returns what the layers emitted."""
            added = add_tasks(pipeline, batch, Wire(None))
            outputs = self._outputs(added)
            emitted = _emitted(pipeline, added)
            with tf.device(HOME):
                return {'sums': results.named_sums(emitted), 'outputs': outputs}

        def body(*args: tf.Tensor) -> list[dict[str, Nested]]:
            """Runs a mini-batch through each pipeline."""
            return list(map(result, pipelines, _given(args, pipelines, sources, mean_weight)))

        run = wrap_function(body, [spec for one in sources for spec in one.specs])
        return _EvaluationStep(pipelines, sources, mean_weight, run)

    def _outputs(self, added: AddedTasks) -> dict[str, Nested]:
        """Returns the fetched values by name, for the whole mini-batch."""
        def whole(leaf: Leaf) -> tf.Tensor:
            parts = [added.values.leaf(leaf, m) for m in range(self._plan.num_micro_batches)]
            return tf.concat(parts, 0)

        with tf.device(HOME):
            return {name: nested.pack_like(value.spec, [whole(leaf) for leaf in leaves_of([value])])
                    for name, value in self._plan.fetched.items()}


def _given(args: Sequence[Any], pipelines: Sequence[CompiledPipeline],
           sources: Sequence[BatchSource], mean_weight: MeanWeight | None) -> list[ReplicaBatch]:
    """Returns what the tasks of each pipeline take, given the arguments of all sources.

    A process that reads for several pipelines reads in the order of positions.
    """
    replica_batches, rest = [], list(args)
    reads: dict[str, tf.Operation] = {}
    for pipeline, source in zip(pipelines, sources, strict=True):
        num_args = len(source.specs)
        arrived = source.arrived(rest[:num_args], reads)
        rest, reads = rest[num_args:], {**reads, **arrived.reads}
        first_host, batch = next(iter(arrived.batches.items()))
        with tf.device(first_host):
            weight = mean_weight and mean_weight.of(
                dict(batch), pipeline.schedule.num_micro_batches)
        replica_batches.append(ReplicaBatch(
            arrived.batches, tf.constant(0, tf.int64), tf.constant(0), weight))
    return replica_batches


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
