"""Adapters of peft come in beside the weights of their model, and go out as they came."""
from __future__ import annotations

import json
import pathlib
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from lingpipe.api.start import start
from lingpipe.checkpoint.peft_adapters import PeftAdapters
from lingpipe.hyperparams import ParamsError
from lingpipe.input import ArrayInput
from lingpipe.layers.low_rank import Adapters
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.tasks.text.hugging_face import language_model, peft_adapters
from lingpipe.tasks.text.task import language_learner, language_problem
from lingpipe.training.experiment import Experiment
from lingpipe.training.initialize_from import InitializeFrom
from lingpipe.training.train_params import TrainParams
from tests.support import peft_files, tiny_gpt2, tiny_llama

IDS = np.random.default_rng(1).integers(0, tiny_llama.V, [2, 9]).astype(np.int32)
EXAMPLES = {'target': IDS[:, :-1], 'label': IDS[:, 1:], 'weight': np.ones([2, 8], np.float32)}
LLAMA = tiny_llama.config(num_hidden_layers=1)
GPT2 = tiny_gpt2.config(n_layer=1)


def experiment(folder: str, source: InitializeFrom, adapters: Adapters | None,
               num_cells: int = 1) -> Experiment.Params:
    return Experiment.Params(
        task=language_problem(language_model(folder, block_size=8, adapters=adapters),
                              language_learner(0.01, 10, warmup_steps=1)),
        train_input=ArrayInput.of(EXAMPLES, batch_size=2), initialize_from=source,
        pipeline=PipelineParams(num_cells=num_cells, num_micro_batches=1),
        train=TrainParams(num_steps=2))


@pytest.mark.parametrize('family, config, modules, scale, fields', [
    pytest.param(tiny_llama, LLAMA, ['q_proj', 'down_proj'], 3 / 2, {'lora_dropout': 0.1},
                 id='llama'),
    pytest.param(tiny_gpt2, GPT2, ['c_attn', 'mlp.c_proj'], 3 / np.sqrt(2), {'use_rslora': True},
                 id='gpt2')])
def test_a_model_with_adapters_computes_what_peft_merges_and_goes_out_as_it_came(
        family: Any, config: dict[str, Any], modules: list[str], scale: float,
        fields: dict[str, Any], tmp_path: pathlib.Path) -> None:
    weights = family.tensors(config)
    folder = tiny_llama.write(tmp_path / 'in', config, weights)
    came = peft_files.write(tmp_path / 'adapters', weights, modules, **fields)
    source = InitializeFrom(directory=folder, adapters=came)
    with start(experiment(folder, source, peft_adapters(came), 2), logdir=tmp_path / '0') as run:
        run.train(steps=0, evaluate=False)
        logits = run.predict({'target': EXAMPLES['target']})['logits']
        peft_files.check_same(came, run.export(tmp_path / 'out', format='peft'))
    expected = family.logits(config, peft_files.merged(weights, came, scale), EXAMPLES['target'])
    np.testing.assert_allclose(logits, expected, atol=1e-5 * np.abs(expected).max())
    report = (tmp_path / '0/initialization.txt').read_text()
    assert f'taken from {folder} and {came}.' in report
    assert ('  taken      weights/model/ffn_0/body/w' in report
            and '_adapter/a from base_model.model.' in report)


@pytest.mark.parametrize('targets', [('wq', 'wv'), ('wq', 'wk', 'wv')])
def test_what_the_parts_of_gpt2_learned_apart_comes_in_again(
        targets: tuple[str, ...], tmp_path: pathlib.Path) -> None:
    """After a step, each part of c_attn has an `a` of its own."""
    weights = tiny_gpt2.tensors(GPT2)
    folder = tiny_llama.write(tmp_path / 'in', GPT2, weights)
    source = InitializeFrom(directory=folder)
    adapters = Adapters(rank=2, alpha=3., targets=targets)
    logits, exports = [], []
    for num_steps in (1, 0):
        params = experiment(folder, source, adapters)
        with start(params, logdir=tmp_path / f'{num_steps}') as run:
            run.train(steps=num_steps, evaluate=False)
            logits.append(run.predict({'target': EXAMPLES['target']})['logits'])
            exports.append(run.export(tmp_path / f'out{num_steps}', format='peft'))
        source.adapters = exports[0]
        assert peft_adapters(exports[0]) == adapters
    np.testing.assert_array_equal(*logits)
    peft_files.check_same(*exports)


