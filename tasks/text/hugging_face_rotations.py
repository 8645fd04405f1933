"""Rotations: what config.json says of rotary positions, as fields of a LanguageModel, and back.

    rope_theta, rope_scaling    of all layers
    rope_parameters             both, as transformers writes them since version 5

Gemma 3 has other rotations in layers with a window: `rope_local_base_freq`, or `sliding_attention`
beside `full_attention` in `rope_parameters`. SmolLM3 has none in the layers whose number is 0 in
`no_rope_layers`, and else in each fourth one, or another one by `no_rope_layer_interval`.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lingpipe.layers.rotary import RotaryScaling
from lingpipe.tasks.text.hugging_face_values import Config, number, real, refuse

# Defaults of transformers, where they are not 10,000.
_BASES = {'mixtral': 1e6, 'gemma3_text': 1e6, 'smollm3': 2e6}

# RotaryScaling's fields -> those of Hugging Face, for rope_type=llama3.
_SCALING = {'factor': 'factor', 'low': 'low_freq_factor', 'high': 'high_freq_factor',
            'length': 'original_max_position_embeddings'}


def rotations_of(config: Config, kind: str, has_window: bool) -> dict[str, Any]:
    """The fields rotary_base, rotary_scaling, window_rotary_base and unrotated_layers.

    Args:
      config: what config.json holds.
      kind: its model_type.
      has_window: whether some layer has a window; without one, window_rotary_base is 0.
    """
    name = 'rope_scaling' if config.get('rope_scaling') else 'rope_parameters'   # as transformers
    rope = config.get(name) or {}
    if not isinstance(rope, dict):
        refuse(name, rope, 'an object or null is')
    window_base = 0.
    if kind == 'gemma3_text':
        window_base = _window_base(config, rope if name == 'rope_parameters' else {})
        if name == 'rope_parameters':
            name, rope = f'{name}.full_attention', rope.get('full_attention') or {}
    base, scaling = _turns(name, rope, real(config, 'rope_theta', _BASES.get(kind, 10_000.)))
    return {'rotary_base': base, 'rotary_scaling': scaling,
            'window_rotary_base': window_base if has_window else 0.,
            'unrotated_layers': _unrotated_layers(config) if kind == 'smollm3' else ()}


def _window_base(config: Config, by_type: Mapping[str, Any]) -> float:
    """The base of the layers of a Gemma 3 that have a window.

    Args:
      config: what config.json holds.
      by_type: its rope_parameters, if they count: the type of a layer -> its rotations.
    """
    if others := sorted(set(by_type) - {'full_attention', 'sliding_attention'}):
        refuse(f'rope_parameters.{others[0]}', by_type[others[0]],
               'full_attention and sliding_attention are')
    name, rope = 'rope_parameters.sliding_attention', by_type.get('sliding_attention') or {}
    base, scaling = _turns(name, rope, real(config, 'rope_local_base_freq', 10_000.))
    if scaling.factor != 1:
        refuse(name, rope, "rope_type 'default' is")
    if base < 1:   # In a network, 0 means the base of the other layers.
        refuse('rope_local_base_freq', base, 'a number from 1 on is')
    return base


def _unrotated_layers(config: Config) -> tuple[int, ...]:
    """The layers of a SmolLM3 that no_rope_layers has a 0 for."""
    num_layers = number(config, 'num_hidden_layers')
    rotated = config.get('no_rope_layers')
    if rotated is None:
        period = number({'no_rope_layer_interval': 4, **config}, 'no_rope_layer_interval')
        rotated = [(i + 1) % period for i in range(num_layers)]
    if not isinstance(rotated, list) or len(rotated) != num_layers:
        refuse('no_rope_layers', rotated, f'a list of {num_layers} numbers, one for each layer, is')
    return tuple(i for i, is_rotated in enumerate(rotated) if not is_rotated)


def _turns(name: str, rope: Mapping[str, Any], base: float) -> tuple[float, RotaryScaling]:
    """The base, if it is not this one, and the scaling that an object of this name says."""
    kind = rope.get('rope_type', rope.get('type', 'default'))
    known = {'rope_type', 'type', 'rope_theta', 'partial_rotary_factor', *_SCALING.values()}
    if (kind not in ('default', 'linear', 'llama3')
            or rope.get('partial_rotary_factor', 1) not in (1, None)):
        refuse(name, dict(rope), "rope_type 'default', 'linear' and 'llama3', of all channels, are")
    if unknown := sorted(set(rope) - known):
        refuse(f'{name}.{unknown[0]}', rope[unknown[0]], f'{", ".join(sorted(known))} are')

    scaling = RotaryScaling()
    needed = {'default': (), 'linear': ('factor',), 'llama3': tuple(_SCALING)}[kind]
    for ours in needed:
        if _SCALING[ours] not in rope:
            raise ValueError(f'config.json has {name} of the kind {kind} without {_SCALING[ours]}; '
                             'add it, as the model was trained.')
        value = real(rope, _SCALING[ours])
        scaling.set(**{ours: round(value) if ours == 'length' else value})
    # Without a factor, no channel is slow, and that has one spelling.
    scaling.is_linear = kind == 'linear' and scaling.factor != 1
    return real(rope, 'rope_theta', base), scaling


def config_of_rotations(fields: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """What a config.json of this model_type says of the rotations."""
    scaling: RotaryScaling = fields['rotary_scaling']
    config: dict[str, Any] = {'rope_theta': fields['rotary_base'], 'rope_scaling': None}
    if kind == 'gemma3_text' and fields['window_rotary_base']:
        config['rope_local_base_freq'] = fields['window_rotary_base']
    if kind == 'smollm3':
        config['no_rope_layers'] = [int(i not in fields['unrotated_layers'])
                                    for i in range(fields['num_layers'])]
    if scaling.is_linear:
        config['rope_scaling'] = {'rope_type': 'linear', 'factor': scaling.factor}
    elif scaling.factor != 1:
        config['rope_scaling'] = {'rope_type': 'llama3', **{
            theirs: getattr(scaling, ours) for ours, theirs in _SCALING.items()}}
        config['max_position_embeddings'] = int(scaling.factor * scaling.length)
    return config
