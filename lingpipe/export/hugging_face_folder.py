"""Hugging Face folder: a language model as transformers' from_pretrained reads it."""
from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
from absl import logging

from lingpipe.checkpoint import hugging_face
from lingpipe.layers.base import Layer

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
class HuggingFaceFolder:
    """What such a folder holds.

    Attributes:
      tensors: by the names of Hugging Face.
      texts: name of a file -> what it holds.
      copied: name of a file -> the file that it is a copy of.
    """
    tensors: dict[str, np.ndarray]
    texts: dict[str, str]
    copied: dict[str, str]


def hugging_face_folder(network: Layer, weights: Mapping[str, np.ndarray],
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
    return HuggingFaceFolder(_tensors(models[0].path, weights),
                             {hugging_face.CONFIG: json.dumps(config, indent=2) + '\n'}, copied)


def _tensors(path: str, weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The weights by the names of Hugging Face. Raises ValueError if one has no such name."""
    tensors = {}
    for name, array in weights.items():
        place = hugging_face.tensor_of(name.removeprefix(f'{path}/'))
        if place is None:
            raise ValueError(f'the weight {name} has no name in the models of Hugging Face; use '
                             'saved_model, npz, safetensors or onnx.')
        tensors[place.name] = np.ascontiguousarray(array.T) if place.is_transposed else array
    return tensors
