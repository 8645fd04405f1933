"""Run: what the trainer does with a logdir, from Python; it shows itself, and errors are clear."""
from __future__ import annotations

import builtins
import os
import pathlib
import re
import shutil
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.api.run import Run
from lingpipe.api.start import start
from lingpipe.commands.run_options import RunOptions
from lingpipe.learning import optimizers
from lingpipe.training import newest_checkpoint, registry
from lingpipe.training.experiment import Experiment
from lingpipe.training.hooks.hook import Hook
from lingpipe.training.skipped_steps import NonFiniteError
from tests.support.tiny_experiment import Tiny

NAME = 'tests.support.tiny_experiment.Tiny'


@pytest.fixture(scope='module')
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run that was trained for three steps, twice."""
    with start(Tiny, logdir=tmp_path_factory.mktemp('run') / 'log', num_cells=2) as run:
        run.train(steps=3, evaluate=False)
        run.train(steps=3)
        yield run


def test_training_in_parts_has_the_bits_of_the_trainer(run: Run, tmp_path: pathlib.Path) -> None:
    with start(NAME, logdir=tmp_path, num_cells=1, set={'train.num_steps': 6}) as whole:
        outcome = whole.train()
        assert repr(outcome).startswith('Outcome(done after 6 steps; test: loss ')
        assert run.step == whole.step == 6
        for path, value in whole.weights.items():
            np.testing.assert_array_equal(run.weights[path], value, err_msg=path)
        assert run.evaluate() == whole.evaluate() == outcome.metrics


def test_it_shows_itself(run: Run) -> None:
    assert re.search(r'0 CPU:0 +model/dense_0 .. model/dense_1', repr(run.plan))
    assert len(repr(run.plan).splitlines()) == 4
    assert run.plan._repr_html_().count('<tr>') == 3
    assert repr(run.weights).endswith('4 weights with 64 numbers')
    assert '<td style="text-align:left">model/dense_3/w</td>' in run.weights._repr_html_()
    assert run.timeline().source == 'predicted'
    assert run.timeline()._repr_png_().startswith(b'\x89PNG')
    assert re.fullmatch(r'Run\(\S+, step 6, 2 cells\)', repr(run))


def test_tables_are_text_in_a_notebook_too(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """There, rich displayed them itself, and the text was empty."""
    shell = type('ZMQInteractiveShell', (), {})()   # as rich knows a notebook
    monkeypatch.setattr(builtins, 'get_ipython', lambda: shell, raising=False)
    assert 'model/dense_0 .. model/dense_1' in repr(run.plan)


def test_keras_arguments_of_train_are_refused(run: Run) -> None:
    with pytest.raises(TypeError, match=r"train\(\) has no argument 'epochs': Keras' epochs is"):
        run.train(epochs=3)
    with pytest.raises(TypeError, match=r"predict\(\) has no argument 'batch': it has examples"):
        run.predict([], batch=3)
    with pytest.raises(TypeError, match=r"outputs is 'x', but must be .*; write outputs=\['x'\]"):
        run.predict([], outputs='x')
    with pytest.raises(TypeError, match='logdir is None, but must be a path; name a directory for'):
        start(Tiny, logdir=None)   # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"is an eval input, .* write evaluate\(\)\['test'\]"):
        run.evaluate('test')
    for given in np.zeros([8, 4]), tf.data.Dataset.range(3):
        with pytest.raises(TypeError, match=r'train\(\) takes no examples: they come from train_'):
            run.train(given, given)
    with pytest.raises(TypeError, match=r"evaluate\(\) has no argument 'return_dict': Keras' retu"):
        run.evaluate([1], [2], return_dict=True)
    with pytest.raises(ValueError, match=r"'x' is of Python objects \(generator\), but the netw"):
        run.predict(one for one in [1])
    with pytest.raises(ValueError, match='prompts has 3, but must be a list of texts'):
        run.generate([3])   # type: ignore[list-item]
    with pytest.raises(ValueError, match=r"prompt is \['a'\], but must be one text; give strings"):
        next(run.stream(['a']))   # type: ignore[arg-type]
    with pytest.raises(ValueError, match='has half a character; correct it'):
        run.generate(['\ud800'])
    with pytest.raises(ValueError, match='continues no texts; .* language_problem of ling'):
        run.generate(['a text'])
    with pytest.raises(AttributeError, match=r"has no fit; Keras' fit is train\(steps=...\)"):
        run.fit()
    with pytest.raises(AttributeError, match="'Run' object has no attribute 'nothing'"):
        run.nothing()
    with pytest.raises(KeyError, match="no weight 'dense_3/w': did you mean 'model/dense_3/w'?"):
        run.weights['dense_3/w']


def test_weights_taken_before_are_never_those_of_another_time(tmp_path: pathlib.Path) -> None:
    """They were a view of the variables, so that weights before and after training were equal."""
    other = 'the run holds other weights by now, .*, as weights = dict'
    with start(Tiny, logdir=tmp_path) as run:
        initial, copy = run.weights, dict(run.weights)
        run.train(steps=2, evaluate=False)
        with pytest.raises(ValueError, match=other):
            initial['model/dense_3/w']
        before = run.weights
        assert not np.array_equal(before['model/dense_3/w'], copy['model/dense_3/w'])
        at_2 = before['model/dense_3/w']
        run.evaluate()
        np.testing.assert_array_equal(before['model/dense_3/w'], at_2)
        run.train(steps=2, evaluate=False)
        with pytest.raises(ValueError, match=other):
            dict(before)

        newest = run.weights
        run.evaluate(2)
        with pytest.raises(ValueError, match=other):
            newest['model/dense_3/w']
        newest = run.weights
    assert not np.array_equal(newest['model/dense_3/w'], at_2)


def test_a_checkpoint_is_read_once(tmp_path: pathlib.Path) -> None:
    """Each call read it again, which took longer than to answer a prompt."""
    rate = {'task.learner.learning_rate.rate': 1e-5}
    with (start(Tiny, logdir=tmp_path / 'a') as run,
          start(Tiny, logdir=tmp_path / 'b', set=rate) as other):
        run.train(steps=2, evaluate=False)
        other.train(steps=2, evaluate=False)
        metrics, view = run.evaluate(), run.weights
        here, there = (tmp_path / name / 'checkpoints/step-00000002' for name in 'ab')
        for data in here.glob('*.data-*'):
            data.write_bytes(bytes(data.stat().st_size))   # An error, if it were read.
        assert run.evaluate(2) == run.evaluate() == metrics
        assert view['model/dense_3/w'].any()

        shutil.rmtree(here)
        shutil.copytree(there, here)
        assert run.evaluate(2) == other.evaluate() != metrics
        with pytest.raises(ValueError, match='the run holds other weights'):
            view['model/dense_3/w']


def test_without_checkpoints_a_run_begins_anew(tmp_path: pathlib.Path) -> None:
    """It began a new run with the weights of the one whose checkpoints were removed."""
    with start(Tiny, logdir=tmp_path) as run:
        initial = dict(run.weights)
        for _ in range(2):
            run.train(steps=2, evaluate=False)
            at_2 = dict(run.weights)
            shutil.rmtree(tmp_path / 'checkpoints')
            for path, weight in run.weights.items():
                np.testing.assert_array_equal(weight, initial[path])
    with start(Tiny, logdir=tmp_path / 'other') as run:
        run.train(steps=2, evaluate=False)
        np.testing.assert_array_equal(run.weights['model/dense_3/w'], at_2['model/dense_3/w'])


class Vanishing(Hook):
    """Is made between the network and the look for a checkpoint, and removes all of them."""

    directory = ''

    def __init__(self, params: Any):
        super().__init__(params)
        shutil.rmtree(self.directory, ignore_errors=True)
        os.makedirs(self.directory)


def test_checkpoints_that_vanish_at_the_start_do_not_leave_their_weights_to_a_new_run(
        tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hooks = {'hooks': (Vanishing.Params(),)}
    with start(Tiny, logdir=tmp_path, num_cells=1, set=hooks) as run:
        monkeypatch.setattr(Vanishing, 'directory', str(tmp_path / 'none'))
        run.train(steps=1, evaluate=False)
    monkeypatch.setattr(Vanishing, 'directory', str(tmp_path / 'checkpoints'))
    with (start(Tiny, logdir=tmp_path, num_cells=1, set=hooks) as run,
          pytest.raises(ValueError, match='were there when this run began, and are gone; put')):
        run.train(steps=1, evaluate=False)


def test_the_weights_of_a_first_checkpoint_that_comes_meanwhile_are_not_zeros(
        tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader looks for it again when it makes the network, which has no weights then."""
    look = newest_checkpoint.newest_whole_step
    with (start(Tiny, logdir=tmp_path, num_cells=1) as run,
          start(Tiny, logdir=tmp_path, num_cells=1, only_reads=True) as reader):
        def after_a_step(logdir: str) -> int | None:
            monkeypatch.undo()
            run.train(steps=1, evaluate=False)
            return look(logdir)

        monkeypatch.setattr(newest_checkpoint, 'newest_whole_step', after_a_step)
        weights = reader.weights
        for path, weight in run.weights.items():
            np.testing.assert_array_equal(weights[path], weight)


