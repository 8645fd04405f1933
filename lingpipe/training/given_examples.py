"""Given examples: what run.evaluate(x, y) is given, as an input that an evaluation reads."""
from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lingpipe.input import DatasetInput, Input
from lingpipe.input.checked_arrays import check_weights, checked, narrowed
from lingpipe.input.elements import check_weight, of_output
from lingpipe.layers import nested
from lingpipe.layers.nested import Nested
from lingpipe.pipeline.execution.predictor import Predictor

_WEIGHT = 'weight'


@dataclasses.dataclass(frozen=True)
class GivenExamples:
    """Makes inputs of arrays, of frames and of datasets, which are not part of an experiment.

    Attributes:
      predictor: knows which values the outputs need: x.
      labels: the other values that the network reads: y.
      spec: name -> nested tf.TensorSpec of a mini-batch of the experiment.
    """
    predictor: Predictor
    labels: Sequence[str]
    spec: Mapping[str, Nested]

    def input(self, x: Nested, y: Nested | None = None, sample_weight: Nested | None = None
              ) -> Input:
        """Returns an input of the examples in their order, each of them once.

        Args:
          x: arrays [N, ...] by name, or the array itself if the outputs need only one; or a
            DataFrame; or a tf.data.Dataset of batches of such, or of tuples (x, y) or
            (x, y, sample_weight).
          y: the labels in the same way, if they are not among x.
          sample_weight: what each example counts, [N]; default: 1.

        Raises:
          ValueError: a value is missing or does not fit, or a dataset never ends.
        """
        if isinstance(x, tf.data.Dataset):
            dataset = self._from_dataset(x, y, sample_weight)
        else:
            rows = tf.data.Dataset.from_tensor_slices(self._arrays(x, y, sample_weight))
            dataset = rows.batch(self.predictor.batch_size)
        source: Input = DatasetInput.of(
            lambda: dataset, batch_size=self.predictor.batch_size, is_batched=True,
            num_epochs=1).instantiate()
        return source

    def _arrays(self, x: Nested, y: Nested | None, sample_weight: Nested | None
                ) -> dict[str, Nested]:
        """Arrays of all that the network reads, by name."""
        arrays = self.predictor.arrays(x)
        labels = _columns(x) | ({} if y is None else self._named_labels(y))
        self._check_all_are_in({*arrays, *labels})
        check_weight(sample_weight)
        weight = labels.get(_WEIGHT) if sample_weight is None else sample_weight
        others = {name: labels[name] for name in self.labels}
        others |= {} if weight is None else {_WEIGHT: weight}
        for name, value in others.items():
            spec = nested.map_leaves(
                lambda one: tf.TensorSpec(one.shape[1:], one.dtype), self.spec[name])
            arrays[name] = checked(name, value, spec)

        check_weights(arrays.get(_WEIGHT, 1.))
        lengths = {path: len(leaf) for path, leaf in nested.flatten(arrays)}
        if len(set(lengths.values())) > 1:
            listed = ', '.join(f'{path} {length}' for path, length in lengths.items())
            raise ValueError(f'the examples have different numbers of rows: {listed}; give one row '
                             'to every example.')
        return arrays

    def _from_dataset(self, dataset: tf.data.Dataset, y: Nested | None,
                      sample_weight: Nested | None) -> tf.data.Dataset:
        """The dataset with dicts of what the network reads as elements."""
        if y is not None or sample_weight is not None:
            raise ValueError('x is a tf.data.Dataset, so that labels and weights must be in its '
                             'elements, (x, y) or (x, y, sample_weight); leave the arguments y and '
                             'sample_weight out.')
        if dataset.cardinality() == tf.data.INFINITE_CARDINALITY:
            raise ValueError('the dataset to evaluate has no end; leave its repeat out, or use '
                             'dataset.take(n).')
        check_batched(dataset, self.predictor)
        if isinstance(dataset.element_spec, tuple):
            check_weight(dict(enumerate(dataset.element_spec)).get(2))
            return dataset.map(self._example)
        return dataset.map(lambda element: self._example(element))

    def _example(self, x: Nested, y: Nested | None = None, sample_weight: Nested | None = None
                 ) -> dict[str, Nested]:
        """An element of a dataset, by name and in the dtypes of the experiment's mini-batches."""
        inputs = sorted(self.predictor.input_specs.keys() - self.predictor.optional_inputs)
        if not isinstance(x, Mapping) and len(inputs) != 1:
            raise ValueError(f'the network takes {", ".join(inputs)}; give the dataset dicts with '
                             'these names.')
        values = dict(x) if isinstance(x, Mapping) else {inputs[0]: x}
        values |= {} if y is None else self._named_labels(y)
        values |= {} if sample_weight is None else {_WEIGHT: sample_weight}
        self._check_all_are_in(values)
        names = {*inputs, *self.labels, _WEIGHT} & values.keys()
        return {name: nested.map_leaves(functools.partial(_of_like_dtype, name), values[name],
                                        self.spec[name])
                for name in sorted(names)}

    def _named_labels(self, y: Nested) -> dict[str, Nested]:
        """The labels by name. Those of several outputs may have the outputs' names, as in Keras."""
        if isinstance(y, Mapping):
            return {of_output(name, self.labels): value for name, value in y.items()}
        if len(self.labels) != 1:
            raise ValueError('y is given, but beside x the network reads '
                             f'{", ".join(self.labels) or "nothing"}; give a dict by these names.')
        return {self.labels[0]: y}

    def _check_all_are_in(self, names: Collection[str]) -> None:
        """Raises ValueError if one of the values is missing that an evaluation reads."""
        inputs = sorted(self.predictor.input_specs.keys() - self.predictor.optional_inputs)
        missing = [name for name in (*inputs, *self.labels) if name not in names]
        if missing:
            remedy = 'give y' if missing == list(self.labels) else 'give a dict with these names'
            raise ValueError(f'{", ".join(missing)} is missing; an evaluation reads '
                             f'{", ".join((*inputs, *self.labels))}: {remedy}.')


