"""Hugging Face folder: a network as transformers' from_pretrained reads it.

The weights of a large model are in several files, its parts, as transformers writes them. Only one
part at a time is in memory.

Weights are written as float32, in which they train, unless another type is asked for: what a step
changes at a usual rate is often less than bfloat16 can tell apart.
"""
from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
import tensorflow as tf
from absl import logging

from lingpipe.checkpoint import hugging_face, hugging_face_names
from lingpipe.export.adapted_weights import Computed, merged
from lingpipe.layers.base import Layer

DTYPES = ('float32', 'bfloat16', 'float16')   # of weights in the files; the first is the default
MOST_BYTES = 5 * 10**9   # of a part, unless one tensor is larger; transformers 4 writes as much

# What goes along with the weights, if it is there: the tokenizer and how it is generated.
_COPIED = ('tokenizer.json', 'tokenizer.model', 'sentencepiece.bpe.model', 'tokenizer_config.json',
           'special_tokens_map.json', 'added_tokens.json', 'vocab.json', 'merges.txt',
           'chat_template.jinja', 'chat_template.json', 'generation_config.json')


@runtime_checkable
class HasConfig(Protocol):
    """A network that a config.json describes, and whose weights hugging_face_names.py knows."""
    path: str

    def hugging_face_config(self, source: Mapping[str, Any], dtype: str) -> dict[str, Any]:
        """Returns the config.

        Args:
          source: that of the folder from which the weights came, or {}.
          dtype: the type of the weights in the files.
        """


@dataclasses.dataclass(frozen=True)
class StoredWeight:
    """A weight as a file of the folder holds it.

    Attributes:
      name: that of Hugging Face.
      weights: its value here, or several that stand side by side there, in one last axis.
      is_transposed: whether its two axes are in the other order there.
      dtype: the type that it has there.
    """
    name: str
    weights: tuple[tf.Tensor | Computed, ...]
    is_transposed: bool
    dtype: tf.DType

    @property
    def num_bytes(self) -> int:
        """What its value takes in a file."""
        return int(sum(one.shape.num_elements() for one in self.weights) * self.dtype.size)

    def array(self) -> np.ndarray:
        """Returns what the file holds: the nearest numbers, of two as near the even one.

        Raises:
          ValueError: the type does not reach as far as the weight does.
        """
        arrays = [weight.numpy() for weight in self.weights]
        array: np.ndarray = arrays[0] if len(arrays) == 1 else np.concatenate(arrays, -1)
        array = array.T if self.is_transposed else array
        with np.errstate(over='ignore'):   # It is an error below.
            stored = array.astype(self.dtype.as_numpy_dtype, order='C', copy=False)
        if stored.dtype == array.dtype:
            return stored
        # One after the other, so that less is in memory.
        num_infinite, num_before = (np.count_nonzero(np.isinf(one)) for one in (stored, array))
        if num_infinite > num_before:
            raise ValueError(f'{self.name} has numbers up to {np.nanmax(np.abs(array)):.3g}, which '
                             f'{self.dtype.name} cannot hold; export as float32.')
        return stored


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
                        source: str, dtype: str) -> HuggingFaceFolder:
    """Returns what the folder of a network holds, its adapters merged into the weights.

    Args:
      network: has one part that a config.json can describe.
      weights: by path.
      source: where the weights began; of a folder of Hugging Face, config and tokenizer are kept.
      dtype: one of DTYPES, the type of the weights in the files.

    Raises:
      ValueError: the network is none that Hugging Face has, as far as is known here, or `source`
        is damaged.
      OSError: `source` cannot be read.
    """
    model = described_model_of(network, 'hugging_face')
    is_from_there = hugging_face.is_folder(source)
    if source and not os.path.exists(source):
        logging.warning(
            '%s, from which the run took its weights, is no longer there; if it was a folder of '
            'Hugging Face, config.json is made anew and the tokenizer is not copied: move it back, '
            'or let initialize_from.directory name its new place, and export again', source)
    config = model.hugging_face_config(
        hugging_face.read_config(source) if is_from_there else {}, dtype)
    copied = {name: path for name in _COPIED if is_from_there
              and os.path.isfile(path := os.path.join(source, name))}
    tensors = _tensors(model.path, config['model_type'], merged(network, weights),
                       tf.as_dtype(dtype))
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
    size = 0   # of the last part
    for name, tensor in tensors.items():
        if parts[-1] and size + tensor.num_bytes > MOST_BYTES:
            parts.append({})
            size = 0
        parts[-1][name] = tensor
        size += tensor.num_bytes
    return {hugging_face.part_name(i, len(parts)): part for i, part in enumerate(parts)}


def described_model_of(network: Layer, format: str) -> HasConfig:
    """Returns the part of a network that a config.json can describe.

    Raises:
      ValueError: it has none, so that this format cannot write it.
    """
    model = next((layer for layer in network.layers() if isinstance(layer, HasConfig)), None)
    if model is None:
        raise ValueError(f'the format {format} writes a LanguageModel or a Transformer that '
                         'translates, and the network has none; use saved_model, npz, '
                         'safetensors or onnx.')
    return model


def _tensors(path: str, model_type: str, weights: Mapping[str, tf.Tensor | Computed],
             dtype: tf.DType) -> dict[str, StoredWeight]:
    """The weights by the names of Hugging Face. Raises ValueError if one has no such name."""
    pieces, is_transposed = {}, {}
    for name, weight in weights.items():
        place = hugging_face_names.tensor_of(name.removeprefix(f'{path}/'), model_type)
        if place is None:
            raise ValueError(f'the weight {name} has no name in the models of Hugging Face; use '
                             'saved_model, npz, safetensors or onnx.')
        for one, value in _by_expert(place.name, weight).items():
            pieces[one], is_transposed[one] = value, place.is_transposed
    return {name: StoredWeight(name, tuple(pieces[one] for one in names), is_transposed[names[0]],
                               dtype)
            for name in dict.fromkeys(map(hugging_face_names.whole_of, pieces))
            for names in [hugging_face_names.pieces_of(name, model_type)]}


def _by_expert(name: str, weight: tf.Tensor | Computed) -> dict[str, tf.Tensor | Computed]:
    """A weight by the name of its tensor, or what it has of each expert by the names of theirs."""
    if '*' not in name:
        return {name: weight}
    return {hugging_face_names.of_expert(name, i): Computed(
                weight.shape[1:], functools.partial(_of_expert, weight, i))
            for i in range(weight.shape[0])}


def _of_expert(weight: tf.Tensor, expert: int) -> np.ndarray:
    array: np.ndarray = weight[expert].numpy()
    return array