def test_training_goes_on_with_what_the_run_holds(tmp_path: pathlib.Path) -> None:
    """A run that had just written its checkpoint read it again, to answer or to train on."""
    with (start(Tiny, logdir=tmp_path / 'a') as run,
          start(Tiny, logdir=tmp_path / 'b', set={'train.num_steps': 6}) as whole):
        run.train(steps=2, evaluate=False)
        at_2 = tmp_path / 'a/checkpoints/step-00000002'
        shutil.copytree(at_2, tmp_path / 'copy')
        for data in at_2.glob('*.data-*'):
            data.write_bytes(bytes(data.stat().st_size))   # An error, if it were read.
        assert run.evaluate()['test']['loss'] > 0
        run.train(steps=2, evaluate=False)

        shutil.rmtree(at_2)
        shutil.copytree(tmp_path / 'copy', at_2)
        run.evaluate(2)   # Other weights than those of the newest, which is read now.
        run.train(steps=2, evaluate=False)
        whole.train(evaluate=False)
        for path, value in whole.weights.items():
            np.testing.assert_array_equal(run.weights[path], value, err_msg=path)

        shutil.rmtree(tmp_path / 'a/checkpoints/step-00000006')   # So is what is not the run's own.
        run.train(steps=0, evaluate=False)
        assert run.step == 5
        assert not np.array_equal(run.weights['model/dense_3/w'], whole.weights['model/dense_3/w'])


