"""Names of layers that are the same in every process.

Keras names a layer that was given no name after its class, and counts in the whole process: the
fifth Dense is `dense_4`, whichever model it is in. Checkpoints need names that do not depend on
what was made before, so layers with such a name are counted anew in each model, in Keras' order.
"""
from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import keras


def stable_names(operations: Sequence[keras.Operation]) -> list[str]:
    """Returns a name for each layer or operation of a model; they differ.

    Args:
      operations: of one model, without those in nested models.
    """
    numbers_by_stem: dict[str, list[int]] = defaultdict(list)
    for operation in operations:
        parts = _made_by_keras(operation)
        if parts is not None:
            stem, number = parts
            numbers_by_stem[stem].append(number)
    order = {stem: sorted(set(numbers)) for stem, numbers in numbers_by_stem.items()}

    names: list[str] = []
    for operation in operations:
        parts = _made_by_keras(operation)
        name = operation.name
        if parts is not None:
            stem, number = parts
            index = order[stem].index(number)
            name = stem if index == 0 else f'{stem}_{index}'
        names.append(differing(name.replace('/', '_').replace('.', '_'), names))
    return names


def differing(name: str, others: Sequence[str]) -> str:
    """The name, with a number at its end if one of the others is the same."""
    number, candidate = 1, name
    while candidate in others:
        candidate = f'{name}_again_{number}'
        number += 1
    return candidate


def is_made_by_keras(operation: keras.Operation) -> bool:
    """Whether an operation was given no name."""
    return _made_by_keras(operation) is not None


def _made_by_keras(operation: keras.Operation) -> tuple[str, int] | None:
    """The stem and the number of a name that Keras has made; None if somebody gave it."""
    stem = re.sub(r'\W+', '', type(operation).__name__)
    stem = re.sub('(.)([A-Z][a-z]+)', r'\1_\2', stem)
    stem = re.sub('([a-z])([A-Z])', r'\1_\2', stem).lower()
    match = re.fullmatch(rf'{re.escape(stem)}(?:_(\d+))?', operation.name)
    return (stem, int(match[1] or 0)) if match else None
