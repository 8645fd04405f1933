"""Tiny Llama: folders of Hugging Face written by hand, and what such a model computes, in NumPy.

Written from the papers and transformers' documents, and not from lingpipe's layers: positions are
rotated as complex numbers, heads come one by one, and everything is float64.
"""
from __future__ import annotations

import json
import pathlib
from typing import Any

import numpy as np
import safetensors.numpy

V, D, F, H, G = 19, 8, 12, 4, 2

CONFIG: dict[str, Any] = {
    'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', 'vocab_size': V,
    'hidden_size': D, 'intermediate_size': F, 'num_hidden_layers': 2, 'num_attention_heads': H,
    'num_key_value_heads': G, 'hidden_act': 'silu', 'rms_norm_eps': 1e-3, 'rope_theta': 50.,
    'rope_scaling': None, 'tie_word_embeddings': False, 'attention_bias': False,
    'torch_dtype': 'float32', 'bos_token_id': 5, 'eos_token_id': 6}
LLAMA3 = {'rope_type': 'llama3', 'factor': 4., 'low_freq_factor': 1., 'high_freq_factor': 4.,
          'original_max_position_embeddings': 20}
KINDS: dict[str, dict[str, Any]] = {
    'llama': {},
    'llama tied, with biases': {'tie_word_embeddings': True, 'attention_bias': True},
    'llama 3.1': {'rope_scaling': LLAMA3, 'rope_theta': 300., 'head_dim': 6},
    'llama 3.1 by transformers 5': {
        'rope_theta': None, 'rope_parameters': {'rope_theta': 300., **LLAMA3}, 'head_dim': 6},
    'mistral': {'model_type': 'mistral', 'sliding_window': None},
    'mistral with a window': {'model_type': 'mistral', 'sliding_window': 3},
    'qwen2': {'model_type': 'qwen2', 'sliding_window': 9, 'use_sliding_window': False},
    'qwen2 with a window': {'model_type': 'qwen2', 'sliding_window': 5, 'use_sliding_window': True,
                            'max_window_layers': 1},
    'qwen3 with a window': {
        'model_type': 'qwen3', 'head_dim': 4, 'sliding_window': 11, 'use_sliding_window': True,
        'layer_types': ['sliding_attention', 'full_attention']},
    'qwen3': {'model_type': 'qwen3', 'head_dim': 4, 'tie_word_embeddings': True},
    'mixtral': {'model_type': 'mixtral', 'num_hidden_layers': 1, 'num_local_experts': 3,
                'num_experts_per_tok': 2, 'sliding_window': 5},
    'qwen3_moe': {'model_type': 'qwen3_moe', 'num_hidden_layers': 1, 'num_experts': 4,
                  'num_experts_per_tok': 2, 'norm_topk_prob': False, 'intermediate_size': 99,
                  'moe_intermediate_size': F, 'attention_bias': True, 'mlp_only_layers': [],
                  'use_sliding_window': True, 'sliding_window': 4},
    'olmoe': {'model_type': 'olmoe', 'num_hidden_layers': 1, 'num_experts': 3,
              'num_experts_per_tok': 2, 'norm_topk_prob': True, 'clip_qkv': None},
    'llama with linear rotations': {'rope_scaling': {'rope_type': 'linear', 'factor': 4.}},
    'phi3': {'model_type': 'phi3', 'sliding_window': 6, 'resid_pdrop': 0.0},
    'smollm3': {'model_type': 'smollm3', 'no_rope_layers': [1, 0], 'tie_word_embeddings': True},
    'olmo2': {'model_type': 'olmo2', 'attention_bias': True},
    'gemma': {'model_type': 'gemma', 'head_dim': 4, 'hidden_act': 'gelu_pytorch_tanh',
              'tie_word_embeddings': True},
    'gemma3': {'model_type': 'gemma3_text', 'head_dim': 4, 'num_hidden_layers': 3,
               'hidden_activation': 'gelu_pytorch_tanh', 'tie_word_embeddings': True,
               'query_pre_attn_scalar': 7, 'sliding_window': 5, 'sliding_window_pattern': 2,
               'rope_theta': 300., 'rope_local_base_freq': 20.,
               'rope_scaling': {'rope_type': 'linear', 'factor': 8.}},
    'gemma3 by transformers 5': {
        'model_type': 'gemma3_text', 'head_dim': 4, 'attention_bias': True, 'rope_theta': None,
        'hidden_activation': 'gelu_pytorch_tanh', 'query_pre_attn_scalar': 4, 'sliding_window': 5,
        'layer_types': ['full_attention', 'sliding_attention'], 'rope_parameters': {
            'full_attention': {'rope_type': 'default', 'rope_theta': 300.},
            'sliding_attention': {'rope_type': 'default', 'rope_theta': 20.}}},
}
GEMMA = ('gemma', 'gemma3_text')


