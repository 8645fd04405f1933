"""M2M-100 comes in, computes what NumPy computes, trains in any cells, and goes out."""
from __future__ import annotations

import json
import pathlib
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from lingpipe.api.start import start
from lingpipe.input import ArrayInput
from lingpipe.learning import learning_rates, optimizers
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.tasks.text.hugging_face import peft_adapters
from lingpipe.tasks.translation.hugging_face import translation_model
from lingpipe.tasks.translation.tokenizer import TranslationTokenizer
from lingpipe.tasks.translation.translator import translator
from lingpipe.training.experiment import Experiment
from lingpipe.training.initialize_from import InitializeFrom
from lingpipe.training.train_params import TrainParams
from tests.support import peft_files, tiny_llama, tiny_m2m_100, tiny_tokenizers
from tests.support.tiny_m2m_100 import END, PAD, V


def examples() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    source, target = (rng.integers(PAD + 1, V, [4, n]).astype(np.int32) for n in (6, 6))
    for i in range(4):
        source[i, 3 + i:] = PAD
        target[i, 5 - i:] = PAD
    target[:, 0] = END
    return {'source': source, 'target': target[:, :-1], 'label': target[:, 1:],
            'weight': (target[:, 1:] != PAD).astype(np.float32)}


EXAMPLES = examples()
READ = {name: EXAMPLES[name] for name in ('source', 'target')}


def experiment(folder: str, num_cells: int = 1, **fields: Any) -> Experiment.Params:
    learner = Learner.Params(optimizer=optimizers.SGD.Params(),
                             learning_rate=learning_rates.Constant.Params(rate=0.1))
    return Experiment.Params(
        task=translator(translation_model(folder, **fields), learner),
        train_input=ArrayInput.of(EXAMPLES, batch_size=4),
        initialize_from=InitializeFrom(directory=folder),
        pipeline=PipelineParams(num_cells=num_cells, num_micro_batches=2, recompute='none'),
        train=TrainParams(num_steps=2))


def test_a_folder_computes_what_numpy_computes_and_goes_out_as_it_came(
        tmp_path: pathlib.Path) -> None:
    config = tiny_m2m_100.config()
    weights = tiny_m2m_100.tensors(config)
    copies = {'lm_head.weight': weights['model.shared.weight'],   # as old files have them
              'model.encoder.embed_positions.weights': np.zeros([9, 8], np.float32)}
    folder = tiny_llama.write(tmp_path / 'in', config, weights | copies, num_parts=3)
    (tmp_path / 'in/sentencepiece.bpe.model').write_text('a')
    with start(experiment(folder, num_cells=2), logdir=tmp_path / 'logs') as run:
        run.train(steps=0, evaluate=False)
        logits = run.predict(READ)['logits']
        run.export(tmp_path / 'out', format='hugging_face')
    expected = tiny_m2m_100.logits(config, weights, **READ)
    is_said = READ['target'] != PAD   # Padding is at other positions there, and counts nowhere.
    np.testing.assert_allclose(logits[is_said], expected[is_said],
                               atol=1e-5 * np.abs(expected).max())

    tiny_llama.assert_written(tmp_path / 'out', config, weights)
    assert (tmp_path / 'out' / 'sentencepiece.bpe.model').read_text() == 'a'


def test_lines_are_translated_by_the_ids_that_numpy_writes(tmp_path: pathlib.Path) -> None:
    """They begin with the target language, which is not searched for."""
    config = tiny_m2m_100.config(encoder_layers=1, scale_embedding=False)
    weights = tiny_m2m_100.tensors(config, seed=148)   # Its sentences differ, and some end.
    folder = tiny_llama.write(tmp_path / 'in', config, weights)
    path = tiny_tokenizers.write(tmp_path / 'in', 'nllb')
    tokenizer = TranslationTokenizer(path)
    params = experiment(folder, num_cells=2)
    params.task.set(vocabulary=path)
    params.task.decode.set(beam_size=1, max_length=7, language='deu_Latn')
    lines = ['ab c', '', '<fra_Latn> d ab gh', 'a', 'h', 'c']
    sources = tokenizer.sources(lines, params.task.decode, None)
    with start(params, logdir=tmp_path / 'logs') as run:
        run.train(steps=0, evaluate=False)
        translations = []
        for code in 'eng_Latn', 'fra_Latn':
            expected = [tiny_m2m_100.greedy(config, weights, ids, [END, tokenizer.languages[code]],
                                            limit=6) if ids else [] for ids in sources]
            texts = [' '.join(text.split()) for text in tokenizer.decode(expected)]
            assert run.translate(lines, target_language=code) == texts
            translations += expected
        have_end = {END in ids for ids in translations if ids}
        assert have_end == {True, False}
        assert len(set(map(tuple, translations))) > 4
        with pytest.raises(ValueError, match=r'task\.decode\.target_language is empty'):
            run.translate(lines)


