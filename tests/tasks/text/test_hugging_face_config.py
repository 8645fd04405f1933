"""Config: what is read from config.json, what is refused, and what is written without one."""
from __future__ import annotations

import json
from typing import Any

import pytest

from lingpipe.layers.rotary import RotaryScaling
from lingpipe.tasks.text.hugging_face_config import config_of, dropout_of, fields_of
from lingpipe.tasks.text.hugging_face_experts import NO_EXPERTS, balance_of
from lingpipe.tasks.text.language_model import LanguageModel
from tests.support import tiny_gpt2
from tests.support.tiny_llama import KINDS, LLAMA3, config

MIXTRAL = KINDS['mixtral']


def model(**fields: Any) -> LanguageModel:
    return LanguageModel.Params(**{
        'vocab_size': 19, 'num_layers': 2, 'model_dim': 8, 'hidden_dim': 12, 'num_heads': 4,
        'is_scaled': False} | fields).instantiate()


def test_the_fields_are_those_of_the_config() -> None:
    assert fields_of(config('llama 3.1')) == {
        'family': 'llama', 'num_positions': 0,
        'vocab_size': 19, 'num_layers': 2, 'model_dim': 8, 'hidden_dim': 12, 'num_heads': 4,
        'num_groups': 2, 'head_dim': 6, 'score_dim': 6, 'rotary_base': 300.,
        'rotary_scaling': RotaryScaling(factor=4., low=1., high=4., length=20), 'biases': 'none',
        'window_rotary_base': 0., 'unrotated_layers': (), 'norms': 'before',
        'is_zero_centered': False, 'gate': 'silu',
        'normalises_heads': False, 'normalises_projections': False, 'epsilon': 1e-3,
        'is_tied': False, 'is_scaled': False, 'window': 0, 'full_layers': (), **NO_EXPERTS}


def test_the_fields_of_gemma_3_are_those_of_its_config() -> None:
    source = config('gemma3')
    known = fields_of(source)
    expected = {
        'head_dim': 4, 'score_dim': 7, 'rotary_base': 300., 'window_rotary_base': 20.,
        'rotary_scaling': RotaryScaling(factor=8., is_linear=True), 'norms': 'both',
        'is_zero_centered': True, 'normalises_heads': True, 'gate': 'gelu_tanh', 'is_tied': True,
        'is_scaled': True, 'window': 5, 'full_layers': (1,)}
    assert {name: known[name] for name in expected} == expected
    # Fields that transformers leaves out, since they have its defaults.
    for name in ('tie_word_embeddings', 'query_pre_attn_scalar', 'sliding_window',
                 'sliding_window_pattern', 'rope_theta', 'rope_scaling', 'rope_local_base_freq'):
        del source[name]
    known = fields_of({**source, 'num_hidden_layers': 7})
    expected = {'score_dim': 256, 'rotary_base': 1e6, 'window_rotary_base': 10_000.,
                'rotary_scaling': RotaryScaling(), 'is_tied': True, 'window': 4096,
                'full_layers': (5,)}
    assert {name: known[name] for name in expected} == expected
    assert known == fields_of({**source, 'num_hidden_layers': 7, 'rope_parameters': {
        'full_attention': None, 'sliding_attention': {'rope_type': 'default'}}})
    without_window = fields_of({**source, 'layer_types': ['full_attention'] * 3})
    assert (without_window['window'], without_window['window_rotary_base']) == (0, 0.)


@pytest.mark.parametrize('kind', KINDS)
def test_a_config_written_without_its_source_means_the_same(kind: str) -> None:
    fields = fields_of(config(kind))
    written = json.loads(json.dumps(config_of(fields, {})))
    assert fields_of(written) == fields