def test_names_of_tensors_say_which_projections_have_an_adapter(tmp_path: pathlib.Path) -> None:
    adapters = peft_adapters(peft_files.write(
        tmp_path / 'in', tiny_gpt2.tensors(GPT2), ['c_proj'], lora_dropout=0.25,
        init_lora_weights='gaussian', target_modules='all-linear'))
    assert adapters == Adapters(rank=2, alpha=3., dropout_rate=0.25, targets=('wo', 'w2'))


@pytest.mark.parametrize('fields, error', [
    ({'peft_type': 'IA3'}, r"has peft_type='IA3', and 'LORA' alone is supported; merge these"),
    ({'bias': 'all'}, "has bias='all', and this, which changes what the model computes, is not"),
    ({'use_dora': True}, 'has use_dora=True, and this'),
    ({'modules_to_save': ['lm_head']}, r"has modules_to_save=\['lm_head'\], and this"),
    ({'layers_to_transform': 0}, 'has layers_to_transform=0, and this'),
    ({'init_lora_weights': 'pissa'}, "has init_lora_weights='pissa', and this"),
    ({'of_a_later_peft': {'a': 1}}, r"has of_a_later_peft=\{'a': 1\}, and this"),
    ({'rank_pattern': {'q_proj': 4}}, r"rank_pattern=\{'q_proj': 4\}, and all adapters of a netwo"),
    ({'alpha_pattern': {'q_proj': 4}}, 'one rank and one alpha; merge these adapters into their'),
    ({'r': 'two'}, "has r='two' and lora_alpha=3, which must be numbers above 0; copy the folder")])
def test_what_would_compute_something_else_is_refused(
        fields: dict[str, Any], error: str, tmp_path: pathlib.Path) -> None:
    folder = peft_files.write(tmp_path / 'in', {}, [])
    config = peft_files.CONFIG | fields
    (tmp_path / 'in/adapter_config.json').write_text(json.dumps(config))
    with pytest.raises(ValueError, match=f'/in: adapter_config.json .*{error}'):
        PeftAdapters(folder)


@pytest.mark.parametrize('tensor, shape, error', [
    ('model.layers.0.self_attn.q_proj.bias', [8], 'q_proj.bias, but only the projections of'),
    ('lm_head.lora_A.weight', [2, 8], 'but only the projections of attention and feed-forward'),
    ('model.layers.0.self_attn.q_proj.lora_A.weight', [3, 8], 'which is not of rank 2, as adapter'),
    ('model.layers.0.self_attn.q_proj.lora_B.weight', [8, 2],
     'q_proj.lora_B.weight without its lora_A; copy the folder again'),
    ('model.layers.0.self_attn.q_proj.lora_A.weight', [2, 8, 1],
     r'has the shape \[2, 8, 1\] and numbers of the kind F32, but an adapter has matrices of'),
    ('transformer.h.0.attn.c_attn.lora_B.weight', [24, 6], 'has not 3 blocks, each of queries')])
def test_tensors_that_no_adapter_here_has_are_refused(
        tensor: str, shape: list[int], error: str, tmp_path: pathlib.Path) -> None:
    fused = {'rank_pattern': {'attn.c_attn': 6}, 'alpha_pattern': {'attn.c_attn': 9}}
    folder = peft_files.write(tmp_path / 'in', {}, [], **(fused if '.h.' in tensor else {}))
    safetensors.numpy.save_file({f'base_model.model.{tensor}': np.ones(shape, np.float32)},
                                f'{folder}/adapter_model.safetensors')
    with pytest.raises(ValueError, match=error):
        PeftAdapters(folder)


