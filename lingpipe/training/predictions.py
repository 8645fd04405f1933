"""Predictions: the outputs of a trained network, for examples or for a whole data set."""
from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from lingpipe.input import Input, order
from lingpipe.layers import nested
from lingpipe.layers.nested import Nested
from lingpipe.pipeline.execution.predictor import Predictor
from lingpipe.pipeline.execution.program import Program
from lingpipe.training.experiment import Experiment
from lingpipe.training.given_examples import GivenExamples, check_batched


class Predictions:
    """The predictions of a program. The steps for each choice of outputs are traced once."""

    def __init__(self, program: Program, experiment: Experiment):
        self._program, self._experiment = program, experiment
        self._predictors: dict[Hashable, Predictor] = {}   # by outputs and mini-batch

    def predictor(self, outputs: Sequence[str] = (), input_name: str = '') -> Predictor:
        """What computes the outputs, in mini-batches as an evaluation has them.

        Args:
          outputs: names of values; default: task.outputs.
          input_name: the eval input whose mini-batches they are like; default: the usual one.

        Raises:
          ValueError: there are no such outputs.
        """
        names = tuple(outputs) or self._experiment.params.task.outputs
        inputs = self._experiment.eval_inputs
        source = inputs.get(input_name or self._usual_input(), self._experiment.train_input)
        spec = source.spec()
        key = names, tuple(nested.flatten(spec))
        if key not in self._predictors:
            self._predictors[key] = self._program.predictor(spec, outputs=names)
        return self._predictors[key]

    def _usual_input(self) -> str:
        """The eval input of the best checkpoint, or else one whose examples are like train_input's.

        '' if there is none.
        """
        inputs, best = self._experiment.eval_inputs, self._experiment.params.train.best_input
        like = [name for name in sorted(inputs)
                if _examples(inputs[name]) == _examples(self._experiment.train_input)]
        return best or next(iter([*like, *sorted(inputs)]), '')

    def examples(self) -> GivenExamples:
        """Returns what makes an eval input of the examples that a caller gives.

        Raises:
          ValueError: there are no such outputs. They decide which values are labels.
        """
        predictor, spec = self.predictor(), self._experiment.train_input.spec()
        reads = self._experiment.task.network.reads().values()
        needed = predictor.input_specs.keys() - predictor.optional_inputs
        labels = [name for name in dict.fromkeys(reads)
                  if name in spec and name not in needed | {'weight'}]
        return GivenExamples(predictor, labels, spec)

    def of_input(self, name: str, outputs: Sequence[str]) -> dict[str, Nested]:
        """Returns the outputs of all examples of an eval input, in its order.

        Raises:
          ValueError: there is no such input, it has no examples, or they are of several shapes.
        """
        inputs = self._experiment.eval_inputs
        if name not in inputs:
            raise ValueError(f'there is no eval input {name!r}; there are '
                             f'{", ".join(sorted(inputs)) or "none"}.')
        if (number := len(inputs[name].specs())) > 1:
            raise ValueError(
                f'eval_inputs.{name} gives mini-batches of {number} shapes, but the outputs of all '
                'examples are one array; give it one bucket of lengths.')
        return self._of_batches(
            _real_examples(inputs[name]), self.predictor(outputs, name), f'eval_inputs.{name}')

    def of_dataset(self, dataset: tf.data.Dataset, outputs: Sequence[str]) -> dict[str, Nested]:
        """Returns the outputs of all examples of a dataset, in its order.

        Args:
          dataset: of batches of any size, of what the network takes, or of tuples that begin with
            that, as Keras' predict takes it.
          outputs: names of values; none: task.outputs.

        Raises:
          ValueError: it never ends, has no examples, or ones that do not fit.
        """
        if dataset.cardinality() == tf.data.INFINITE_CARDINALITY:
            raise ValueError('the dataset to predict has no end; leave its repeat out, or use '
                             'dataset.take(n).')
        predictor = self.predictor(outputs)
        check_batched(dataset, predictor)
        if isinstance(dataset.element_spec, tuple):
            dataset = dataset.map(lambda examples, *others: examples)
        # A batch of the predictor's own size is not filled up.
        whole = dataset.unbatch().batch(predictor.batch_size)
        return self._of_batches(whole.as_numpy_iterator(), predictor, 'the dataset')

    def _of_batches(self, batches: Iterable[Nested], predictor: Predictor, name: str
                    ) -> dict[str, Nested]:
        """The outputs of all batches, one after the other.

        Raises:
          ValueError: there are none in what the message calls `name`.
        """
        parts = [predictor.predict(batch) for batch in batches]
        if not parts:
            raise ValueError(f'{name} has no examples; correct it.')
        return {output: nested.map_leaves(lambda *leaves: np.concatenate(leaves), value,
                                          *[part[output] for part in parts[1:]])
                for output, value in parts[0].items()}


def names_of(source: Input) -> list[str]:
    """The names of an input's examples in their order, in all epochs; empty if it has none."""
    p = source.params
    if not source.is_indexed or type(source).name_of is Input.name_of:
        return []
    number = source.num_examples()
    positions = tf.range(number * (p.num_epochs or 1), dtype=tf.int64)
    index, _ = order.indices(positions, number, p.seed, p.shuffle, p.shuffle_rounds)
    return [source.name_of(int(i)) for i in index.numpy()]


def _examples(source: Input) -> list[tuple[str, tf.TensorShape]]:
    """The shapes of the values of an example by path."""
    return sorted((path, spec.shape[1:]) for path, spec in nested.flatten(source.spec()))


def _real_examples(source: Input) -> Iterator[dict[str, Nested]]:
    """The mini-batches of an input without the copies that fill up the last one."""
    size = source.params.batch_size
    for number, batch in enumerate(source.batches()):
        num_real = source.num_real_examples(number * size)
        yield nested.map_leaves(lambda tensor: tensor.numpy()[:num_real], batch)   # noqa: B023