def test_the_fields_of_gpt2_are_those_of_its_config() -> None:
    expected = {
        'family': 'gpt2', 'num_positions': 24, 'vocab_size': 19, 'num_layers': 2, 'model_dim': 8,
        'hidden_dim': 32, 'num_heads': 2, 'num_groups': 2, 'head_dim': 4, 'score_dim': 4,
        'rotary_base': 10_000., 'rotary_scaling': RotaryScaling(), 'window_rotary_base': 0.,
        'unrotated_layers': (), 'biases': 'all', 'norms': 'before', 'is_zero_centered': False,
        'gate': 'silu', 'normalises_heads': False, 'normalises_projections': False,
        'epsilon': 1e-3, 'is_tied': True, 'is_scaled': False,
        'window': 0, 'full_layers': (), **NO_EXPERTS}
    source = tiny_gpt2.config()
    assert fields_of(source) == expected
    # transformers 4 leaves this field out where it is true.
    del source['tie_word_embeddings']
    assert fields_of(source) == expected
    assert not fields_of({**source, 'tie_word_embeddings': False})['is_tied']
    assert fields_of({**source, 'n_inner': 12})['hidden_dim'] == 12
    assert fields_of({**source, 'activation_function': 'gelu_pytorch_tanh'}) == expected
    written = json.loads(json.dumps(config_of(expected, {}, 'bfloat16')))
    assert fields_of(written) == expected
    assert written['torch_dtype'] == 'bfloat16'
    assert config_of(expected, source) == source


@pytest.mark.parametrize('fields, words', [
    ({'activation_function': 'gelu'}, "activation_function='gelu', which is not supported, while "
                                      "'gelu_new' is"),
    ({'activation_function': 'relu'}, "activation_function='relu', which is not supported"),
    ({'scale_attn_weights': False}, 'scale_attn_weights=False, which is not supported'),
    ({'scale_attn_by_inverse_layer_idx': True}, 'scale_attn_by_inverse_layer_idx=True, which is'),
    ({'reorder_and_upcast_attn': True}, 'reorder_and_upcast_attn=True, which is not supported'),
    ({'add_cross_attention': True}, 'add_cross_attention=True, which is not supported'),
    ({'quantization_config': {'bits': 4}}, "quantization_config={'bits': 4}, which is not"),
    ({'n_inner': 0}, 'n_inner=0, but it must be a whole number above 0'),
    ({'n_positions': True}, 'n_positions=True, but it must be a whole number above 0'),
    ({'n_head': 3}, 'n_embd=8 and n_head=3, which does not divide it, but all heads have as many'),
    ({'n_embd': None}, 'n_embd=None, but it must be a whole number above 0'),
])
def test_what_is_not_supported_of_gpt2_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError) as error:
        fields_of(tiny_gpt2.config(**fields))
    assert words in str(error.value)


def test_dropout_of_gpt2_is_told_and_stays_in_its_config() -> None:
    source = tiny_gpt2.config(attn_pdrop=0.2)
    del source['resid_pdrop']
    assert dropout_of(source) == {'attn_pdrop': 0.2, 'resid_pdrop': 0.1}   # the default
    assert dropout_of(tiny_gpt2.config()) == dropout_of(config('llama')) == {}
    assert fields_of(source) == fields_of(tiny_gpt2.config())
    assert config_of(fields_of(source), source) == source