def config(kind: str = 'llama', **fields: Any) -> dict[str, Any]:
    entries = {**CONFIG, **KINDS[kind], **fields}
    return {name: value for name, value in entries.items() if (name, value) != ('rope_theta', None)}


def tensors(described: dict[str, Any], seed: int = 0) -> dict[str, np.ndarray]:
    """Random weights by the names that transformers gives them, float32."""
    c, rng = described, np.random.default_rng(seed)
    h = c.get('head_dim') or D // H
    shapes: dict[str, list[int]] = {'model.embed_tokens.weight': [V, D], 'model.norm.weight': [D]}
    if not c['tie_word_embeddings']:
        shapes['lm_head.weight'] = [V, D]
    for i in range(c['num_hidden_layers']):
        layer, attention = f'model.layers.{i}', f'model.layers.{i}.self_attn'
        shapes |= {f'{layer}.{name}.weight': [D] for name in _norms(c) if name}
        router, parts = _feed_forward_names(c)
        shapes |= {f'{layer}.{router}.weight': [num_experts(c), D]} if router else {}
        shapes |= {f'{layer}.{name}.weight': [D, F] if i == 2 else [F, D]
                   for part in parts for i, name in enumerate(part)}
        for name, shape in {'q': [H * h, D], 'k': [G * h, D], 'v': [G * h, D],
                            'o': [D, H * h]}.items():
            shapes[f'{attention}.{name}_proj.weight'] = shape
            if c['attention_bias'] or c['model_type'] == 'qwen2' and name != 'o':
                shapes[f'{attention}.{name}_proj.bias'] = shape[:1]
        if c['model_type'] in ('qwen3', 'qwen3_moe', 'gemma3_text'):
            shapes |= {f'{attention}.{name}_norm.weight': [h] for name in 'qk'}
        if c['model_type'] in ('olmoe', 'olmo2'):
            shapes |= {f'{attention}.q_norm.weight': [H * h], f'{attention}.k_norm.weight': [G * h]}
    middle = c['model_type'] not in GEMMA   # of what normalises; Gemma adds 1
    weights = {name: (rng.normal(size=shape) * 0.4
                      + middle * name.endswith('norm.weight')).astype(np.float32)
               for name, shape in shapes.items()}
    return _side_by_side(weights) if c['model_type'] == 'phi3' else weights


# Tensor of phi3 -> those of llama that stand side by side in it.
_WHOLES = {'qkv_proj': ['q_proj', 'k_proj', 'v_proj'], 'gate_up_proj': ['gate_proj', 'up_proj']}