def test_a_folder_with_whole_numbers_or_without_adapters_is_refused(
        tmp_path: pathlib.Path) -> None:
    folder = peft_files.write(tmp_path / 'in', {}, [])
    with pytest.raises(ValueError, match=r'adapter_model\.safetensors has no adapters; copy the'):
        PeftAdapters(folder)
    name = 'base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight'
    safetensors.numpy.save_file({name: np.ones([2, 8], np.int8)},
                                f'{folder}/adapter_model.safetensors')
    with pytest.raises(ValueError, match='numbers of the kind I8, but an adapter has matrices of'):
        PeftAdapters(folder)


@pytest.mark.parametrize('name, error', [
    ('adapter_config.json', 'has no adapter_config.json, so that it is no folder of peft; name'),
    ('adapter_model.safetensors', 'has no adapter_model.safetensors; put it there. If there is an '
                                  'adapter_model.bin, load it in peft and call save_pretrained')])
def test_a_missing_file_is_named(name: str, error: str, tmp_path: pathlib.Path) -> None:
    folder = peft_files.write(tmp_path / 'in', {}, [])
    (tmp_path / 'in' / name).unlink()
    with pytest.raises(ValueError, match=error):
        peft_adapters(folder)


def test_adapters_that_are_not_those_of_the_network_are_refused(tmp_path: pathlib.Path) -> None:
    """Nothing is taken then, neither these nor the weights."""
    weights = tiny_llama.tensors(LLAMA)
    folder = tiny_llama.write(tmp_path / 'in', LLAMA, weights)
    came = peft_files.write(tmp_path / 'adapters', weights, ['q_proj'])
    source = InitializeFrom(directory=folder, adapters=came)
    q = 'weights/model/attention_0/body/wq_adapter/a'
    for adapters, error in [
            (None, rf'are not those of the network: it has {q} of the shape \[8, 2\], and the netwo'
                   r"rk none; make the network with adapters=peft_adapters"),
            (Adapters(rank=2, alpha=3., targets=('wq', 'wo')),
             'it lacks weights/model/attention_0/body/wo_adapter/a'),
            (Adapters(rank=1, alpha=3., targets=('wq',)), r'and the network one of \[8, 1\]'),
            (Adapters(rank=2, alpha=4., targets=('wq',)),
             'wq has alpha=4 with rank=2, and learned what is taken with alpha=3; set that')]:
        with (start(experiment(folder, source, adapters), logdir=tmp_path / 'logs') as run,
              pytest.raises(ValueError, match=error)):
            run.train(steps=0, evaluate=False)


def test_adapters_come_from_one_place_and_never_alone(tmp_path: pathlib.Path) -> None:
    weights = tiny_llama.tensors(LLAMA)
    folder = tiny_llama.write(tmp_path / 'in', LLAMA, weights)
    came = peft_files.write(tmp_path / 'adapters', weights, ['q_proj'])
    source = InitializeFrom(directory=folder, adapters=came)
    with start(experiment(folder, source, peft_adapters(came)), logdir=tmp_path / 'logs') as run:
        run.train(steps=0, evaluate=False)
    source.directory = str(tmp_path / 'logs')
    with (start(experiment(folder, source, peft_adapters(came)), logdir=tmp_path / 'twice') as run,
          pytest.raises(ValueError, match=r'/logs has weights/model/attention_0/body/wq_adapter/a, '
                                          r'and initialize_from\.adapters=.* has it, too; leave')):
        run.train(steps=0, evaluate=False)
    with pytest.raises(ParamsError, match='come with the weights of their model, and directory is '
                                          'empty; name the folder of this model in directory'):
        InitializeFrom(adapters=came).validate()