@pytest.mark.parametrize('kind, words', [
    ({'model_type': 'falcon'}, "model_type='falcon', which is not supported, while llama, mi"),
    ({'model_type': 'qwen2_moe'}, "model_type='qwen2_moe', in which every token also uses shared"),
    ({**MIXTRAL, 'num_experts_per_tok': 1}, 'num_experts_per_tok=1, which is not supported, while'),
    ({**MIXTRAL, 'num_experts_per_tok': 9}, 'num_experts_per_tok=9 and num_local_experts='),
    ({**MIXTRAL, 'num_local_experts': None}, 'num_local_experts=None, but it must be a whole'),
    ({**MIXTRAL, 'router_jitter_noise': 0.1}, 'router_jitter_noise=0.1, which is not supported'),
    ({**KINDS['qwen3_moe'], 'decoder_sparse_step': 2}, 'decoder_sparse_step=2, which is not suppo'),
    ({**KINDS['qwen3_moe'], 'mlp_only_layers': [0]}, 'mlp_only_layers=[0], which is not supported'),
    ({**KINDS['olmoe'], 'clip_qkv': 8.}, 'clip_qkv=8.0, which is not supported, while None is'),
    ({'model_type': None}, 'model_type=None, which is not supported'),
    ({'hidden_act': 'gelu'}, "hidden_act='gelu', which is not supported, while 'silu' is"),
    ({'attention_dropout': 0.1}, 'attention_dropout=0.1, which is not supported, while 0 is'),
    ({'mlp_bias': True}, 'mlp_bias=True, which is not supported, while False is'),
    ({'quantization_config': {'bits': 4}}, "quantization_config={'bits': 4}, which is not"),
    ({'partial_rotary_factor': 0.5}, 'partial_rotary_factor=0.5, which is not supported'),
    ({'layer_types': 'full'}, "layer_types='full', which is not supported, while a list is"),
    ({'layer_types': ['full_attention', 'sliding_attention']},
     "layer_types='sliding_attention', which is not supported, while 'full_attention' for each"),
    ({'rope_scaling': {'type': 'dynamic', 'factor': 2.}}, "rope_scaling={'type': 'dynamic', 'f"),
    ({'rope_scaling': {'type': 'linear'}}, 'rope_scaling of the kind linear without factor'),
    ({'model_type': 'phi3', 'partial_rotary_factor': 0.75}, 'partial_rotary_factor=0.75, which is'),
    ({'model_type': 'phi3', 'resid_pdrop': 0.1}, 'resid_pdrop=0.1, which is not supported'),
    ({'model_type': 'phi3', 'rope_scaling': {'type': 'longrope', 'short_factor': [1.]}},
     "rope_scaling={'type': 'longrope', 'short_factor': [1.0]}, which is not supported, while"),
    ({**KINDS['smollm3'], 'use_sliding_window': True}, 'use_sliding_window=True, which is not su'),
    ({**KINDS['smollm3'], 'no_rope_layers': [1]}, 'no_rope_layers=[1], which is not supported'),
    ({**KINDS['gemma'], 'hidden_act': 'silu'}, "hidden_act='silu', which is not supported, while"),
    ({**KINDS['gemma3'], 'final_logit_softcapping': 30.}, 'final_logit_softcapping=30.0, which is'),
    ({**KINDS['gemma3'], 'rope_local_base_freq': 0}, 'rope_local_base_freq=0.0, which is not supp'),
    ({**KINDS['gemma3'], 'use_bidirectional_attention': True}, 'use_bidirectional_attention=True'),
    ({**KINDS['gemma3'], 'rope_scaling': None, 'rope_parameters': {'rope_theta': 9.}},
     'rope_parameters.rope_theta=9.0, which is not supported, while full_attention and sliding'),
    ({**KINDS['gemma3'], 'rope_scaling': None, 'rope_parameters': {
        'sliding_attention': {'rope_type': 'linear', 'factor': 2.}}},
     "rope_parameters.sliding_attention={'rope_type': 'linear', 'factor': 2.0}, which is not"),
    ({'rope_parameters': {'rope_type': 'yarn'}}, "rope_parameters={'rope_type': 'yarn'}, which is"),
    ({'rope_parameters': {'rope_theta': 5., 'partial_rotary_factor': 0.5}}, 'rope_parameters={'),
    ({'rope_scaling': {**LLAMA3, 'attention_factor': 2}}, 'rope_scaling.attention_factor=2, which'),
    ({'rope_scaling': {'rope_type': 'llama3', 'factor': 8.}}, 'llama3 without low_freq_factor'),
    ({'hidden_size': None}, 'hidden_size=None, but it must be a whole number above 0'),
    ({'model_type': 'qwen3'}, 'head_dim=None, but it must be'),
    ({'rms_norm_eps': None}, 'rms_norm_eps=None, but it must be a number; write what the'),
    ({'rope_parameters': {'rope_theta': None}}, 'rope_theta=None, but it must be a number'),
    ({'rope_scaling': {**LLAMA3, 'factor': None}}, 'factor=None, but it must be a number'),
    ({'rope_scaling': 'linear'}, "rope_scaling='linear', which is not supported, while an object"),
    ({'tie_word_embeddings': 'false'}, "tie_word_embeddings='false', but it must be true or false"),
    ({'attention_bias': 'no'}, "attention_bias='no', but it must be true or false"),
])
def test_what_is_not_supported_is_refused_by_name_and_value(
        kind: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError) as error:
        fields_of(config('llama', **kind))
    assert words in str(error.value)


