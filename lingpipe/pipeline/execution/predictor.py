"""Predictor: runs a network forward only, for its outputs, on any number of examples.

It leaves out the layers that the outputs do not need (planning/outputs.py), so that neither labels
nor weights of examples are needed. The rest runs in the same cells as in an evaluation, on
micro-batches of the same size, so that the outputs have the bits that the evaluation computes with.
"""
from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lingpipe.cluster import HOME
from lingpipe.input.checked_arrays import checked
from lingpipe.layers import nested
from lingpipe.layers.base import Layer
from lingpipe.layers.nested import Nested
from lingpipe.pipeline.execution.accumulators import without_gradients
from lingpipe.pipeline.execution.bad_ids import BadIdError, find_bad_id
from lingpipe.pipeline.execution.batch_checks import explained
from lingpipe.pipeline.execution.compiled_pipeline import CompiledPipeline, compile_pipeline
from lingpipe.pipeline.execution.forward_trace import TracingOptions
from lingpipe.pipeline.execution.placed_network import PlacedNetwork
from lingpipe.pipeline.execution.replay import run_or_replay
from lingpipe.pipeline.execution.step_graph import add_tasks
from lingpipe.pipeline.execution.task_values import ReplicaBatch
from lingpipe.pipeline.execution.wire import Wire
from lingpipe.pipeline.planning.cell import Leaf, leaves_of
from lingpipe.pipeline.planning.dataflow import BATCH, Value
from lingpipe.pipeline.planning.forward_plan import make_prediction_plan
from lingpipe.pipeline.planning.outputs import inputs_of
from lingpipe.process import tensorflow_settings
from lingpipe.process.graph_lifetime import wrap_function
from lingpipe.wording.counts import counted

# The value of the mini-batch that says how much an example counts.
_WEIGHT = 'weight'


