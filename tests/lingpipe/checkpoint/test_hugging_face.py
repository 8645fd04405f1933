"""Folders of Hugging Face: their tensors by path, read one by one, and what is wrong with them."""
from __future__ import annotations

import json
import pathlib
import re
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from lingpipe.checkpoint import hugging_face, initialize
from lingpipe.tasks.text.hugging_face import language_model
from tests.support import tiny_gpt2, tiny_llama, tiny_m2m_100

RULES = [('weights/(.*)', r'weights/\1')]


def written(tmp_path: pathlib.Path, num_parts: int = 1, without: str = '',
            more: dict[str, np.ndarray] | None = None, **fields: Any) -> str:
    config = tiny_llama.config('llama', **fields)
    weights = {name: array for name, array in tiny_llama.tensors(config).items()
               if name != without}
    return tiny_llama.write(tmp_path / 'in', config, weights | (more or {}), num_parts)


def variables(folder: str, **fields: Any) -> dict[str, tf.Variable]:
    network = language_model(folder, **fields).instantiate('model')
    return {f'weights/{weight.path}': tf.Variable(weight.initial_value(0))
            for weight in network.weights() if weight.shared_with is None}


def test_gpt2_as_gpt2model_wrote_it_has_the_same_weights(tmp_path: pathlib.Path) -> None:
    """Such a folder has no `transformer` before its names, and old ones have the causal mask."""
    config = tiny_gpt2.config()
    weights = tiny_gpt2.tensors(config)
    old = {name.removeprefix('transformer.'): array for name, array in weights.items()}
    old |= {'h.0.attn.bias': np.tril(np.ones([1, 1, 4, 4], np.float32)),
            'h.1.attn.masked_bias': np.array(-1e4, np.float32),
            'lm_head.weight': old['wte.weight']}
    first, second = (hugging_face.Folder(tiny_llama.write(tmp_path / name, config, tensors))
                     for name, tensors in {'new': weights, 'old': old}.items())
    assert first.kinds == second.kinds
    for key in first.kinds:
        np.testing.assert_array_equal(first.read(key), second.read(key))
    np.testing.assert_array_equal(
        first.read('weights/model/attention_1/body/wk'),
        weights['transformer.h.1.attn.c_attn.weight'][:, tiny_gpt2.D:2 * tiny_gpt2.D])


@pytest.mark.parametrize('kind', ['mixtral', 'qwen3_moe'])
def test_experts_are_one_weight_whether_they_have_tensors_of_their_own_or_not(
        kind: str, tmp_path: pathlib.Path) -> None:
    config = tiny_llama.config(kind, num_hidden_layers=2)
    weights = tiny_llama.tensors(config)
    first, second = (hugging_face.Folder(tiny_llama.write(tmp_path / name, config, tensors))
                     for name, tensors in {'own': weights,
                                           'fused': tiny_llama.with_fused_experts(weights)}.items())
    assert first.kinds == second.kinds
    for key in first.kinds:
        np.testing.assert_array_equal(first.read(key), second.read(key))
    name = ('model.layers.1.block_sparse_moe.experts.2.w3.weight' if kind == 'mixtral' else
            'model.layers.1.mlp.experts.2.up_proj.weight')
    np.testing.assert_array_equal(first.read('weights/model/ffn_1/body/w_up')[2], weights[name].T)

    tiny_llama.write(tmp_path / 'own', config, {
        one: array for one, array in weights.items() if one != name.replace('.2.', '.1.')})
    with pytest.raises(ValueError, match=r'has for one weight, ffn_1/body/w_up, the tensors .*, '
                                         'which are not one for each expert, counted from 0'):
        hugging_face.Folder(str(tmp_path / 'own'))
    with pytest.raises(ValueError, match=r'but all experts have tensors of one kind'):
        hugging_face.Folder(tiny_llama.write(tmp_path / 'own', config, {
            **weights, name: weights[name][:3]}))


@pytest.mark.parametrize('has_model', [False, True])
def test_a_folder_of_peft_is_refused(has_model: bool, tmp_path: pathlib.Path) -> None:
    """One with a model beside the adapters gave its weights alone."""
    folder = written(tmp_path)
    own = variables(folder)
    (pathlib.Path(folder) / 'adapter_config.json').write_text('{}')
    if not has_model:
        (pathlib.Path(folder) / 'config.json').unlink()
    for read in (lambda: initialize(own, folder, RULES)), (lambda: language_model(folder)):
        with pytest.raises(ValueError, match=r'/in has adapter_config\.json, so that it holds '
                                             'adapters of the library peft, which are not read'):
            read()