class Frame:
    """As a pandas DataFrame: columns that have names, and no dict."""

    columns = ('x', 'id')

    def __init__(self, x: np.ndarray):
        self.x = x

    def __getitem__(self, column: str) -> np.ndarray:
        return {'x': self.x, 'id': np.arange(len(self.x))}[column]


def test_predict_takes_a_dataset_as_keras_does_and_a_frame(run: Run) -> None:
    x = np.random.default_rng(1).normal(size=(13, 4)).astype(np.float32)
    wanted = run.predict(x)
    np.testing.assert_array_equal(run.predict(Frame(x))['x'], wanted['x'])
    examples = tf.data.Dataset.from_tensor_slices((x, x[:, 0]))
    for dataset in (examples.batch(5), examples.map(lambda x, y: {'x': x, 'other': y}).batch(1)):
        found = run.predict(dataset)
        assert list(found) == list(wanted)
        np.testing.assert_array_equal(found['x'], wanted['x'])
    with pytest.raises(ValueError, match='the dataset to predict has no end; leave its repeat out'):
        run.predict(examples.batch(5).repeat())
    for singles in (examples, tf.data.Dataset.from_tensor_slices(x)):
        with pytest.raises(ValueError, match=r'are single examples, .*; call its batch\(n\) first'):
            run.predict(singles)
    with pytest.raises(ValueError, match='the dataset has no examples; correct it'):
        run.predict(examples.batch(5).take(0))


