"""ProgramSteps: the training steps of a program, each of which is one graph.

The first mini-batch of a shape has its graph built: the tasks of all micro-batches
(step_graph.py), and then the update (update.py). All sums are made in an order that does not depend
on K.
"""
from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import tensorflow as tf

from lingpipe.layers.nested import Nested
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution.bad_ids import BadId, find_bad_id
from lingpipe.pipeline.execution.batch_checks import explained
from lingpipe.pipeline.execution.built_steps import BuiltSteps, Shape
from lingpipe.pipeline.execution.readiness import Readiness
from lingpipe.pipeline.execution.renewal import renew
from lingpipe.pipeline.execution.replay import run_or_replay
from lingpipe.pipeline.execution.stamps import stamped_work, step_times
from lingpipe.pipeline.execution.training_graph import Kind
from lingpipe.pipeline.execution.variables import Variables
from lingpipe.pipeline.execution.wire import Wire
from lingpipe.pipeline.planning.breakdown import StepTimes
from lingpipe.process.fresh_tensor import fresh_int64


class ProgramSteps:
    """Runs training steps.

    Attributes:
      plan: the plan for mini-batches of the first shape, which determines the partition.
      replicas: [R] the weights, slots and averages of every replica.
    """

    def __init__(self, shapes: Sequence[Shape], replicas: Sequence[Variables], learner: Learner,
                 seed: int):
        """Traces nothing yet; the arguments are those of BuiltSteps."""
        self.plan, self.replicas = shapes[0].plan, replicas
        self._steps = BuiltSteps(shapes, replicas, learner, seed, self.make_wire)
        self._readiness = Readiness(replicas)
        self._reached: frozenset[str] = frozenset()  # weights, by mini-batches so far accumulated

    def train_step(self, batch: Mapping[str, Nested], step: int, index: int = 0,
                   has_gradients: bool = False) -> dict[str, Nested]:
        """Runs a mini-batch and updates the weights.

        Args:
          batch: nested tensors that match batch_spec, or one of several; or an UnreadBatch.
          step: number of earlier updates, which determines seeds and the learning rate.
          index: number of mini-batches accumulated before this one for the same update.
          has_gradients: whether it also returns 'gradients' by the paths of the weights: means,
            regularised, before clipping. Such steps have a graph of their own, and hold all
            gradients a second time. The weights get the same bits.

        Returns:
          Scalars by name: 'loss', every emitted loss and metric, 'weight' (the mini-batch's total
          weight), 'gradient_norm', 'learning_rate' and 'is_finite' (False: nothing was updated).
        """
        return self._call('train', batch, step, index, has_gradients)

    def accumulate(self, batch: Mapping[str, Nested], step: int, index: int) -> None:
        """Runs mini-batch `index` of an update, the last of which goes to `train_step`."""
        self._call('accumulate', batch, step, index)

    def timed_step(self, batch: Mapping[str, Nested], step: int, index: int = 0,
                   has_gradients: bool = False) -> tuple[dict[str, Nested], StepTimes]:
        """Runs a train_step, and also measures when every task and the update ran."""
        start_s = time.perf_counter()
        results = dict(self._call('timed', batch, step, index, has_gradients))
        stamps = results.pop('stamps').numpy()
        call_s = time.perf_counter() - start_s

        pipeline = self._steps.compiled(self._steps.number_of(batch))[0].pipelines[0]
        works = stamped_work(pipeline, has_replicas=self.plan.params.num_replicas > 1)
        return results, step_times(stamps, works, pipeline.schedule, call_s)

    def check(self, batch: Mapping[str, Nested]) -> BadId | None:
        """Returns an id that a layer cannot use, or None; ValueError: no batch_spec matches."""
        shape = self._steps.shapes[self._steps.number_of(batch)]
        return find_bad_id(shape.plan.elements, batch)

    def has_traced(self, batch: Mapping[str, Nested]) -> bool:
        """Whether a mini-batch of this shape has run before, so that this one needs no tracing."""
        return self._steps.is_compiled(self._steps.number_of(batch))

    def _call(self, kind: Kind, batch: Mapping[str, Nested], step: int, index: int,
              has_gradients: bool = False) -> dict[str, Nested]:
        """Runs the step for the shape of a mini-batch, which is built if necessary."""
        number = self._steps.number_of(batch)
        elements = self._steps.shapes[number].plan.elements
        compiled, trained = self._steps.compiled(number)
        source = self._steps.source(number, batch)
        reached = compiled.reached | (self._reached if index else frozenset())
        run = self._steps.step(kind, number, reached, has_gradients, source)
        self._readiness.prepare(trained, step, index)

        p = self.plan.params
        args = (*source.args(batch), fresh_int64(step),
                tf.constant(index * p.num_replicas * p.num_micro_batches, tf.int32))

        # Tasks that wait for those of other replicas cannot run one by one.
        pipelines = () if compiled.waits else compiled.pipelines
        with self._readiness.running(), explained(elements, batch), source.explained(batch):
            results: dict[str, Nested] = run_or_replay(
                lambda: run(*args), pipelines,
                lambda: compiled.split(source.arrived(args[:-2]).batches, *args[-2:]),
                self.make_wire())
        self._reached = reached
        source.note_wait(batch, results)
        return results

    def renew(self) -> None:
        """Makes all variables once more on workers, where all cells are; see renewal.py.

        Those of a checkpoint must be restored next. A NotRenewableError is the program's end.
        """
        renew(variable for one in self.replicas for variable in one.by_key().values())
        self._readiness.begin_again()

    def make_wire(self) -> Wire:
        """Makes what carries values between devices in one step; subclasses may override it."""
        return Wire(self._wire_dtype)

    @property
    def _wire_dtype(self) -> tf.DType | None:
        return tf.bfloat16 if self.plan.params.wire_dtype == 'bfloat16' else None