def test_a_missing_tensor_of_gpt2_is_named_once(tmp_path: pathlib.Path) -> None:
    config = tiny_gpt2.config()
    weights = tiny_gpt2.tensors(config)
    folder = tiny_llama.write(tmp_path / 'in', config, weights)
    own = variables(folder)
    with pytest.raises(ValueError, match=r'tensors that no weight takes: transformer\.h\.1'
                                         r'\.attn\.c_attn\.bias, .* and 7 more'):
        initialize(variables(folder, num_layers=1), folder, RULES)
    del weights['transformer.h.1.attn.c_attn.weight']
    folder = tiny_llama.write(tmp_path / 'in', config, weights)
    with pytest.raises(ValueError, match=r'weights/model/attention_1/body/wq \(transformer\.h\.1'
                                         r'\.attn\.c_attn\.weight\): there is no'):
        initialize(own, folder, RULES)


def test_a_tensor_of_gpt2_that_has_no_three_equal_pieces_is_named(tmp_path: pathlib.Path) -> None:
    config, name = tiny_gpt2.config(), 'transformer.h.1.attn.c_attn.bias'
    weights = {**tiny_gpt2.tensors(config), name: np.zeros([25], np.float32)}
    folder = tiny_llama.write(tmp_path / 'in', config, weights)
    with pytest.raises(ValueError, match=re.escape(
            f'weights/model/attention_1/body/bq ({name}): its shape is [8], and [25] there')):
        initialize(variables(folder), folder, RULES)


def test_kernels_are_transposed_and_the_report_names_them(tmp_path: pathlib.Path) -> None:
    folder = written(tmp_path, num_parts=2)
    own = variables(folder)
    report = initialize(own, folder, RULES)
    weights = tiny_llama.tensors(tiny_llama.config())
    np.testing.assert_array_equal(own['weights/model/attention_1/body/wk'],
                                  weights['model.layers.1.self_attn.k_proj.weight'].T)
    np.testing.assert_array_equal(own['weights/model/embedding/w'],
                                  weights['model.embed_tokens.weight'])
    assert not report.not_taken
    assert report.text().startswith(f'{len(own)} of {len(own)} variables are taken from {folder}.')


def test_a_missing_tensor_is_named(tmp_path: pathlib.Path) -> None:
    folder = written(tmp_path, without='model.layers.1.mlp.up_proj.weight')
    with pytest.raises(ValueError, match=r'does not fit the network\. There are weights that it '
                                         r'does not give: weights/model/ffn_1/body/w_up \(model\.l'
                                         r'ayers\.1\.mlp\.up_proj\.weight\): there is no weights/'
                                         r'model/ffn_1/body/w_up; make the network by'):
        initialize(variables(folder), folder, RULES)


def test_tensors_that_no_weight_takes_are_named(tmp_path: pathlib.Path) -> None:
    folder = written(tmp_path)
    own = variables(folder, num_layers=1)
    before = own['weights/model/norm/scale'].numpy()
    with pytest.raises(ValueError, match=r'tensors that no weight takes: model\.layers\.1\.input_l'
                                         r'ayernorm\.weight, .* and 4 more; make the network by '
                                         r"language_model\('.*'\)\.$"):
        initialize(own, folder, RULES)
    np.testing.assert_array_equal(own['weights/model/norm/scale'], before)


def test_a_tensor_without_a_place_is_named(tmp_path: pathlib.Path) -> None:
    folder = written(tmp_path, more={'score.weight': np.zeros([2, 8], np.float32)})
    with pytest.raises(ValueError, match='tensors that the network has no place for: score.weight'):
        hugging_face.Folder(folder)


def test_constants_of_old_files_are_left_out(tmp_path: pathlib.Path) -> None:
    folder = written(tmp_path, more={
        'model.layers.0.self_attn.rotary_emb.inv_freq': np.zeros([1], np.float32)})
    assert not any('inv_freq' in key for key in hugging_face.Folder(folder).kinds)


@pytest.mark.parametrize('is_same', [True, False])
def test_a_second_copy_of_a_tied_table_must_be_the_same(
        is_same: bool, tmp_path: pathlib.Path) -> None:
    table = tiny_llama.tensors(tiny_llama.config())['model.embed_tokens.weight']
    folder = written(tmp_path, more={'lm_head.weight': table if is_same else table + 1},
                     tie_word_embeddings=True)
    if is_same:
        assert 'weights/model/softmax/w' not in hugging_face.Folder(folder).kinds
        return
    with pytest.raises(ValueError, match=r'tie_word_embeddings=true, but lm_head\.weight is not '
                                         r'model\.embed_tokens\.weight; write false'):
        hugging_face.Folder(folder)


def test_a_copy_of_a_tied_table_that_is_not_there_is_refused(tmp_path: pathlib.Path) -> None:
    """The error said that the copy was not the same, and to write false."""
    weights = tiny_llama.tensors(tiny_llama.config())
    weights['lm_head.weight'] = weights.pop('model.embed_tokens.weight')
    folder = tiny_llama.write(tmp_path, tiny_llama.config(tie_word_embeddings=True), weights)
    with pytest.raises(ValueError, match=r'has lm_head\.weight and no model\.embed_tokens\.weight, '
                                         'of which it is a copy .*; save the model again by save_'):
        hugging_face.Folder(folder)


