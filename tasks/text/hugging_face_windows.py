"""Windows: what config.json says of sliding windows, as fields of a LanguageModel, and back.

    mistral         sliding_window of all layers
    mixtral, phi3   the same, if it is there
    qwen3_moe       the same, if use_sliding_window is true
    qwen2, qwen3    sliding_window of the layers from max_window_layers on, or of those that
                    layer_types names, if use_sliding_window is true
    gemma3_text     sliding_window of those that layer_types names, or of all but each sixth one;
                    another number may be sliding_window_pattern
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lingpipe.tasks.text.hugging_face_values import Config, flag, number, refuse


def windows_of(config: Config, kind: str) -> dict[str, Any]:
    """The fields window and full_layers."""
    num_layers, window = number(config, 'num_hidden_layers'), 0
    first = 0   # of the layers with the window
    if kind in ('qwen2', 'qwen3') and flag(config, 'use_sliding_window'):
        window = _window(config)
        first = config.get('max_window_layers', 28)   # as transformers
        if not isinstance(first, int) or first < 0:
            refuse('max_window_layers', first, 'a number of layers is')
    elif (kind == 'mistral' or kind == 'qwen3_moe' and flag(config, 'use_sliding_window')
          or kind in ('mixtral', 'phi3') and 'sliding_window' in config):
        window = _window(config)
    elif kind == 'llama' and config.get('sliding_window') is not None:
        refuse('sliding_window', config['sliding_window'], 'null is, as llama has none')

    elif kind == 'gemma3_text':
        window = number({'sliding_window': 4096, **config}, 'sliding_window')

    types = ['sliding_attention' if window and i >= first else 'full_attention'
             for i in range(num_layers)]
    if kind == 'gemma3_text':
        period = number({'sliding_window_pattern': 6, **config}, 'sliding_window_pattern')
        types[period - 1::period] = ['full_attention'] * (num_layers // period)
    if given := config.get('layer_types'):
        _check_types(given, num_layers, [] if kind in ('qwen2', 'qwen3', 'gemma3_text') else types,
                     window)
        types = given
    full_layers = tuple(i for i, one in enumerate(types) if one == 'full_attention')
    has_window = len(full_layers) < num_layers
    return {'window': window if has_window else 0, 'full_layers': full_layers if has_window else ()}


def _window(config: Config) -> int:
    """The sliding_window of a model that may have one; 0: it has none."""
    fields = {'sliding_window': 4096, **config}   # the default of transformers
    return 0 if fields['sliding_window'] is None else number(fields, 'sliding_window')


def _check_types(types: object, num_layers: int, meant: list[str], window: int) -> None:
    """Raises ValueError for layer_types that transformers does not take or does not heed.

    Args:
      types: layer_types.
      num_layers: of the network.
      meant: what the other fields say of each layer, if transformers heeds these alone, or [].
      window: the number of positions of sliding_attention, or 0.
    """
    if not isinstance(types, list):
        refuse('layer_types', types, 'a list is')
    known = ['full_attention', 'sliding_attention'] if window else ['full_attention']
    for one in types:
        if one not in known:
            refuse('layer_types', one, f'{" or ".join(map(repr, known))} for each layer of a model '
                                       f'with sliding_window={window or None} is')
    if len(types) != num_layers:
        refuse('layer_types', types, f'one for each of the {num_layers} layers is')
    if meant and types != meant:
        refuse('layer_types', types, f'{meant[0]!r} for all layers of this model_type is')


def config_of_windows(fields: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """What a config.json of this model_type says of the window, if there is one."""
    window, full_layers = fields['window'], fields['full_layers']
    types = ['full_attention' if i in full_layers or not window else 'sliding_attention'
             for i in range(fields['num_layers'])]
    if kind == 'gemma3_text':
        return {'sliding_window': window or 4096, 'layer_types': types}
    if not window:
        return {}
    if kind == 'mistral' and (full_layers or fields['biases'] != 'none'):
        raise ValueError(f'window={window} with biases={fields["biases"]!r} and '
                         f'full_layers={full_layers} is in no model of Hugging Face that is '
                         "written here; with biases='none' and no full_layers, Mistral is, and "
                         "with 'qkv', or with normalises_heads=True, Qwen.")
    if kind in ('mistral', 'mixtral'):
        return {'sliding_window': window}
    if kind == 'qwen3_moe':
        return {'use_sliding_window': True, 'sliding_window': window}
    if kind not in ('qwen2', 'qwen3'):
        return {}   # The model has none, which the caller finds.
    return {'use_sliding_window': True,
            'sliding_window': window,
            'max_window_layers': len(full_layers),   # heeded before transformers 4.53
            'layer_types': types}
