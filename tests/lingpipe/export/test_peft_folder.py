"""PEFT folder: its matrices, by peft's formula, are what the merged weights have more."""
from __future__ import annotations

import json
import os
import pathlib
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file

from lingpipe.export import export
from lingpipe.layers.low_rank import Adapters
from lingpipe.learning import learning_rates
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.tasks.text.language_model import LanguageModel

SPEC = {'target': tf.TensorSpec([2, 5], tf.int32), 'label': tf.TensorSpec([2, 5], tf.int32),
        'weight': tf.TensorSpec([2, 5])}
GPT2 = {'family': 'gpt2', 'num_positions': 5, 'biases': 'all', 'is_tied': True}


def program_of(adapters: Adapters | None, **fields: Any) -> Program:
    """A network whose adapters are random, also those that begin at 0."""
    network = LanguageModel.Params(vocab_size=11, num_layers=2, model_dim=8, hidden_dim=6,
                                   num_heads=2, is_scaled=False, has_bytes=False,
                                   adapters=adapters, **fields)
    program = Program(network.instantiate('model'), SPEC, PipelineParams(num_micro_batches=1),
                      Learner.Params(learning_rate=learning_rates.Constant.Params(
                          rate=0.1)).instantiate())
    rng = np.random.default_rng(0)
    for path, variable in program.weights.items():
        if path.endswith('_adapter/b'):
            variable.assign(rng.normal(size=variable.shape))
    return program


@pytest.mark.parametrize('fields, targets, modules, rank_of', [
    ({}, ('wq', 'w_down'), {'mlp.down_proj', 'self_attn.q_proj'}, {}),
    (GPT2, ('wq', 'wv', 'w2'), {'attn.c_attn', 'mlp.c_proj'}, {'attn.c_attn': 4}),
    (GPT2, (), {'attn.c_attn', 'attn.c_proj', 'mlp.c_fc', 'mlp.c_proj'}, {'attn.c_attn': 6})],
    ids=['llama', 'gpt2', 'all of gpt2'])
def test_it_says_by_peft_s_formula_what_the_merged_weights_say(
        fields: dict[str, Any], targets: tuple[str, ...], modules: set[str],
        rank_of: dict[str, int], tmp_path: pathlib.Path) -> None:
    program = program_of(Adapters(rank=2, alpha=3., dropout_rate=0.1, targets=targets), **fields)
    before = {path: variable.numpy() for path, variable in program.weights.items()}
    predictor = program.predictor(SPEC)
    path = export(program, predictor, f'{tmp_path}/peft', 'peft')
    assert sorted(os.listdir(path)) == ['adapter_config.json', 'adapter_model.safetensors',
                                        'lingpipe.json']
    is_gpt2 = bool(fields)
    assert json.loads(pathlib.Path(path, 'adapter_config.json').read_text()) == {
        'peft_type': 'LORA', 'task_type': 'CAUSAL_LM', 'inference_mode': True, 'r': 2,
        'lora_alpha': 3., 'lora_dropout': 0.1, 'target_modules': sorted(modules), 'bias': 'none',
        'fan_in_fan_out': is_gpt2, 'rank_pattern': rank_of,
        'alpha_pattern': {name: 3 / 2 * rank for name, rank in rank_of.items()},
        'base_model_name_or_path': None}

    def exported(of: Program, name: str) -> dict[str, np.ndarray]:
        folder = export(of, of.predictor(SPEC), f'{tmp_path}/{name}', 'hugging_face')
        return dict(load_file(f'{folder}/model.safetensors'))

    merged = exported(program, 'merged')
    base = program_of(None, **fields)
    for weight, variable in base.weights.items():
        variable.assign(before[weight])
    expected = exported(base, 'base')
    matrices = load_file(f'{path}/adapter_model.safetensors')
    assert len(matrices) == 2 * 2 * len(modules)
    for name in (name for name in matrices if name.endswith('.lora_A.weight')):
        module = name.removesuffix('.lora_A.weight')
        added = 3 / 2 * matrices[f'{module}.lora_B.weight'] @ matrices[name]
        expected[f'{module.removeprefix("base_model.model.")}.weight'] += (
            added.T if is_gpt2 else added)
    assert merged.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(merged[name], array, atol=1e-6, err_msg=name)


def test_the_folder_that_the_weights_came_from_is_the_base(tmp_path: pathlib.Path) -> None:
    base = program_of(None)
    source = export(base, base.predictor(SPEC), f'{tmp_path}/base', 'hugging_face')
    program = program_of(Adapters(rank=2))
    path = export(program, program.predictor(SPEC), f'{tmp_path}/peft', 'peft', None, source)
    config = json.loads(pathlib.Path(path, 'adapter_config.json').read_text())
    assert config['base_model_name_or_path'] == source


def test_a_network_without_adapters_is_refused(tmp_path: pathlib.Path) -> None:
    program = program_of(None)
    with pytest.raises(ValueError, match='the format peft writes the adapters of a network, and '
                                         'this one has none; use hugging_face'):
        export(program, program.predictor(SPEC), f'{tmp_path}/out', 'peft')


def test_adapters_beside_projections_that_phi3_has_in_one_are_refused(
        tmp_path: pathlib.Path) -> None:
    (tmp_path / 'config.json').write_text(json.dumps({
        'model_type': 'phi3', 'vocab_size': 11, 'hidden_size': 8, 'intermediate_size': 6,
        'num_hidden_layers': 2, 'num_attention_heads': 2}))
    program = program_of(Adapters(rank=2))
    with pytest.raises(ValueError, match=r'\(phi3\), for which the format peft is not written; use '
                                         'hugging_face, which merges them'):
        export(program, program.predictor(SPEC), f'{tmp_path}/out', 'peft', None, str(tmp_path))
