"""Models of Hugging Face come in, compute what NumPy computes, train in any cells, and go out."""
from __future__ import annotations

import json
import pathlib
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from lingpipe.api.run import Run
from lingpipe.api.start import start
from lingpipe.checkpoint import initialize
from lingpipe.input import ArrayInput
from lingpipe.layers.low_rank import Adapters
from lingpipe.pipeline.decoding.decoder import Decoder
from lingpipe.pipeline.decoding.sampling import SamplingParams
from lingpipe.pipeline.decoding.sentence_group import SentenceGroup
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.tasks.text.hugging_face import language_model
from lingpipe.tasks.text.task import language_learner, language_problem
from lingpipe.training.experiment import Experiment
from lingpipe.training.initialize_from import InitializeFrom
from lingpipe.training.train_params import TrainParams
from tests.support import tiny_gpt2, tiny_llama

IDS = np.random.default_rng(1).integers(0, tiny_llama.V, [4, 21]).astype(np.int32)
EXAMPLES = {'target': IDS[:, :-1], 'label': IDS[:, 1:],
            'weight': np.ones([4, 20], np.float32)}


def experiment(folder: str, num_cells: int = 1, source: InitializeFrom | None = None,
               **fields: Any) -> Experiment.Params:
    return Experiment.Params(
        task=language_problem(language_model(folder, block_size=8, **fields),
                              language_learner(0.01, 10, warmup_steps=1)),
        train_input=ArrayInput.of(EXAMPLES, batch_size=4),
        initialize_from=source or InitializeFrom(directory=folder),
        pipeline=PipelineParams(num_cells=num_cells, num_micro_batches=2),
        train=TrainParams(num_steps=2))


def started(run: Run) -> Run:
    run.train(steps=0, evaluate=False)
    return run


@pytest.mark.parametrize('family, config', [
    *(pytest.param(tiny_llama, tiny_llama.config(kind), id=kind) for kind in tiny_llama.KINDS),
    pytest.param(tiny_gpt2, tiny_gpt2.config(), id='gpt2'),
    pytest.param(tiny_gpt2, tiny_gpt2.config(tie_word_embeddings=False, n_inner=12),
                 id='untied gpt2')])
def test_a_folder_computes_what_numpy_computes_and_goes_out_as_it_came(
        family: Any, config: dict[str, Any], tmp_path: pathlib.Path) -> None:
    weights = family.tensors(config)
    folder = tiny_llama.write(tmp_path / 'in', config, weights, num_parts=3)
    (tmp_path / 'in/tokenizer.json').write_text('{"a": 1}')
    with start(experiment(folder, num_cells=2), logdir=tmp_path / 'logs') as run:
        logits = started(run).predict({'target': EXAMPLES['target']})['logits']
        run.export(tmp_path / 'out', format='hugging_face')
    expected = family.logits(config, weights, EXAMPLES['target'])
    np.testing.assert_allclose(logits, expected, atol=1e-5 * np.abs(expected).max())

    tiny_llama.assert_written(tmp_path / 'out', config, weights)
    assert (tmp_path / 'out' / 'tokenizer.json').read_text() == '{"a": 1}'


@pytest.mark.parametrize('prefill', [0, 3])
def test_gpt2_writes_the_ids_that_numpy_writes(prefill: int, tmp_path: pathlib.Path) -> None:
    """Each prompt begins at position 0, whatever their lengths, and goes on to the last position.

    In a group, a prompt without padding was at positions that no model has when it had ended.
    """
    config = tiny_gpt2.config(n_layer=1, n_positions=14)
    check_written_ids(tiny_gpt2, config, prefill, tmp_path)


def check_written_ids(family: Any, config: dict[str, Any], prefill: int, tmp_path: pathlib.Path
                      ) -> None:
    """The network of a folder goes on with the ids that NumPy finds best."""
    weights = family.tensors(config)
    folder = tiny_llama.write(tmp_path / 'in', config, weights)
    for prompt, row in written_ids(folder, prefill):
        ids = list(prompt)
        while len(ids) < 14:
            logits = family.logits(config, weights, np.array([ids]))
            ids.append(int(logits[0, -1].argmax()))
        np.testing.assert_array_equal(row, ids[1:])


