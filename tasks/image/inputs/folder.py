"""FolderInput: images in folders, one for every class.

    directory/train/boeing/1.jpg
    directory/train/cessna/2.jpg
    directory/test/boeing/3.jpg

This is the layout of tfds.ImageFolder, which is not used because its examples cannot be read by
index.
"""
from __future__ import annotations

import collections
import functools
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from lingpipe.hyperparams import REQUIRED, field
from lingpipe.tasks.image.inputs.encoded import EncodedImageInput
from lingpipe.tasks.image.inputs.subset import Subset
from lingpipe.wording.counts import are, counted

# TensorFlow reads .webp too from 2.20 on; lingpipe runs with earlier ones.
SUFFIXES = ('.jpg', '.jpeg', '.png', '.bmp', '.gif')


class FolderInput(EncodedImageInput):
    """Images in directory/split/class, as for Birdsnap, FGVC Aircraft or your own images.

    Labels number the classes of all splits by name, so they mean the same in every split.
    """

    class Params(EncodedImageInput.Params):
        """Where the images are, and which are used."""
        directory: str = field(REQUIRED, 'The folder that holds the splits.')
        split: str = field('train', 'The folder in it that holds the classes.')
        subset: Subset = field(Subset(), 'The classes, and how many examples of each.')

    params: Params

    def num_examples(self) -> int:
        """Returns the number of files that are used.

        Raises:
          ValueError: there are none, or no such folder.
        """
        return len(self._files[0])

    def read(self, index: tf.Tensor) -> dict[str, Any]:
        """Returns the bytes of files and their labels: int64 [n] -> string [n], int32 [n]."""
        paths, labels = self._files

        def contents(indices: np.ndarray) -> np.ndarray:
            return np.array([_content(paths[i]) for i in indices], object)

        with tf.device('CPU:0'):
            label = tf.gather(tf.constant(labels), index)
        image = tf.numpy_function(contents, [index], tf.string, stateful=False)
        return {'image': tf.ensure_shape(image, index.shape), 'label': label, 'index': index}

    def name_of(self, index: int) -> str:
        """Returns the path of the file, as text."""
        return _text(self._files[0][index])

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the folders, as text."""
        return self.params.subset.names([_text(name) for name in self._all_classes])

    @functools.cached_property
    def _all_classes(self) -> list[str]:
        """The names of the folders of all splits; raises ValueError if there are none."""
        p = self.params
        if not os.path.isdir(p.directory):
            raise ValueError(
                f'directory={p.directory!r} is no folder; name one that holds images as '
                f'split/class/*.jpg (it is looked up from {os.getcwd()}).')
        splits = _folders(p.directory)
        if p.split not in splits:
            raise ValueError(
                f'{p.directory} has no split {p.split!r}; it has '
                f'{", ".join(splits) or "no folder"}, and should hold images as split/class/*.jpg.')
        return sorted({name for split in splits
                       for name in _folders(os.path.join(p.directory, split))})

    @functools.cached_property
    def _files(self) -> tuple[list[str], np.ndarray]:
        """(paths, labels int32 [n]), in the order of classes, then of names."""
        p = self.params
        paths = []
        labels = []
        others = []
        for label, name in enumerate(self._all_classes):
            folder = os.path.join(p.directory, p.split, name)
            if os.path.isdir(folder):
                visible = [entry for entry in os.scandir(folder) if not entry.name.startswith('.')]
                files = sorted(entry.path for entry in visible if _is_image(entry))
                others += [entry.path for entry in visible if not _is_image(entry)]
                paths += files
                labels += [label] * len(files)
        if not paths:
            number = counted(len(others), 'other file')
            found = f', but {number} ({_kinds(others)})' if others else ''
            raise ValueError(
                f'{os.path.join(p.directory, p.split)} holds no image in a folder of a class'
                f'{found}; put them there as class/*.jpg ({", ".join(SUFFIXES)}).')
        if others:
            logging.warning('%s %s left out, because images are files that end in %s: %s; '
                            'convert images, as to PNG; one of them: %s',
                            counted(len(others), 'file'), are(len(others)), ', '.join(SUFFIXES),
                            _kinds(others), _text(min(others)))

        chosen, new_labels = p.subset.of(np.array(labels))
        return [paths[i] for i in chosen], new_labels


def _is_image(entry: os.DirEntry[str]) -> bool:
    return entry.name.lower().endswith(SUFFIXES) and not entry.is_dir()


def _kinds(paths: Sequence[str]) -> str:
    """Returns how many files have each ending of a name, as '3 .webp, 1 .txt, 1 folder'."""
    counts = collections.Counter('folder' if os.path.isdir(path) else
                                 os.path.splitext(_text(path))[1].lower() or 'without ending'
                                 for path in sorted(paths))
    return ', '.join(f'{number} {kind}' for kind, number in counts.most_common())


def _text(name: str) -> str:
    """Returns the name of a file as text: bytes that are no UTF-8 become U+FFFD.

    Python keeps such bytes as halves of letters, which neither TensorFlow nor matplotlib takes.
    """
    return os.fsencode(name).decode('utf-8', 'replace')


def _folders(directory: str) -> list[str]:
    """Returns the names of the folders in a folder, without hidden ones."""
    return sorted(entry.name for entry in os.scandir(directory)
                  if entry.is_dir() and not entry.name.startswith('.'))


def _content(path: str) -> bytes:
    """Returns the bytes of a file.

    They are empty if it cannot be read, which the decoder counts as a broken image.
    """
    try:
        with open(path, 'rb') as file:
            return file.read()
    except OSError:
        return b''
