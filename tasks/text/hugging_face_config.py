"""Config: config.json of a model of Hugging Face, as fields of a LanguageModel, and back.

Read and written are causal language models of the family of LLaMA, and GPT-2: of each model_type
below, these are all the fields with which transformers' class computes, up to those that a file may
not change here. A field that would change the result and is not supported is refused, so that a
network that comes in computes what transformers computes.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lingpipe.checkpoint.hugging_face_names import TIED
from lingpipe.layers.rotary import RotaryScaling
from lingpipe.tasks.text.hugging_face_experts import (
    MODELS,
    NO_EXPERTS,
    SUPPORTED,
    config_of_experts,
    experts_of,
)
from lingpipe.tasks.text.hugging_face_rotations import config_of_rotations, rotations_of
from lingpipe.tasks.text.hugging_face_values import (
    Config,
    check_expressed,
    check_supported,
    describes,
    flag,
    number,
    real,
    refuse,
    with_dtype,
)
from lingpipe.tasks.text.hugging_face_windows import config_of_windows, windows_of

# The fields of LanguageModel.Params that a config.json determines.
FIELDS = ('family', 'num_positions', 'vocab_size', 'num_layers', 'model_dim', 'hidden_dim',
          'num_heads', 'num_groups', 'head_dim', 'score_dim', 'rotary_base', 'rotary_scaling',
          'window_rotary_base', 'unrotated_layers', 'biases', 'norms', 'is_zero_centered',
          'normalises_heads', 'normalises_projections', 'epsilon', 'gate', 'is_tied', 'is_scaled',
          'window', 'full_layers', *NO_EXPERTS)

_CLASSES = {'llama': 'LlamaForCausalLM', 'mistral': 'MistralForCausalLM',
            'qwen2': 'Qwen2ForCausalLM', 'qwen3': 'Qwen3ForCausalLM',
            'mixtral': 'MixtralForCausalLM', 'qwen3_moe': 'Qwen3MoeForCausalLM',
            'olmoe': 'OlmoeForCausalLM', 'olmo2': 'Olmo2ForCausalLM', 'gemma': 'GemmaForCausalLM',
            'gemma3_text': 'Gemma3ForCausalLM', 'smollm3': 'SmolLM3ForCausalLM',
            'phi3': 'Phi3ForCausalLM',
            'gpt2': 'GPT2LMHeadModel'}
_GEMMA = ('gemma', 'gemma3_text')
_NORMS = {'olmo2': 'after', 'gemma3_text': 'both'}   # The others normalise before each part.

# Defaults of transformers that are others than those of llama.
_EPSILONS = dict.fromkeys(['mixtral', 'olmoe', 'olmo2', 'phi3'], 1e-5)

# Field -> the values with which it is as if it were not there; a field may be missing.
_SUPPORTED: dict[str, tuple[Any, ...]] = {
    'attention_dropout': (0, None),
    'mlp_bias': (False, None),
    **dict.fromkeys(['resid_pdrop', 'embd_pdrop'], (0, None)),
    'partial_rotary_factor': (1, None),
    'quantization_config': (None,),
    **SUPPORTED,
}

# What the activation may be called, in which fields.
_SILU = {'hidden_act': ('silu', 'swish')}   # two names of one function
_GELU: dict[str, dict[str, tuple[Any, ...]]] = {
    # The first files of Gemma say gelu and mean the approximation.
    'gemma': {'hidden_act': ('gelu_pytorch_tanh', 'gelu'),
              'hidden_activation': ('gelu_pytorch_tanh', None)},
    'gemma3_text': {'hidden_activation': ('gelu_pytorch_tanh',)},
}
_SUPPORTED_OF_GEMMA: dict[str, tuple[Any, ...]] = {
    'use_bidirectional_attention': (False, None),
    **dict.fromkeys(['attn_logit_softcapping', 'final_logit_softcapping'], (None,)),
}

# The same for gpt2.
_SUPPORTED_OF_GPT2: dict[str, tuple[Any, ...]] = {
    'activation_function': ('gelu_new', 'gelu_pytorch_tanh'),   # two names of one function
    'scale_attn_weights': (True,),
    **dict.fromkeys(['scale_attn_by_inverse_layer_idx', 'reorder_and_upcast_attn',
                     'add_cross_attention'], (False, None)),
    'quantization_config': (None,),
}
_DROPOUT_OF_GPT2 = ('embd_pdrop', 'attn_pdrop', 'resid_pdrop')   # changes training alone


def fields_of(config: Config) -> dict[str, Any]:
    """Returns FIELDS of a network that computes the same.

    Raises:
      ValueError: a field is missing, or would change the result and is not supported.
    """
    kind = str(config.get('model_type'))
    if kind == 'm2m_100':
        raise ValueError("config.json has model_type='m2m_100', which translates; make its network "
                         'by translation_model of lingpipe.tasks.translation.hugging_face.')
    if kind == 'qwen2_moe':
        raise ValueError("config.json has model_type='qwen2_moe', in which every token also uses "
                         'shared experts, and these are not supported; take a model of '
                         f'{", ".join(MODELS.values())}.')
    if kind not in _CLASSES:
        refuse('model_type', config.get('model_type'), f'{", ".join(_CLASSES)} are')
    check_supported(config, _supported(kind))
    if kind == 'gpt2':
        if number(config, 'n_embd') % number(config, 'n_head'):
            raise ValueError(f'config.json has n_embd={config["n_embd"]} and n_head='
                             f'{config["n_head"]}, which does not divide it, but all heads have as '
                             'many channels; write what the model has.')
        return _fields_of_gpt2(config)
    return _fields_of_llama(config, kind)


def _fields_of_llama(config: Config, kind: str) -> dict[str, Any]:
    """Does what `fields_of` does, for LLaMA and its kin."""
    num_heads, dim = number(config, 'num_attention_heads'), number(config, 'hidden_size')
    # null means num_heads, and so does a missing field of these. Others have other defaults.
    default = None if kind in ('llama', 'olmoe', 'olmo2', 'phi3') else 0
    has_groups = config.get('num_key_value_heads', default) is not None
    has_head_dim = kind in ('qwen3', *_GEMMA) or config.get('head_dim') is not None
    head_dim = number(config, 'head_dim') if has_head_dim else dim // num_heads
    has_tie = 'tie_word_embeddings' in config
    windows = windows_of(config, kind)
    return {
        'family': 'llama',
        'num_positions': 0,
        'vocab_size': number(config, 'vocab_size'),
        'num_layers': number(config, 'num_hidden_layers'),
        'model_dim': dim,
        'hidden_dim': number(config, 'moe_intermediate_size' if kind == 'qwen3_moe'
                             else 'intermediate_size'),
        'num_heads': num_heads,
        'num_groups': number(config, 'num_key_value_heads') if has_groups else num_heads,
        'head_dim': head_dim,
        'score_dim': (number({'query_pre_attn_scalar': 256, **config}, 'query_pre_attn_scalar')
                      if kind == 'gemma3_text' else head_dim),
        'epsilon': real(config, 'rms_norm_eps', _EPSILONS.get(kind, 1e-6)),
        'biases': _biases(config, kind),
        'norms': _NORMS.get(kind, 'before'),
        'is_zero_centered': kind in _GEMMA,
        'normalises_heads': kind in ('qwen3', 'qwen3_moe', 'gemma3_text'),
        'normalises_projections': kind in ('olmoe', 'olmo2'),
        'gate': 'gelu_tanh' if kind in _GEMMA else 'silu',
        'is_tied': flag(config, 'tie_word_embeddings') if has_tie else kind in TIED,
        'is_scaled': kind in _GEMMA,
        **windows,
        **experts_of(config, kind),
        **rotations_of(config, kind, has_window=windows['window'] > 0)}


def dropout_of(config: Config) -> dict[str, Any]:
    """Returns the rates of dropout, by field, with which transformers trains and we do not."""
    if config.get('model_type') != 'gpt2':
        return {}   # It is refused.
    rates = {name: config.get(name, 0.1) for name in _DROPOUT_OF_GPT2}
    return {name: rate for name, rate in rates.items() if rate}


def config_of(fields: Mapping[str, Any], source: Config,
              dtype: str = 'float32') -> dict[str, Any]:
    """Returns a config.json from which transformers makes a network that computes the same.

    Args:
      fields: FIELDS, with none of the zeros that stand for other fields.
      source: the config.json that the weights came with, or {}. If it means the same network, it is
        returned, but for the type of the weights.
      dtype: the type of the weights that go with it.

    Raises:
      ValueError: no model of Hugging Face that is known here computes the same.
    """
    if source and describes(source, fields, fields_of):
        return with_dtype(source, dtype)
    if fields['is_scaled'] and not fields['is_zero_centered']:
        raise ValueError('is_scaled=True multiplies the vectors of ids by sqrt(model_dim), which '
                         'of the models of Hugging Face that are written here only Gemma does; '
                         'train with task.model.is_scaled=False.')
    return (_config_of_gpt2 if fields['family'] == 'gpt2' else _config_of_llama)(fields, dtype)


def _config_of_llama(fields: Mapping[str, Any], dtype: str) -> dict[str, Any]:
    """Does what `config_of` does without a source, for LLaMA and its kin."""
    kind = _kind_of(fields)
    if kind == 'qwen3' and fields['biases'] == 'qkv':
        raise ValueError("normalises_heads=True with biases='qkv' is in no model of Hugging Face "
                         "that is written here; with 'none' or 'all', Qwen3 is.")
    config = {
        'architectures': [_CLASSES[kind]],
        'model_type': kind,
        'vocab_size': fields['vocab_size'],
        'hidden_size': fields['model_dim'],
        'intermediate_size': fields['hidden_dim'],
        'num_hidden_layers': fields['num_layers'],
        'num_attention_heads': fields['num_heads'],
        'num_key_value_heads': fields['num_groups'],
        'head_dim': fields['head_dim'],
        **{name: values[0] for name, values in _GELU.get(kind, _SILU).items()},
        'rms_norm_eps': fields['epsilon'],
        'tie_word_embeddings': fields['is_tied'],
        # The network knows of none, and the defaults of transformers would end a text at the id 2,
        # or name one that is not in the table.
        **dict.fromkeys(['bos_token_id', 'eos_token_id', 'pad_token_id']),
        'torch_dtype': dtype,
        **config_of_rotations(fields, kind),
        **config_of_windows(fields, kind),
        **config_of_experts(fields, kind)}
    if kind not in ('mistral', 'mixtral', 'qwen2'):
        config['attention_bias'] = fields['biases'] == 'all'
    if kind == 'gemma3_text':
        config['query_pre_attn_scalar'] = fields['score_dim']
    check_expressed(fields, fields_of(config), _CLASSES[kind].removesuffix('ForCausalLM'))
    return config


def _kind_of(fields: Mapping[str, Any]) -> str:
    """The model_type of LLaMA's kin that has the parts of a network, or most of them."""
    if fields['num_experts']:
        return ('qwen3_moe' if fields['normalises_heads'] else
                'olmoe' if fields['normalises_projections'] else 'mixtral')
    if fields['is_zero_centered']:
        return 'gemma3_text' if fields['norms'] == 'both' else 'gemma'
    return ('smollm3' if fields['unrotated_layers'] else
            'olmo2' if fields['norms'] == 'after' else
            'qwen3' if fields['normalises_heads'] else
            'qwen2' if fields['biases'] == 'qkv' else
            'mistral' if fields['window'] else 'llama')


