"""Hooks: they see a run and change nothing; what they raise costs a line, or ends it safely."""
from __future__ import annotations

import csv
import io
import pathlib
import re
import sys
import types
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.hyperparams import field
from lingpipe.training import hooks, registry
from lingpipe.training.hooks.hook import Hook, HookedRun, How
from lingpipe.training.hooks.hook_calls import HookError
from lingpipe.training.loop import LoopOptions, TrainLoop


class Seen(Hook):
    """Keeps its calls, and fails in one of them."""

    class Params(Hook.Params):
        """Where it fails."""
        fails_in: str = field('', 'The method.')

    params: Params
    calls: list[tuple[Any, ...]] = []   # of all, since the loop makes the hook

    def _call(self, *call: Any) -> None:
        self.calls.append(call)
        if call[0] == self.params.fails_in:
            raise RuntimeError('no reason')

    def on_start(self, run: HookedRun, step: int) -> None:
        self.calls.clear()
        self._call('on_start', step)

    def on_step(self, run: HookedRun, step: int, results: Mapping[str, float]) -> None:
        assert results['loss'] > 0 and isinstance(results, dict)
        results.clear()   # changes nothing
        self._call('on_step', step)

    def on_evaluation(self, run: HookedRun, step: int, name: str,
                      metrics: Mapping[str, float]) -> None:
        self._call('on_evaluation', step, name, sorted(metrics))

    def on_checkpoint(self, run: HookedRun, step: int, path: str) -> None:
        assert pathlib.Path(path, 'metadata.json').exists()
        self._call('on_checkpoint', step)

    def on_end(self, run: HookedRun, how: How) -> None:
        self._call('on_end', how)


def train(logdir: pathlib.Path, *hook_params: Hook.Params, num_steps: int = 4, **values: Any
          ) -> tuple[TrainLoop, str]:
    """Trains, and returns the loop and what it has shown."""
    params = registry.get('tests.support.tiny_experiment.Tiny').set(
        **{'train.num_steps': num_steps, 'train.checkpoint_every_steps': 3, 'hooks': hook_params,
           'pipeline.num_cells': 1,   # whose graphs are built in half of the time
           **{name.replace('__', '.'): value for name, value in values.items()}})
    out = io.StringIO()
    loop = TrainLoop(params.instantiate(), str(logdir), LoopOptions(out=out))
    loop.run()
    return loop, out.getvalue()


def values_of(loop: TrainLoop) -> dict[str, np.ndarray]:
    return {key: variable.numpy() for key, variable in loop.program.variables().items()}


def test_hooks_are_called_in_order_and_change_nothing(tmp_path: pathlib.Path) -> None:
    without, _ = train(tmp_path / 'without')
    loop, _ = train(tmp_path / 'with', Seen.Params())
    told = [call for call in Seen.calls if call != ('on_checkpoint', 3)]   # whenever it is whole
    assert told == [
        ('on_start', 0), *(('on_step', step) for step in (1, 2, 3, 4)),
        ('on_evaluation', 4, 'test', ['error', 'loss']), ('on_checkpoint', 4), ('on_end', 'done')]
    assert Seen.calls.index(('on_checkpoint', 3)) > Seen.calls.index(('on_step', 3))
    expected = values_of(without)
    for key, value in values_of(loop).items():
        np.testing.assert_array_equal(value, expected[key], err_msg=key)


def test_a_hook_that_raises_costs_a_line_or_ends_the_run_with_a_checkpoint(
        tmp_path: pathlib.Path) -> None:
    _, out = train(tmp_path / 'on', Seen.Params(fails_in='on_step', every_steps=2))
    assert out.count('hook Seen.on_step fails after step 2: RuntimeError: no reason. The run goes '
                     'on without it.\n') == 1
    assert Seen.calls == [('on_start', 0), ('on_step', 2)]
    with pytest.raises(HookError, match=r'the hook Seen.on_step fails after step 2: RuntimeError: '
                                        r'no reason\. The run stops, as its on_error=stop says'):
        train(tmp_path / 'stop', Seen.Params(fails_in='on_step', every_steps=2, on_error='stop'))
    loop, out = train(tmp_path / 'stop', Seen.Params())
    assert 'going on after step 2, from' in out
    assert Seen.calls[-1] == ('on_end', 'done')