@pytest.mark.parametrize('kind, fields', [
    ({'num_key_value_heads': None}, {'num_groups': 4}),
    ({'model_type': 'qwen2', 'num_key_value_heads': None}, {'num_groups': 4}),
    ({'model_type': 'mistral', 'sliding_window': None, 'num_key_value_heads': None},
     {'num_groups': 4}),
    ({'hidden_act': 'swish'}, {}),
    ({'model_type': 'phi3', 'num_key_value_heads': None}, {'num_groups': 4, 'window': 0}),
    ({'model_type': 'smollm3', 'num_hidden_layers': 9, 'tie_word_embeddings': False},
     {'unrotated_layers': (3, 7), 'is_tied': False}),
    ({'model_type': 'smollm3', 'num_hidden_layers': 5, 'no_rope_layer_interval': 2},
     {'unrotated_layers': (1, 3)}),
    ({**KINDS['gemma'], 'hidden_act': 'gelu', 'hidden_activation': None}, {'gate': 'gelu_tanh'}),
    ({'rope_scaling': {'type': 'linear', 'factor': 1.}}, {'rotary_scaling': RotaryScaling()}),
    ({'rope_scaling': {'type': 'linear', 'factor': 2.}},
     {'rotary_scaling': RotaryScaling(factor=2., is_linear=True)}),
    ({'tie_word_embeddings': None, 'attention_bias': None}, {'is_tied': False, 'biases': 'none'}),
    ({'rope_scaling': {**LLAMA3, 'factor': 8, 'original_max_position_embeddings': 20.}},
     {'rotary_scaling': RotaryScaling(factor=8., length=20)}),
    ({'model_type': 'mixtral', 'num_local_experts': 3, 'num_experts_per_tok': 2, 'rope_theta': None,
      'rope_parameters': {'rope_type': 'default'}}, {'window': 0, 'normalises_gates': True}),
    # transformers 5 writes this name for Qwen3-MoE.
    ({**KINDS['qwen3_moe'], 'num_experts': None, 'num_local_experts': 6},
     {'num_experts': 6, 'num_chosen': 2, 'normalises_gates': False, 'capacity_factor': 0.,
      'hidden_dim': 12, 'window': 4}),
    # With both spellings, transformers 5 takes this one, and transformers 4 knows no other.
    ({'rope_scaling': LLAMA3, 'rope_parameters': {'rope_type': 'default', 'rope_theta': 7.}},
     {'rotary_scaling': RotaryScaling(factor=4., length=20), 'rotary_base': 50.}),
])
def test_odd_values_mean_what_they_mean_to_transformers(
        kind: dict[str, Any], fields: dict[str, Any]) -> None:
    known = fields_of(config('llama', **kind))
    assert {name: known[name] for name in fields} == fields


def test_the_balance_of_experts_is_as_large_as_the_auxiliary_loss_of_transformers() -> None:
    source = config('mixtral', num_hidden_layers=4, router_aux_loss_coef=0.02)
    assert balance_of(source) == {'balance': 0.}   # It is left out there, too.
    assert balance_of({**source, 'output_router_logits': True}) == {'balance': 0.02 * 2 / 4}
    assert balance_of(config('llama')) == {}


def test_both_names_of_the_type_of_the_weights_are_written() -> None:
    source = config('llama', dtype='bfloat16', torch_dtype='bfloat16')
    written = config_of(fields_of(source), source)
    assert written == {**source, 'dtype': 'float32', 'torch_dtype': 'float32'}
    assert config_of(fields_of(source), source, 'float16')['dtype'] == 'float16'