def written_ids(folder: str, prefill: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Three prompts, and the ids that follow the first id of each, up to 13 of them."""
    problem = experiment(folder).task.instantiate()
    program = Program(problem.network, {name: tf.TensorSpec([2, 5], array.dtype)
                                        for name, array in EXAMPLES.items()},
                      PipelineParams(num_cells=2, num_micro_batches=1), problem.learner,
                      devices=['/device:CPU:0', '/device:CPU:1'])
    initialize({f'weights/{path}': variable for path, variable in program.weights.items()}, folder,
               [('weights/(.*)', r'weights/\1')])
    prompts = np.full([3, 7], -1, np.int32)
    for row, length in zip(prompts, (2, 7, 4), strict=True):
        row[:length] = IDS[0, :length]

    params = SamplingParams(beam_size=1, max_length=14, prefill=prefill)
    group = SentenceGroup({}, np.full([3], 13, np.int32), prompts)
    (found, _), = Decoder(program, params, None, -1).decode([group])
    return [(prompt[prompt >= 0], row) for prompt, row in zip(prompts, found, strict=True)]


def test_gpt2_without_its_dropout_is_said(tmp_path: pathlib.Path, caplog: Any) -> None:
    for name, rate in ('with', 0.1), ('without', 0.0):
        (tmp_path / name).mkdir()
        config = tiny_gpt2.config(resid_pdrop=rate)
        (tmp_path / name / 'config.json').write_text(json.dumps(config))
        language_model(tmp_path / name)
    assert caplog.messages == [
        f'{tmp_path}/with: the network trains without the dropout of resid_pdrop=0.1; nothing else '
        'changes']


def test_gpt2_trains_to_the_same_bit_in_one_cell_and_in_three(tmp_path: pathlib.Path) -> None:
    """With a tied table, and two documents in each example, each of which begins at 0."""
    config = tiny_gpt2.config(n_layer=1)
    weights = tiny_gpt2.tensors(config)
    folder = tiny_llama.write(tmp_path / 'in', config, weights)
    positions = np.tile(np.arange(10, dtype=np.int32), [4, 2])
    examples = {**EXAMPLES, 'positions': positions,
                'documents': np.repeat(np.array([[0, 1]] * 4, np.int32), 10, 1)}
    written = []
    for num_cells in (1, 3):
        params = experiment(folder, num_cells)
        params.train_input = ArrayInput.of(examples, batch_size=4)
        with start(params, logdir=tmp_path / str(num_cells)) as run:
            if num_cells == 1:
                read = {name: examples[name] for name in ('target', 'positions', 'documents')}
                logits = started(run).predict(read)['logits']
            run.train()
            path = run.export(tmp_path / f'out{num_cells}', format='hugging_face')
        written.append(safetensors.numpy.load_file(f'{path}/model.safetensors'))
    halves = np.split(EXAMPLES['target'], 2, 1)
    expected = np.concatenate([tiny_gpt2.logits(config, weights, half) for half in halves], 1)
    np.testing.assert_allclose(logits, expected, atol=1e-5 * np.abs(expected).max())
    for name, array in written[0].items():
        np.testing.assert_array_equal(array, written[1][name], err_msg=name)
        assert not np.array_equal(array, weights[name]), name


@pytest.mark.parametrize('kind', ['llama tied, with biases', 'qwen2 with a window', 'gemma3'])
def test_it_trains_to_the_same_bit_in_one_cell_and_in_three(
        kind: str, tmp_path: pathlib.Path) -> None:
    config = tiny_llama.config(kind)
    folder = tiny_llama.write(tmp_path / 'in', config, tiny_llama.tensors(config))
    written = []
    for num_cells in (1, 3):
        with start(experiment(folder, num_cells), logdir=tmp_path / str(num_cells)) as run:
            run.train()
            path = run.export(tmp_path / f'out{num_cells}', format='hugging_face')
        written.append(safetensors.numpy.load_file(f'{path}/model.safetensors'))
    before = tiny_llama.tensors(config)
    for name, array in written[0].items():
        np.testing.assert_array_equal(array, written[1][name], err_msg=name)
        assert not np.array_equal(array, before[name]), name


@pytest.mark.parametrize('prefill', [0, 3])
@pytest.mark.parametrize('kind', ['mistral with a window', 'qwen2 with a window', 'gemma3'])
def test_a_text_longer_than_the_window_goes_on_with_the_ids_that_numpy_writes(
        kind: str, prefill: int, tmp_path: pathlib.Path) -> None:
    config = tiny_llama.config(kind)
    check_written_ids(tiny_llama, config, prefill, tmp_path)


FAMILIES = pytest.mark.parametrize('family, config', [
    pytest.param(tiny_llama, tiny_llama.config(), id='llama'),
    pytest.param(tiny_gpt2, tiny_gpt2.config(n_layer=1), id='gpt2')])


@FAMILIES
def test_adapters_train_alone_to_the_same_bit_and_go_out_merged(
        family: Any, config: dict[str, Any], tmp_path: pathlib.Path) -> None:
    """The folder has none, and they begin without a rule, as in a run from scratch."""
    weights = family.tensors(config)
    folder = tiny_llama.write(tmp_path / 'in', config, weights)
    adapters = Adapters(rank=2, dropout_rate=0.2, targets=('wq', 'wo'))
    written = []
    for num_cells in (1, 3):
        params = experiment(folder, num_cells, adapters=adapters.copy())
        with start(params, logdir=tmp_path / str(num_cells)) as run:
            before = started(run).predict({'target': EXAMPLES['target']})['logits']
            run.train()
            path = run.export(tmp_path / f'out{num_cells}', format='hugging_face')
            logits = run.predict({'target': EXAMPLES['target']})['logits']
        written.append(safetensors.numpy.load_file(f'{path}/model.safetensors'))
    for computed, tensors in (before, weights), (logits, written[1]):
        expected = family.logits(config, tensors, EXAMPLES['target'])
        np.testing.assert_allclose(computed, expected, atol=1e-5 * np.abs(expected).max())
    for name, array in written[0].items():
        np.testing.assert_array_equal(array, written[1][name], err_msg=name)
    assert {name.rsplit('.', 2)[1] for name, array in written[0].items()
            if not np.array_equal(array, weights[name])} == (
        {'q_proj', 'o_proj'} if family is tiny_llama else {'c_attn', 'c_proj'})
    report = (tmp_path / '3/initialization.txt').read_text()
    assert ('not taken  weights/model/attention_0/body/wq_adapter/a: an adapter that is not there, '
            'and begins as in a run from scratch\n') in report


def test_adapters_are_resumed_evaluated_and_taken_along(tmp_path: pathlib.Path) -> None:
    config = tiny_llama.config(num_hidden_layers=1)
    folder = tiny_llama.write(tmp_path / 'in', config, tiny_llama.tensors(config))

    def begun(logdir: str, source: InitializeFrom | None = None) -> Run:
        params = experiment(folder, 1, source, adapters=Adapters(rank=2))
        return start(params, logdir=tmp_path / logdir)

    def logits_after(run: Run, num_steps: int) -> np.ndarray:
        with run:
            run.train(steps=num_steps, evaluate=False)
            logits: np.ndarray = run.predict({'target': EXAMPLES['target']})['logits']
        return logits

    at_once = logits_after(begun('once'), 2)
    with begun('twice') as run:
        run.train(steps=1, evaluate=False)
    np.testing.assert_array_equal(logits_after(begun('twice'), 1), at_once)
    of_once = InitializeFrom(directory=str(tmp_path / 'once'))
    np.testing.assert_array_equal(logits_after(begun('other', of_once), 0), at_once)


def test_what_adapters_learned_is_not_dropped(tmp_path: pathlib.Path) -> None:
    """A network without them, or with others, took the weights alone and said nothing."""
    config = tiny_llama.config(num_hidden_layers=1)
    folder = tiny_llama.write(tmp_path / 'in', config, tiny_llama.tensors(config))
    adapters = Adapters(rank=2, targets=('wq', 'wv'))
    with start(experiment(folder, adapters=adapters), logdir=tmp_path / 'logs') as run:
        run.train(steps=1, evaluate=False)
        run.export(tmp_path / 'w.npz', format='npz')

    def taken(name: str, other: Adapters | None, *rules: tuple[str, str | None]) -> str:
        source = InitializeFrom(directory=str(tmp_path / name),
                                rules=(*rules, *InitializeFrom().rules))
        logdir = tmp_path / f'{len(list(tmp_path.iterdir()))}'
        with start(experiment(folder, 1, source, adapters=other), logdir=logdir) as run:
            started(run)
        return (logdir / 'initialization.txt').read_text()

    for name, other, why in [
            ('logs', None, 'q_adapter/a.* the network has no such adapter'),
            ('w.npz', Adapters(rank=2, targets=('wq',)), 'v_adapter/a.* has no such adapter'),
            ('logs', Adapters(rank=3, targets=('wq', 'wv')), r'its shape is \[8, 3\], and')]:
        with pytest.raises(ValueError, match=f'{why}.*; give the network the same adapters'):
            taken(name, other)
    for name in 'logs', 'w.npz':
        with pytest.raises(ValueError, match='model/attention_0/body/wq has alpha=8 with rank=2, '
                                             'and learned what is taken with alpha=16; set that'):
            taken(name, Adapters(rank=2, alpha=8., targets=('wq', 'wv')))
    left_out = taken('logs', Adapters(rank=3, targets=('wq', 'wv')), ('.*_adapter/.', None))
    assert left_out.count('by a rule') == 4


@pytest.mark.parametrize('fields, error', [
    ({'targets': ('q_proj',)}, r"adapters\.targets has 'q_proj', but the projections of this "
                               'LanguageModel are wq, wk, wv, wo, w_gate, w_up, w_down; name some'),
    ({'rank': 5}, r'^model/attention_0/body/wk \[8, 4\] has adapters of rank=5, but no matrix of '
                  'this shape has a rank above 4; use at most 4, or leave it out of')])
def test_adapters_that_do_not_fit_are_refused(
        fields: dict[str, Any], error: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / 'config.json').write_text(json.dumps(tiny_llama.config()))
    model = language_model(tmp_path, adapters=Adapters(**fields))
    with pytest.raises(ValueError, match=error):
        model.instantiate('model')


def test_bfloat16_comes_in_as_the_same_numbers(tmp_path: pathlib.Path) -> None:
    config = tiny_llama.config(torch_dtype='bfloat16')
    weights = {name: array.astype(ml_dtypes.bfloat16)
               for name, array in tiny_llama.tensors(config).items()}
    folder = tiny_llama.write(tmp_path / 'in', config, weights)
    with start(experiment(folder), logdir=tmp_path / 'logs') as run:
        path = started(run).export(tmp_path / 'out', format='hugging_face')
        narrow = run.export(tmp_path / 'narrow', format='hugging_face', dtype='bfloat16')
        with pytest.raises(ValueError, match="format='npz' writes the weights in the type that"):
            run.export(tmp_path / 'no', format='npz', dtype='bfloat16')
    written = safetensors.numpy.load_file(f'{path}/model.safetensors')
    for name, array in weights.items():
        np.testing.assert_array_equal(written[name], array.astype(np.float32), err_msg=name)
    assert json.loads((tmp_path / 'out/config.json').read_text()) == {
        **config, 'torch_dtype': 'float32'}
    written = safetensors.numpy.load_file(f'{narrow}/model.safetensors')
    for name, array in weights.items():
        assert written[name].tobytes() == array.tobytes(), name
    assert json.loads((tmp_path / 'narrow/config.json').read_text()) == config


def test_a_network_that_is_not_that_of_the_config_is_refused(tmp_path: pathlib.Path) -> None:
    config = tiny_llama.config()
    folder = tiny_llama.write(tmp_path / 'in', config, tiny_llama.tensors(config))
    with start(experiment(folder, rotary_base=100.), logdir=tmp_path / 'logs') as run, \
            pytest.raises(ValueError, match=r'another network than this one with task\.model\.'
                                            r'rotary_base=100\.0 \(config\.json means 50\.0\)'):
        started(run)


def test_a_weight_may_be_left_out_by_a_rule(tmp_path: pathlib.Path) -> None:
    config = tiny_llama.config()
    weights = tiny_llama.tensors(config)
    folder = tiny_llama.write(tmp_path / 'in', config, weights)
    source = InitializeFrom(directory=folder, rules=(
        ('weights/model/softmax/w', None), ('weights/(.*)', r'weights/\1')))
    with start(experiment(folder, source=source), logdir=tmp_path / 'logs') as run:
        path = started(run).export(tmp_path / 'out', format='hugging_face')
    written = safetensors.numpy.load_file(f'{path}/model.safetensors')
    assert {name for name in weights if not np.array_equal(weights[name], written[name])} == {
        'lm_head.weight'}


def test_no_folder_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match=r'has no config\.json, so that it is no folder of Hugging '
                                         r'Face; name one with config\.json and model\.safetens'):
        language_model(tmp_path)