def test_a_second_table_of_m2m_100_is_refused(tmp_path: pathlib.Path) -> None:
    config = tiny_m2m_100.config()
    weights = tiny_m2m_100.tensors(config)
    weights['lm_head.weight'] = weights['model.shared.weight'] + 1
    folder = tiny_llama.write(tmp_path / 'in', config, weights)
    with pytest.raises(ValueError, match=r'lm_head\.weight is not model\.shared\.weight; take '):
        hugging_face.Folder(folder)


def test_quantised_numbers_are_refused(tmp_path: pathlib.Path) -> None:
    folder = written(tmp_path, more={'model.norm.weight': np.zeros([8], np.int8)})
    with pytest.raises(ValueError, match=r'model\.norm\.weight has numbers of the kind I8, as '
                                         r'quantised weights have; take .* F64, F32, F16, BF16\.'):
        hugging_face.Folder(folder)


def test_other_shapes_are_named(tmp_path: pathlib.Path) -> None:
    folder = written(tmp_path, more={'lm_head.weight': np.zeros([20, 8], np.float32)})
    with pytest.raises(ValueError, match=re.escape(
            'weights/model/softmax/w (lm_head.weight): its shape is [8, 19], and [8, 20] there')):
        initialize(variables(folder), folder, RULES)


def test_missing_and_damaged_files_are_named(tmp_path: pathlib.Path) -> None:
    folder = written(tmp_path, num_parts=2)
    part = tmp_path / 'in/model-00002-of-00002.safetensors'
    whole = part.read_bytes()
    part.write_bytes(whole[:20])
    with pytest.raises(ValueError, match=r'model-00002-of-00002\.safetensors cannot be read: '):
        hugging_face.Folder(folder)
    part.unlink()
    with pytest.raises(ValueError, match=r'has no model-00002-of-00002\.safetensors; put it there'):
        hugging_face.Folder(folder)
    safetensors.numpy.save_file({'model.norm.weight': np.zeros([8], np.float32)}, part)
    with pytest.raises(ValueError, match=r'lacks tensors that model\.safetensors\.index\.json name'
                                         r's: .*; copy the folder again'):
        hugging_face.Folder(folder)
    (tmp_path / 'in/config.json').write_text('[')
    with pytest.raises(ValueError, match=r'config\.json cannot be read: .*; write it again'):
        hugging_face.Folder(folder)


def test_of_a_tensor_in_two_parts_that_of_the_index_is_taken(tmp_path: pathlib.Path) -> None:
    """As transformers does. The last part won before, whatever the index said."""
    folder = written(tmp_path, num_parts=2)
    index = json.loads((tmp_path / 'in/model.safetensors.index.json').read_text())
    part = tmp_path / 'in/model-00002-of-00002.safetensors'
    name = 'model.embed_tokens.weight'
    assert index['weight_map'][name] != part.name
    right = tiny_llama.tensors(tiny_llama.config())[name]
    safetensors.numpy.save_file({**safetensors.numpy.load_file(part), name: right + 1}, part)
    read = hugging_face.Folder(folder).read('weights/model/embedding/w')
    np.testing.assert_array_equal(read, right)


def test_one_file_is_taken_rather_than_parts(tmp_path: pathlib.Path) -> None:
    """As transformers does; parts that an earlier model has left there must not be read."""
    folder = written(tmp_path, num_parts=2)
    weights = {name: array + 1 for name, array in
               tiny_llama.tensors(tiny_llama.config()).items()}
    safetensors.numpy.save_file(weights, tmp_path / 'in/model.safetensors')
    read = hugging_face.Folder(folder).read('weights/model/norm/scale')
    np.testing.assert_array_equal(read, weights['model.norm.weight'])


@pytest.mark.parametrize('index', [
    {}, {'weight_map': None}, {'weight_map': {}}, {'weight_map': ['a']}, {'weight_map': {'a': 1}}])
def test_an_index_that_names_no_files_is_refused(
        index: dict[str, Any], tmp_path: pathlib.Path) -> None:
    folder = written(tmp_path, num_parts=2)
    (tmp_path / 'in/model.safetensors.index.json').write_text(json.dumps(index))
    with pytest.raises(ValueError, match=r'index\.json has no weight_map that names the file of ea'
                                         r'ch tensor; copy the folder again'):
        hugging_face.Folder(folder)


def test_a_directory_is_no_file_of_weights(tmp_path: pathlib.Path) -> None:
    folder = written(tmp_path)
    (tmp_path / 'in/model.safetensors').unlink()
    (tmp_path / 'in/model.safetensors').mkdir()
    with pytest.raises(ValueError, match=r'has no model\.safetensors; put it there'):
        hugging_face.Folder(folder)


def test_a_logdir_is_no_such_folder(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'config.json').write_text(json.dumps({}))
    assert hugging_face.is_folder(str(tmp_path))
    (tmp_path / 'checkpoints').mkdir()
    assert not hugging_face.is_folder(str(tmp_path))
