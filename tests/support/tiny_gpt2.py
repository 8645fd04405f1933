"""Tiny GPT-2: a folder of Hugging Face written by hand, and what such a model computes, in NumPy.

Written from the paper and transformers' documents, and not from lingpipe's layers: heads come one
by one, and everything is float64.
"""
from __future__ import annotations

from typing import Any

import numpy as np

V, D, H, P = 19, 8, 2, 24

CONFIG: dict[str, Any] = {
    'architectures': ['GPT2LMHeadModel'], 'model_type': 'gpt2', 'vocab_size': V, 'n_embd': D,
    'n_layer': 2, 'n_head': H, 'n_positions': P, 'n_inner': None, 'activation_function': 'gelu_new',
    'layer_norm_epsilon': 1e-3, 'embd_pdrop': 0.0, 'attn_pdrop': 0.0, 'resid_pdrop': 0.0,
    'scale_attn_weights': True, 'tie_word_embeddings': True, 'torch_dtype': 'float32',
    'bos_token_id': 5, 'eos_token_id': 6}


def config(**fields: Any) -> dict[str, Any]:
    return {**CONFIG, **fields}


def tensors(c: dict[str, Any], seed: int = 0) -> dict[str, np.ndarray]:
    """Random weights by the names that transformers gives them, float32."""
    rng, hidden = np.random.default_rng(seed), c['n_inner'] or 4 * D
    shapes: dict[str, list[int]] = {'wte.weight': [V, D], 'wpe.weight': [c['n_positions'], D],
                                    'ln_f.weight': [D], 'ln_f.bias': [D]}
    for i in range(c['n_layer']):
        for name, rows, columns in [('attn.c_attn', D, 3 * D), ('attn.c_proj', D, D),
                                    ('mlp.c_fc', D, hidden), ('mlp.c_proj', hidden, D)]:
            shapes |= {f'h.{i}.{name}.weight': [rows, columns], f'h.{i}.{name}.bias': [columns]}
        shapes |= {f'h.{i}.ln_{n}.{kind}': [D] for n in (1, 2) for kind in ('weight', 'bias')}
    shapes = {f'transformer.{name}': shape for name, shape in shapes.items()}
    if not c['tie_word_embeddings']:
        shapes['lm_head.weight'] = [V, D]
    return {name: (rng.normal(size=shape) * 0.4
                   + ('.ln_' in name and name.endswith('weight'))).astype(np.float32)
            for name, shape in shapes.items()}


def logits(c: dict[str, Any], weights: dict[str, np.ndarray], ids: np.ndarray) -> np.ndarray:
    """The logits [b, T, V] of ids [b, T], float64."""
    w = {name.removeprefix('transformer.'): a.astype(np.float64) for name, a in weights.items()}
    table = w.get('lm_head.weight', w['wte.weight'])
    return np.stack([_of_row(c, w, w['wte.weight'][row] + w['wpe.weight'][:len(row)]) @ table.T
                     for row in ids])


def _of_row(c: dict[str, Any], w: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    """What follows the embedding of one row x [T, D], up to the last normalisation."""
    def norm(name: str, x: np.ndarray) -> np.ndarray:
        std = np.sqrt(x.var(-1, keepdims=True) + c['layer_norm_epsilon'])
        return (x - x.mean(-1, keepdims=True)) / std * w[f'{name}.weight'] + w[f'{name}.bias']

    def linear(name: str, x: np.ndarray) -> np.ndarray:
        return x @ w[f'{name}.weight'] + w[f'{name}.bias']

    for i in range(c['n_layer']):
        q, k, v = np.split(linear(f'h.{i}.attn.c_attn', norm(f'h.{i}.ln_1', x)), 3, -1)
        heads = []
        for columns in np.split(np.arange(D), H):
            scores = np.tril(np.exp(q[:, columns] @ k[:, columns].T / np.sqrt(D // H)))
            heads.append(scores / scores.sum(-1, keepdims=True) @ v[:, columns])
        x = x + linear(f'h.{i}.attn.c_proj', np.concatenate(heads, -1))
        h = linear(f'h.{i}.mlp.c_fc', norm(f'h.{i}.ln_2', x))
        h = h / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h ** 3)))
        x = x + linear(f'h.{i}.mlp.c_proj', h)
    return norm('ln_f', x)
