"""PEFT folder: the adapters of a model of Hugging Face alone, as the library peft reads them.

    adapter_config.json          rank, alpha, and the modules that have an adapter
    adapter_model.safetensors    lora_A [rank, D] and lora_B [U, rank] of every such module

GPT-2 has the projections of queries, keys and values side by side in one module. Its one adapter
has the ranks of all of theirs together; lora_B is 0 where the output of one is not of the other.
If all three have the same matrix a in every layer, as those of a folder of peft that nothing has
trained since, it has one rank as there.
"""
from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lingpipe.checkpoint import hugging_face, hugging_face_names
from lingpipe.export.adapted_weights import Computed
from lingpipe.export.hugging_face_folder import (
    HuggingFaceFolder,
    StoredWeight,
    described_model_of,
)
from lingpipe.layers.base import Layer
from lingpipe.layers.low_rank import LowRank, adapters_of

_ROOT = 'base_model.model.'   # of all names of tensors
_TASKS = {'m2m_100': 'SEQ_2_SEQ_LM'}   # by model_type; of all others, 'CAUSAL_LM'


def peft_folder(network: Layer, weights: Mapping[str, tf.Tensor], source: str) -> HuggingFaceFolder:
    """Returns what the folder of the adapters of a network holds.

    Args:
      network: has a part that a config.json can describe.
      weights: by path.
      source: where the weights began; a folder of Hugging Face is named as the base.

    Raises:
      ValueError: the network has no adapters, or is none that Hugging Face has, or a Phi-3.
      OSError: `source` cannot be read.
    """
    model = described_model_of(network, 'peft')
    adapters = dict(adapters_of(network))
    if not adapters:
        raise ValueError('the format peft writes the adapters of a network, and this one has none; '
                         'use hugging_face.')
    is_from_there = hugging_face.is_folder(source)
    model_type = model.hugging_face_config(
        hugging_face.read_config(source) if is_from_there else {}, 'float32')['model_type']
    if model_type == 'phi3':
        raise ValueError('the adapters of this network stand beside projections that are one in '
                         'the folder it began with (phi3), for which the format peft is not '
                         'written; use hugging_face, which merges them.')

    tensors: dict[str, StoredWeight] = {}
    ranks: dict[str, int] = {}   # by the name of a module in its layer
    modules = _pieces_by_module(model.path, model_type, adapters)
    are_shared = all(_is_shared(pieces, adapters, weights) for pieces in modules.values())
    for module, pieces in modules.items():
        own = [adapters[path] for path in pieces if path]
        matrices_a = tuple(weights[one.own_weights['a'].path] for one in own)
        matrices_b = tuple(weights[one.own_weights['b'].path] for one in own)
        stored = {'lora_A': matrices_a[:1] if are_shared else matrices_a,
                  'lora_B': (matrices_b if are_shared
                             else (_block_diagonal(pieces, adapters, weights),))}
        for name, values in stored.items():
            key = f'{_ROOT}{module}.{name}.weight'
            tensors[key] = StoredWeight(key, values, True, tf.float32)
        ranks[_name_in_layer(module)] = sum(
            one.params.rank for one in (own[:1] if are_shared else own))
    config = _config(next(iter(adapters.values())).params, ranks, model_type)
    config['base_model_name_or_path'] = os.path.abspath(source) if is_from_there else None
    return HuggingFaceFolder({'adapter_model.safetensors': tensors},
                             {'adapter_config.json': json.dumps(config, indent=2) + '\n'}, {})


def _pieces_by_module(root: str, model_type: str, adapters: Mapping[str, LowRank]
                      ) -> dict[str, list[str]]:
    """The module of Hugging Face -> the paths of the weights side by side in it; '': no adapter."""
    path_of: dict[str, str] = {}   # by the name of the piece
    for path in adapters:
        place = hugging_face_names.tensor_of(path.removeprefix(f'{root}/'), model_type)
        if place is None:
            raise ValueError(f'the weight {path} has an adapter and no name in the models of '
                             'Hugging Face; use npz or safetensors.')
        path_of[place.name] = path
    return {name.removesuffix('.weight'): [path_of.get(piece, '') for piece in
                                           hugging_face_names.pieces_of(name, model_type)]
            for name in dict.fromkeys(map(hugging_face_names.whole_of, path_of))}


def _name_in_layer(module: str) -> str:
    """The last one or two names of a module, which those in all layers have in common."""
    return '.'.join(name for name in module.split('.')[-2:] if not name.isdigit())


def _is_shared(pieces: Sequence[str], adapters: Mapping[str, LowRank],
               weights: Mapping[str, tf.Tensor]) -> bool:
    """Whether all pieces of a module have adapters with the same matrix a."""
    if '' in pieces:
        return False
    first, *others = (weights[adapters[path].own_weights['a'].path] for path in pieces)
    return all(np.array_equal(first.numpy(), other.numpy()) for other in others)


def _block_diagonal(pieces: Sequence[str], adapters: Mapping[str, LowRank],
                    weights: Mapping[str, tf.Tensor]) -> tf.Tensor | Computed:
    """The matrices b of pieces of a module, as one of all their ranks and all their outputs.

    A piece without an adapter has as many outputs as the others have.
    """
    matrices = {path: weights[adapters[path].own_weights['b'].path] for path in pieces if path}
    units = next(iter(matrices.values())).shape[1]
    shape = [sum(b.shape[0] for b in matrices.values()), units * len(pieces)]

    def value() -> np.ndarray:
        """Returns the whole matrix."""
        whole = np.zeros(shape, np.float32)
        row = 0
        for i, path in enumerate(pieces):
            if path:
                rank = matrices[path].shape[0]
                whole[row:row + rank, i * units:(i + 1) * units] = matrices[path].numpy()
                row += rank
        return whole

    return Computed(tf.TensorShape(shape), value)


def _config(params: LowRank.Params, ranks: Mapping[str, int], model_type: str) -> dict[str, Any]:
    """adapter_config.json for adapters of these Params, by the rank of the modules of each name."""
    others = {name: rank for name, rank in ranks.items() if rank != params.rank}
    return {
        'peft_type': 'LORA', 'task_type': _TASKS.get(model_type, 'CAUSAL_LM'),
        'inference_mode': True,
        'r': params.rank, 'lora_alpha': params.alpha, 'lora_dropout': params.dropout_rate,
        'target_modules': sorted(ranks), 'bias': 'none', 'fan_in_fan_out': model_type == 'gpt2',
        'rank_pattern': others,
        'alpha_pattern': {name: params.alpha / params.rank * rank
                          for name, rank in others.items()}}
