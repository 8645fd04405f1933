"""TFDSImageInput: images from tensorflow-datasets."""
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

    Among them are imagenet2012, cifar10, cifar100, cars196, oxford_iiit_pet and food101. Birdsnap
    and FGVC Aircraft are not: unpack their files and use FolderInput. Do the same with cars196 if
    its server is gone.
    """

    class Params(EncodedImageInput.Params, TFDSInput.Params):
        """The set, and how its images are transformed."""
        label: str = field(
            'label', "Name of the feature that is the label, such as 'coarse_label' of cifar100.")

    params: Params

    def read(self, index: tf.Tensor) -> dict[str, Any]:
        """Returns the records and their indices."""
        return {**super().read(index), 'index': index}

    def decode(self, example: dict[str, Any]) -> dict[str, Any]:
        """Returns the features of a record; the image stays encoded."""
        tfds = import_tfds()
        features = self.features.deserialize_example(
            example['record'], decoders={'image': tfds.decode.SkipDecoding()})
        return {'image': features['image'], 'label': features[self.params.label],
                'index': example['index']}

    @functools.cached_property
    def features(self) -> Any:
        """The features image and label.

        Others, such as the masks of oxford_iiit_pet, are not decoded.
        """
        tfds = import_tfds()
        p = self.params
        features = self.builder.info.features
        for name in ('image', p.label):
            if name not in features:
                raise ValueError(
                    f'{p.name} has no feature {name!r}; it has {", ".join(sorted(features))}: name '
                    'a set of images, and its label by Params.label.')
        used = tfds.decode.PartialDecoding({'image': True, p.label: True})
        return used.extract_features(features)

    def name_of(self, index: int) -> str:
        """Returns the set, the split and the index in it, such as 'food101 train, example 3'."""
        return f'{self.params.name} {self.params.split}, example {index}'
