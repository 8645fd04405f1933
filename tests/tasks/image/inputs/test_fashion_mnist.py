"""FashionMNISTInput reads the files of Fashion-MNIST.

The files are small and generated, and the real ones where Debian's package is installed.
"""
from __future__ import annotations

import gzip
import os
import re
import struct
from pathlib import Path

import numpy as np
import pytest
import tensorflow_datasets as tfds

from lingpipe.tasks.image.inputs import FashionMNISTInput, Subset, Transform, fashion_mnist
from lingpipe.tasks.image.inputs.fashion_mnist import PACKAGE_FOLDER

IMAGES = np.random.default_rng(0).integers(0, 256, [30, 28, 28], np.uint8)
LABELS = (np.arange(30) % 10).astype(np.uint8)


def write_idx(path: Path, array: np.ndarray) -> None:
    header = struct.pack(f'>HBB{array.ndim}I', 0, 8, array.ndim, *array.shape)
    path.write_bytes(gzip.compress(header + array.tobytes()))


@pytest.fixture
def folder(tmp_path) -> Path:
    for prefix, images, labels in (('train', IMAGES[:20], LABELS[:20]),
                                   ('t10k', IMAGES[20:], LABELS[20:])):
        write_idx(tmp_path / f'{prefix}-images-idx3-ubyte.gz', images)
        write_idx(tmp_path / f'{prefix}-labels-idx1-ubyte.gz', labels)
    return tmp_path


def fashion(**values) -> FashionMNISTInput:
    return FashionMNISTInput.Params(**{'batch_size': 10, 'shuffle': False, 'num_epochs': 1,
                                       **values}).instantiate()


def test_images_are_those_of_the_files(folder):
    batches = list(fashion(directory=str(folder)).dataset().as_numpy_iterator())
    assert np.array_equal(np.concatenate([b['image'] for b in batches]),
                          IMAGES[:20, ..., np.newaxis])
    assert np.concatenate([b['label'] for b in batches]).tolist() == LABELS[:20].tolist()
    assert batches[0]['image'].dtype == np.uint8 and batches[0]['label'].dtype == np.int32
    assert fashion(directory=str(folder), split='test').num_examples() == 10


def test_a_subset_is_relabelled_and_has_names(folder):
    subset = Subset(classes=(5, 6, 7, 8, 9), examples_per_class=1)
    source = fashion(directory=str(folder), batch_size=5, subset=subset)
    batch = next(source.batches())
    used, _ = subset.of(LABELS[:20])
    assert batch['label'].numpy().tolist() == [LABELS[i] - 5 for i in used]
    assert np.array_equal(batch['image'][..., 0], IMAGES[used])
    assert source.class_names == ('sandal', 'shirt', 'sneaker', 'bag', 'ankle boot')


def test_augmented_batches_are_the_same_from_any_position(folder):
    source = fashion(directory=str(folder), batch_size=4, num_epochs=None, shuffle=True,
                     transform=Transform.Params(size=28, max_shift=2, flip=True, cutout=8, fill=0))
    whole = [batch['image'].numpy() for _, batch in zip(range(10), source.batches(), strict=False)]
    resumed = [batch['image'].numpy()
               for _, batch in zip(range(4), source.batches(24), strict=False)]
    assert np.array_equal(whole[6:], resumed)


@pytest.mark.skipif(not os.path.isdir(PACKAGE_FOLDER),
                    reason='needs apt-get install dataset-fashion-mnist')
def test_debians_package_has_all_images_of_ten_balanced_classes():
    for split, each in ('train', 6000), ('test', 1000):
        images, labels = fashion_mnist.read_files(PACKAGE_FOLDER, split)
        assert images.shape == (10 * each, 28, 28)
        assert np.bincount(labels).tolist() == [each] * 10
    assert labels[:6].tolist() == [9, 2, 1, 1, 6, 1]


def test_without_the_package_tensorflow_datasets_gives_it(monkeypatch, tmp_path):
    monkeypatch.setattr(fashion_mnist, 'PACKAGE_FOLDER', str(tmp_path / 'none'))
    with tfds.testing.mock_data(num_examples=25):
        batches = list(fashion().dataset().as_numpy_iterator())
    assert [b['image'].shape for b in batches] == [(10, 28, 28, 1)] * 3
    assert sum(b['weight'].sum() for b in batches) == 25


def test_without_either_one_sentence_says_how_to_get_them(monkeypatch, tmp_path):
    monkeypatch.setattr(fashion_mnist, 'PACKAGE_FOLDER', str(tmp_path / 'none'))
    with pytest.raises(ValueError,
                       match='Fashion-MNIST is neither in .*none nor prepared by '
                             'tensorflow-datasets; run apt-get install dataset-fashion-mnist, or '
                             'python -c .*download_and_prepare.*, or name a folder') as caught:
        fashion(data_dir=str(tmp_path)).dataset()
    assert '\n' not in str(caught.value)


def test_a_folder_without_the_files_is_refused(tmp_path):
    with pytest.raises(ValueError, match='train-images-idx3-ubyte.gz is not there, .*; apt-get '
                                         'install dataset-fashion-mnist'):
        fashion(directory=str(tmp_path)).dataset()


@pytest.mark.parametrize(('content', 'sentence'), [
    (b'no gzip', 'cannot be read (Not a gzipped file'),
    # mtime=0 leaves the time out of the bytes. They are part of the tests' names, which must be the
    # same in processes that collect the tests at different seconds.
    (gzip.compress(bytes(1000), mtime=0)[:-12], 'cannot be read (Compressed file ended'),
    (gzip.compress(b'\0\0\x0d\x01\0\0\0\x01abcd', mtime=0),
     'does not begin as an IDX file of bytes does; copy it again.'),
    (gzip.compress(b'\0\0\x08\x03\0\0\0\x14', mtime=0),
     'does not begin as an IDX file of bytes does'),
    (gzip.compress(b'\0\0\x08\x01\0\0\0\x14abc', mtime=0),
     'has 11 bytes, and an array of [20] needs 28; copy it again.'),
    (gzip.compress(b'\0\0\x08\x01\0\0\0\x03abc', mtime=0), 'holds [20, 28, 28] and')])
def test_a_broken_file_is_refused(folder, content, sentence):
    (folder / 'train-labels-idx1-ubyte.gz').write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(sentence)):
        fashion(directory=str(folder)).dataset()