def _fields_of_gpt2(config: Config) -> dict[str, Any]:
    """Does what `fields_of` does."""
    num_heads, dim = number(config, 'n_head'), number(config, 'n_embd')
    has_hidden_dim = config.get('n_inner') is not None
    has_tie = 'tie_word_embeddings' in config
    return {
        'family': 'gpt2',
        'num_positions': number(config, 'n_positions'),
        'vocab_size': number(config, 'vocab_size'),
        'num_layers': number(config, 'n_layer'),
        'model_dim': dim,
        'hidden_dim': number(config, 'n_inner') if has_hidden_dim else 4 * dim,
        'num_heads': num_heads,
        'num_groups': num_heads,
        'head_dim': dim // num_heads,
        'score_dim': dim // num_heads,
        'epsilon': real(config, 'layer_norm_epsilon', 1e-5),
        'biases': 'all',
        'norms': 'before',
        'is_zero_centered': False,
        'normalises_heads': False,
        'normalises_projections': False,
        'gate': 'silu',   # There is none.
        'is_tied': flag(config, 'tie_word_embeddings') if has_tie else True,
        'is_scaled': False,
        'window': 0,
        'full_layers': (),
        **NO_EXPERTS,
        'rotary_base': 10_000.,
        'rotary_scaling': RotaryScaling(),
        'window_rotary_base': 0.,
        'unrotated_layers': ()}