def test_evaluate_takes_examples_as_keras_does(run: Run) -> None:
    arrays = run.experiment.eval_inputs['test'].load()
    x, y = arrays['x'], arrays['y']
    wanted = run.evaluate()['test']
    assert run.evaluate(x, y) == run.evaluate(x=arrays) == run.evaluate(x, {'y': y}) == wanted
    assert run.evaluate(x.astype(np.float64), y, checkpoint=5) == run.evaluate(5)['test'] != wanted

    pairs = tf.data.Dataset.from_tensor_slices((x, y))
    assert run.evaluate(pairs.batch(5)) == wanted
    assert run.evaluate(pairs.map(lambda x, y: {'x': x, 'y': y, 'id': 0}).batch(13)) == wanted
    weight = np.array([1.] * 5 + [0.] * 8)
    assert (run.evaluate(x, y, sample_weight=weight)
            == run.evaluate({'x': x, 'weight': weight}, y)
            == run.evaluate({**arrays, 'weight': weight})
            == run.evaluate(tf.data.Dataset.from_tensor_slices((x, y, weight)).batch(13))
            == pytest.approx(run.evaluate(x[:5], y[:5])))

    for given, sentence in (
            ((x,), 'y is missing; an evaluation reads x, y: give y.'),
            ((x, y[:3]), 'the examples have different numbers of rows: x 13, y 3; give one row'),
            ((x, y[:, 0]), r"'y' is float32 \(13,\), but the network takes float32 \[N, 4\]"),
            ((pairs.batch(5), y), 'x is a tf.data.Dataset, so that labels and weights must be in'),
            ((pairs.map(lambda x, y: (x, y, {'a': 1., 'b': 2.})).batch(5),),
             r'sample_weight is a dict \(a, b\), but an example has one weight for all outputs; '),
            ((pairs.repeat().batch(5),), 'the dataset to evaluate has no end; leave its repeat'),
            ((pairs.take(0).batch(5),), 'has no examples'),
            ((pairs.map(lambda x, y: (tf.cast(x, tf.float64) * 1e300, y)).batch(5),),
             "'x' has .*, which is larger than float32 can hold; scale it"),
            ((pairs,), r'are single examples, and batches are needed; call its batch\(n\) first'),
            ((pairs.map(lambda x, y: x).batch(5),), 'y is missing; an evaluation reads x, y')):
        with pytest.raises(ValueError, match=sentence):
            run.evaluate(*given)
    with pytest.raises(ValueError, match="'weight' has -1 in example 0, but what an example count"):
        run.evaluate(x, y, sample_weight=-np.ones_like(weight))
    with pytest.raises(ValueError, match=r'^sample_weight is a dict \(a\), but an example has one'):
        run.evaluate(x, y, sample_weight={'a': weight})


def test_a_logdir_has_one_run_at_a_time(run: Run) -> None:
    with pytest.raises(OSError, match=r'is in use by another run of this process, .* run.close()'):
        start(Tiny, logdir=run.logdir)
    with start(Tiny, logdir=run.logdir, only_reads=True) as reader:
        assert reader.evaluate() == run.evaluate()
        network, _ = reader.at_site(reader.restored)
        assert not any(key.startswith('optimizer/') for key in network.program.variables())
        with pytest.raises(ValueError, match='only reads .*; start one without only_reads'):
            reader.train()
    with pytest.raises(ValueError, match=f'this run in {run.logdir} is closed; start another'):
        reader.evaluate()


