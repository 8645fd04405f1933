"""A folder of adapters as the library peft writes it, by hand, and the weights that it means."""
from __future__ import annotations

import json
import pathlib
from typing import Any

import numpy as np
import safetensors.numpy

# What peft 0.21 writes for LoraConfig(r=2, lora_alpha=3) of a causal language model.
CONFIG: dict[str, Any] = {
    'peft_type': 'LORA', 'task_type': 'CAUSAL_LM', 'inference_mode': True, 'auto_mapping': None,
    'base_model_name_or_path': 'base', 'bias': 'none', 'fan_in_fan_out': False,
    'init_lora_weights': True, 'layers_to_transform': None, 'loftq_config': {}, 'lora_alpha': 3,
    'lora_dropout': 0.0, 'megatron_core': 'megatron.core', 'modules_to_save': None,
    'peft_version': '0.21.2', 'qalora_group_size': 16, 'r': 2, 'rank_pattern': {},
    'alpha_pattern': {}, 'target_modules': ['named', 'by', 'tensors'], 'use_dora': False,
    'use_rslora': False}


def write(folder: pathlib.Path, weights: dict[str, np.ndarray], modules: list[str],
          **fields: Any) -> str:
    """Writes random adapters of some weights of a model; returns the path.

    Args:
      folder: is made.
      weights: of the model, by the names of Hugging Face.
      modules: ends of names, as 'q_proj', of the modules that have one.
      **fields: of adapter_config.json.
    """
    rng, config = np.random.default_rng(2), CONFIG | fields
    tensors = {}
    for name, array in weights.items():
        module = name.removesuffix('.weight')
        if name.endswith('.weight') and module.endswith(tuple(modules)):
            units, dim = array.shape[::-1] if '.h.' in name else array.shape
            for matrix, shape in {'A': [config['r'], dim], 'B': [units, config['r']]}.items():
                tensors[f'base_model.model.{module}.lora_{matrix}.weight'] = (
                    rng.normal(size=shape) * 0.3).astype(np.float32)
    folder.mkdir()
    (folder / 'adapter_config.json').write_text(json.dumps(config))
    safetensors.numpy.save_file(tensors, folder / 'adapter_model.safetensors')
    return str(folder)


def tensors_of(folder: str) -> dict[str, np.ndarray]:
    """The tensors of a folder."""
    return dict(safetensors.numpy.load_file(f'{folder}/adapter_model.safetensors'))


def check_same(left: str, right: str) -> None:
    """Asserts that two folders have the same tensors, bit for bit."""
    theirs, ours = tensors_of(left), tensors_of(right)
    assert ours.keys() == theirs.keys()
    for name, array in theirs.items():
        np.testing.assert_array_equal(ours[name], array, err_msg=name)


def merged(weights: dict[str, np.ndarray], folder: str, scale: float) -> dict[str, np.ndarray]:
    """The weights of the model with `scale * lora_B @ lora_A` added, float64, as peft merges."""
    matrices = tensors_of(folder)
    sums = {name: array.astype(np.float64) for name, array in weights.items()}
    for name in (name for name in matrices if name.endswith('.lora_A.weight')):
        module = name.removesuffix('.lora_A.weight')
        added = scale * matrices[f'{module}.lora_B.weight'].astype(np.float64) @ matrices[name]
        sums[f'{module.removeprefix("base_model.model.")}.weight'] += (
            added.T if '.h.' in module else added)
    return sums
