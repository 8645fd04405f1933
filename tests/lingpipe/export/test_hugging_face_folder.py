"""Hugging Face folder: a network made here goes out, and comes in again."""
from __future__ import annotations

import itertools
import json
import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file

from lingpipe import layers
from lingpipe.checkpoint.hugging_face import Folder
from lingpipe.export import export, hugging_face_folder
from lingpipe.layers import Sequential
from lingpipe.learning import learning_rates
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.tasks.text.hugging_face import language_model
from lingpipe.tasks.text.language_model import LanguageModel
from tests.support import tiny_llama

SPEC = {'target': tf.TensorSpec([2, 5], tf.int32), 'label': tf.TensorSpec([2, 5], tf.int32),
        'weight': tf.TensorSpec([2, 5])}
SIZES = {'vocab_size': 11, 'num_layers': 1, 'model_dim': 8, 'hidden_dim': 6, 'num_heads': 2}


def program_of(network: Sequential.Params) -> Program:
    return Program(network.instantiate('model'), SPEC, PipelineParams(num_micro_batches=1),
                   Learner.Params(learning_rate=learning_rates.Constant.Params(
                       rate=0.1)).instantiate())


def test_a_network_made_here_comes_in_again(
        tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_llama.write(tmp_path / 'other', tiny_llama.config(), {'a': np.zeros(1, np.float32)})
    (tmp_path / 'other/tokenizer.json').write_text('{}')
    monkeypatch.chdir(tmp_path / 'other')   # Without a source, it is nobody's.
    params = LanguageModel.Params(**SIZES, is_scaled=False, has_bytes=False, is_tied=True)
    program = program_of(params)
    path = export(program, program.predictor(SPEC), f'{tmp_path}/out', 'hugging_face')
    assert sorted(os.listdir(path)) == ['config.json', 'lingpipe.json', 'model.safetensors']
    again, folder = language_model(path).instantiate('model'), Folder(path)
    assert {f'weights/{name}' for name in program.weights} == set(folder.kinds)
    for name, variable in program.weights.items():
        np.testing.assert_array_equal(folder.read(f'weights/{name}'), variable.numpy())
    assert again.params.is_tied


def test_a_gpt2_made_here_comes_in_again(tmp_path: pathlib.Path) -> None:
    """Queries, keys and values go out side by side in one tensor."""
    params = LanguageModel.Params(**SIZES, is_scaled=False, has_bytes=False, is_tied=True,
                                  family='gpt2', num_positions=5, biases='all')
    program = program_of(params)
    path = export(program, program.predictor(SPEC), f'{tmp_path}/out', 'hugging_face')
    again, folder = language_model(path).instantiate('model'), Folder(path)
    assert again.params.family == 'gpt2'
    assert {f'weights/{name}' for name in program.weights} == set(folder.kinds)
    for name, variable in program.weights.items():
        np.testing.assert_array_equal(folder.read(f'weights/{name}'), variable.numpy())
    fused = load_file(f'{path}/model.safetensors')['transformer.h.0.attn.c_attn.weight']
    np.testing.assert_array_equal(fused, np.concatenate(
        [program.weights[f'model/attention_0/body/w{c}'] for c in 'qkv'], 1))


def test_large_weights_are_in_parts(
        tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One tensor alone is larger than a part with several may be."""
    monkeypatch.setattr(hugging_face_folder, 'MOST_BYTES', 300)
    program = program_of(LanguageModel.Params(**SIZES, is_scaled=False, has_bytes=False))
    path = pathlib.Path(export(program, program.predictor(SPEC), f'{tmp_path}/out', 'hugging_face'))
    names = sorted(file.name for file in path.glob('*.safetensors'))
    assert names == [f'model-{i:05d}-of-{len(names):05d}.safetensors'
                     for i in range(1, len(names) + 1)]
    parts = [load_file(path / name) for name in names]
    index = json.loads((path / 'model.safetensors.index.json').read_text())
    assert index == {
        'metadata': {'total_size': sum(array.nbytes for part in parts for array in part.values())},
        'weight_map': {name: file for file, part in zip(names, parts, strict=True)
                       for name in part}}

    sizes = [[part[name].nbytes for name in index['weight_map'] if name in part] for part in parts]
    assert max(map(max, sizes)) > 300
    assert max(sum(part) for part in sizes if len(part) > 1) <= 300
    assert all(sum(part) + later[0] > 300 for part, later in itertools.pairwise(sizes))

    folder = Folder(str(path))
    for name, variable in program.weights.items():
        np.testing.assert_array_equal(folder.read(f'weights/{name}'), variable.numpy())


def test_weights_are_rounded_to_the_nearest_of_a_smaller_type(
        tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A half goes to the even neighbour; the files and config.json name one type."""
    monkeypatch.setattr(hugging_face_folder, 'MOST_BYTES', 300)
    program = program_of(LanguageModel.Params(**SIZES, is_scaled=False, has_bytes=False))
    program.weights['model/norm/scale'].assign(
        [1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -1 - 2**-11, 1 + 3 * 2**-11, 1 / 3, np.nan,
         -np.inf])
    for dtype, expected in {
            'bfloat16': [1, 1 + 2**-6, 1 + 2**-7, -1, 1, 171 / 512, np.nan, -np.inf],
            'float16': [1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8, -1, 1 + 2**-9, 1365 / 4096, np.nan,
                        -np.inf]}.items():
        path = pathlib.Path(export(program, program.predictor(SPEC), f'{tmp_path}/{dtype}',
                                   'hugging_face', dtype=dtype))
        assert json.loads((path / 'config.json').read_text())['torch_dtype'] == dtype
        folder = Folder(str(path))
        assert {kind['dtype'] for kind in folder.kinds.values()} == {dtype}
        scale = folder.read('weights/model/norm/scale').astype(np.float64)
        np.testing.assert_array_equal(scale, np.array(expected, np.float64))
        for name, variable in program.weights.items():
            read = folder.read(f'weights/{name}').astype(np.float32)
            rounded = tf.cast(tf.cast(variable, dtype), tf.float32)
            np.testing.assert_array_equal(read, rounded, err_msg=name)

        parts = [load_file(file) for file in path.glob('*.safetensors')]
        sizes = [sum(array.nbytes for array in part.values()) for part in parts]
        assert len(parts) > 1
        assert max(size for size, part in zip(sizes, parts, strict=True) if len(part) > 1) <= 300
        index = json.loads((path / 'model.safetensors.index.json').read_text())
        assert index['metadata']['total_size'] == sum(sizes)


def test_numbers_that_a_type_does_not_reach_are_refused(tmp_path: pathlib.Path) -> None:
    program = program_of(LanguageModel.Params(**SIZES, is_scaled=False, has_bytes=False))
    program.weights['model/norm/scale'].assign([1., 70_000., 1., 1., 1., 1., 1., 1.])
    with pytest.raises(ValueError, match=r'^model\.norm\.weight has numbers up to 7e\+04, which '
                                         r'float16 cannot hold; export as float32\.$'):
        export(program, program.predictor(SPEC), f'{tmp_path}/out', 'hugging_face',
               dtype='float16')
    assert not os.path.exists(f'{tmp_path}/out')


def test_a_type_is_refused_that_the_format_does_not_write(tmp_path: pathlib.Path) -> None:
    program = program_of(LanguageModel.Params(**SIZES, is_scaled=False, has_bytes=False))
    predictor = program.predictor(SPEC)
    with pytest.raises(ValueError, match="type 'int8' cannot be exported; use float32, bfloat16, "):
        export(program, predictor, f'{tmp_path}/out', 'hugging_face', dtype='int8')
    with pytest.raises(ValueError, match="format='npz' writes the weights in the type that they "
                                         'have, and only hugging_face rounds them to bfloat16'):
        export(program, predictor, f'{tmp_path}/out', 'npz', dtype='bfloat16')
    with pytest.raises(ValueError, match="format='huggingface' is unknown; use saved_model, "):
        export(program, predictor, f'{tmp_path}/out', 'huggingface', dtype='bfloat16')


def test_the_tokenizer_goes_along(tmp_path: pathlib.Path) -> None:
    source = tiny_llama.write(tmp_path / 'in', tiny_llama.config(), {'a': np.zeros(1, np.float32)})
    for name in ('tokenizer.json', 'merges.txt', 'README.md', 'pytorch_model.bin'):
        (tmp_path / 'in' / name).write_text(name)
    params = LanguageModel.Params(**SIZES, is_scaled=False, has_bytes=False)
    program = program_of(params)
    path = export(program, program.predictor(SPEC), f'{tmp_path}/out', 'hugging_face', None, source)
    assert sorted(os.listdir(path)) == ['config.json', 'lingpipe.json', 'merges.txt',
                                        'model.safetensors', 'tokenizer.json']


def test_a_source_that_is_gone_is_warned_of(
        tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    program = program_of(LanguageModel.Params(**SIZES, is_scaled=False, has_bytes=False))
    predictor = program.predictor(SPEC)
    with caplog.at_level('WARNING', 'absl'):
        export(program, predictor, f'{tmp_path}/out', 'hugging_face')
        assert not caplog.text
        export(program, predictor, f'{tmp_path}/out', 'hugging_face', None, f'{tmp_path}/gone')
    assert 'gone, from which the run took its weights, is no longer there' in caplog.text


def test_another_network_is_refused(tmp_path: pathlib.Path) -> None:
    network = Sequential.Params(name='model', layers=(
        layers.Embedding.Params(name='table', vocab_size=11, dim=4, reads={'ids': 'target'}),
        layers.Logits.Params(name='softmax', input_dim=4, vocab_size=11),
        layers.CrossEntropyLoss.Params(name='loss', reads={'labels': 'label'})))
    program = program_of(network)
    with pytest.raises(ValueError, match='writes a LanguageModel or a Transformer that translates, '
                                         'and the network has none; use'):
        export(program, program.predictor(SPEC), f'{tmp_path}/out', 'hugging_face')
    assert not os.path.exists(f'{tmp_path}/out')