def test_where_tensorflow_has_started_cells_share_devices(
        run: Run, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    """The tests have four CPU devices and one thread."""
    settings = {'train.num_steps': 6, 'intra_op_threads': 2}
    with start(Tiny, logdir=tmp_path / 'log', num_cells=2, set=settings) as other:
        assert 'so that an op may use 1 thread in place of 2. The run works' in caplog.text
        other.train(evaluate=False)
        for path, value in run.weights.items():
            np.testing.assert_array_equal(other.weights[path], value, err_msg=path)
    five = {'pipeline.num_replicas': 5, 'train_input.batch_size': 10, 'eval_inputs': {}}
    with start(Tiny, logdir=tmp_path / 'five', set=five) as shared:
        assert shared.train(steps=1).step == 1
        assert 'so that 10 cells share 4 devices. The run works' in (
            tmp_path / 'five' / 'train.log').read_text()


def test_an_experiment_need_not_be_importable(tmp_path: pathlib.Path) -> None:
    class Mine:
        """An experiment that a notebook defines."""

        @classmethod
        def params(cls) -> Experiment.Params:
            return Tiny.params()

    Mine.__module__, Mine.__qualname__ = '__main__', 'Mine'
    registry.register(Mine)
    with start(Mine, logdir=tmp_path) as run:
        assert run.params == Tiny.params()
    with pytest.raises(ValueError, match='another process, which cannot import an experiment of a '
                                         'notebook'):
        start(Mine, logdir=tmp_path / 'new', plan='auto')


@pytest.mark.parametrize(('options', 'error', 'words'), [
    ({'num_cels': 2}, TypeError, r"start\(\) has no option 'num_cels': did you mean 'num_cells'"),
    ({'mode': 'plan'}, TypeError, r"start\(\) has no option 'mode': it has num_cells, .*, "
                                  r"only_reads\. Other values of the experiment go into set="),
    ({'epochs': 2}, TypeError, r"has no option 'epochs': Keras' epochs is train.num_steps"),
    ({'num_cells': 2.5}, ValueError, 'pipeline.num_cells=2.5 is not of type int'),
    ({'set': {'train.num_step': 1}}, ValueError, "no field 'num_step'; did you mean 'num_steps'"),
    ({'devices': 'cpu:x'}, ValueError, "--devices has 'cpu:x'; write cpu:2 or cpu:0-3"),
    ({'devices': ['cpu:0']}, ValueError, "--devices has 'cpu:0', which is no device"),
    ({'num_cells': 5, 'devices': 'cpu:5'}, ValueError,
     r'TensorFlow has started before 5 CPU devices .* \(in a notebook: the kernel\)'),
    ({'logdir': ''}, ValueError, '--logdir is missing'),
    ({'logdir': 'a\udcffb'}, ValueError, r"^logdir='a\\udcffb' is not UTF-8, and TensorFlow opens "
     'no other path; choose another directory'),
    ({'set': ['train.num_steps=3']}, TypeError, 'but must be a dict of values by path; write set='),
    ({'devices': 3}, TypeError, 'devices is 3, but must be a text or a list of texts'),
    ({'checkpoint': 'old'}, ValueError, 'checkpoint=old is no checkpoint; write newest, best'),
    ({'plan': 'best'}, ValueError, "plan='best' is none of as_set, auto"),
    ({'experiment': 3}, TypeError, '3 is no experiment; give a registered class'),
    ({'experiment': Experiment}, ValueError, 'is a class but not a registered experiment'),
])
def test_a_wrong_option_is_refused_and_lets_go_of_the_logdir(
        options: dict[str, Any], error: type[Exception], words: str,
        tmp_path: pathlib.Path) -> None:
    with pytest.raises(error, match=words):
        start(**{'experiment': Tiny, 'logdir': tmp_path, **options})
    start(Tiny, logdir=tmp_path).close()


def test_a_run_stays_in_its_directory(
        tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('HOME', str(tmp_path / 'home'))
    monkeypatch.chdir(tmp_path)
    with start(Tiny, logdir='logs/a') as run:
        run.train(steps=1, evaluate=False)
        (tmp_path / 'elsewhere').mkdir()
        monkeypatch.chdir(tmp_path / 'elsewhere')
        assert run.train(steps=1, evaluate=False).step == 2
        with pytest.raises(ValueError, match="steps='3' is no number of steps; use a whole number"):
            run.train(steps='3')   # type: ignore[arg-type]
    start(Tiny, logdir='~/b').close()
    assert (tmp_path / 'home' / 'b' / 'params.txt').exists()
    assert list((tmp_path / 'elsewhere').iterdir()) == []


def test_values_may_be_python_objects(tmp_path: pathlib.Path) -> None:
    learner = Tiny.params().task.learner.set(ema_decay=0.5)
    values = {'task.learner': learner, 'seed': np.int64(3), 'train.best_input': 'test'}
    with start(Tiny.params(), logdir=tmp_path, devices=['cpu:2'], set=values) as run:
        assert run.params.task.learner.ema_decay == 0.5
        assert run.params.seed == 3
        assert run.params.train.best_input == 'test'
    assert (tmp_path / 'params.txt').read_text() == run.params.to_text()


def test_there_must_be_something_to_evaluate_on(tmp_path: pathlib.Path) -> None:
    params = Tiny.params().set(eval_inputs={}).validate().freeze()
    with Run(params, RunOptions('eval', logdir=str(tmp_path)), is_writer=False) as run:
        with pytest.raises(ValueError, match='eval_inputs is empty; give the experiment one'):
            run.evaluate()
    assert os.listdir(tmp_path) == []


def test_a_change_is_recorded_once_the_run_has_gone_on_with_it(tmp_path: pathlib.Path) -> None:
    """The files told of changes of a start that had failed."""
    with start(Tiny, logdir=tmp_path) as run:
        run.train(steps=1, evaluate=False)
    text = (tmp_path / 'params.txt').read_text()
    allowed = ['task.learner.*']
    with start(Tiny, logdir=tmp_path, set={'task.learner.ema_decay': None},
               allow_change=allowed) as run, pytest.raises(ValueError, match='does not fit'):
        run.train(steps=1, evaluate=False)
    assert (tmp_path / 'params.txt').read_text() == text
    assert not (tmp_path / 'params_history.txt').exists()
    with start(Tiny, logdir=tmp_path, set={'task.learner.clip_norm': 1.},
               allow_change=allowed) as run:
        run.train(steps=1, evaluate=False)
    assert 'clip_norm : none -> 1.0' in (tmp_path / 'params_history.txt').read_text().lower()
    assert 'task.learner.clip_norm : 1.0' in (tmp_path / 'params.txt').read_text()


def test_steps_count_from_the_newest_checkpoint_that_is_whole(tmp_path: pathlib.Path) -> None:
    with start(Tiny, logdir=tmp_path) as run:
        run.train(steps=3, evaluate=False)
        damaged = next((tmp_path / 'checkpoints' / 'step-00000003').glob('*.data-*'))
        os.truncate(damaged, 1)
        assert run.train(steps=2, evaluate=False).step == 4


def test_a_run_that_failed_begins_again_with_its_initial_weights(tmp_path: pathlib.Path) -> None:
    """Without a checkpoint, a second train() would begin with the weights at which one failed."""
    values = {'train.checkpoint_every_steps': 100, 'task.learner.max_nonfinite_steps': 1,
              'train_input.shuffle': False, 'train_input.nan_at': (16, 17)}
    with start(Tiny, logdir=tmp_path, set=values) as run:
        initial = dict(run.weights)
        with pytest.raises(NonFiniteError, match='step 3 has loss nan'):
            run.train()
        for path, value in run.weights.items():
            np.testing.assert_array_equal(value, initial[path])


def test_a_schedule_may_become_longer_where_that_is_allowed(
        tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    longer = {'task.learner.learning_rate.decay_steps': 2000}
    with start(Tiny, logdir=tmp_path) as run:
        run.train(steps=1, evaluate=False)
    with pytest.raises(ValueError, match='--allow_change=task.learner.learning_rate.decay_steps'):
        start(Tiny, logdir=tmp_path, set=longer)
    for _ in range(2):   # The second time, it is the run's own.
        with start(Tiny, logdir=tmp_path, set=longer, allow_change=['task.learner.*']) as run:
            assert run.train(steps=1, evaluate=False).step > 1
    change = 'task.learner.learning_rate.decay_steps'
    assert f'after step 1, as --allow_change lets it: {change} (was 1000, is 2000)' in caplog.text
    heading, line = (tmp_path / 'params_history.txt').read_text().splitlines()
    assert heading.startswith('# after step 1, ')
    assert line == f'{change} : 1000 -> 2000'


def test_another_optimizer_with_the_same_slots_is_told_of(
        tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    """Lion took the momentums of SGD, which have the opposite sign there, without a word."""
    with start(Tiny, logdir=tmp_path) as run:
        run.train(steps=1, evaluate=False)
    lion = {'task.learner.optimizer': optimizers.Lion.Params()}
    with start(Tiny, logdir=tmp_path, set=lion, allow_change=['task.learner.*']) as run:
        run.train(steps=1, evaluate=False)
    assert 'which may mean something else to it; for new ones, use initialize_from' in caplog.text


def test_a_checkpoint_is_named(run: Run) -> None:
    by_step = run.evaluate(5)
    assert by_step != run.evaluate(6) == run.evaluate('newest') == run.evaluate('best')
    with pytest.raises(ValueError, match='has no checkpoint of step 77; it has .*6'):
        run.evaluate(77)
    with pytest.raises(ValueError, match='--checkpoint=last is no checkpoint; write newest, best'):
        run.evaluate('last')


def test_an_earlier_checkpoint_is_evaluated_on_every_replica(tmp_path: pathlib.Path) -> None:
    found = []
    for num_replicas in (1, 2):
        values = {'pipeline.num_replicas': num_replicas, 'train.num_steps': 6,
                  'pipeline.num_micro_batches': 4 // num_replicas,
                  'pipeline.sum_groups': 2 // num_replicas}
        with start(Tiny, logdir=tmp_path / str(num_replicas), num_cells=1, set=values) as run:
            run.train(evaluate=False)
            found.append([run.evaluate(step) for step in (5, 6)])
    assert found[0] == found[1] and found[0][0] != found[0][1]


def test_weights_may_start_from_a_checkpoint_that_is_named(
        run: Run, tmp_path: pathlib.Path) -> None:
    of = {'initialize_from.directory': run.logdir, 'initialize_from.checkpoint': '5'}
    with start(Tiny, logdir=tmp_path / 'of_5', set=of) as other:
        other.train(steps=0, evaluate=False)
        assert 'variables are taken from' in (tmp_path / 'of_5/initialization.txt').read_text()
        assert 'step-00000005' in (tmp_path / 'of_5/initialization.txt').read_text()
    with pytest.raises(ValueError, match='initialize_from: checkpoint=last is no checkpoint'):
        start(Tiny, logdir=tmp_path, set={'initialize_from.checkpoint': 'last'})


def test_evaluations_of_weights_that_are_lost_are_made_again(tmp_path: pathlib.Path) -> None:
    """The outcome had the metrics of a run whose checkpoints were removed."""
    with start(Tiny, logdir=tmp_path) as first:
        first.train(steps=3)
    shutil.rmtree(tmp_path / 'checkpoints')
    rate = {'task.learner.learning_rate.rate': 1e-5}
    with start(Tiny, logdir=tmp_path, set=rate) as second:
        outcome = second.train(steps=3)
        assert outcome.metrics == second.evaluate()
        assert outcome.best and outcome.best[0] == 3
