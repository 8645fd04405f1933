"""FashionMNISTInput: 70,000 grey 28x28 pictures of clothes, in 10 classes.

The data are by Xiao et al. (2017, arXiv:1708.07747), under the MIT licence. Their format, IDX, is
read by two calls of NumPy: idx2numpy, the library for it, has had no release since 2020.
"""
from __future__ import annotations

import gzip
import math
import os
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from lingpipe.hyperparams import field
from lingpipe.input import ArrayInput, TFDSInput
from lingpipe.tasks.image.inputs.subset import Subset
from lingpipe.tasks.image.inputs.transform import Transform

# From Debian's package dataset-fashion-mnist.
PACKAGE_FOLDER = '/usr/share/datasets/fashion-mnist'
PREFIXES = {'train': 'train', 'test': 't10k'}
CLASS_NAMES = ('T-shirt', 'trousers', 'pullover', 'dress', 'coat', 'sandal', 'shirt', 'sneaker',
               'bag', 'ankle boot')


class FashionMNISTInput(ArrayInput):
    """Clothes: image [B, 28, 28, 1] uint8, 60,000 training and 10,000 test images.

    Each class has equally many. The images are read from `directory` if it is set, or else from
    Debian's package dataset-fashion-mnist, or else from tensorflow-datasets.
    """

    class Params(ArrayInput.Params):
        """The part that is read, where it is, and how it is transformed."""
        split: Literal['train', 'test'] = field('train', 'The part of the data.')
        directory: str = field(
            '', "Folder of the four files *-ubyte.gz; empty: that of Debian's package, or else "
                'tensorflow-datasets.')
        data_dir: str | None = field(
            None, 'Where tensorflow-datasets prepared it; none: ~/tensorflow_datasets.')
        subset: Subset = field(Subset(), 'The classes, and how many examples of each.')
        transform: Transform.Params = field(
            Transform.Params(size=28, fill=0), 'How an image is augmented.')

    params: Params

    def __init__(self, params: Params):
        super().__init__(params)
        self._transform: Transform = self.params.transform.instantiate()

    def load(self) -> dict[str, np.ndarray]:
        """Returns image uint8 [n, 28, 28, 1] and label int32 [n].

        Raises:
          ValueError: the files are missing or broken.
        """
        p = self.params
        directory = p.directory or (PACKAGE_FOLDER if os.path.isdir(PACKAGE_FOLDER) else '')
        images, labels = read_files(directory, p.split) if directory else self._prepared()
        chosen, label = p.subset.of(labels)
        return {'image': images[chosen][..., np.newaxis], 'label': label}

    def spec(self) -> dict[str, Any]:
        """The spec of a batch. It needs no image."""
        return self._transform.batch_spec(self.params.batch_size, 1)

    def preprocess(self, example: dict[str, Any], seed: tf.Tensor) -> dict[str, Any]:
        """Transforms the image."""
        return {**example, 'image': self._transform(example['image'], seed)}

    @property
    def class_names(self) -> tuple[str, ...]:
        """The paper's names of the classes that are used, in the order of their labels."""
        return self.params.subset.names(CLASS_NAMES)

    def _prepared(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns (images, labels) from tensorflow-datasets."""
        p = self.params
        source = TFDSInput.Params(
            name='fashion_mnist', split=p.split, data_dir=p.data_dir, batch_size=1000,
            shuffle=False, num_epochs=1).instantiate()
        try:
            batches = list(source.dataset().as_numpy_iterator())
        except ValueError as error:
            raise ValueError(
                f'Fashion-MNIST is neither in {PACKAGE_FOLDER} nor prepared by '
                'tensorflow-datasets; run apt-get install dataset-fashion-mnist, or python -c '
                '"import tensorflow_datasets as tfds; '
                "tfds.builder('fashion_mnist', "
                f'data_dir={p.data_dir!r}).download_and_prepare()", or name a folder with its four '
                'files as directory.') from error

        def joined(name: str) -> np.ndarray:
            return np.concatenate([batch[name] for batch in batches])

        is_real = joined('weight') != 0
        return joined('image')[is_real][..., 0], joined('label')[is_real]


def read_files(directory: str, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Reads a folder with the files that the authors publish.

    Returns:
      (images uint8 [n, 28, 28], labels uint8 [n]).

    Raises:
      ValueError: a file is missing or broken, or the two do not match.
    """
    image_path, label_path = (os.path.join(directory, f'{PREFIXES[split]}-{kind}-ubyte.gz')
                              for kind in ('images-idx3', 'labels-idx1'))
    for path in (image_path, label_path):
        if not os.path.isfile(path):
            raise ValueError(
                f'{path} is not there, and Fashion-MNIST is four files, (train, t10k)-'
                '(images-idx3, labels-idx1)-ubyte.gz; apt-get install dataset-fashion-mnist puts '
                'them into /usr/share/datasets/fashion-mnist.')

    images = read_idx(image_path)
    labels = read_idx(label_path)
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        raise ValueError(
            f'{image_path} holds {list(images.shape)} and {label_path} {list(labels.shape)}, and '
            'there must be one label for each image; copy both again.')
    return images, labels


def read_idx(path: str) -> np.ndarray:
    """Reads a gzipped IDX file of bytes.

    The format (http://yann.lecun.com/exdb/mnist) is: 0, 0, 8, the rank, the sizes as big-endian
    int32, the data.

    Raises:
      ValueError: it is no such file, or its length is wrong.
    """
    try:
        with gzip.open(path) as file:
            content = file.read()
    except (OSError, EOFError) as error:
        raise ValueError(f'{path} cannot be read ({error}); copy it again.') from error
    if content[:3] != b'\0\0\x08' or len(content) < 4 + 4 * content[3]:
        raise ValueError(f'{path} does not begin as an IDX file of bytes does; copy it again.')

    rank = content[3]
    shape = np.frombuffer(content, '>i4', rank, 4).tolist()
    needed = 4 + 4 * rank + math.prod(shape)
    if len(content) != needed:
        raise ValueError(f'{path} has {len(content)} bytes, and an array of {shape} needs '
                         f'{needed}; copy it again.')
    return np.frombuffer(content, np.uint8, offset=4 + 4 * rank).reshape(shape)
