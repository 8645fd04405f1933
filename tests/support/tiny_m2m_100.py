"""Tiny M2M-100: a folder of Hugging Face written by hand, and what such a model computes, in NumPy.

Written from the papers and transformers' documents, and not from lingpipe's layers: heads come one
by one, and everything is float64.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from lingpipe.tasks.translation.hugging_face_config import fields_of
from lingpipe.tasks.translation.transformer import Transformer

V, D, F, H = 24, 8, 12, 2
PAD, END = 1, 2

CONFIG: dict[str, Any] = {
    'architectures': ['M2M100ForConditionalGeneration'], 'model_type': 'm2m_100', 'vocab_size': V,
    'd_model': D, 'encoder_layers': 2, 'decoder_layers': 1, 'encoder_ffn_dim': F,
    'decoder_ffn_dim': F, 'encoder_attention_heads': H, 'decoder_attention_heads': H,
    'activation_function': 'relu', 'dropout': 0.0, 'attention_dropout': 0.0,
    'activation_dropout': 0.0, 'encoder_layerdrop': 0.0, 'decoder_layerdrop': 0.0,
    'scale_embedding': True, 'is_encoder_decoder': True, 'tie_word_embeddings': True,
    'pad_token_id': PAD, 'eos_token_id': END, 'decoder_start_token_id': END, 'dtype': 'float32'}


def config(**fields: Any) -> dict[str, Any]:
    return {**CONFIG, **fields}


def network(**fields: Any) -> Transformer.Params:
    """The network without a folder."""
    return Transformer.Params(**{'name': 'model', **fields_of(CONFIG), **fields})


def tensors(c: dict[str, Any], seed: int = 0) -> dict[str, np.ndarray]:
    """Random weights by the names that transformers gives them, float32."""
    rng = np.random.default_rng(seed)
    shapes: dict[str, list[int]] = {'shared.weight': [V, D]}
    linear: dict[str, tuple[int, int]] = {}
    norms = []
    for side, attentions in {'encoder': ['self_attn'],
                             'decoder': ['self_attn', 'encoder_attn']}.items():
        norms.append(f'{side}.layer_norm')
        for i in range(c[f'{side}_layers']):
            layer = f'{side}.layers.{i}'
            norms += [f'{layer}.{name}_layer_norm' for name in [*attentions, 'final']]
            linear |= {f'{layer}.fc1': (F, D), f'{layer}.fc2': (D, F)}
            linear |= {f'{layer}.{name}.{one}_proj': (D, D) for name in attentions
                       for one in ('q', 'k', 'v', 'out')}
    for name, (units, channels) in linear.items():
        shapes |= {f'{name}.weight': [units, channels], f'{name}.bias': [units]}
    shapes |= {f'{name}.{kind}': [D] for name in norms for kind in ('weight', 'bias')}
    return {f'model.{name}': (rng.normal(size=shape) * 0.4
                              + ('norm' in name and name.endswith('weight'))).astype(np.float32)
            for name, shape in shapes.items()}


def logits(c: dict[str, Any], weights: dict[str, np.ndarray], source: np.ndarray,
           target: np.ndarray) -> np.ndarray:
    """The logits [b, T, V] of targets [b, T] after sources [b, S], float64."""
    w = {name.removeprefix('model.'): array.astype(np.float64) for name, array in weights.items()}
    rows = []
    for ids, said in zip(source, target, strict=True):
        encoded = _stack(c, w, 'encoder', _embedded(c, w, ids[ids != c['pad_token_id']]), None)
        rows.append(_stack(c, w, 'decoder', _embedded(c, w, said), encoded)
                    @ w['shared.weight'].T)
    return np.stack(rows)


def greedy(c: dict[str, Any], weights: dict[str, np.ndarray], source: list[int],
           first: list[int], limit: int) -> list[int]:
    """The ids that follow `first`, by the best one every time, up to the end or the limit."""
    ids = list(first)
    while len(ids) < len(first) + limit and (ids[-1] != END or len(ids) == len(first)):
        ids.append(int(logits(c, weights, np.array([source]), np.array([ids]))[0, -1].argmax()))
    return ids[len(first):]


def _embedded(c: dict[str, Any], w: dict[str, np.ndarray], ids: np.ndarray) -> np.ndarray:
    """Rows of the table with their positions, [t, D]. Padding's number comes before the first."""
    scale = np.sqrt(D) if c['scale_embedding'] else 1
    speeds = 10_000. ** (-np.arange(D // 2) / (D // 2 - 1))
    angles = np.outer(np.arange(len(ids)) + c['pad_token_id'] + 1, speeds)
    return w['shared.weight'][ids] * scale + np.concatenate([np.sin(angles), np.cos(angles)], 1)


def _stack(c: dict[str, Any], w: dict[str, np.ndarray], side: str, x: np.ndarray,
           encoded: np.ndarray | None) -> np.ndarray:
    """The layers of a side and its last normalisation; x [t, D] -> [t, D]."""
    def norm(name: str, x: np.ndarray) -> np.ndarray:
        std = np.sqrt(x.var(-1, keepdims=True) + 1e-5)
        return (x - x.mean(-1, keepdims=True)) / std * w[f'{name}.weight'] + w[f'{name}.bias']

    def linear(name: str, x: np.ndarray) -> np.ndarray:
        return x @ w[f'{name}.weight'].T + w[f'{name}.bias']

    def attention(name: str, x: np.ndarray, memory: np.ndarray, is_causal: bool) -> np.ndarray:
        q, k, v = (linear(f'{name}.{one}_proj', values)
                   for one, values in [('q', x), ('k', memory), ('v', memory)])
        heads = []
        for columns in np.split(np.arange(D), c[f'{side}_attention_heads']):
            scores = np.exp(q[:, columns] @ k[:, columns].T / np.sqrt(len(columns)))
            scores = np.tril(scores) if is_causal else scores
            heads.append(scores / scores.sum(-1, keepdims=True) @ v[:, columns])
        return linear(f'{name}.out_proj', np.concatenate(heads, -1))

    for i in range(c[f'{side}_layers']):
        layer = f'{side}.layers.{i}'
        h = norm(f'{layer}.self_attn_layer_norm', x)
        x = x + attention(f'{layer}.self_attn', h, h, side == 'decoder')
        if encoded is not None:
            h = norm(f'{layer}.encoder_attn_layer_norm', x)
            x = x + attention(f'{layer}.encoder_attn', h, encoded, False)
        h = norm(f'{layer}.final_layer_norm', x)
        x = x + linear(f'{layer}.fc2', np.maximum(linear(f'{layer}.fc1', h), 0))
    return norm(f'{side}.layer_norm', x)
