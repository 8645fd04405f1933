"""Predictions: the outputs of a trained network, for examples or for a whole data set."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from lingpipe.input import Input
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
        self._predictors: dict[tuple[str, ...], Predictor] = {}   # by outputs

    def predictor(self, outputs: Sequence[str] = ()) -> Predictor:
        """What computes the outputs, in mini-batches as an evaluation has them.

        Args:
          outputs: names of values; default: task.outputs.

        Raises:
          ValueError: there are no such outputs.
        """
        p = self._experiment.params
        names = tuple(outputs) or p.task.outputs
        if names not in self._predictors:
            inputs = self._experiment.eval_inputs
            source = inputs.get(p.train.best_input or min(inputs, default=''),
                                self._experiment.train_input)
            self._predictors[names] = self._program.predictor(source.spec(), outputs=names)
        return self._predictors[names]

    def examples(self) -> GivenExamples:
        """What makes an eval input of the examples that a call is given.

        Raises:
          ValueError: the outputs, on which it depends what is a label, have no names.
        """
        predictor, spec = self.predictor(), self._experiment.train_input.spec()
        reads = self._experiment.task.network.reads().values()
        labels = [name for name in dict.fromkeys(reads)
                  if name in spec and name not in (*predictor.input_specs, 'weight')]
        return GivenExamples(predictor, labels, spec)

    def of_input(self, name: str, outputs: Sequence[str] = ()) -> dict[str, Nested]:
        """Returns the outputs of all examples of an eval input, in its order.

        Raises:
          ValueError: there is no such input, or it has no examples.
        """
        inputs = self._experiment.eval_inputs
        if name not in inputs:
            raise ValueError(f'there is no eval input {name!r}; there are '
                             f'{", ".join(sorted(inputs)) or "none"}.')
        return self._of_batches(_real_examples(inputs[name]), outputs, f'eval_inputs.{name}')

    def of_dataset(self, dataset: tf.data.Dataset, outputs: Sequence[str] = ()
                   ) -> dict[str, Nested]:
        """Returns the outputs of all examples of a dataset, in its order.

        Args:
          dataset: of batches of any size, of what the network takes, or of tuples that begin with
            that, as Keras' predict takes it.
          outputs: names of values; default: task.outputs.

        Raises:
          ValueError: it never ends, has no examples, or ones that do not fit.
        """
        if dataset.cardinality() == tf.data.INFINITE_CARDINALITY:
            raise ValueError('the dataset to predict has no end; leave its repeat out, or use '
                             'dataset.take(n).')
        check_batched(dataset, self.predictor(outputs))
        if isinstance(dataset.element_spec, tuple):
            dataset = dataset.map(lambda examples, *others: examples)
        # A batch of the predictor's own size is not filled up.
        whole = dataset.unbatch().batch(self.predictor(outputs).batch_size)
        return self._of_batches(whole.as_numpy_iterator(), outputs, 'the dataset')

    def _of_batches(self, batches: Iterable[Nested], outputs: Sequence[str], name: str
                    ) -> dict[str, Nested]:
        """The outputs of all batches, one after the other.

        Raises:
          ValueError: there are none in what the message calls `name`.
        """
        predictor = self.predictor(outputs)
        parts = [predictor.predict(batch) for batch in batches]
        if not parts:
            raise ValueError(f'{name} has no examples; correct it.')
        return {output: nested.map_leaves(lambda *leaves: np.concatenate(leaves), value,
                                          *[part[output] for part in parts[1:]])
                for output, value in parts[0].items()}


def _real_examples(source: Input) -> Iterator[dict[str, Nested]]:
    """The mini-batches of an input without the copies that fill up the last one."""
    size = source.params.batch_size
    for number, batch in enumerate(source.batches()):
        num_real = source.num_real_examples(number * size)
        yield nested.map_leaves(lambda tensor: tensor.numpy()[:num_real], batch)   # noqa: B023
