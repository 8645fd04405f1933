"""Config: config.json of a model of Hugging Face, as fields of a LanguageModel, and back.

Read and written are causal language models of the family of LLaMA, and GPT-2: of each model_type
below, these are all the fields with which transformers' class computes, up to those that a file may
not change here. A field that would change the result and is not supported is refused, so that a
network that comes in computes what transformers computes. Both spellings of the rotations are read:
`rope_theta` and `rope_scaling`, and `rope_parameters`, which transformers writes since version 5.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lingpipe.layers.rotary import RotaryScaling
from lingpipe.tasks.text.hugging_face_experts import (
    MODELS,
    NO_EXPERTS,
    SUPPORTED,
    config_of_experts,
    experts_of,
)
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
          'num_heads', 'num_groups', 'head_dim', 'rotary_base', 'rotary_scaling', 'biases',
          'normalises_heads', 'normalises_projections', 'epsilon', 'is_tied', 'is_scaled', 'window',
          'full_layers', *NO_EXPERTS)

_CLASSES = {'llama': 'LlamaForCausalLM', 'mistral': 'MistralForCausalLM',
            'qwen2': 'Qwen2ForCausalLM', 'qwen3': 'Qwen3ForCausalLM',
            'mixtral': 'MixtralForCausalLM', 'qwen3_moe': 'Qwen3MoeForCausalLM',
            'olmoe': 'OlmoeForCausalLM', 'gpt2': 'GPT2LMHeadModel'}

# Defaults of transformers that are others than those of llama.
_EPSILONS = {'mixtral': 1e-5, 'olmoe': 1e-5}
_BASES = {'mixtral': 1e6}   # of the rotations

# Field -> the values with which it is as if it were not there; a field may be missing.
_SUPPORTED: dict[str, tuple[Any, ...]] = {
    'hidden_act': ('silu', 'swish'),   # two names of one function
    'attention_dropout': (0, None),
    'mlp_bias': (False, None),
    'partial_rotary_factor': (1, None),
    'quantization_config': (None,),
    **SUPPORTED,
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

# RotaryScaling's fields -> those of Hugging Face, for rope_type=llama3.
_SCALING = {'factor': 'factor', 'low': 'low_freq_factor', 'high': 'high_freq_factor',
            'length': 'original_max_position_embeddings'}


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
    check_supported(config, _SUPPORTED_OF_GPT2 if kind == 'gpt2' else _SUPPORTED)
    if kind == 'gpt2':
        if number(config, 'n_embd') % number(config, 'n_head'):
            raise ValueError(f'config.json has n_embd={config["n_embd"]} and n_head='
                             f'{config["n_head"]}, which does not divide it, but all heads have as '
                             'many channels; write what the model has.')
        return _fields_of_gpt2(config)

    num_heads, dim = number(config, 'num_attention_heads'), number(config, 'hidden_size')
    # null means num_heads, and so does a missing field of these two. Others have other defaults.
    default = None if kind in ('llama', 'olmoe') else 0
    has_groups = config.get('num_key_value_heads', default) is not None
    has_head_dim = kind == 'qwen3' or config.get('head_dim') is not None
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
        'head_dim': number(config, 'head_dim') if has_head_dim else dim // num_heads,
        'epsilon': real(config, 'rms_norm_eps', _EPSILONS.get(kind, 1e-6)),
        'biases': _biases(config, kind),
        'normalises_heads': kind in ('qwen3', 'qwen3_moe'),
        'normalises_projections': kind == 'olmoe',
        'is_tied': flag(config, 'tie_word_embeddings'),
        'is_scaled': False,
        **windows_of(config, kind),
        **experts_of(config, kind),
        **_rotations(config, _BASES.get(kind, 10_000.))}


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
    if fields['is_scaled']:
        raise ValueError('is_scaled=True multiplies the vectors of ids by sqrt(model_dim), which '
                         'no model of Hugging Face that is written here does; train with '
                         'task.model.is_scaled=False.')
    return (_config_of_gpt2 if fields['family'] == 'gpt2' else _config_of_llama)(fields, dtype)


def _config_of_llama(fields: Mapping[str, Any], dtype: str) -> dict[str, Any]:
    """Does what `config_of` does without a source, for LLaMA and its kin."""
    kind = _kind_of(fields)
    if kind == 'qwen3' and fields['biases'] == 'qkv':
        raise ValueError("normalises_heads=True with biases='qkv' is in no model of Hugging Face "
                         "that is written here; with 'none' or 'all', Qwen3 is.")
    scaling: RotaryScaling = fields['rotary_scaling']
    has_scaling = scaling.factor != 1
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
        'hidden_act': 'silu',
        'rms_norm_eps': fields['epsilon'],
        'rope_theta': fields['rotary_base'],
        'rope_scaling': None if not has_scaling else {
            'rope_type': 'llama3', **{theirs: getattr(scaling, ours)
                                      for ours, theirs in _SCALING.items()}},
        'tie_word_embeddings': fields['is_tied'],
        'bos_token_id': None,   # The network knows of none, and the defaults of transformers
        'eos_token_id': None,   # would end a text at the id 2.
        'torch_dtype': dtype,
        **config_of_windows(fields, kind),
        **config_of_experts(fields, kind)}
    if has_scaling:
        config['max_position_embeddings'] = int(scaling.factor * scaling.length)
    if kind in ('llama', 'qwen3', 'qwen3_moe', 'olmoe'):
        config['attention_bias'] = fields['biases'] == 'all'
    check_expressed(fields, fields_of(config), _CLASSES[kind].removesuffix('ForCausalLM'))
    return config


def _kind_of(fields: Mapping[str, Any]) -> str:
    """The model_type of LLaMA's kin that has the parts of a network, or most of them."""
    if fields['num_experts']:
        return ('qwen3_moe' if fields['normalises_heads'] else
                'olmoe' if fields['normalises_projections'] else 'mixtral')
    return ('qwen3' if fields['normalises_heads'] else
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
        'epsilon': real(config, 'layer_norm_epsilon', 1e-5),
        'biases': 'all',
        'normalises_heads': False,
        'normalises_projections': False,
        'is_tied': flag(config, 'tie_word_embeddings') if has_tie else True,
        'is_scaled': False,
        'window': 0,
        'full_layers': (),
        **NO_EXPERTS,
        'rotary_base': 10_000.,
        'rotary_scaling': RotaryScaling()}


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


