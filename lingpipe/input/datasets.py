"""TFDSInput: data sets of tensorflow-datasets, by name; the package is imported when one is used.

The prepared files are TFRecords, so they are read by index as in records.py, whatever the slice of
the split. Nothing is downloaded unless asked for: without a network, tensorflow-datasets tries for
minutes before it says so.
"""
from __future__ import annotations

import difflib
import functools
import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lingpipe.hyperparams import REQUIRED, field
from lingpipe.input.base import Input
from lingpipe.input.records import RecordFiles
from lingpipe.layers.nested import Nested


def import_tfds() -> Any:
    """The module tensorflow_datasets, which comes with the extra `tfds`.

    Raises:
      ValueError: it is not installed, or it cannot be imported; says how to install it.
    """
    try:
        return importlib.import_module('tensorflow_datasets')
    except ImportError as error:
        raise ValueError(f'tensorflow-datasets is needed here and cannot be imported ({error}); '
                         'run pip install tensorflow-datasets importlib_resources, or install '
                         'lingpipe with its extra tfds.') from error


class TFDSInput(Input):
    """A data set of tensorflow-datasets.

    Examples are as the set's own features say; images may need a static shape by preprocess.
    """

    class Params(Input.Params):
        """The set, and where it is."""
        name: str = field(REQUIRED, "The name in tensorflow-datasets: 'cifar10', "
                                    "'wmt14_translate/de-en:1.0.0'.")
        split: str = field('train', "A split or a part of one: 'train', 'train[:90%]'.")
        data_dir: str | None = field(None, 'Where sets are prepared; none: ~/tensorflow_datasets.')
        download: bool = field(False, 'Whether a set that is not prepared is downloaded and '
                                      'prepared.')

    params: Params

    def num_examples(self) -> int:
        """The number of examples in the split.

        Raises:
          ValueError: the set is not prepared and may not be downloaded, or has no such split.
        """
        return len(self._records)

    def read(self, index: tf.Tensor) -> dict[str, Nested]:
        """Returns the serialised examples, strings [n], at index, int64 [n]."""
        records = self._records
        if isinstance(records, RecordFiles):
            return {'record': records.read(index)}
        return {'record': tf.gather(records, index)}

    def decode(self, example: dict[str, Nested]) -> dict[str, Nested]:
        """One example as the set's features say."""
        return dict(self.features.deserialize_example(example['record']))

    @property
    def class_names(self) -> Sequence[str]:
        """The names of the classes of the feature 'label'; () if it has none."""
        if 'label' not in self.features:
            return ()
        return getattr(self.features['label'], 'names', None) or ()

    @functools.cached_property
    def builder(self) -> Any:
        """The tfds.core.DatasetBuilder.

        Raises:
          ValueError: there is no such set.
        """
        tfds = import_tfds()
        p = self.params
        try:
            builder = tfds.builder(p.name, data_dir=p.data_dir)
        except (tfds.core.DatasetNotFoundError, ValueError) as error:
            near = difflib.get_close_matches(p.name.split('/')[0], tfds.list_builders(), 3)
            what = str(error).strip().splitlines()[0]
            hint = f' Is it {" or ".join(near)}?' if near else ''
            raise ValueError(f'tensorflow-datasets has no {p.name!r}: {what}{hint} A set of your '
                             'own is found by data_dir, or by its name when its module has been '
                             'imported.') from error
        if p.download:
            builder.download_and_prepare()
        return builder

    @functools.cached_property
    def features(self) -> Any:
        """The tfds.features.FeaturesDict of what is decoded of an example.

        A subclass may leave some of the set's features out.
        """
        return self.builder.info.features

    @functools.cached_property
    def _records(self) -> RecordFiles | tf.Tensor:
        """The serialised examples of the split, in files or in memory."""
        p, builder = self.params, self.builder
        if not builder.is_prepared():
            return self._in_memory()
        if builder.info.file_format.value != 'tfrecord':
            raise ValueError(f'{p.name} is prepared as {builder.info.file_format.value}, and is '
                             'read by index from tfrecord only; prepare it with '
                             "file_format='tfrecord'.")
        try:
            instructions = builder.info.splits[p.split].file_instructions
        except (KeyError, ValueError) as error:
            raise ValueError(f'{p.name} has no split {p.split!r}; it has '
                             f'{", ".join(sorted(builder.info.splits))}.') from error

        def span(instruction: Any) -> tuple[int, int | None]:
            first, length = instruction.skip, instruction.take
            return first, None if length < 0 else first + length

        paths = [str(instruction.filename) for instruction in instructions]
        return RecordFiles(paths, [span(instruction) for instruction in instructions])

    def _in_memory(self) -> tf.Tensor:
        """All records of a set without files, as under tfds.testing.mock_data: strings [n].

        Raises:
          ValueError: the set should have files, and they are not prepared.
        """
        p = self.params
        try:
            examples = self.builder.as_dataset(split=p.split, shuffle_files=False)
        except AssertionError as error:
            raise ValueError(f'{p.name} is not prepared in {self.builder.data_dir}. Where there is '
                             'a network, run python -c "import tensorflow_datasets as tfds; '
                             f"tfds.builder('{p.name}', "
                             f'data_dir={p.data_dir!r}).download_and_prepare()", or set '
                             'download=True; and copy the directory to machines without '
                             'one.') from error

        def serialized(example: dict[str, Nested]) -> Any:
            wanted = {name: example[name] for name in self.features}
            values = tf.nest.map_structure(lambda tensor: tensor.numpy(), wanted)
            return self.features.serialize_example(values)

        records = [serialized(example) for example in examples]
        with tf.device('CPU:0'):
            return tf.constant(np.array(records, object), tf.string, shape=[len(records)])
