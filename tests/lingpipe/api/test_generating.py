"""Generating: a run translates lines with its newest checkpoint, if its task can."""
from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Any

import pytest

from lingpipe.api.run import Run
from lingpipe.api.start import start
from lingpipe.tasks.translation.inputs import TranslationInput
from lingpipe.tasks.translation.transformer import Transformer
from lingpipe.tasks.translation.translator import translation_learner, translator
from lingpipe.training.experiment import Experiment
from lingpipe.training.registry import register
from lingpipe.training.train_params import TrainParams
from tests.support import small_corpus
from tests.support.tiny_experiment import Tiny

LINES = ['nepo eht elif', '', 'etirw', 'dnif eht eman']


@register
class Words:
    """Translates invented words to English."""
    directory = ''

    @classmethod
    def params(cls) -> Experiment.Params:
        network = Transformer.Params(num_encoder_layers=1, num_decoder_layers=1, vocab_size=500,
                                     model_dim=8, hidden_dim=8, num_heads=2)
        task = translator(network, translation_learner(model_dim=8))
        task.decode.set(group_size=2, extra_length=3)
        return Experiment.Params(
            task=task, train_input=TranslationInput.Params(directory=cls.directory, batch_size=2),
            train=TrainParams(num_steps=2))


@pytest.fixture(scope='module')
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run that was trained for two steps."""
    Words.directory = small_corpus.prepared(tmp_path_factory.mktemp('corpus')).folder
    with start(Words, logdir=tmp_path_factory.mktemp('run') / 'log', num_cells=2) as run:
        run.train()
        yield run


def decoded(run: Run, lines: Sequence[str]) -> Sequence[str]:
    """What --mode=decode makes of lines."""
    def decode(site: Any) -> Sequence[str]:
        network, metadata = run.restored(site)
        return run.experiment.task.decode(network.program, lines, metadata['task'])
    return run.at_site(decode)


def test_translations_are_those_of_the_command(run: Run) -> None:
    """There was no call that translates, so that a script had to run the command."""
    found = run.translate(LINES)
    assert found == decoded(run, LINES)
    assert [bool(text) for text in found] == [True, False, True, True]
    with start(Words, logdir=run.logdir, only_reads=True) as reader:
        assert reader.translate(LINES, checkpoint=2) == found
    assert run.translate([]) == []


def test_a_call_may_set_how_lines_are_translated(run: Run) -> None:
    short = run.translate(LINES, beam_size=1, max_length=1)
    whole = run.translate(LINES, beam_size=1)   # The limit was of the first call alone.
    assert all(len(text) < len(other) for text, other in zip(short, whole, strict=True) if other)
    with pytest.raises(ValueError, match=r"beam does not exist: .*; did you mean 'beam_size'\?"):
        run.translate(LINES, beam=1)
    with pytest.raises(ValueError, match=r"language='de', but the vocabulary has no tags"):
        run.translate(LINES, language='de')


def test_what_is_no_list_of_texts_is_refused(run: Run) -> None:
    with pytest.raises(ValueError, match=r'lines is one text; give .*, or use run.translate\(\[li'):
        run.translate('nepo')
    with pytest.raises(ValueError, match='lines has 3, but must be a list of texts; give strings'):
        run.translate([3])   # type: ignore[list-item]
    for call in (run.translate, run.generate):
        with pytest.raises(ValueError, match='is None; give a list of texts'):
            call(None)


def test_a_task_that_does_not_translate_says_so(tmp_path: pathlib.Path) -> None:
    with start(Tiny, logdir=tmp_path) as run:
        run.train(steps=1, evaluate=False)
        with pytest.raises(ValueError, match='Problem translates no lines; run.translate is for'):
            run.translate(['a'])
