"""config.json of M2M-100 and NLLB-200 means a Transformer; what is not supported is refused."""
from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

from lingpipe.tasks.text.hugging_face import language_model
from lingpipe.tasks.translation.hugging_face import translation_model
from lingpipe.tasks.translation.hugging_face_config import fields_of, layer_dropout_of, rates_of
from tests.support.tiny_m2m_100 import config, network


def written(tmp_path: pathlib.Path, **fields: Any) -> pathlib.Path:
    (tmp_path / 'config.json').write_text(json.dumps(config(**fields)))
    return tmp_path


def test_a_config_gives_sizes_positions_and_the_dropout_of_training(
        tmp_path: pathlib.Path, caplog: Any) -> None:
    params = translation_model(written(
        tmp_path, dropout=0.3, activation_dropout=0.2, attention_dropout=0.1, pad_token_id=3,
        encoder_layerdrop=0.05), dtype='bfloat16', dropout_rate=0.4)
    assert {name: params[name] for name in (
        'num_encoder_layers', 'num_decoder_layers', 'vocab_size', 'model_dim', 'hidden_dim',
        'num_heads', 'head_dim', 'first_position', 'padding_id', 'tied', 'is_scaled',
        'has_softmax_bias', 'dropout_rate', 'hidden_dropout_rate', 'attention_dropout_rate',
        'dtype')} == {
        'num_encoder_layers': 2, 'num_decoder_layers': 1, 'vocab_size': 24, 'model_dim': 8,
        'hidden_dim': 12, 'num_heads': 2, 'head_dim': 4, 'first_position': 4, 'padding_id': 3,
        'tied': 'all', 'is_scaled': True, 'has_softmax_bias': False, 'dropout_rate': 0.4,
        'hidden_dropout_rate': 0.2, 'attention_dropout_rate': 0.1, 'dtype': 'bfloat16'}
    assert caplog.messages == [
        f'{tmp_path}: the network trains without the layer dropout of encoder_layerdrop=0.05; '
        'nothing else changes']


def test_fields_that_are_missing_are_those_of_transformers() -> None:
    names = ('dropout', 'attention_dropout', 'activation_dropout', 'pad_token_id', 'eos_token_id',
             'decoder_start_token_id', 'scale_embedding', 'tie_word_embeddings',
             'encoder_layerdrop', 'decoder_layerdrop')
    short = {name: value for name, value in config().items() if name not in names}
    assert fields_of(short) == fields_of(config())
    assert rates_of(short) == {
        'dropout_rate': 0.1, 'attention_dropout_rate': 0.1, 'hidden_dropout_rate': 0.}
    assert layer_dropout_of(short) == {'encoder_layerdrop': 0.05, 'decoder_layerdrop': 0.05}


@pytest.mark.parametrize('fields, words', [
    ({'model_type': 'nllb-moe'}, "model_type='nllb-moe', which is not supported, while m2m_100 "),
    ({'model_type': 'llama'}, 'and language_model of lingpipe.tasks.text.hugging_face takes lang'),
    ({'activation_function': 'gelu'}, "activation_function='gelu', which is not supported, while"),
    ({'tie_word_embeddings': False}, 'tie_word_embeddings=False, which is not supported, while Tr'),
    ({'layer_norm_eps': 1e-6}, 'layer_norm_eps=1e-06, which is not supported, while 1e-05 is'),
    ({'decoder_ffn_dim': 16}, 'decoder_ffn_dim=16, which is not supported, while encoder_ffn_dim='),
    ({'decoder_attention_heads': 4}, 'decoder_attention_heads=4, which is not supported, while en'),
    ({'d_model': 9}, 'd_model=9, which is not supported, while an even multiple of encoder_attent'),
    ({'decoder_start_token_id': 0}, 'decoder_start_token_id=0, which is not supported, while that'),
    ({'pad_token_id': None}, 'pad_token_id=None, which is not supported, while the number of an'),
    ({'encoder_layers': 0}, 'encoder_layers=0, but it must be a whole number above 0'),
    ({'dropout': 'a'}, "dropout='a', but it must be a number"),
    ({'quantization_config': {}}, 'quantization_config={}, which is not supported'),
])
def test_what_is_not_supported_is_refused(
        fields: dict[str, Any], words: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError) as error:
        translation_model(written(tmp_path, **fields))
    assert words in str(error.value)


def test_a_translation_model_is_no_language_model(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="has model_type='m2m_100', which translates; make its net"
                                         'work by translation_model of lingpipe'):
        language_model(written(tmp_path))


def test_the_config_that_came_in_goes_out_and_another_network_has_its_own() -> None:
    source = config(dropout=0.3)
    assert network().instantiate().hugging_face_config(source, 'float16') == {
        **source, 'dtype': 'float16'}
    written = network(num_decoder_layers=3, dropout_rate=0.2).instantiate().hugging_face_config(
        source)
    assert fields_of(written) == {**fields_of(source), 'num_decoder_layers': 3}
    assert rates_of(written)['dropout_rate'] == 0.2
    assert written['eos_token_id'] is written['decoder_start_token_id'] is None


@pytest.mark.parametrize('fields, words', [
    ({'tied': 'none'}, r"M2M-100 of Hugging Face has no task\.model\.tied='none' \('all' there\)"),
    ({'first_position': 0}, r'has no task\.model\.first_position=0 \(2 there\)'),
    ({'has_softmax_bias': True}, r'has no task\.model\.has_softmax_bias=True \(False there\)'),
    ({'activation': 'gelu'}, r"has no task\.model\.activation='gelu' \('relu' there\)"),
    ({'num_encoder_layers': 0, 'tied': 'none'}, 'num_encoder_layers=0 makes a language model'),
    ({'vocabulary_shards': 2}, r'task\.model\.vocabulary_shards=2 has no counterpart'),
    ({'feed_forward_shards': 2}, r'task\.model\.feed_forward_shards=2 has no counterpart'),
])
def test_a_network_that_no_model_of_hugging_face_is_is_refused(
        fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        network(**fields).instantiate().hugging_face_config({})
