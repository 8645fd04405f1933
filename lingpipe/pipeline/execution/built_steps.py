"""BuiltSteps: the graphs of a program's steps, each built when a mini-batch first needs it.

A program may be given mini-batches of several shapes (buckets of sentence lengths, say). All shapes
share the partition, the variables, the accumulators and the update; each has tasks of its own.

Graphs are many objects of Python that live as long as the program, so the garbage collector rests
while they are built. It took a twelfth of the time.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from absl import logging

from lingpipe.input.unread_batch import UnreadBatch
from lingpipe.layers.nested import Nested
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution.batch_checks import check_batch, is_of_spec
from lingpipe.pipeline.execution.batch_source import BatchSource, GivenBatches, ReadBatches
from lingpipe.pipeline.execution.compiled_shape import CompiledShape, compile_shape
from lingpipe.pipeline.execution.trained_replicas import TrainedReplicas, trained_replicas
from lingpipe.pipeline.execution.training_graph import Kind, Step, build_step
from lingpipe.pipeline.execution.variables import Variables
from lingpipe.pipeline.execution.wire import Wire
from lingpipe.pipeline.planning.plan import Plan
from lingpipe.process import tensorflow_settings
from lingpipe.process.tensorflow_import import no_garbage_collection


@dataclasses.dataclass(frozen=True, eq=False)
class Shape:
    """One shape of mini-batches.

    Attributes:
      batch_spec: name -> nested tf.TensorSpec of a mini-batch.
      plan: for such mini-batches.
    """
    batch_spec: Mapping[str, Nested]
    plan: Plan


class BuiltSteps:
    """The graphs that mini-batches of all shapes run.

    Attributes:
      shapes: the first one determines the partition.
    """

    def __init__(self, shapes: Sequence[Shape], variables: Sequence[Variables], learner: Learner,
                 seed: int, make_wire: Callable[[], Wire]):
        """Traces nothing yet.

        Args:
          shapes: one or more.
          variables: [R].
          learner: makes the update.
          seed: the seed of the experiment.
          make_wire: makes what carries values between devices in one step.
        """
        self.shapes = shapes
        self._variables, self._learner, self._seed = variables, learner, seed
        self._make_wire = make_wire
        self._compiled: dict[int, CompiledShape] = {}
        self._trained: TrainedReplicas | None = None
        self._sources: dict[tuple[int, str], BatchSource] = {}
        self._steps: dict[tuple[Kind, int, frozenset[str], bool, str], Step] = {}

    def number_of(self, batch: Mapping[str, Nested]) -> int:
        """Returns the index of the mini-batch's shape.

        Raises:
          ValueError: it has none of the shapes.
        """
        if isinstance(batch, UnreadBatch):
            return batch.shape
        for number, shape in enumerate(self.shapes[1:], start=1):
            if is_of_spec(batch, shape.batch_spec):
                return number
        check_batch(batch, self.shapes[0].batch_spec)
        return 0

    def is_compiled(self, number: int) -> bool:
        """Whether the tasks of a shape have been traced."""
        return number in self._compiled

    def compiled(self, number: int) -> tuple[CompiledShape, TrainedReplicas]:
        """Traces the tasks of a shape, unless they exist; the first shape makes accumulators.

        Raises:
          ValueError: the program has no optimizer slots.
        """
        if not self._variables[0].contents.has_slots:
            raise ValueError('this program has no optimizer slots, since it was made to read '
                             'checkpoints only; make one with them to train.')
        if number not in self._compiled:
            shape, trained = self.shapes[number], self._trained
            accumulators = [replica.accumulators for replica in trained.replicas] if trained else []
            self._set_graph_optimizer()
            with no_garbage_collection():
                compiled = compile_shape(
                    shape.batch_spec, shape.plan, self._variables, self._seed, accumulators,
                    self._gradient_rows())
            if trained is None:
                trained = trained_replicas(
                    self.shapes[0].plan, compiled.pipelines, self._variables, self._learner)
                _warn_of_unreached(trained.updates[0].gradients.unreached(compiled.reached))

            # Both are set together, and only after nothing failed: if a layer raises an error, the
            # next step traces everything again.
            self._compiled[number], self._trained = compiled, trained
        assert self._trained is not None
        return self._compiled[number], self._trained

    def _set_graph_optimizer(self) -> None:
        """Sets it for what is traced next: another program may have set it for itself."""
        tensorflow_settings.set_graph_optimizer(self.shapes[0].plan.params.use_graph_optimizer)

    def _gradient_rows(self) -> dict[str, int]:
        """Path of a weight -> the most rows that its gradient has; see Element.gradient_rows."""
        rows: dict[str, int] = {}
        for element in (element for shape in self.shapes for element in shape.plan.elements):
            for path, num_rows in element.gradient_rows.items():
                rows[path] = max(num_rows, rows.get(path, 0))
        return rows

    def source(self, number: int, batch: Mapping[str, Nested] | None = None) -> BatchSource:
        """Returns where devices get mini-batches of a shape from.

        Args:
          number: of the shape.
          batch: one of them; None: one that is given.
        """
        text = batch.source.params.to_text() if isinstance(batch, UnreadBatch) else ''
        if (number, text) not in self._sources:
            compiled, _ = self.compiled(number)
            self._sources[number, text] = ReadBatches(
                text, compiled.batch_spec, self.shapes[number].plan.replicas,
                compiled.mean_weight.names if compiled.mean_weight else ()
            ) if text else GivenBatches(compiled.batch_spec)
        return self._sources[number, text]

    def step(self, kind: Kind, number: int, reached: frozenset[str],
             has_gradients: bool = False, source: BatchSource | None = None) -> Step:
        """Returns the step for mini-batches of a shape, built at first use; see `build_step`."""
        source = source or self.source(number)
        key = kind, number, reached, has_gradients, source.key
        if key not in self._steps:
            compiled, trained = self.compiled(number)
            self._set_graph_optimizer()
            with no_garbage_collection():
                self._steps[key] = build_step(
                    kind, compiled, trained, reached, self._make_wire(), source, has_gradients)
        return self._steps[key]


def _warn_of_unreached(paths: Sequence[str]) -> None:
    if not paths:
        return
    them, they_are = ('them', 'they are') if len(paths) > 1 else ('it', 'it is')
    logging.warning('the loss does not depend on %s, so that training leaves %s as %s; correct the '
                    'network, or freeze %s with learner.frozen',
                    ', '.join(paths), them, they_are, them)
