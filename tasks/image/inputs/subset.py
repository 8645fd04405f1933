"""Subset: some classes of a data set, relabelled, and a few examples of each."""
from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from lingpipe.hyperparams import Params, field
from lingpipe.wording.counts import counted


class Subset(Params):
    """The examples that are used; by default all.

    It serves experiments on transfer from few examples.
    """
    classes: tuple[int, ...] = field(
        (), 'Labels that are used; the first becomes 0, the second 1, ...; empty: all, unchanged.',
        least=0)
    examples_per_class: int | None = field(None, 'Examples of each class; none: all.', least=1)
    seed: int = field(0, 'Seeds the choice of examples.')

    def check(self) -> None:
        """Raises ValueError for a class that is named twice."""
        if len(set(self.classes)) < len(self.classes):
            raise ValueError(f'classes={list(self.classes)} names one twice; name each once.')

    def of(self, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Chooses the examples that are used.

        The examples of a class depend only on the seed, its label and the labels, not on the
        version of a random generator. With a smaller examples_per_class, they are a part of those
        with a larger one.

        Args:
          labels: of all examples, int [n].

        Returns:
          (indices of the chosen examples, ascending, their new labels int32).

        Raises:
          ValueError: a class does not exist or has too few examples.
        """
        existing = np.unique(labels).tolist()
        classes = list(self.classes) or existing
        for label in classes:
            if label not in existing:
                raise ValueError(
                    f'subset.classes={list(self.classes)} names {label}, and the data has the '
                    f'classes {", ".join(map(str, existing))}; correct it.')
        if not classes:
            return np.zeros([0], np.int64), np.zeros([0], np.int32)

        chosen = []
        new_labels = []
        for i, label in enumerate(classes):
            indices = self._some(label, np.flatnonzero(labels == label))
            chosen.append(indices)
            new_labels.append(np.full(len(indices), i if self.classes else label, np.int32))
        index = np.concatenate(chosen)
        order = np.argsort(index, kind='stable')
        return index[order], np.concatenate(new_labels)[order]

    def names(self, names: Sequence[str]) -> tuple[str, ...]:
        """Returns the names of the classes that are used, from the names of all classes."""
        return tuple(names[label] for label in self.classes) if self.classes else tuple(names)

    def _some(self, label: int, indices: np.ndarray) -> np.ndarray:
        """Returns examples_per_class of the examples of a class."""
        number = self.examples_per_class
        if number is None:
            return indices
        if number > len(indices):
            raise ValueError(
                f'subset.examples_per_class={number} is more than the '
                f'{counted(len(indices), "example")} of class {label}; use {len(indices)} or less.')
        keys = [hashlib.blake2b(f'{self.seed}/{label}/{i}'.encode(), digest_size=8).digest()
                for i in range(len(indices))]
        return indices[sorted(range(len(indices)), key=keys.__getitem__)[:number]]
