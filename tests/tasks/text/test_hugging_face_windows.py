"""Sliding windows of config.json mean what they mean to transformers, and are written again."""
from __future__ import annotations

from typing import Any

import pytest

from lingpipe.tasks.text.hugging_face_config import fields_of
from lingpipe.tasks.text.language_model import LanguageModel
from tests.support.tiny_llama import config

FULL, SLIDING = 'full_attention', 'sliding_attention'
QWEN: dict[str, Any] = {'num_hidden_layers': 4, 'use_sliding_window': True, 'sliding_window': 9}


@pytest.mark.parametrize('kind, given, window, full_layers', [
    ('mistral', {'sliding_window': 9}, 9, ()),
    ('mistral', {'sliding_window': 9, 'layer_types': [SLIDING, SLIDING]}, 9, ()),
    ('mistral', {'sliding_window': None, 'layer_types': [FULL, FULL]}, 0, ()),
    ('qwen2', {**QWEN, 'max_window_layers': 1}, 9, (0,)),
    ('qwen2', {**QWEN, 'max_window_layers': 0}, 9, ()),
    ('qwen2', {**QWEN, 'max_window_layers': 4}, 0, ()),
    ('qwen2', QWEN, 0, ()),   # the default of max_window_layers is 28
    ('qwen2', {**QWEN, 'use_sliding_window': False, 'max_window_layers': 1}, 0, ()),
    ('qwen2', {**QWEN, 'sliding_window': None, 'max_window_layers': 1}, 0, ()),
    ('qwen3', {**QWEN, 'max_window_layers': 3, 'layer_types': [SLIDING, FULL, SLIDING, FULL]},
     9, (1, 3)),
    ('qwen3', {**QWEN, 'layer_types': [FULL] * 4}, 0, ()),
    ('llama', {'sliding_window': None, 'layer_types': [FULL, FULL]}, 0, ()),
    ('gemma3', {'layer_types': [FULL, SLIDING, SLIDING]}, 5, (0,)),
    ('gemma3', {'sliding_window_pattern': 3}, 5, (2,)),
    ('gemma3', {'sliding_window_pattern': 1}, 0, ()),
])
def test_a_window_is_that_of_the_layers_that_have_it(
        kind: str, given: dict[str, Any], window: int, full_layers: tuple[int, ...]) -> None:
    fields = fields_of(config(kind, **given))
    assert (fields['window'], fields['full_layers']) == (window, full_layers)


def test_without_a_field_the_window_is_that_of_transformers() -> None:
    source = config('mistral')
    del source['sliding_window']
    assert fields_of(source)['window'] == 4096
    source = config('qwen2', use_sliding_window=True, max_window_layers=1)
    del source['sliding_window']
    assert (fields_of(source)['window'], fields_of(source)['full_layers']) == (4096, (0,))


@pytest.mark.parametrize('kind, given, words', [
    ('llama', {'sliding_window': 9}, 'sliding_window=9, which is not supported, while null is, as'),
    ('mistral', {'sliding_window': 0}, 'sliding_window=0, but it must be a whole number above 0'),
    ('mistral', {'sliding_window': 9, 'layer_types': [SLIDING, FULL]},   # It would not be heeded.
     "is not supported, while 'sliding_attention' for all layers of this model_type is"),
    ('qwen2', {**QWEN, 'max_window_layers': None}, 'max_window_layers=None, which is not support'),
    ('qwen2', {**QWEN, 'layer_types': [SLIDING]}, 'while one for each of the 4 layers is'),
    ('qwen2', {**QWEN, 'layer_types': [SLIDING, 'chunked_attention']},
     "layer_types='chunked_attention', which is not supported, while 'full_attention' or 'slid"),
    ('qwen2', {**QWEN, 'use_sliding_window': False, 'layer_types': [SLIDING] * 4},
     "layer_types='sliding_attention', which is not supported, while 'full_attention' for each "
     'layer of a model with sliding_window=None is'),
    ('gemma3', {'sliding_window': None}, 'sliding_window=None, but it must be a whole number abo'),
])
def test_windows_that_are_not_supported_are_refused(
        kind: str, given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError) as error:
        fields_of(config(kind, **given))
    assert words in str(error.value)


def model(**fields: Any) -> LanguageModel:
    return LanguageModel.Params(**{
        'vocab_size': 19, 'num_layers': 3, 'model_dim': 8, 'hidden_dim': 12, 'num_heads': 4,
        'is_scaled': False, 'window': 5} | fields).instantiate()


@pytest.mark.parametrize('fields, expected', [
    ({}, {'model_type': 'mistral', 'sliding_window': 5}),
    ({'biases': 'qkv', 'full_layers': (0, 1)},
     {'model_type': 'qwen2', 'use_sliding_window': True, 'sliding_window': 5,
      'max_window_layers': 2, 'layer_types': [FULL, FULL, SLIDING]}),
    ({'normalises_heads': True, 'full_layers': (1,)},
     {'model_type': 'qwen3', 'use_sliding_window': True, 'sliding_window': 5,
      'max_window_layers': 1, 'layer_types': [SLIDING, FULL, SLIDING]}),
    ({'normalises_heads': True, 'full_layers': (1,), 'norms': 'both', 'is_zero_centered': True,
      'gate': 'gelu_tanh', 'is_scaled': True, 'window_rotary_base': 30., 'score_dim': 3},
     {'model_type': 'gemma3_text', 'sliding_window': 5, 'rope_local_base_freq': 30.,
      'layer_types': [SLIDING, FULL, SLIDING], 'query_pre_attn_scalar': 3}),
])
def test_a_network_made_here_gets_a_config_with_its_window(
        fields: dict[str, Any], expected: dict[str, Any]) -> None:
    network = model(**fields)
    written = network.hugging_face_config({})
    assert {name: written.get(name) for name in expected} == expected
    assert fields_of(written) == network.fields_of_hugging_face()


@pytest.mark.parametrize('fields', [{'full_layers': (0,)}, {'biases': 'all'}])
def test_a_window_that_no_model_of_hugging_face_has_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"is in no model of Hugging Face .* with biases='none' and"
                                         r" no full_layers, Mistral is, and with 'qkv', or"):
        model(**fields).hugging_face_config({})
    with pytest.raises(ValueError, match=r'SmolLM3 of Hugging Face has no task\.model\.window=5'):
        model(unrotated_layers=(1,)).hugging_face_config({})
    with pytest.raises(ValueError, match=r'GPT-2 of Hugging Face has no task\.model\.window=5'):
        model(family='gpt2', num_positions=9, biases='all').hugging_face_config({})


@pytest.mark.parametrize('full_layers, window', [
    ((1, 0), 5), ((3,), 5), ((1, 1), 5), ((0, 1, 2), 5), ((1,), 0)])
def test_layers_without_the_window_are_some_of_the_network_in_order(
        full_layers: tuple[int, ...], window: int) -> None:
    with pytest.raises(ValueError, match=f'with window={window}, but they name some, not all, of '
                                         'the layers 0 to 2 of a network with a window, in this'):
        model(full_layers=full_layers, window=window)
