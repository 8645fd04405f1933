"""Subset: some classes of a data set, relabelled, and a few examples of each: for transfer from few examples."""
from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from lingpipe.hyperparams import Params, field


class Subset(Params):
    """Which examples are used. By default all."""
    classes: tuple[int, ...] = field((), 'Labels that are used; the first becomes 0, the second 1, ...; empty: all, as they are.',
                                     least=0)
    examples_per_class: int | None = field(None, 'How many examples of each; none: all.', least=1)
    seed: int = field(0, 'Of the choice of examples.')

    def check(self) -> None:
        """Raises ValueError for a class that is named twice."""
        if len(set(self.classes)) < len(self.classes):
            raise ValueError(f'classes={list(self.classes)} names one twice; name each once.')

    def of(self, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(indices of the examples that are used, ascending, their new labels int32), from the labels of all, int [n].

        The examples of a class depend on the seed, its label and the labels alone, on no generator's version; those of a smaller
        examples_per_class are among those of a larger one.

        Raises:
          ValueError: a class that is not there, or has too few examples.
        """
        there = np.unique(labels).tolist()
        classes = list(self.classes) or there
        for label in classes:
            if label not in there:
                raise ValueError(f'subset.classes={list(self.classes)} names {label}, and the data has the classes '
                                 f'{", ".join(map(str, there))}; correct it.')
        chosen = [self._some(label, np.flatnonzero(labels == label)) for label in classes]
        new = [np.full(len(indices), i if self.classes else label, np.int32) for i, (label, indices) in
               enumerate(zip(classes, chosen, strict=True))]
        if not chosen:
            return np.zeros([0], np.int64), np.zeros([0], np.int32)
        index, label = np.concatenate(chosen), np.concatenate(new)
        order = np.argsort(index, kind='stable')
        return index[order], label[order]

    def names(self, names: Sequence[str]) -> tuple[str, ...]:
        """The names of the classes that are used, from those of all."""
        return tuple(names[label] for label in self.classes) if self.classes else tuple(names)

    def _some(self, label: int, indices: np.ndarray) -> np.ndarray:
        number = self.examples_per_class
        if number is None:
            return indices
        if number > len(indices):
            raise ValueError(f'subset.examples_per_class={number} is more than the {len(indices)} examples of class {label}; use '
                             f'{len(indices)} or less.')
        keys = [hashlib.blake2b(f'{self.seed}/{label}/{i}'.encode(), digest_size=8).digest() for i in range(len(indices))]
        return indices[sorted(range(len(indices)), key=keys.__getitem__)[:number]]
