"""Config: config.json of a translation model of Hugging Face, as fields of a Transformer, and back.

Read and written is model_type m2m_100, M2M-100 (Fan et al., 2020, arXiv:2010.11125) and the dense
models of NLLB-200 (2022, arXiv:2207.04672). As in tasks/text/hugging_face_config.py, these are all
the fields with which transformers' class computes, and what would change the result and is not
supported is refused.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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

# The fields of Transformer.Params that a config.json determines.
FIELDS = ('num_encoder_layers', 'num_decoder_layers', 'vocab_size', 'model_dim', 'hidden_dim',
          'num_heads', 'head_dim', 'activation', 'positions', 'first_position', 'padding_id',
          'tied', 'is_scaled', 'has_softmax_bias', 'max_abs_logit')

_KIND = 'm2m_100'
# Field -> the values with which it is as if it were not there; a field may be missing.
_SUPPORTED: dict[str, tuple[Any, ...]] = {
    'activation_function': ('relu',),
    'is_encoder_decoder': (True,),
    'tie_word_embeddings': (True,),
    'layer_norm_eps': (1e-5, None),   # transformers has 1e-5, whatever is said here
    'quantization_config': (None,),
}
# Fields of training, by those of Transformer.Params, with the defaults of transformers.
_RATES = {'dropout_rate': ('dropout', 0.1), 'attention_dropout_rate': ('attention_dropout', 0.1),
          'hidden_dropout_rate': ('activation_dropout', 0.)}
RATES = tuple(_RATES)


def fields_of(config: Config) -> dict[str, Any]:
    """Returns FIELDS of a network that computes the same.

    Raises:
      ValueError: a field is missing, or would change the result and is not supported.
    """
    if config.get('model_type') != _KIND:
        refuse('model_type', config.get('model_type'), f'{_KIND} is, and language_model of '
               'lingpipe.tasks.text.hugging_face takes language models')
    check_supported(config, _SUPPORTED)
    for name in ('attention_heads', 'ffn_dim'):
        of_encoder, of_decoder = (number(config, f'{side}_{name}') for side in
                                  ('encoder', 'decoder'))
        if of_decoder != of_encoder:
            refuse(f'decoder_{name}', of_decoder, f'encoder_{name}={of_encoder} is')
    dim, num_heads = number(config, 'd_model'), number(config, 'encoder_attention_heads')
    if dim % num_heads or dim % 2:
        refuse('d_model', dim, f'an even multiple of encoder_attention_heads={num_heads} is')
    padding_id = _id(config, 'pad_token_id', 1)
    end = config.get('eos_token_id', 2)
    start = config.get('decoder_start_token_id', 2)
    if start != (end[0] if isinstance(end, list) and end else end):
        refuse('decoder_start_token_id', start, f'that of the end, eos_token_id={end}, is')
    return {
        'num_encoder_layers': number(config, 'encoder_layers'),
        'num_decoder_layers': number(config, 'decoder_layers'),
        'vocab_size': number(config, 'vocab_size'),
        'model_dim': dim,
        'hidden_dim': number(config, 'encoder_ffn_dim'),
        'num_heads': num_heads,
        'head_dim': dim // num_heads,
        'activation': 'relu',
        'positions': 'sinusoidal',
        'first_position': padding_id + 1,
        'padding_id': padding_id,
        'tied': 'all',
        'is_scaled': flag(config, 'scale_embedding') if 'scale_embedding' in config else True,
        'has_softmax_bias': False,
        'max_abs_logit': 0.}


def rates_of(config: Config) -> dict[str, float]:
    """Returns RATES, the rates of dropout in training. Raises ValueError for what is none."""
    return {ours: real(config, theirs, default) for ours, (theirs, default) in _RATES.items()}


def layer_dropout_of(config: Config) -> dict[str, float]:
    """Returns the rates, by field, at which transformers leaves out layers and we do not."""
    rates = {name: real(config, name, 0.05) for name in ('encoder_layerdrop', 'decoder_layerdrop')}
    return {name: rate for name, rate in rates.items() if rate}


def config_of(fields: Mapping[str, Any], rates: Mapping[str, float], source: Config,
              dtype: str = 'float32') -> dict[str, Any]:
    """Returns a config.json from which transformers makes a network that computes the same.

    Args:
      fields: FIELDS, with none of the zeros that stand for other fields.
      rates: RATES, which are written if `source` does not say them.
      source: the config.json that the weights came with, or {}. If it means the same network, it is
        returned, but for the type of the weights.
      dtype: the type of the weights that go with it.

    Raises:
      ValueError: no model of Hugging Face that is known here computes the same.
    """
    if source and describes(source, fields, fields_of):
        return with_dtype(source, dtype)
    sides = {f'{side}_{name}': fields[ours] for side in ('encoder', 'decoder')
             for name, ours in [('layers', f'num_{side}_layers'), ('ffn_dim', 'hidden_dim'),
                                ('attention_heads', 'num_heads')]}
    config = {
        'architectures': ['M2M100ForConditionalGeneration'],
        'model_type': _KIND,
        'vocab_size': fields['vocab_size'],
        'd_model': fields['model_dim'],
        **sides,
        'activation_function': 'relu',
        **{theirs: rates[ours] for ours, (theirs, _) in _RATES.items()},
        'encoder_layerdrop': 0.,
        'decoder_layerdrop': 0.,
        'scale_embedding': fields['is_scaled'],
        'is_encoder_decoder': True,
        'tie_word_embeddings': True,
        'pad_token_id': fields['padding_id'],
        **dict.fromkeys(['bos_token_id', 'eos_token_id', 'decoder_start_token_id']),   # unknown
        'torch_dtype': dtype}
    if not fields['num_encoder_layers']:
        raise ValueError('task.model.num_encoder_layers=0 makes a language model, and the M2M-100 '
                         'of Hugging Face has an encoder; train with one, or train a '
                         'LanguageModel.')
    check_expressed(fields, fields_of(config), 'M2M-100')
    return config


def _id(config: Config, name: str, default: int) -> int:
    value = config.get(name, default)
    if type(value) is not int or value < 0:
        refuse(name, value, 'the number of an id is')
    return value