def check_batched(dataset: tf.data.Dataset, predictor: Predictor) -> None:
    """Raises ValueError if the elements of a dataset are single examples.

    Args:
      dataset: of what a network takes, or of tuples that begin with that.
      predictor: knows what the network takes.
    """
    element = dataset.element_spec
    x = element[0] if isinstance(element, tuple) else element
    specs = {name: spec for name, spec in predictor.input_specs.items()
             if name not in predictor.optional_inputs}
    if not isinstance(x, Mapping):
        x = dict.fromkeys(specs, x) if len(specs) == 1 else {}
    ranks = [(theirs.shape.rank, ours.shape.rank) for name in specs.keys() & x.keys()
             for (_, theirs), (_, ours) in zip(
                 nested.flatten(x[name]), nested.flatten(specs[name]), strict=False)]
    if any(theirs == ours for theirs, ours in ranks):
        raise ValueError('the elements of the dataset are single examples, and batches are needed; '
                         'call its batch(n) first.')


def _columns(value: Nested) -> dict[str, Nested]:
    """What has a name in a dict or a DataFrame; nothing of an array."""
    if isinstance(value, Mapping):
        return dict(value)
    return {str(name): value[name] for name in getattr(value, 'columns', ())}


def _of_like_dtype(name: str, tensor: Any, spec: tf.TensorSpec) -> Any:
    """The tensor in the dtype of a spec, if only the width of the numbers differs."""
    dtypes = (tensor.dtype, spec.dtype)
    is_like = all(one.is_integer for one in dtypes) or all(one.is_floating for one in dtypes)
    if not is_like or tensor.dtype == spec.dtype or not isinstance(tensor, tf.Tensor):
        return tensor
    wanted = np.dtype(spec.dtype.as_numpy_dtype)
    if np.can_cast(tensor.dtype.as_numpy_dtype, wanted):
        return tf.cast(tensor, spec.dtype)
    narrow = functools.partial(narrowed, name, dtype=wanted)
    converted = tf.numpy_function(narrow, [tensor], spec.dtype, stateful=False)
    return tf.ensure_shape(converted, tensor.shape)
