"""Bad ids: labels outside the classes, and tokens outside an embedding table, in a mini-batch.

A device does not tell which example has such an id: the loss becomes NaN, or the look-up fails or
returns arbitrary values. Mini-batches are therefore checked here, in NumPy. The first one of each
input is checked before a run starts, and any one whose step has failed is checked afterwards.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lingpipe.layers import nested
from lingpipe.layers.context import Context
from lingpipe.layers.nested import Nested
from lingpipe.pipeline.planning.dataflow import BATCH, Element, Value


@dataclasses.dataclass(frozen=True)
class BadId:
    """An id that a layer cannot use.

    Attributes:
      example: index of the example in the mini-batch.
      text: the error sentence without its subject: what was found, the rule and the remedy.
    """
    example: int
    text: str

    def sentence(self, example_name: str = '') -> str:
        """Returns the whole error sentence.

        Args:
          example_name: what the input calls the example; '': its index is given instead.
        """
        return f'{example_name or f"example {self.example} of the mini-batch"} {self.text}'


class BadIdError(ValueError):
    """A step failed because its mini-batch has an id that a layer cannot use."""


def find_bad_id(elements: Sequence[Element], batch: Mapping[str, Nested]) -> BadId | None:
    """Finds the first id that is outside its layer's range (Layer.id_ranges).

    Examples and tokens of weight 0 are skipped. Ids that a layer computes are checked as well, as
    long as neither that layer nor those before it have weights.
    """
    for element in elements:
        specs = {argument: value.spec for argument, value in element.reads.items()}
        for argument, num_ids in element.layer.id_ranges(**specs).items():
            ids = _value(element.reads[argument], elements, batch)
            weight = element.reads.get('weight')
            counts = None if weight is None else _value(weight, elements, batch)
            if ids is None or weight is not None and counts is None:
                continue

            bad = _first_bad(
                np.asarray(ids), None if counts is None else np.asarray(counts), num_ids)
            if bad is not None:
                place, bad_id = bad
                at = f', position {", ".join(map(str, place[1:]))},' if len(place) > 1 else ''
                return BadId(place[0], (
                    f'has {element.reads[argument].name} {bad_id}{at} but {element.layer.path} '
                    f'takes whole numbers from 0 to {num_ids - 1}; correct the data, or make the '
                    'layer larger.'))
    return None


def _first_bad(ids: np.ndarray, weight: np.ndarray | None,
               num_ids: int) -> tuple[tuple[int, ...], Any] | None:
    """Returns (index, id) of the first id that is out of range where the weight is not 0.

    Args:
      ids: [b] or [b, T].
      weight: its dimensions are the first ones of ids; None: all ids count.
      num_ids: valid ids are whole numbers from 0 to num_ids - 1.
    """
    with np.errstate(invalid='ignore'):
        is_bad = ~((ids >= 0) & (ids < num_ids))
        if ids.dtype.kind not in 'biu':
            is_bad |= ids != np.floor(ids)

    if weight is not None:
        is_bad &= (weight != 0).reshape([*weight.shape, *[1] * (ids.ndim - weight.ndim)])

    if not is_bad.any():
        return None
    place = tuple(int(i) for i in np.argwhere(is_bad)[0])
    return place, ids[place].item()


def _value(value: Value, elements: Sequence[Element], batch: Mapping[str, Nested]) -> Any:
    """Computes a value for the whole mini-batch; None if that needs weights of the network."""
    if value.maker == BATCH:
        return batch[value.name]

    element = elements[value.maker]
    if any(True for _ in element.layer.weights()):
        return None
    inputs = {argument: _value(v, elements, batch) for argument, v in element.reads.items()}
    if any(v is None for v in inputs.values()):
        return None

    with tf.device('CPU:0'):
        tensors = {argument: nested.map_leaves(tf.convert_to_tensor, v)
                   for argument, v in inputs.items()}
        result = element.layer.fprop(element.layer.theta({}), Context(), **tensors)
        return element.layer.written(result)[value.name]