class Predictor:
    """Computes the outputs of a network, with the moving averages of weights where there are any.

    Attributes:
      input_specs: name -> nested tf.TensorSpec of one example, of all values that are read.
      output_specs: name -> nested tf.TensorSpec of one example's output.
      elements: the layers that run, wired for one micro-batch.
      part_size: the number of examples of a micro-batch.
    """

    def __init__(self, of: PlacedNetwork, batch_spec: Mapping[str, Nested],
                 num_micro_batches: int = 0, outputs: Sequence[str] = ()):
        """Plans the steps; the first prediction traces them.

        Args:
          of: the network.
          batch_spec: of a mini-batch. What the outputs do not need may be missing.
          num_micro_batches: 0: R M of training, or M, if that divides the batch, or else 1.
          outputs: names of values; (): those that the network names or, if it names none, all that
            the last layer writes that is not a loss.

        Raises:
          ValueError: there are no such outputs, or the network cannot run on such mini-batches.
        """
        self._of = of
        self._plan = make_prediction_plan(of.plan, of.network, batch_spec, num_micro_batches,
                                          outputs)
        names = inputs_of(self._plan.elements)
        self.input_specs = {
            name: nested.map_leaves(_of_example, batch_spec[name]) for name in names}
        self.output_specs = {name: nested.map_leaves(_of_example, value.spec)
                             for name, value in self._plan.fetched.items()}
        self.elements = self._plan.elements
        size = int(nested.leaves(batch_spec)[0].shape[0])
        self.part_size = size // self._plan.num_micro_batches
        self._pipeline: CompiledPipeline | None = None
        self._steps: dict[int, Callable[..., Any]] = {}   # by number of micro-batches

    @property
    def batch_size(self) -> int:
        """The number of examples of a whole mini-batch."""
        return self.part_size * self._plan.num_micro_batches

    @property
    def outputs(self) -> Mapping[str, Value]:
        """The values of `elements` that are the outputs, by name."""
        return self._plan.fetched

    @property
    def optional_inputs(self) -> frozenset[str]:
        """The inputs that need not be given and are then 1.

        They are the weights of examples or tokens, and the training inputs.
        """
        return frozenset({_WEIGHT} & self.input_specs.keys()) | self.training_inputs

    @functools.cached_property
    def training_inputs(self) -> frozenset[str]:
        """The inputs that layers read, but that count in training alone. They are always 1 here."""
        needed = {value.name for element in self.elements
                  for argument, value in element.reads.items()
                  if value.maker == BATCH and argument not in element.layer.training_inputs}
        return frozenset(self.input_specs.keys() - needed)

    def predict(self, examples: Nested) -> dict[str, Nested]:
        """Computes the outputs of examples.

        Args:
          examples: arrays [N, ...] by the name of the input, or the array itself if the network
            needs only one, or a pandas DataFrame with a column for each. Other names are
            ignored.

        Returns:
          Name -> NumPy array [N, ...] of every output, nested as the layer writes it.

        Raises:
          ValueError: an input is missing, or has another shape or type, or N is 0.
        """
        arrays = self.arrays(examples)
        num_examples = len(nested.leaves(arrays)[0])
        outputs: dict[str, Nested] = {}
        for batch in self.batches(arrays):
            outputs = outputs or nested.map_leaves(
                lambda leaf: _Rows(num_examples, leaf.shape[1:], leaf.dtype), batch)
            nested.map_leaves(_Rows.add, outputs, batch)
        return {name: nested.map_leaves(_Rows.all, value) for name, value in outputs.items()}

    def batches(self, arrays: Mapping[str, Nested]) -> Iterator[dict[str, Nested]]:
        """Yields the outputs of one mini-batch after the other; see `predict`.

        Args:
          arrays: what `arrays` returned.
        """
        num_examples = len(nested.leaves(arrays)[0])
        for start in range(0, num_examples, self.batch_size):
            end = min(start + self.batch_size, num_examples)
            batch = nested.map_leaves(functools.partial(_rows, start=start, end=end), arrays)
            yield self._predicted(batch, end - start)

    def arrays(self, examples: Nested) -> dict[str, Nested]:
        """Returns the inputs as NumPy arrays of the right shapes and types; see `predict`."""
        needed = self.input_specs.keys() - self.optional_inputs
        columns = set(getattr(examples, 'columns', ()))
        if columns and needed <= columns:   # a pandas DataFrame, whose columns are the inputs
            examples = {name: examples[name] for name in needed}
        if not isinstance(examples, Mapping):
            if len(needed) != 1:
                raise ValueError(f'the network takes {", ".join(sorted(needed))}; give a dict of '
                                 'arrays by these names.')
            examples = {next(iter(needed)): examples}
        missing = sorted(needed - examples.keys())
        if missing:
            raise ValueError(f'{", ".join(missing)} is missing; the network takes '
                             f'{", ".join(sorted(needed))}, and there are '
                             f'{", ".join(sorted(map(str, examples))) or "none"}.')

        arrays = {name: checked(name, examples[name], spec)
                  for name, spec in self.input_specs.items()
                  if name in examples and name not in self.training_inputs}
        lengths = {path: len(leaf) for path, leaf in nested.flatten(arrays)}
        if len(set(lengths.values())) > 1:
            listed = ', '.join(f'{path} {length}' for path, length in lengths.items())
            raise ValueError(f'the inputs have different numbers of examples: {listed}; give one '
                             'row to every example.')
        num_examples = next(iter(lengths.values()))
        if not num_examples:
            raise ValueError('there are no examples; give at least one.')
        for name in self.optional_inputs - arrays.keys():
            spec = self.input_specs[name]
            arrays[name] = np.ones([num_examples, *spec.shape], spec.dtype.as_numpy_dtype)
        return arrays

    def _predicted(self, batch: dict[str, Nested], num_examples: int) -> dict[str, Nested]:
        """The outputs of at most a mini-batch."""
        num_parts = -(-num_examples // self.part_size)
        num_copies = num_parts * self.part_size - num_examples
        if num_copies:
            self._check_copies()
            # Zeros might be no example at all.
            batch = nested.map_leaves(
                lambda leaf: np.concatenate([leaf, np.repeat(leaf[-1:], num_copies, 0)]), batch)

        step = self._step(num_parts)
        assert self._pipeline is not None
        pipeline = dataclasses.replace(
            self._pipeline, schedule=self._plan.with_micro_batches(num_parts).schedule)
        with explained(self._plan.elements, batch):
            outputs = run_or_replay(
                lambda: step(*map(tf.convert_to_tensor, nested.leaves(batch))), [pipeline],
                lambda: [_given(nested.map_leaves(tf.convert_to_tensor, batch))], Wire(None))

        arrays = {name: nested.map_leaves(lambda leaf: leaf.numpy()[:num_examples], value)
                  for name, value in outputs.items()}
        is_finite = all(np.isfinite(leaf).all() for leaf in nested.leaves(arrays)
                        if leaf.dtype.kind == 'f')
        if not is_finite and (bad := find_bad_id(self._plan.elements, batch)):
            raise BadIdError(bad.sentence())
        return arrays

    @property
    def mixing_layer(self) -> Layer | None:
        """A layer whose result for an example depends on the others."""
        return next((layer for layer in (element.layer for element in self._plan.elements)
                     if layer.needs_whole_batch and not layer.mixes_in_training_only), None)

    @property
    def mixing_sentence(self) -> str:
        """What the mixing layer asks of predictions, without the full stop; '' if there is none."""
        layer = self.mixing_layer
        if layer is None:
            return ''
        remedy = (f'; if it does so in training alone, {layer.training_only_remedy}'
                  if layer.training_only_remedy else '')
        return (f'the result of {layer.path} for an example depends on the others, so no copies '
                f'can fill up the last {counted(self.part_size, "example")}{remedy}; give a '
                f'multiple of {counted(self.part_size, "example")}')

    def _check_copies(self) -> None:
        """Raises ValueError if copies of examples would change the outputs of others."""
        if sentence := self.mixing_sentence:
            raise ValueError(f'{sentence}.')

    def _step(self, num_parts: int) -> Callable[..., Any]:
        """The traced step of a number of micro-batches; the compiled tasks are the same in all."""
        if num_parts in self._steps:
            return self._steps[num_parts]
        tensorflow_settings.set_graph_optimizer(self._of.plan.params.use_graph_optimizer)
        plan = self._plan.with_micro_batches(num_parts)
        if self._pipeline is None:
            options = TracingOptions(
                False, self._of.seed, jit_compile=self._of.plan.params.jit_compile,
                has_emissions=False)
            self._pipeline = compile_pipeline(
                plan.schedule, plan.cells, self._of.variables, options, without_gradients)
        pipeline = dataclasses.replace(self._pipeline, schedule=plan.schedule)

        def whole(leaf: Leaf, values: Any) -> tf.Tensor:
            return tf.concat([values.leaf(leaf, m) for m in range(num_parts)], 0)

        def body(*flat: tf.Tensor) -> dict[str, Nested]:
            """Runs the micro-batches through all cells, and returns the outputs by name."""
            batch = nested.pack_like(self.input_specs, list(flat))
            added = add_tasks(pipeline, _given(batch), Wire(None))
            with tf.device(HOME):
                return {name: nested.pack_like(value.spec, [whole(leaf, added.values)
                                                            for leaf in leaves_of([value])])
                        for name, value in self._plan.fetched.items()}

        size = num_parts * self.part_size
        specs = [tf.TensorSpec([size, *spec.shape], spec.dtype)
                 for spec in nested.leaves(self.input_specs)]
        self._steps[num_parts] = wrap_function(body, specs)
        return self._steps[num_parts]


class _Rows:
    """The rows of an output, which may be so large, as logits of all tokens, that it exists once.

    Parts that are concatenated at the end exist twice then.
    """

    def __init__(self, most: int, shape: Sequence[int], dtype: np.dtype):
        self._array = np.empty([most, *shape], dtype)
        self._num_rows = 0

    def add(self, rows: np.ndarray) -> None:
        """Puts rows behind the others."""
        end = self._num_rows + len(rows)
        self._array[self._num_rows:end] = rows
        self._num_rows = end

    def all(self) -> np.ndarray:
        """The rows that were added."""
        return self._array[:self._num_rows]


def _given(batch: Mapping[str, Nested]) -> ReplicaBatch:
    with tf.device(HOME):
        return ReplicaBatch({HOME: batch}, tf.constant(0, tf.int64), tf.constant(0))


def _of_example(spec: tf.TensorSpec) -> tf.TensorSpec:
    return tf.TensorSpec(spec.shape[1:], spec.dtype)


def _rows(array: np.ndarray, start: int, end: int) -> np.ndarray:
    return array[start:end]
