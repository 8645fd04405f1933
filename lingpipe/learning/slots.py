"""Slots: the variables of a Keras optimizer, by names that a checkpoint can rely on."""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import keras
import tensorflow as tf

from lingpipe.learning.rounded_slots import RoundedSlot


class Slots(NamedTuple):
    """What an optimizer keeps, by the names of its attributes without underscores.

    Attributes:
      by_weight: weight path -> name -> slot.
      shared: name -> what it keeps for all weights together.
      rounded: weight path -> those of its slots that an update has to open and close.
    """
    by_weight: dict[str, dict[str, tf.Variable]]
    shared: dict[str, tf.Variable]
    rounded: dict[str, list[RoundedSlot]]

    def by_key(self, layer_path: str) -> dict[str, tf.Variable]:
        """All slots by their keys in checkpoints:

            optimizer/<weight path>/<slot>            as velocities
            optimizer/<layer path>/<shared slot>
        """
        by_weight = {f'optimizer/{path}/{name}': slot for path, slots in self.by_weight.items()
                     for name, slot in slots.items()}
        shared = {f'optimizer/{layer_path}/{name}': slot for name, slot in self.shared.items()}
        return {**by_weight, **shared}


def slots_of(optimizer: keras.optimizers.Optimizer, paths: Sequence[str]) -> Slots:
    """The variables of an optimizer that has been built for the weights of these paths.

    Raises:
      ValueError: a variable has no such name.
    """
    by_weight: dict[str, dict[str, tf.Variable]] = {path: {} for path in paths}
    shared: dict[str, tf.Variable] = {}
    rounded: dict[str, list[RoundedSlot]] = {path: [] for path in paths}
    variables = [v for v in optimizer.variables if v is not optimizer.iterations]
    named: list[keras.Variable] = []
    for attribute, value in vars(optimizer).items():
        name = attribute.strip('_')
        is_list_of_slots = (isinstance(value, list) and len(value) == len(paths)
                            and attribute not in ('_variables', '_trainable_variables'))
        if is_list_of_slots:  # Keras keeps a slot of all weights as one list.
            for path, slot in zip(paths, value, strict=True):
                if _holds(variables, slot) and not _holds(named, slot):
                    is_rounded = isinstance(slot, RoundedSlot)
                    by_weight[path][name] = slot.stored if is_rounded else slot.value
                    rounded[path] += [slot] * is_rounded
                    named.append(slot)
        elif _holds(variables, value) and not _holds(named, value):
            shared[name] = value.value
            named.append(value)

    unnamed = [variable.name for variable in variables if not _holds(named, variable)]
    if unnamed:
        raise ValueError(f'{type(optimizer).__name__} keeps variables '
                         f'({", ".join(unnamed)}) that are neither an attribute nor one of a '
                         'list with one for each weight, so that a checkpoint cannot name '
                         'them; keep them so, or use another optimizer.')
    return Slots(by_weight, shared, rounded)


class KerasWeight(keras.Variable):  # type: ignore[misc]  # Keras has no types.
    """A weight as a Keras optimizer sees it, under the path that it has here.

    It holds the given tf.Variable itself, not a copy.
    """

    def __init__(self, weight: tf.Variable, path: str):
        self._own_path = path
        # Keras forbids '/' in names.
        super().__init__(weight, dtype=weight.dtype.name, name=path.replace('/', '_'))
        assert self.value is weight

    @property
    def path(self) -> str:
        """Where Muon looks for Params.exclude_layers."""
        return self._own_path


def _holds(variables: Iterable[object], value: object) -> bool:
    """Whether the value is one of the variables, which have no == of their own."""
    return any(variable is value for variable in variables)