def test_csv_has_a_line_a_step_however_often_it_is_resumed(tmp_path: pathlib.Path) -> None:
    train(tmp_path, hooks.CSV.Params(), num_steps=2)
    with open(tmp_path / 'steps.csv', 'a') as file:
        file.write('3,1.0\n4,2.')   # of steps whose checkpoint a kill has prevented
    train(tmp_path, hooks.CSV.Params(), num_steps=4)
    with open(tmp_path / 'steps.csv', newline='') as file:
        rows = list(csv.DictReader(file))
    assert [row['step'] for row in rows] == ['1', '2', '3', '4']
    assert all(float(row['loss']) > 0 for row in rows)
    with open(tmp_path / 'steps_evaluations.csv', newline='') as file:
        assert [(row['step'], row['input']) for row in csv.DictReader(file)] == [
            ('2', 'test'), ('4', 'test')]


def test_early_stopping_stops_at_the_same_step_if_it_is_resumed(tmp_path: pathlib.Path) -> None:
    stopping = hooks.EarlyStopping.Params(patience=2, min_change=100.)
    for _ in range(2):
        loop, out = train(tmp_path, stopping, num_steps=9, train__eval_every_steps=1)
        assert 'a hook stops the run after step 3: loss has got no better for 2 evaluations; it ' \
               'was best at step 1, where it was smallest' in out
    metric = stopping.copy().set(metric='accuracy', on_error='stop')
    with pytest.raises(ValueError, match='would stop a run whose accuracy rises; set is_largest_b'):
        metric.instantiate()
    metric.is_largest_best = True
    with pytest.raises(ValueError, match="metric of EarlyStopping='accuracy' is not among the "):
        train(tmp_path / 'new', metric, num_steps=2)


def test_early_stopping_is_left_out_of_a_run_without_evaluations(tmp_path: pathlib.Path) -> None:
    """A resumed run went by what a watch had evaluated, and an uninterrupted one did not."""
    stopping = hooks.EarlyStopping.Params(patience=1, min_change=100.)
    train(tmp_path, stopping, num_steps=9, train__eval_every_steps=1)
    params = registry.get('tests.support.tiny_experiment.Tiny').set(
        **{'train.num_steps': 4, 'hooks': (stopping,), 'pipeline.num_cells': 1})
    loop = TrainLoop(params.instantiate(), str(tmp_path),
                     LoopOptions(out=(out := io.StringIO()), has_evaluation=False))
    assert loop.run().step == 4
    assert 'EarlyStopping is left out, since this run evaluates nothing' in out.getvalue()


def test_early_stopping_says_that_it_stops_nothing_without_evaluations_on_the_way(
        tmp_path: pathlib.Path) -> None:
    """A run with train.eval_every_steps=0, the default, trained to its end without a word."""
    stopping = hooks.EarlyStopping.Params(patience=1, min_change=100.)
    remark = ('EarlyStopping stops nothing, since this run is evaluated only at its end; set '
              'train.eval_every_steps.')
    _, out = train(tmp_path / 'end', stopping, num_steps=3, train__eval_every_steps=0)
    assert remark in out
    _, out = train(tmp_path / 'often', stopping, num_steps=3, train__eval_every_steps=1)
    assert 'EarlyStopping stops nothing' not in out


def test_a_mistyped_method_costs_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    class Own(Hook):
        def on_epoch(self) -> None:
            """Is called by on_step, say."""

    assert not caplog.text

    class Typo(Own):
        def on_stpe(self) -> None:
            """Is written wrong."""
    assert re.search(r'a run does not call .*Typo\.on_stpe; did you mean on_step\?', caplog.text)


