"""TFDSImageInput: images of tensorflow-datasets."""
from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf

from lingpipe.hyperparams import field
from lingpipe.input import TFDSInput
from lingpipe.input.datasets import import_tfds
from lingpipe.tasks.image.inputs.encoded import EncodedImageInput


class TFDSImageInput(EncodedImageInput, TFDSInput):
    """A set of tensorflow-datasets whose examples have an image and a label.

    Such are imagenet2012, cifar10, cifar100, cars196, oxford_iiit_pet, food101. Birdsnap and FGVC Aircraft are not among its sets: unpack
    them for a FolderInput; so with cars196, should its source be gone.
    """

    class Params(EncodedImageInput.Params, TFDSInput.Params):
        """Which set, and what is done to its images."""
        label: str = field('label', "Which feature is the label: 'coarse_label' of cifar100.")

    params: Params

    def read(self, index: tf.Tensor) -> dict[str, Any]:
        """The records and their indices."""
        return {**super().read(index), 'index': index}

    def decode(self, example: dict[str, Any]) -> dict[str, Any]:
        """The image stays as it is in the file."""
        tfds = import_tfds()
        found = self.features.deserialize_example(example['record'], decoders={'image': tfds.decode.SkipDecoding()})
        return {'image': found['image'], 'label': found[self.params.label], 'index': example['index']}

    @functools.cached_property
    def features(self) -> Any:
        """Image and label: what else the set has, as the masks of oxford_iiit_pet, costs nothing."""
        tfds = import_tfds()
        p, features = self.params, self.builder.info.features
        for name in ('image', p.label):
            if name not in features:
                raise ValueError(f'{p.name} has no feature {name!r}; it has {", ".join(sorted(features))}: name a set of images, and its '
                                 'label by Params.label.')
        return tfds.decode.PartialDecoding({'image': True, p.label: True}).extract_features(features)

    def name_of(self, index: int) -> str:
        """'food101 train, example 3': its index in the split."""
        return f'{self.params.name} {self.params.split}, example {index}'