def test_it_trains_with_its_dropout_to_the_same_bit_in_one_cell_and_in_two(
        tmp_path: pathlib.Path) -> None:
    config = tiny_m2m_100.config(encoder_layers=1, dropout=0.2)
    weights = tiny_m2m_100.tensors(config)
    folder = tiny_llama.write(tmp_path / 'in', config, weights)
    written = []
    for num_cells in (1, 2):
        with start(experiment(folder, num_cells), logdir=tmp_path / str(num_cells)) as run:
            run.train()
            path = run.export(tmp_path / f'out{num_cells}', format='hugging_face')
        written.append(safetensors.numpy.load_file(f'{path}/model.safetensors'))
    for name, array in written[0].items():
        np.testing.assert_array_equal(array, written[1][name], err_msg=name)
        # All scores of a query are moved alike by a bias of keys, which therefore learns nothing.
        assert 'k_proj.bias' in name or not np.array_equal(array, weights[name]), name


def test_adapters_of_peft_come_in_and_go_out_alone_and_merged(tmp_path: pathlib.Path) -> None:
    """peft's class for translations has another task_type, and all layers have an fc1."""
    config = tiny_m2m_100.config()
    weights = tiny_m2m_100.tensors(config)
    folder = tiny_llama.write(tmp_path / 'in', config, weights)
    came = peft_files.write(tmp_path / 'adapters', weights, ['q_proj', 'out_proj', 'fc1'])
    params = experiment(folder, num_cells=2, adapters=peft_adapters(came))
    params.initialize_from.adapters = came
    with start(params, logdir=tmp_path / 'logs') as run:
        run.train(steps=0, evaluate=False)
        logits = run.predict(READ)['logits']
        alone = pathlib.Path(run.export(tmp_path / 'alone', format='peft'))
        path = run.export(tmp_path / 'merged', format='hugging_face')
    merged = peft_files.merged(weights, came, scale=3 / 2)
    expected = tiny_m2m_100.logits(config, merged, **READ)
    is_said = READ['target'] != PAD
    np.testing.assert_allclose(logits[is_said], expected[is_said],
                               atol=1e-5 * np.abs(expected).max())

    described = json.loads((alone / 'adapter_config.json').read_text())
    assert described['task_type'] == 'SEQ_2_SEQ_LM'
    assert described['target_modules'] == [
        'encoder_attn.out_proj', 'encoder_attn.q_proj', 'fc1', 'self_attn.out_proj',
        'self_attn.q_proj']
    peft_files.check_same(came, str(alone))
    written = safetensors.numpy.load_file(f'{path}/model.safetensors')
    assert written.keys() == weights.keys()
    for name, array in merged.items():
        np.testing.assert_allclose(written[name], array, atol=1e-6, err_msg=name)


def test_a_network_that_is_not_that_of_the_config_is_refused(tmp_path: pathlib.Path) -> None:
    config = tiny_m2m_100.config()
    folder = tiny_llama.write(tmp_path / 'in', config, tiny_m2m_100.tensors(config))
    with start(experiment(folder, first_position=0), logdir=tmp_path / 'logs') as run, \
            pytest.raises(ValueError, match=r'another network than this one with task\.model\.'
                                            r'first_position=0 \(config\.json means 2\); make it '
                                            r'by translation_model\(folder\)'):
        run.train(steps=0, evaluate=False)