def test_histograms_are_of_the_variables_that_are_named(tmp_path: pathlib.Path) -> None:
    of_slots = hooks.Histograms.Params(keys=('weights/model/dense_0/*',), every_steps=2)
    train(tmp_path, of_slots, hooks.Histograms.Params(keys=('weigths',), on_error='go_on'))
    path, = (tmp_path / 'tensorboard' / 'histograms').iterdir()
    events = [event for event in tf.compat.v1.train.summary_iterator(str(path))
              if event.summary.value]
    assert [(event.step, event.summary.value[0].tag) for event in events] == [
        (2, 'weights/model/dense_0/w'), (4, 'weights/model/dense_0/w')]


def test_histograms_of_gradients_change_nothing(tmp_path: pathlib.Path) -> None:
    without, _ = train(tmp_path / 'without')
    of_gradients = hooks.Histograms.Params(keys=('gradients/*/w',), every_steps=3, on_error='stop')
    loop, _ = train(tmp_path / 'with', of_gradients, hooks.CSV.Params())
    path, = (tmp_path / 'with' / 'tensorboard' / 'histograms').iterdir()
    tags = {(event.step, value.tag)
            for event in tf.compat.v1.train.summary_iterator(str(path))
            for value in event.summary.value}
    assert tags == {(3, f'gradients/{path}') for path in loop.program.weights
                    if path.endswith('/w')}
    expected = values_of(without)
    for key, value in values_of(loop).items():
        np.testing.assert_array_equal(value, expected[key], err_msg=key)


class Recorder(types.ModuleType):
    """In place of a package: keeps every call of its functions, and of what they return."""

    def __init__(self, name: str):
        super().__init__(name)
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.info = types.SimpleNamespace(run_id='their id')

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Recorder:
            self.calls.append((name, args, kwargs))
            return self
        return call


def test_weights_and_biases_gets_the_numbers_and_one_run(
        tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = Recorder('wandb')
    monkeypatch.setitem(sys.modules, 'wandb', wandb)
    for num_steps in (1, 2):
        train(tmp_path / 'mine', hooks.WeightsAndBiases.Params(every_steps=1), num_steps=num_steps)
    names = [name for name, _, _ in wandb.calls]
    assert names == ['init', 'log', 'log', 'finish'] * 2
    first, second = (kwargs for name, _, kwargs in wandb.calls if name == 'init')
    assert first['id'] == second['id'] and first['resume'] == 'allow'
    assert first['name'] == 'mine' and first['config']['train.num_steps'] == '1'
    assert wandb.calls[1][1][0].keys() >= {'train/loss', 'train/learning_rate'}
    assert wandb.calls[2][1][0].keys() == {'test/loss', 'test/error'}
    assert wandb.calls[3][2] == {'exit_code': 0}


def test_mlflow_gets_the_numbers_and_one_run(
        tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = Recorder('mlflow')
    monkeypatch.setitem(sys.modules, 'mlflow', mlflow)
    for num_steps in (1, 2):
        train(tmp_path, hooks.MLflow.Params(every_steps=1, tracking_uri='file:x'),
              num_steps=num_steps)
    starts = [kwargs for name, _, kwargs in mlflow.calls if name == 'start_run']
    assert starts == [{'run_name': tmp_path.name}, {'run_id': 'their id'}]
    names = [name for name, _, _ in mlflow.calls if name != 'log_params']
    assert names == ['set_tracking_uri', 'set_experiment', 'start_run', 'log_metrics',
                     'log_metrics', 'end_run'] * 2
    assert mlflow.calls[-1] == ('end_run', (), {'status': 'FINISHED'})
    logged = [args[0] for name, args, _ in mlflow.calls if name == 'log_params']
    assert all(len(values) <= 100 for values in logged)
    names = [name for values in logged for name in values]
    assert any(name.startswith('task.model.layers.0.') for name in names)
    assert all(re.fullmatch(r'[/\w.\- :]{1,250}', name) for name in names)   # MLflow's rule


def test_a_package_that_is_missing_is_named(
        tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, 'wandb', None)
    with pytest.raises(ModuleNotFoundError, match='the hook WeightsAndBiases needs the package '
                                                  'wandb, which is not installed; run pip install'):
        train(tmp_path, hooks.WeightsAndBiases.Params())
