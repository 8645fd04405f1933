"""Serve: a worker has the settings of its experiment, also if making that starts TensorFlow."""
from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Sequence

import pytest

from lingpipe.cluster import ports, server
from lingpipe.commands import serve
from lingpipe.commands.run_options import RunOptions
from lingpipe.process import tensorflow_settings
from lingpipe.tools import launch_local
from tests.support.forks import ROOT, Fork, environment, run_module
from tests.support.local_workers import TINY

OPTIONS = RunOptions(model=TINY.removeprefix('--model='), mode='worker', address='127.0.0.1:1',
                     devices='cpu:2', overrides=['intra_op_threads=3'],
                     command_line=('--mode=worker', TINY))

KERAS_MADE = '''
import keras
import numpy as np
import lingpipe as lp


class Rows(lp.ArrayInput):
    def load(self):
        rows = np.random.default_rng(0).standard_normal((32, 4)).astype(np.float32)
        return {'x': rows, 'labels': np.int32(rows[:, 0] > 0)}


@lp.register
class Mine:
    """A model of Keras, which starts TensorFlow."""

    @classmethod
    def params(cls):
        model = keras.Sequential([keras.Input((4,), name='x'), keras.layers.Dense(2)])
        model.compile('sgd', keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return lp.Experiment.Params(
            task=lp.Problem.Params(model=lp.from_keras(model),
                                   learner=lp.learner_from_keras(model)),
            train_input=Rows.Params(batch_size=8),
            pipeline=lp.PipelineParams(read_on_workers=True),
            train=lp.TrainParams(num_steps=3))
'''


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool]]:
    """The threads of an op, and whether the graph optimizer is on, of every worker that serves."""
    found: list[tuple[int, bool]] = []
    monkeypatch.setattr(server, 'serve', lambda address, config, *_: found.append((
        config.intra_op_parallelism_threads,
        not config.graph_options.rewrite_options.disable_meta_optimizer)))
    return found


def test_a_worker_has_the_settings_of_its_experiment(monkeypatch, served) -> None:
    monkeypatch.setattr(tensorflow_settings, 'has_started', lambda: False)
    serve.serve(OPTIONS)
    serve.serve(RunOptions(mode='worker', address='127.0.0.1:1', devices='cpu:2'))
    assert served == [(3, False), (1, False)]


def test_a_worker_whose_experiment_starts_tensorflow_starts_again_with_what_it_says(
        monkeypatch, served) -> None:
    class ReplacedError(Exception):
        """What ends a process that another one replaces."""

    def start_trainer(flags):
        assert flags == ('--mode=worker', TINY)
        raise ReplacedError

    monkeypatch.setattr('lingpipe.process.environment.start_trainer', start_trainer)
    monkeypatch.setattr(tensorflow_settings, 'has_started', lambda: True)
    with pytest.raises(ReplacedError):
        serve.serve(OPTIONS)
    monkeypatch.setattr(serve, 'read_params', lambda _: pytest.fail('the Params are made again'))
    serve.serve(OPTIONS)
    assert served == [(3, False)]


def test_a_worker_ends_if_no_server_can_start(monkeypatch) -> None:
    """Its servers failed for ever, while the trainer waited for an answer."""
    monkeypatch.setattr(server, 'fork_server', lambda *_: 0)
    monkeypatch.setattr(server.time, 'sleep', lambda _: None)
    ends = iter(['the server ended with exit code 1'] * 4 + ['a controller has come']
                + ['the server ended with exit code 1'] * 5)
    monkeypatch.setattr(server, 'wait_for_end', lambda *_: next(ends))
    with pytest.raises(OSError, match=r'^5 servers of the worker at 127\.0\.0\.1:\d+ have failed'):
        server.serve(f'127.0.0.1:{ports.free_port()}', server.session_config('cpu:1'), 60.)
    assert list(ends) == []


@pytest.mark.slow
def test_a_worker_serves_and_reads_for_an_experiment_that_is_made_of_a_keras_model(
        monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    (tmp_path / 'keras_made.py').write_text(KERAS_MADE)
    env = {**environment(), 'PYTHONPATH': f'{tmp_path}{os.pathsep}{ROOT}'}
    started: list[Fork | subprocess.Popen[str]] = []

    def start(flags: Sequence[str], *_: object) -> Fork | subprocess.Popen[str]:
        """Starts a worker in a fork. A trainer starts again only if it imports TensorFlow."""
        started.append(
            Fork(run_module, 'lingpipe.trainer', *flags, env=env, cwd=tmp_path)
            if '--mode=worker' in flags else
            subprocess.Popen([sys.executable, '-m', 'lingpipe.trainer', *flags], env=env,
                             cwd=tmp_path, text=True, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE))
        return started[-1]

    monkeypatch.setattr(launch_local, 'start', start)
    with pytest.raises(SystemExit) as ended:
        launch_local.main(['--workers=1', '--', '--model=keras_made.Mine', '--logdir=logs',
                           '--mode=train'])
    printed = [process.communicate() for process in started]
    assert ended.value.code == 0, printed
    assert len(printed) == 2 and 'done after 3 steps' in printed[1][0]