def _side_by_side(weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The weights of llama as phi3 has them."""
    weights = dict(weights)
    for whole, (first, *_) in _WHOLES.items():
        for name in [name for name in weights if f'.{first}.' in name]:
            weights[name.replace(first, whole)] = np.concatenate(
                [weights.pop(name.replace(first, part)) for part in _WHOLES[whole]])
    return weights


def _one_by_one(c: dict[str, Any], weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The weights of phi3 as llama has them."""
    h = c.get('head_dim') or D // H
    ends = {'qkv_proj': [H * h, (H + G) * h], 'gate_up_proj': [F]}
    plain = {}
    for name, array in weights.items():
        whole = name.split('.')[-2]
        for part, piece in zip(_WHOLES.get(whole, [whole]),
                               np.split(array, ends.get(whole, [])), strict=True):
            plain[name.replace(whole, part)] = piece
    return plain


def _norms(c: dict[str, Any]) -> list[str]:
    """What normalises before and after the attention, and the feed-forward part; '': nothing."""
    names = {'olmo2': ['', 'post_attention_layernorm', '', 'post_feedforward_layernorm'],
             'gemma3_text': ['input_layernorm', 'post_attention_layernorm',
                             'pre_feedforward_layernorm', 'post_feedforward_layernorm']}
    return names.get(c['model_type'], ['input_layernorm', '', 'post_attention_layernorm', ''])


def num_experts(c: dict[str, Any]) -> int:
    return int(c.get('num_local_experts') or c.get('num_experts') or 0)


def _feed_forward_names(c: dict[str, Any]) -> tuple[str, list[tuple[str, str, str]]]:
    """The router of a layer, or '', and gate, up and down of its one part or of each expert."""
    names = ('w1', 'w3', 'w2') if c['model_type'] == 'mixtral' else (
        'gate_proj', 'up_proj', 'down_proj')
    root = 'block_sparse_moe' if c['model_type'] == 'mixtral' else 'mlp'
    roots = [f'{root}.experts.{e}' for e in range(num_experts(c))] or [root]
    parts = [(f'{one}.{names[0]}', f'{one}.{names[1]}', f'{one}.{names[2]}') for one in roots]
    return f'{root}.gate' if num_experts(c) else '', parts


def with_fused_experts(weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same weights as transformers 5 writes them with save_original_format=False."""
    fused = {name.replace('block_sparse_moe', 'mlp'): array for name, array in weights.items()
             if '.experts.' not in name}
    layers = {name.split('.')[2] for name in weights if '.experts.' in name}
    for layer in layers:
        def stacked(*names: str, layer: str = layer) -> np.ndarray:
            return np.stack([array for name, array in weights.items()
                             if name.startswith(f'model.layers.{layer}.')
                             and name.endswith(tuple(f'.{one}.weight' for one in names))
                             and '.experts.' in name])

        root = f'model.layers.{layer}.mlp.experts'
        fused[f'{root}.gate_up_proj'] = np.concatenate(
            [stacked('w1', 'gate_proj'), stacked('w3', 'up_proj')], 1)
        fused[f'{root}.down_proj'] = stacked('w2', 'down_proj')
    return fused


def assert_written(path: pathlib.Path, config: dict[str, Any],
                   weights: dict[str, np.ndarray]) -> None:
    """Checks that a folder has this config.json and exactly these weights, bit for bit."""
    written = safetensors.numpy.load_file(path / 'model.safetensors')
    assert written.keys() == weights.keys()
    for name, array in weights.items():
        np.testing.assert_array_equal(written[name], array, err_msg=name)
    assert json.loads((path / 'config.json').read_text()) == config


def write(folder: pathlib.Path, described: dict[str, Any], weights: dict[str, np.ndarray],
          num_parts: int = 1) -> str:
    """Writes a folder, with the weights in one file or in parts; returns its path."""
    folder.mkdir(exist_ok=True)
    (folder / 'config.json').write_text(json.dumps(described))
    if num_parts == 1:
        safetensors.numpy.save_file(weights, folder / 'model.safetensors')
        return str(folder)
    weight_map = {}
    for k in range(num_parts):
        part = dict(list(weights.items())[k::num_parts])
        name = f'model-{k + 1:05}-of-{num_parts:05}.safetensors'
        safetensors.numpy.save_file(part, folder / name)
        weight_map |= dict.fromkeys(part, name)
    (folder / 'model.safetensors.index.json').write_text(json.dumps({'weight_map': weight_map}))
    return str(folder)


def logits(c: dict[str, Any], weights: dict[str, np.ndarray], ids: np.ndarray) -> np.ndarray:
    """The logits [b, T, V] of ids [b, T], float64."""
    w = {name: array.astype(np.float64) for name, array in _one_by_one(c, weights).items()}
    table = w['model.embed_tokens.weight']
    out = w['lm_head.weight'] if 'lm_head.weight' in w else table
    scale = D ** 0.5 if c['model_type'] in GEMMA else 1.
    return np.stack([_of_row(c, w, scale * table[row]) @ out.T for row in ids])


def _of_row(c: dict[str, Any], w: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    """What follows the embedding of one row x [T, D], up to the last normalisation."""
    for i in range(c['num_hidden_layers']):
        own = {name.removeprefix(f'model.layers.{i}.'): array for name, array in w.items()}

        def normed(x: np.ndarray, name: str, own: dict[str, np.ndarray] = own) -> np.ndarray:
            return _norm(c, x, own[f'{name}.weight']) if name else x

        before, after, before_ffn, after_ffn = _norms(c)
        x = x + normed(_attention(c, own, normed(x, before), i), after)
        y = np.stack([_feed_forward(c, own, token) for token in normed(x, before_ffn)])
        x = x + normed(y, after_ffn)
    return _norm(c, x, w['model.norm.weight'])


def _feed_forward(c: dict[str, Any], w: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    """What the feed-forward part, or the experts of a token, give for it, [D] -> [D]."""
    router, parts = _feed_forward_names(c)
    gates = np.ones(1)
    if router:
        scores = np.exp(w[f'{router}.weight'] @ x)
        gates = scores / scores.sum()
        gates[np.argsort(-gates)[c['num_experts_per_tok']:]] = 0
        gates = gates / gates.sum() if c.get('norm_topk_prob', True) else gates
    y = np.zeros(D)
    for share, (gate, up, down) in zip(gates, parts, strict=True):
        h = w[f'{gate}.weight'] @ x
        gelu = h / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h ** 3)))
        opened = gelu if c['model_type'] in GEMMA else h / (1 + np.exp(-h))
        y += share * (w[f'{down}.weight'] @ (opened * (w[f'{up}.weight'] @ x)))
    return y


def _norm(c: dict[str, Any], x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    scale = 1 + scale if c['model_type'] in GEMMA else scale
    return x / np.sqrt((x ** 2).mean(-1, keepdims=True) + c['rms_norm_eps']) * scale


def _window(c: dict[str, Any], i: int) -> int:
    """How many positions a position of layer i sees, itself among them."""
    is_full = not c.get('sliding_window') or c.get('use_sliding_window') is False
    if 'max_window_layers' in c:
        is_full |= i < c['max_window_layers']
    if 'layer_types' in c:
        is_full |= c['layer_types'][i] == 'full_attention'
    elif 'sliding_window_pattern' in c:
        is_full |= (i + 1) % c['sliding_window_pattern'] == 0
    return 10_000 if is_full else int(c['sliding_window'])


def _attention(c: dict[str, Any], w: dict[str, np.ndarray], x: np.ndarray, i: int) -> np.ndarray:
    """The attention of layer i, whose weights these are."""
    def projected(name: str, x: np.ndarray) -> np.ndarray:
        return (x @ w[f'self_attn.{name}_proj.weight'].T
                + w.get(f'self_attn.{name}_proj.bias', np.zeros(1)))

    def normed(name: str, vectors: np.ndarray) -> np.ndarray:
        scale = w.get(f'self_attn.{name}_norm.weight', np.zeros(0))
        return _norm(c, vectors, scale) if vectors.shape[-1:] == scale.shape else vectors

    h, num_positions, window = c.get('head_dim') or D // H, len(x), _window(c, i)
    is_rotated = c.get('no_rope_layers', [1] * c['num_hidden_layers'])[i]
    speeds = is_rotated * _speeds(c, h, window)
    turns = np.exp(1j * np.outer(np.arange(num_positions), speeds))
    q, k, v = (normed(name, projected(name, x)).reshape([num_positions, -1, h]) for name in 'qkv')
    heads = []
    for head in range(H):
        group = head // (H // G)
        own_q, own_k = normed('q', q[:, head]), normed('k', k[:, group])
        own_q, own_k = ((one[:, :h // 2] + 1j * one[:, h // 2:]) * turns for one in (own_q, own_k))
        scores = (own_q @ own_k.conj().T).real / np.sqrt(c.get('query_pre_attn_scalar', h))
        shares = np.triu(np.tril(np.exp(scores)), 1 - window)
        heads.append(shares / shares.sum(-1, keepdims=True) @ v[:, group])
    return projected('o', np.concatenate(heads, -1))


def _speeds(c: dict[str, Any], h: int, window: int) -> np.ndarray:
    """The radians that each pair of channels turns in one position."""
    rope = c.get('rope_parameters') or c.get('rope_scaling') or {}
    if window < 10_000 and 'rope_local_base_freq' in c:
        rope = {'rope_theta': c['rope_local_base_freq']}
    if 'full_attention' in rope:
        rope = rope['full_attention' if window == 10_000 else 'sliding_attention']
    speeds = rope.get('rope_theta', c.get('rope_theta')) ** (-np.arange(0, h, 2) / h)
    if rope.get('rope_type') == 'linear':
        speeds = speeds / rope['factor']
    elif 'factor' in rope:
        turns = rope['original_max_position_embeddings'] * speeds / (2 * np.pi)
        low, high = rope['low_freq_factor'], rope['high_freq_factor']
        smooth = (turns - low) / (high - low)
        between = (1 - smooth) * speeds / rope['factor'] + smooth * speeds
        speeds = np.where(turns < low, speeds / rope['factor'],
                          np.where(turns > high, speeds, between))
    return speeds