def _config_of_gpt2(fields: Mapping[str, Any], dtype: str) -> dict[str, Any]:
    """Does what `config_of` does without a source, for GPT-2."""
    config = {
        'architectures': [_CLASSES['gpt2']],
        'model_type': 'gpt2',
        'vocab_size': fields['vocab_size'],
        'n_positions': fields['num_positions'],
        'n_embd': fields['model_dim'],
        'n_inner': fields['hidden_dim'],
        'n_layer': fields['num_layers'],
        'n_head': fields['num_heads'],
        'activation_function': 'gelu_new',
        'layer_norm_epsilon': fields['epsilon'],
        **dict.fromkeys(_DROPOUT_OF_GPT2, 0.),
        'tie_word_embeddings': fields['is_tied'],
        'bos_token_id': None,   # as in `_config_of_llama`
        'eos_token_id': None,
        'torch_dtype': dtype}
    check_expressed(fields, _fields_of_gpt2(config), 'GPT-2')
    return config


def _supported(kind: str) -> dict[str, tuple[Any, ...]]:
    """The fields of a model_type that must have one of these values if they are there."""
    if kind == 'gpt2':
        return _SUPPORTED_OF_GPT2
    if kind == 'smollm3':
        return _SUPPORTED | _SILU | {'use_sliding_window': (False, None)}
    return _SUPPORTED | _GELU.get(kind, _SILU) | (_SUPPORTED_OF_GEMMA if kind in _GEMMA else {})


def _biases(config: Config, kind: str) -> str:
    if kind == 'qwen2':
        return 'qkv'
    has_biases = kind not in ('mistral', 'mixtral', 'phi3') and flag(config, 'attention_bias')
    return 'all' if has_biases else 'none'