def test_a_network_made_here_gets_a_config_of_the_model_that_has_its_parts() -> None:
    kinds = {biases: model(biases=biases).hugging_face_config({})['model_type']
             for biases in ('none', 'qkv', 'all')}
    assert kinds == {'none': 'llama', 'qkv': 'qwen2', 'all': 'llama'}
    written = model(normalises_heads=True, epsilon=1e-6).hugging_face_config({})
    assert written['model_type'] == 'qwen3'
    assert written['head_dim'] == 2
    gemma = {'is_zero_centered': True, 'is_scaled': True, 'gate': 'gelu_tanh'}
    kinds = {kind: model(**fields).hugging_face_config({})['model_type'] for kind, fields in {
        'gemma': gemma, 'smollm3': {'unrotated_layers': (1,)},
        'olmo2': {'norms': 'after', 'normalises_projections': True},
        'gemma3_text': {**gemma, 'norms': 'both', 'normalises_heads': True}}.items()}
    assert kinds == {kind: kind for kind in kinds}
    experts = {'num_experts': 3, 'capacity_factor': 0.}
    kinds = {kind: model(**experts, **fields).hugging_face_config({})['model_type']
             for kind, fields in {'mixtral': {}, 'qwen3_moe': {'normalises_heads': True},
                                  'olmoe': {'normalises_projections': True}}.items()}
    assert kinds == {kind: kind for kind in kinds}


def test_a_source_that_means_another_network_is_not_kept() -> None:
    source = config('mistral')
    assert model(epsilon=1e-3, rotary_base=50., num_groups=2).hugging_face_config(source) == source
    written = model(num_layers=3).hugging_face_config(source)
    assert (written['model_type'], written['num_hidden_layers']) == ('llama', 3)
    written = model().hugging_face_config({'model_type': 'mixtral'})   # It was replaced meanwhile.
    assert written['model_type'] == 'llama'


def test_without_a_source_no_id_ends_a_text() -> None:
    """The default of transformers' LlamaConfig is 2, which may be any token here.

    The default of SmolLM3Config for padding is 128004, which a small table does not have.
    """
    written = model().hugging_face_config({})
    names = ['bos_token_id', 'eos_token_id', 'pad_token_id']
    assert [written[name] for name in names] == [None, None, None]


@pytest.mark.parametrize('fields, words', [
    ({'is_scaled': True}, r'is_scaled=True multiplies .* train with task\.model\.is_scaled=False'),
    ({'num_experts': 2}, r'the Mixtral of Hugging Face has no task\.model\.capacity_factor=1\.25 '
                         r'\(0\.0 there\); train with what it has'),
    ({'num_experts': 2, 'normalises_heads': True, 'capacity_factor': 0., 'window': 3,
      'full_layers': (1,)}, r'the Qwen3Moe of Hugging Face has no task\.model\.full_layers=\(1,\)'),
    ({'normalises_projections': True}, r'the Llama of .* has no .*normalises_projections=True'),
    ({'normalises_projections': True, 'normalises_heads': True},
     'are both True, but queries and keys are normalised once; choose one'),
    ({'norms': 'both'}, r"the Llama of .* has no task\.model\.norms='both' \('before' there\)"),
    ({'is_zero_centered': True, 'gate': 'gelu_tanh'}, r'the Gemma of .* has no .*is_scaled=False'),
    ({'norms': 'both', 'is_zero_centered': True, 'gate': 'gelu_tanh', 'is_scaled': True,
      'normalises_heads': True, 'window': 3},
     r'the Gemma3 of .* has no .*window_rotary_base=0\.0 \(10000\.0 there\)'),
    ({'vocabulary_shards': 2}, r'task\.model\.vocabulary_shards=2 has no counterpart'),
    ({'normalises_heads': True, 'biases': 'qkv'}, "normalises_heads=True with biases='qkv'"),
    ({'normalises_heads': True, 'epsilon': 1e-5, 'is_scaled': True}, 'is_scaled=True'),
    ({'family': 'gpt2', 'num_positions': 9},
     r"GPT-2 of Hugging Face has no task\.model\.biases='none' \('all' there\); train with what"),
    ({'family': 'gpt2', 'num_positions': 9, 'biases': 'all', 'num_groups': 2},
     r'has no task\.model\.num_groups=2 \(4 there\)'),
])
def test_a_network_that_no_model_of_hugging_face_is_is_refused(
        fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        model(**fields).hugging_face_config({})
