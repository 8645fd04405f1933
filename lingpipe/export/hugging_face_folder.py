"""Hugging Face folder: a language model as transformers' from_pretrained reads it.

The weights of a large model are in several files, its parts, as transformers writes them. Only one
part at a time is in memory.
"""
from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
import tensorflow as tf
from absl import logging

from lingpipe.checkpoint import hugging_face
from lingpipe.layers.base import Layer

MOST_BYTES = 5 * 10**9   # of a part, unless one tensor is larger; transformers 4 writes as much

# What goes along with the weights, if it is there: the tokenizer and how it is generated.
_COPIED = ('tokenizer.json', 'tokenizer.model', 'tokenizer_config.json', 'special_tokens_map.json',
           'added_tokens.json', 'vocab.json', 'merges.txt', 'chat_template.jinja',
           'chat_template.json', 'generation_config.json')


@runtime_checkable
class HasConfig(Protocol):
    """A network that a config.json describes, and whose weights have a LanguageModel's paths."""
    path: str

    def hugging_face_config(self, source: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the config, given that of the folder from which the weights came, or {}."""


@dataclasses.dataclass(frozen=True)
class StoredWeight:
    """A weight as a file of the folder holds it.

    Attributes:
      weight: its value here.
      is_transposed: whether its two axes are in the other order there.
    """
    weight: tf.Tensor
    is_transposed: bool

    @property
    def num_bytes(self) -> int:
        """What its value takes in a file."""
        return int(self.weight.shape.num_elements() * self.weight.dtype.size)

    def array(self) -> np.ndarray:
        """Returns what the file holds."""
        array: np.ndarray = self.weight.numpy()
        return np.ascontiguousarray(array.T) if self.is_transposed else np.asarray(array, order='C')


@dataclasses.dataclass(frozen=True)
class HuggingFaceFolder:
    """What such a folder holds.

    Attributes:
      parts: name of a file -> its weights, by the names of Hugging Face.
      texts: name of a file -> what it holds.
      copied: name of a file -> the file that it is a copy of.
    """
    parts: dict[str, dict[str, StoredWeight]]
    texts: dict[str, str]
    copied: dict[str, str]


def hugging_face_folder(network: Layer, weights: Mapping[str, tf.Tensor],
                        source: str) -> HuggingFaceFolder:
    """Returns what the folder of a network holds.

    Args:
      network: has one part that a config.json can describe.
      weights: by path.
      source: where the weights began; of a folder of Hugging Face, config and tokenizer are kept.

    Raises:
      ValueError: the network is none that Hugging Face has, as far as is known here, or `source`
        is damaged.
      OSError: `source` cannot be read.
    """
    models = [layer for layer in (network, *network.layers()) if isinstance(layer, HasConfig)]
    if not models:
        raise ValueError('the format hugging_face writes a LanguageModel, and the network has '
                         'none; use saved_model, npz, safetensors or onnx.')
    is_from_there = hugging_face.is_folder(source)
    if source and not os.path.exists(source):
        logging.warning(
            '%s, from which the run took its weights, is no longer there; if it was a folder of '
            'Hugging Face, config.json is made anew and the tokenizer is not copied: move it back, '
            'or let initialize_from.directory name its new place, and export again', source)
    config = models[0].hugging_face_config(
        hugging_face.read_config(source) if is_from_there else {})
    copied = {name: path for name in _COPIED if is_from_there
              and os.path.isfile(path := os.path.join(source, name))}
    tensors = _tensors(models[0].path, weights)
    parts = _parts(tensors)
    contents: dict[str, Any] = {hugging_face.CONFIG: config}
    if len(parts) > 1:
        contents[hugging_face.INDEX] = {
            'metadata': {'total_size': sum(tensor.num_bytes for tensor in tensors.values())},
            'weight_map': {name: file for file, part in parts.items() for name in part}}
    texts = {name: json.dumps(content, indent=2) + '\n' for name, content in contents.items()}
    return HuggingFaceFolder(parts, texts, copied)


def _parts(tensors: Mapping[str, StoredWeight]) -> dict[str, dict[str, StoredWeight]]:
    """The tensors by the name of their file, in their order."""
    parts: list[dict[str, StoredWeight]] = [{}]
    for name, tensor in tensors.items():
        size = sum(stored.num_bytes for stored in parts[-1].values())
        if parts[-1] and size + tensor.num_bytes > MOST_BYTES:
            parts.append({})
        parts[-1][name] = tensor
    return {hugging_face.part_name(i, len(parts)): part for i, part in enumerate(parts)}


def _tensors(path: str, weights: Mapping[str, tf.Tensor]) -> dict[str, StoredWeight]:
    """The weights by the names of Hugging Face. Raises ValueError if one has no such name."""
    tensors = {}
    for name, weight in weights.items():
        place = hugging_face.tensor_of(name.removeprefix(f'{path}/'))
        if place is None:
            raise ValueError(f'the weight {name} has no name in the models of Hugging Face; use '
                             'saved_model, npz, safetensors or onnx.')
        tensors[place.name] = StoredWeight(weight, place.is_transposed)
    return tensors