def _biases(config: Config, kind: str) -> str:
    if kind == 'qwen2':
        return 'qkv'
    has_biases = kind not in ('mistral', 'mixtral') and flag(config, 'attention_bias')
    return 'all' if has_biases else 'none'


def _rotations(config: Config, default: float) -> dict[str, Any]:
    """The fields rotary_base, with this default, and rotary_scaling."""
    name = 'rope_scaling' if config.get('rope_scaling') else 'rope_parameters'   # as transformers
    rope = config.get(name) or {}
    if not isinstance(rope, dict):
        refuse(name, rope, 'an object or null is')
    kind = rope.get('rope_type', rope.get('type', 'default'))
    known = {'rope_type', 'type', 'rope_theta', 'partial_rotary_factor', *_SCALING.values()}
    if kind not in ('default', 'llama3') or rope.get('partial_rotary_factor', 1) not in (1, None):
        refuse(name, dict(rope), "rope_type 'default' and 'llama3', of all channels, are")
    if unknown := sorted(set(rope) - known):
        refuse(f'{name}.{unknown[0]}', rope[unknown[0]], f'{", ".join(sorted(known))} are')

    scaling = RotaryScaling()
    if kind == 'llama3':
        for theirs in _SCALING.values():
            if theirs not in rope:
                raise ValueError(f'config.json has {name} of the kind llama3 without {theirs}; '
                                 'add it, as the model was trained.')
        numbers = {ours: real(rope, theirs) for ours, theirs in _SCALING.items()}
        scaling.set(**{**numbers, 'length': round(numbers['length'])})
    base = real(rope if 'rope_theta' in rope else config, 'rope_theta', default)
    return {'rotary_base': base, 'rotary_scaling': scaling}
