"""The train loop's promises: exact resume, evaluation, best checkpoint, bad numbers, pictures."""
import contextlib
import glob
import io
import json
import math
import os
import pathlib
import re
import resource
import shlex
import signal
import types

import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lingpipe.checkpoint import Checkpointer, files
from lingpipe.cluster.returned import ReturnedWorkerError
from lingpipe.learning import learning_rates
from lingpipe.training import registry, resumption, training_batches
from lingpipe.training.evaluation import mean
from lingpipe.training.loop import LoopOptions, TrainLoop
from lingpipe.training.resumption import check_resumable
from lingpipe.training.site import THIS_PROCESS, Site
from lingpipe.training.skipped_steps import NonFiniteError
from lingpipe.training.slow_steps import SlowSteps
from lingpipe.training.steps import InputEndedError


def make_params(**overrides):
    """One cell, unless a test needs more: its graphs are built in half of the time."""
    return registry.get('tests.support.tiny_experiment.Tiny').set(
        **{'pipeline.num_cells': 1,
           **{name.replace('__', '.'): value for name, value in overrides.items()}})


def make_loop(params, logdir, site=THIS_PROCESS, **options):
    options = LoopOptions(**{'out': io.StringIO(), **options})
    return TrainLoop(params.instantiate(), str(logdir), options, site)


def train(params, logdir, **kwargs):
    """Trains, and returns the loop and its outcome."""
    loop = make_loop(params, logdir, **kwargs)
    return loop, loop.run()


def values_of(loop):
    return {key: variable.numpy() for key, variable in loop.program.variables().items()}


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
    """The variables before each step of an undisturbed run, keyed by step."""
    loop = make_loop(make_params(train__num_steps=9), tmp_path_factory.mktemp('whole'),
                     has_evaluation=False)
    train_step, found = loop.program.train_step, {}

    def remembered(batch, step, *others):
        found[step] = values_of(loop)
        return train_step(batch, step, *others)

    loop.program.train_step = remembered
    assert loop.run().step == 9
    return {**found, 9: values_of(loop)}


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for key in expected:
        np.testing.assert_array_equal(found[key], expected[key], err_msg=key)


def test_training_learns(tmp_path):
    loop, outcome = train(make_params(train__num_steps=60, train__checkpoint_every_steps=60),
                          tmp_path)
    assert outcome.step == 60
    assert outcome.metrics['test']['error'] < 0.15


def test_resumed_training_has_the_bits_of_an_uninterrupted_one_whatever_the_cells(tmp_path, whole):
    for steps, num_cells, schedule in ((2, 1, 'gpipe'), (5, 4, '1f1b'), (9, 2, 'gpipe')):
        parts, outcome = train(make_params(train__num_steps=steps, pipeline__num_cells=num_cells,
                                           pipeline__schedule=schedule),
                               tmp_path / 'parts', has_evaluation=False)
        assert outcome.step == steps
    assert_same(values_of(parts), whole[9])


def test_positions_in_place_of_mini_batches_have_the_same_bits_and_end(
        tmp_path, whole, monkeypatch):
    """This process stands for the workers that read the input."""
    monkeypatch.setattr(training_batches, 'reads_on_workers', lambda plan: True)
    for steps in (4, 9):
        loop, _ = train(make_params(train__num_steps=steps, pipeline__num_cells=2),
                        tmp_path / 'log')
    assert_same(values_of(loop), whole[9])
    with pytest.raises(InputEndedError, match=r'^train_input ends in step 6 of 10; let it repeat'):
        train(make_params(train_input__num_epochs=1), tmp_path / 'ends', has_evaluation=False)


def test_training_goes_on_without_its_replicas_and_with_them_again_as_if_nothing_had_changed(
        tmp_path):
    turns = {'replicas': {'pipeline__num_replicas': 2, 'pipeline__num_micro_batches': 1,
                          'pipeline__num_cells': 2},
             'one': {'pipeline__sum_groups': 2, 'pipeline__num_micro_batches': 2,
                     'pipeline__num_cells': 3}}
    alone, _ = train(make_params(train__num_steps=6, **turns['replicas']), tmp_path / 'alone',
                     has_evaluation=False)
    for steps, turn in ((2, 'one'), (4, 'replicas'), (6, 'one')):
        parts, _ = train(make_params(train__num_steps=steps, **turns[turn]), tmp_path / 'parts',
                         has_evaluation=False)
    assert_same(values_of(parts), values_of(alone))
    check_resumable(make_params(**turns['one']), make_params(**turns['replicas']))
    with pytest.raises(ValueError, match=r'pipeline.sum_groups \(was 2, is 1\) differ'):
        check_resumable(make_params(**turns['one']),
                        make_params(**{**turns['one'], 'pipeline__sum_groups': 1}))


def test_narrow_slots_go_on_from_a_checkpoint_with_other_cells_and_replicas(tmp_path):
    narrow = {'task__learner__bfloat16_slots': True}
    replicas = {**narrow, 'pipeline__num_replicas': 2, 'pipeline__num_micro_batches': 1}
    one = {**narrow, 'pipeline__sum_groups': 2, 'pipeline__num_micro_batches': 2,
           'pipeline__num_cells': 3}
    alone, _ = train(make_params(train__num_steps=4, **one), tmp_path / 'alone',
                     has_evaluation=False)
    for steps, turn in ((2, one), (4, {**replicas, 'pipeline__shard_slots': True})):
        parts, _ = train(make_params(train__num_steps=steps, **turn), tmp_path / 'parts',
                         has_evaluation=False)
    assert_same(values_of(parts), values_of(alone))
    assert {value.dtype.name for key, value in values_of(parts).items()
            if key.startswith('optimizer/') and value.ndim == 2} == {'bfloat16'}
    with pytest.raises(ValueError, match=r'bfloat16_slots \(was True, is False\) differ'):
        check_resumable(make_params(**one), make_params(
            **{**one, 'task__learner__bfloat16_slots': False}))


def test_accumulated_mini_batches_resume_at_the_right_example(tmp_path):
    accumulate = {'task__learner__accumulate': 3, 'train_input__batch_size': 4}
    whole, _ = train(make_params(train__num_steps=5, **accumulate), tmp_path / 'whole',
                     has_evaluation=False)
    train(make_params(train__num_steps=2, **accumulate), tmp_path / 'parts', has_evaluation=False)
    parts, _ = train(make_params(train__num_steps=5, **accumulate), tmp_path / 'parts',
                     has_evaluation=False)
    assert_same(values_of(parts), values_of(whole))


def test_timed_step_is_a_normal_step_and_is_drawn(tmp_path, whole):
    out = io.StringIO()
    timed, outcome = train(make_params(train__num_steps=6, train__timeline_step=4,
                                       pipeline__num_cells=2),
                           tmp_path / 'timed', has_evaluation=False, out=out)
    assert_same(values_of(timed), whole[6])
    report = outcome.timeline
    assert report.step == 4
    assert 0 <= report.measured_bubble < 1 and 0 <= report.replayed_bubble < 1
    assert report.predicted_bubble == timed.program.plan.simulate().bubble_share
    assert re.search(r'bubble of step 4: measured [\d.]+% \(median of 2 steps, [\d.]+% to '
                     r'[\d.]+%\), predicted [\d.]+% from FLOPs and [\d.]+% from the measured',
                     out.getvalue())
    assert re.search(r'mean of steps 3 to 4: [\d.,]+ ms, predicted [\d.,]+ ms from the measured',
                     out.getvalue())
    assert report.breakdown.text() in out.getvalue()
    for parts in report.breakdown.measured.devices:
        assert sum(parts.values()) == pytest.approx(report.breakdown.measured.step_s)
        assert parts['input'] > 0
    assert json.loads((tmp_path / 'timed/timeline/step-00000004-breakdown.json').read_text())
    for png in (report.png, report.breakdown_png):
        assert pathlib.Path(png).read_bytes().startswith(b'\x89PNG')
    events = json.loads(pathlib.Path(report.trace).read_text())['traceEvents']
    tasks = [event for event in events if event['ph'] == 'X' and event['pid'] == 0]
    assert len(tasks) == 6   # For two micro-batches: F and B of cell 0, and B of cell 1.


def test_a_run_that_is_past_its_last_step_says_so(tmp_path, whole):
    train(make_params(train__num_steps=5), tmp_path, has_evaluation=False)
    loop, outcome = train(make_params(train__num_steps=3), tmp_path, has_evaluation=False,
                          out=(out := io.StringIO()))
    assert outcome.step == 5
    assert_same(values_of(loop), whole[5])
    assert (f'{tmp_path} is at step 5 already, and train.num_steps is 3: no step is left to train; '
            f'give --steps above 5 to train on.') in out.getvalue()


def test_slow_steps_on_workers_are_timed_and_have_the_same_bits(tmp_path, whole, monkeypatch):
    class Slow(SlowSteps):
        """Step 5 has become slower, to twice the nanosecond that steps took before."""

        def add(self, seconds):
            self.before_s, self.now_s = 1e-9, 2e-9
            return True

    class Watchdog:
        connection = None

        def begin(self, what, is_bounded=False):
            pass

    monkeypatch.setattr('lingpipe.training.slow_steps.SlowSteps', Slow)
    loop, _ = train(make_params(train__num_steps=9, pipeline__num_cells=2), tmp_path,
                    has_evaluation=False, site=Site(watchdog=Watchdog()))
    assert_same(values_of(loop), whole[9])
    lines = re.findall(r'^step (\d+): steps take 2\.0 times as long as before .* because of '
                       r'/device:CPU:0, whose tasks alone take .* and /device:CPU:1, ',
                       (tmp_path / 'train.log').read_text(), re.MULTILINE)
    assert lines == ['9']


def test_a_worker_that_is_back_ends_the_loop_after_the_next_checkpoint(tmp_path):
    class Returned:
        text = 'worker b:2 answers again'

    params = make_params(train__num_steps=9, train__checkpoint_every_steps=4)
    with pytest.raises(ReturnedWorkerError, match='worker b:2 answers again'):
        train(params, tmp_path, has_evaluation=False, site=Site(returned=Returned()))
    assert Checkpointer(str(tmp_path / 'checkpoints')).steps() == [4]


def test_timeline_is_made_of_a_step_with_accumulation_too(tmp_path):
    accumulate = {'task__learner__accumulate': 2, 'train_input__batch_size': 4,
                  'train__num_steps': 4}
    plain, _ = train(make_params(**accumulate), tmp_path / 'plain', has_evaluation=False)
    timed, outcome = train(make_params(train__timeline_step=3, **accumulate), tmp_path / 'timed',
                           has_evaluation=False)
    assert outcome.timeline is not None
    assert_same(values_of(timed), values_of(plain))


def test_damaged_newest_checkpoint_falls_back_to_the_one_before(tmp_path, whole):
    train(make_params(train__num_steps=5), tmp_path / 'parts', has_evaluation=False)
    for name in glob.glob(f'{tmp_path}/parts/checkpoints/step-00000005/variables.data*'):
        pathlib.Path(name).write_bytes(bytes(os.path.getsize(name)))
    out = io.StringIO()
    parts, _ = train(make_params(train__num_steps=8), tmp_path / 'parts', has_evaluation=False,
                     out=out)
    assert 'going on after step 4' in out.getvalue()
    assert_same(values_of(parts), whole[8])


def test_a_run_that_goes_on_with_other_data_says_so(tmp_path):
    train(make_params(train__num_steps=2), tmp_path, has_evaluation=False)
    for last_step, num_examples in ((3, 40), (4, 48)):
        out = io.StringIO()
        train(make_params(train__num_steps=last_step, train_input__num_examples=num_examples),
              tmp_path, has_evaluation=False, out=out, allow_change=('train_input.num_examples',))
        assert f'going on after step {last_step - 1}' in out.getvalue()
        warning = 'WARNING: train_input has 48 examples, and had 40 until then'
        assert (warning in out.getvalue()) == (num_examples == 48)


def test_checkpoint_knows_whose_it_is(tmp_path):
    """Without params.txt a run silently resumed with another seed and learning rate."""
    train(make_params(train__num_steps=2), tmp_path, has_evaluation=False)
    assert os.listdir(tmp_path / 'checkpoints') and not (tmp_path / 'params.txt').exists()
    for change, differs in (
            ({'seed': 3}, r'seed \(was 0, is 3\)'),
            ({'train_input__batch_size': 4}, r'train_input\.batch_size \(was 8, is 4\)'),
            ({'task__learner__learning_rate__rate': 0.5, 'task__learner__optimizer__momentum': 0.},
             r'task\.learner\.optimizer\.momentum \(was 0\.9, is 0\.0\), '
             r'task\.learner\.learning_rate\.rate \(was 0\.05, is 0\.5\)')):
        loop = make_loop(make_params(train__num_steps=4, **change), tmp_path, has_evaluation=False)
        before = values_of(loop)
        with pytest.raises(ValueError,
                           match=rf'^cannot resume training in {tmp_path}/checkpoints: it holds a '
                                 rf'run whose {differs} differ; .*Set them back, or choose another'
                                 r' logdir'):
            loop.run()
        assert_same(values_of(loop), before)


def test_checkpoint_of_other_batches_is_refused(tmp_path, monkeypatch):
    # As for a checkpoint that does not say which run it belongs to.
    monkeypatch.setattr(resumption, 'check_recorded', lambda text, now, allowed: None)
    train(make_params(train__num_steps=2), tmp_path, has_evaluation=False)
    with pytest.raises(ValueError,
                       match=r'the checkpoint of step 2 was written after 16 examples, but 2 steps '
                             r'of 4 are 8; set train_input\.batch_size and '
                             r'task\.learner\.accumulate back, or choose another logdir\.'):
        train(make_params(train__num_steps=4, train_input__batch_size=4), tmp_path,
              has_evaluation=False)


# Numbers that are not finite.

def test_nan_loss_stops_the_training_and_names_the_step(tmp_path):
    params = make_params(train__num_steps=20, train__checkpoint_every_steps=2,
                         train_input__shuffle=False, train_input__nan_at=tuple(range(24, 40)),
                         task__learner__max_nonfinite_steps=2)
    loop = make_loop(params, tmp_path, has_evaluation=False)
    with pytest.raises(NonFiniteError,
                       match=r'step 5 has loss nan and gradient norm nan, and 2 steps in a row '
                             r"were not finite; 'x' of example 32 of Pairs is not finite\. "
                             r'If the input is at fault, mend it: the same '
                             r'command then goes on from the checkpoint of step 2\.'):
        loop.run()
    assert all(np.isfinite(value).all() for value in values_of(loop).values())


def test_skipped_step_updates_nothing_but_counts_and_resumes_exactly(tmp_path):
    bad = {'train_input__shuffle': False, 'train_input__nan_at': (20,),
           'task__learner__max_nonfinite_steps': 2}
    before, _ = train(make_params(train__num_steps=2, **bad), tmp_path / 'before',
                      has_evaluation=False)
    out = io.StringIO()
    after, outcome = train(make_params(train__num_steps=3, **bad), tmp_path / 'after',
                           has_evaluation=False, out=out)
    assert (outcome.step, outcome.num_nonfinite) == (3, 1)
    assert ('step 3 is skipped: loss nan and gradient norm nan (1 in a row); '
            "'x' of example 20 of Pairs is not finite\n") in out.getvalue()
    assert_same(values_of(after), values_of(before))

    # A resumed run whose only step was not finite failed. The same run would have ended well had
    # it not been interrupted.
    parts, outcome = train(make_params(train__num_steps=3, **bad), tmp_path / 'before',
                           has_evaluation=False)
    assert (outcome.step, outcome.num_nonfinite) == (3, 1)
    assert_same(values_of(parts), values_of(after))

    whole, _ = train(make_params(train__num_steps=7, **bad), tmp_path / 'whole',
                     has_evaluation=False)
    resumed, _ = train(make_params(train__num_steps=7, **bad), tmp_path / 'after',
                       has_evaluation=False)
    assert_same(values_of(resumed), values_of(whole))


def test_nonfinite_steps_in_a_row_are_counted_across_a_restart(tmp_path):
    bad = {'train_input__shuffle': False, 'train_input__nan_at': tuple(range(16, 40)),
           'task__learner__max_nonfinite_steps': 2}
    train(make_params(train__num_steps=3, **bad), tmp_path, has_evaluation=False)
    with pytest.raises(NonFiniteError, match='step 4 has'):
        train(make_params(train__num_steps=9, **bad), tmp_path, has_evaluation=False)


def exploding(**values):
    """Params of a run whose fourth step makes the weights too large for any further step."""
    rates = learning_rates.Piecewise.Params(boundaries=(3,), rates=(0.05, 1e30))
    return make_params(task__learner__learning_rate=rates, task__learner__l2=1e-4,
                       task__learner__max_nonfinite_steps=3, task__learner__ema_decay=None,
                       train__num_steps=20, **values)


@pytest.mark.parametrize(('keep', 'saved'), [(1, [3, 4]), (2, [3, 4]), (3, [2, 3, 4])])
def test_good_checkpoints_are_kept_while_steps_are_skipped(tmp_path, keep, saved):
    loop = make_loop(exploding(train__keep=keep), tmp_path, has_evaluation=False)
    with pytest.raises(NonFiniteError,
                       match=r'step 7 has .*, and 3 steps in a row were not finite\.'):
        loop.run()
    checkpointer = Checkpointer(str(tmp_path / 'checkpoints'), is_writer=False)
    assert checkpointer.steps() == saved
    largest = {
        step: max(np.abs(value).max()
                  for value in files.tensors(checkpointer.path(step), ['weights/model/dense_0/w']))
        for step in saved}
    assert largest[3] < 10 and largest[4] > 1e20


def test_advice_is_accepted_as_it_stands(tmp_path):
    with pytest.raises(NonFiniteError) as error:
        make_loop(exploding(train__keep=1), tmp_path / 'run', has_evaluation=False).run()
    advised = re.search(r'with (--logdir=.*) \(or --set task\.learner\.clip_norm=1\.0, to clip '
                        r'gradients\) at its end',
                        str(error.value))[1]
    logdir, *overrides = shlex.split(advised)
    assert logdir == f'--logdir={tmp_path}/run-2'
    params = exploding(train__keep=1)
    for flag, override in zip(overrides[::2], overrides[1::2], strict=True):
        assert flag == '--set'
        params.override(*override.split('=', 1))
    assert params.task.learner.learning_rate.rates == (0.005, 0.01)
    loop, outcome = train(params, tmp_path / 'run-2', has_evaluation=False,
                          out=(out := io.StringIO()))
    assert (outcome.step, outcome.num_nonfinite) == (20, 0)
    assert f'taken from {tmp_path}/run/checkpoints/step-00000003' in out.getvalue()


def test_advice_begins_anew_where_no_weights_are_known_to_be_good(tmp_path):
    params = exploding()
    params.task.learner.learning_rate.rates = (1e30, 1e30)
    with pytest.raises(NonFiniteError,
                       match=r'give the same command with --logdir=\S+-2 --set .*rates=\[0\.01, '
                             r'0\.01\].* at its end\. No checkpoint holds weights with which a '
                             r'step was finite, so that run starts from scratch\.'):
        make_loop(params, tmp_path, has_evaluation=False).run()


def test_run_that_skips_all_of_its_steps_fails(tmp_path):
    bad = {'train_input__nan_at': tuple(range(40)), 'train__num_steps': 3}
    for _ in range(2):   # nothing is saved that would make the second look done
        with pytest.raises(NonFiniteError,
                           match=r'step 3 has loss nan and gradient norm nan, and no step of this '
                                 r"run was finite; 'x' of example \d+ of Pairs is not finite\. "
                                 r'There is no checkpoint yet\. .*give the same '
                                 r'command with --set \S+rate=0\.005 \(or'):
            make_loop(make_params(**bad), tmp_path).run()


def test_run_whose_examples_all_have_weight_0_fails_and_says_so_once_before(tmp_path):
    loop = make_loop(make_params(train__num_steps=3), tmp_path, out=(out := io.StringIO()))
    train_step = loop.program.train_step
    loop.program.train_step = lambda batch, *others: train_step(
        {**batch, 'weight': np.zeros(8, np.float32)}, *others)
    with pytest.raises(ValueError, match='no step of this run updated anything: the weights of '
                                         'the examples of step 3 add up to 0; look at the weights'):
        loop.run()
    assert out.getvalue().count('is skipped') == 1
    assert ('step 1 is skipped, and so are those after it that are alike: the weights of its '
            'examples add up to 0') in out.getvalue()


def test_skipped_steps_are_told_of_at_the_end(tmp_path):
    _, outcome = train(make_params(train__num_steps=4, train_input__shuffle=False,
                                   train_input__nan_at=(20,)),
                       tmp_path)
    assert ('done after 4 steps, 1 of which were skipped: their loss or gradient was not finite\n'
            in outcome.text('/logdir'))


# Evaluation.

def test_padding_of_the_last_batch_does_not_count(tmp_path):
    one_by_one = make_params(train__num_steps=1)
    one_by_one['eval_inputs.test.batch_size'] = 1
    # There are 13 examples, in batches of 8.
    padded = train(make_params(train__num_steps=1), tmp_path / 'padded')[1].metrics['test']
    exact = train(one_by_one, tmp_path / 'exact')[1].metrics['test']
    assert padded == pytest.approx(exact, rel=1e-5)


def test_mean_weighs_mini_batches_by_their_weight():
    assert mean([(8.0, 8.0), (1.0, 2.0)]) == 0.9


def test_replicas_on_named_devices_are_evaluated_there(tmp_path):
    replicas = {'pipeline__num_replicas': 2, 'pipeline__num_cells': 2, 'train__num_steps': 2}
    named = make_params(pipeline__devices=tuple(f'/device:CPU:{i}' for i in (3, 2, 1, 0)),
                        **replicas)
    expected = train(make_params(**replicas), tmp_path / 'default')[1].metrics
    assert train(named, tmp_path / 'named')[1].metrics == expected


def test_best_checkpoint_is_kept_besides_the_newest(tmp_path):
    params = make_params(train__num_steps=6, train__eval_every_steps=1, train__keep=1,
                         task__best_metric='error', task__best_is_largest=True)
    _, outcome = train(params, tmp_path)   # the largest error is that of the first step
    assert outcome.best[0] == 1
    assert Checkpointer(str(tmp_path / 'checkpoints'), is_writer=False).steps() == [1, 6]


def test_a_part_without_evaluations_keeps_the_best_and_its_data_in_mind(tmp_path, caplog):
    """It took the evaluations on all data that the input ever had for those of the present one."""
    params = make_params(train__num_steps=4, train__eval_every_steps=2, train__keep=1)
    train(params, tmp_path)
    params['eval_inputs.test.num_examples'] = 12
    best = train(params.set(**{'train.num_steps': 6}), tmp_path)[1].best
    assert best[0] == 6
    caplog.clear()
    for num_steps in (7, 8):
        params['train.num_steps'] = num_steps
        assert train(params, tmp_path, has_evaluation=False)[1].best == best
    assert 'no longer counts' not in caplog.text
    assert Checkpointer(str(tmp_path / 'checkpoints'), is_writer=False).steps() == [6, 8]


def test_an_evaluation_that_is_not_finite_names_the_example(tmp_path, caplog):
    params = make_params(train__num_steps=1)
    params['eval_inputs.test.nan_at'] = (10,)
    train(params, tmp_path)
    assert "eval_inputs.test: the loss is not finite, and 'x' of example 10" in caplog.text


def test_evaluation_that_a_kill_cut_short_is_made_up_for(tmp_path):
    train(make_params(train__num_steps=4, train__eval_every_steps=2), tmp_path)
    lines = (tmp_path / 'evaluations.jsonl').read_text().splitlines(keepends=True)
    (tmp_path / 'evaluations.jsonl').write_text(lines[0] + lines[1][:10])
    os.remove(tmp_path / 'checkpoints' / 'best.json')
    _, outcome = train(make_params(train__num_steps=4, train__eval_every_steps=2), tmp_path)
    assert outcome.metrics['test'] == {
        name: value for name, value in json.loads(lines[1]).items() if name in ('loss', 'error')}
    assert outcome.best[0] == 4


def test_wrong_best_metric_says_which_there_are_before_the_first_step(tmp_path):
    with pytest.raises(ValueError, match=r"task\.best_metric='accuracy' is not among the metrics "
                                         r"of test: loss, error; name one of them"):
        train(make_params(train__num_steps=2, task__best_metric='accuracy',
                          task__best_is_largest=True), tmp_path)
    assert Checkpointer(str(tmp_path / 'checkpoints'), is_writer=False).steps() == []


def test_endless_eval_input_is_refused():
    with pytest.raises(ValueError, match=r'eval_inputs\.test\.num_epochs is none, so that an '
                                         r'evaluation would not end; set it to 1'):
        params = make_params()
        params['eval_inputs.test.num_epochs'] = None
        params.instantiate()


# Start and end.

def test_input_that_ends_says_where_and_saves(tmp_path):
    with pytest.raises(ValueError, match=r'train_input ends in step 6 of 10; let it repeat '
                                         r'\(train_input\.num_epochs=none\), or lower'):
        train(make_params(train_input__num_epochs=1, train__checkpoint_every_steps=100), tmp_path,
              has_evaluation=False)
    assert Checkpointer(str(tmp_path / 'checkpoints'), is_writer=False).steps() == [5]


def test_signal_finishes_the_step_and_saves(tmp_path):
    loop = make_loop(make_params(train__num_steps=50, train__checkpoint_every_steps=100), tmp_path,
                     out=(out := io.StringIO()))
    train_step = loop.program.train_step

    def interrupted(batch, step, *others):
        if step == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return train_step(batch, step, *others)

    loop.program.train_step = interrupted
    before = signal.getsignal(signal.SIGTERM)
    outcome = loop.run()
    assert (outcome.signal, outcome.step) == ('SIGTERM', 4)
    assert ('SIGTERM: stopped after step 4, whose checkpoint is saved; the same command goes on '
            'from there') in out.getvalue()
    assert Checkpointer(str(tmp_path / 'checkpoints'), is_writer=False).steps() == [4]
    assert signal.getsignal(signal.SIGTERM) is before


def test_signal_before_the_first_step_saves_step_0(tmp_path):
    """The log said that the checkpoint was saved; the documents, that there is none."""
    stop = types.SimpleNamespace(name='SIGTERM')
    params = make_params(train__num_steps=2)
    outcome = make_loop(params, tmp_path, out=(out := io.StringIO()), stop=stop).run()
    assert (outcome.signal, outcome.step) == ('SIGTERM', 0)
    assert 'SIGTERM: stopped after step 0, whose checkpoint is saved' in out.getvalue()
    assert Checkpointer(str(tmp_path / 'checkpoints'), is_writer=False).steps() == [0]
    make_loop(params, tmp_path, out=(out := io.StringIO())).run()
    assert 'going on after step 0, from ' in out.getvalue()


def test_weights_are_taken_from_another_training(tmp_path):
    source, _ = train(make_params(train__num_steps=2), tmp_path / 'source', has_evaluation=False)
    out = io.StringIO()
    params = make_params(train__num_steps=0, seed=1)
    params['initialize_from.directory'] = str(tmp_path / 'source')
    loop, _ = train(params, tmp_path / 'new', has_evaluation=False, out=out)
    np.testing.assert_array_equal(loop.program.weights['model/dense_0/w'],
                                  source.program.weights['model/dense_0/w'])
    assert (f'a new run; 4 of 16 variables are taken from '
            f'{tmp_path}/source/checkpoints/step-00000002') in out.getvalue()
    assert ('  taken      weights/model/dense_0/w\n'
            in (tmp_path / 'new' / 'initialization.txt').read_text())


def test_weights_that_another_training_lacks_are_named(tmp_path):
    """The line about the run said '3 of 16', and no more if all weights were taken."""
    train(make_params(train__num_steps=2), tmp_path / 'source', has_evaluation=False)
    params = make_params(train__num_steps=0, seed=1)
    params['initialize_from.directory'] = str(tmp_path / 'source')
    params['initialize_from.rules'] = [('weights/model/dense_0/w', 'weights/model/other/w'),
                                       ('weights/(.*)', r'weights/\1')]
    train(params, tmp_path / 'new', has_evaluation=False, out=(out := io.StringIO()))
    assert ('/step-00000002. WARNING: 1 that a rule names are not there and begin as in a run from '
            'scratch (weights/model/dense_0/w: there is no weights/model/other/w). See '
            in out.getvalue())


@pytest.fixture(scope='module')
def ten_steps(tmp_path_factory):
    """The logdir of a run with its evaluation, and the lines that it prints."""
    logdir, out = tmp_path_factory.mktemp('ten_steps'), io.StringIO()
    train(make_params(train__num_steps=10, pipeline__num_cells=2), logdir, out=out)
    return logdir, out.getvalue()


def test_summaries_and_lines_are_written(ten_steps):
    logdir, lines = ten_steps
    assert lines == (logdir / 'train.log').read_text()

    # F, B and recomputation of 2 x 128 FLOPs in cell 0 are 1024. F and B of 320 FLOPs in the fused
    # last cell are 960.
    assert re.search(r'^predicted bubble [\d.]+%, balance 96\.9%', lines, re.MULTILINE)
    assert re.search(
        r'^step 10/10  loss [\d.]+  learning rate 0\.0496  [\d.,]+ examples/s  ETA 0:00:00$', lines,
        re.MULTILINE)

    found: dict[str, list[int]] = {}
    for run in ('train', 'eval_test'):
        for file in glob.glob(f'{logdir}/tensorboard/{run}/*'):
            for record in tf.data.TFRecordDataset(file):
                event = tf.compat.v1.Event.FromString(record.numpy())
                for value in event.summary.value:
                    found.setdefault(f'{run}/{value.tag}', []).append(event.step)

    assert found['train/loss'] == [1, 5, 10]
    assert found['train/params'] == [0]
    assert found['eval_test/error'] == [10]
    assert {'train/gradient_norm', 'train/learning_rate', 'train/examples_per_s',
            'train/input_wait_share'} <= found.keys()


def test_every_number_of_a_training_is_a_scalar_in_tensorboard(ten_steps):
    logdir, _ = ten_steps
    found = {run: EventAccumulator(f'{logdir}/tensorboard/{run}').Reload()
             for run in ('train', 'eval_test')}

    def scalars(run):
        """Returns a dict from each tag to its list of (step, value)."""
        tags = [tag
                for tag in found[run].Tags()['tensors']
                if found[run].SummaryMetadata(tag).plugin_data.plugin_name == 'scalars']
        return {tag: [(event.step, tf.make_ndarray(event.tensor_proto).item())
                      for event in found[run].Tensors(tag)]
                for tag in tags}

    trained, evaluated = scalars('train'), scalars('eval_test')
    assert trained.keys() == {'loss', 'error', 'weight', 'gradient_norm', 'learning_rate',
                              'nonfinite_steps', 'examples_per_s', 'input_wait_share'}
    assert trained['learning_rate'] == [(step, pytest.approx(0.05 * (1 - (step - 1) / 1000)))
                                        for step in (1, 5, 10)]
    assert trained['weight'] == [(1, 8), (5, 8), (10, 8)]
    assert trained['nonfinite_steps'] == [(1, 0), (5, 0), (10, 0)]
    assert trained['loss'][0][1] > trained['loss'][2][1] > 0 and trained['gradient_norm'][0][1] > 0
    line = json.loads((logdir / 'evaluations.jsonl').read_text())
    assert evaluated == {name: [(10, pytest.approx(line[name]))] for name in ('loss', 'error')}


# Checkpoints that cannot be written.

def test_full_disk_costs_a_checkpoint_and_not_the_training(tmp_path, monkeypatch, whole):
    write = files.write

    def full(path, facts, *args):
        if facts['step'] in (2, 3):
            raise OSError(28, 'No space left on device')
        write(path, facts, *args)
    monkeypatch.setattr(files, 'write', full)
    out = io.StringIO()
    parts, _ = train(make_params(train__num_steps=6, train__keep=9), tmp_path / 'parts',
                     has_evaluation=False, out=out)
    found = re.findall(
        r'step \d: the checkpoint of step (\d) cannot be written to .*No space left on device; '
        r'that of step 1 is still whole\. Make room or choose another logdir\. The run goes on\.',
        out.getvalue())
    assert found == ['2', '3']
    assert Checkpointer(str(tmp_path / 'parts' / 'checkpoints'), is_writer=False).steps() == [
        1, 4, 5, 6]
    assert_same(values_of(parts), whole[6])


@contextlib.contextmanager
def full_disk():
    """Within this context, no thread of this process can make a file grow.

    It is the nearest thing to a full disk that needs no special rights.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Python ignores the signal that comes with the limit.
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def full_after(loop, first, last=math.inf):
    """Makes the disk full in the steps after `first` up to `last`, checkpoints included."""
    is_full, train_step = contextlib.ExitStack(), loop.program.train_step

    def step_of(batch, step, *others):
        if step == first:
            is_full.enter_context(full_disk())
        if step == last:
            is_full.close()
        return train_step(batch, step, *others)
    loop.program.train_step = step_of
    return is_full


def test_full_disk_under_the_logdir_costs_lines_and_not_the_training(tmp_path):
    lengths = {'train__num_steps': 8, 'train__keep': 9, 'train__eval_every_steps': 2,
               'train__summary_every_steps': 1, 'train__checkpoint_in_background': False}
    whole, expected = train(make_params(**lengths), tmp_path / 'whole')

    loop = make_loop(make_params(**lengths), tmp_path / 'parts', out=(out := io.StringIO()))
    with full_after(loop, 3, 6):   # steps 4, 5 and 6
        outcome = loop.run()

    assert_same(values_of(loop), values_of(whole))
    assert outcome.metrics == expected.metrics

    lines, logged = (out.getvalue().splitlines(),
                     (tmp_path / 'parts' / 'train.log').read_text().splitlines())
    said = [re.sub(r'/\S+', 'PATH', line) for line in lines if 'cannot be written' in line]
    assert [line.split(' cannot be written')[0] for line in said] == [
        'PATH', 'step 4: TensorBoard files', 'step 4: the checkpoint of step 4',
        'step 4: the log of evaluations', 'step 5: the checkpoint of step 5',
        'step 6: the checkpoint of step 6'], said

    assert said[0] == ('PATH cannot be written: File too large. The run goes on; lines are shown '
                       'here alone.')
    assert ('that of step 3 is still whole. Make room or choose another logdir. The run goes on.'
            in said[2])
    assert all(line.endswith('The run goes on.') or line.endswith('The run goes on without.')
               for line in said[1:])
    assert ([line for line in lines if line.startswith('step 7/')]
            == [line for line in logged if line.startswith('step 7/')] != [])

    assert Checkpointer(str(tmp_path / 'parts' / 'checkpoints'), is_writer=False).steps() == [
        1, 2, 3, 7, 8]
    assert not glob.glob(f'{tmp_path}/parts/checkpoints/tmp-*')
    found = EventAccumulator(f'{tmp_path}/parts/tensorboard/train').Reload()
    # Two files of one second are read by their numbers as texts, 10 before 9.
    assert sorted(event.step for event in found.Tensors('loss')) == [1, 2, 3, 7, 8]
    evaluated = [json.loads(line)['step']
                 for line in (tmp_path / 'parts' / 'evaluations.jsonl').read_text().splitlines()]
    assert evaluated == [2, 8]


def test_disk_that_stays_full_ends_the_training_with_what_was_saved(tmp_path, whole):
    lengths = {'train__num_steps': 6, 'train__checkpoint_in_background': False}
    loop = make_loop(make_params(**lengths), tmp_path)
    with full_after(loop, 3), pytest.raises(
            OSError, match=r'^the checkpoint of step 6 cannot be written to .*; that of step 3 is '
                           r'still whole\. Make room or choose another logdir\.$'):
        loop.run()
    parts, _ = train(make_params(**lengths), tmp_path, has_evaluation=False)
    assert_same(values_of(parts), whole[6])


def test_last_checkpoint_that_cannot_be_written_is_an_error(tmp_path, monkeypatch):
    def full(path, facts, *args):
        raise OSError(28, 'No space left on device')
    monkeypatch.setattr(files, 'write', full)
    with pytest.raises(OSError, match=r'the checkpoint of step 2 cannot be written to .*; there is '
                                      r'none before it\. Make room'):
        train(make_params(train__num_steps=2, train__checkpoint_every_steps=9), tmp_path,
              has_evaluation=False)


@pytest.mark.parametrize('in_background', [True, False])
def test_checkpoints_are_the_same_in_the_background_or_not(tmp_path, in_background, whole):
    train(make_params(train__num_steps=4, train__keep=9,
                      train__checkpoint_in_background=in_background),
          tmp_path, has_evaluation=False)
    checkpointer = Checkpointer(str(tmp_path / 'checkpoints'), is_writer=False)
    assert checkpointer.steps() == [1, 2, 3, 4]
    for step in checkpointer.steps():
        found = files.tensors(checkpointer.path(step), whole[step])
        assert_same(dict(zip(whole[step], found, strict=True)), whole[step])


def test_only_a_step_that_builds_nothing_has_a_time_limit(tmp_path, monkeypatch):
    """For a step whose mini-batch has a new shape, the watchdog is told again, without a limit."""
    told = []

    class Recorder:
        def begin(self, what, is_bounded=False):
            told.append((what, is_bounded))

    params = make_params(train__num_steps=9)
    loop = make_loop(params, tmp_path, has_evaluation=False, site=Site(watchdog=Recorder()))
    has_traced = loop.program.has_traced
    assert not has_traced(next(iter(params.train_input.instantiate().batches(0))))
    monkeypatch.setattr(loop.program, 'has_traced',
                        lambda batch: has_traced(batch) and ('step 8', True) not in told[-1:])
    loop.run()
    steps = [(what, is_bounded) for what, is_bounded in told if what.startswith('step')]
    # It is told before the mini-batch is there, and again when that is new.
    assert steps[:2] == [('step 1', False)] * 2
    assert steps[-4:] == [('step 7', True), ('step 8', True), ('step 8', False), ('step 9', True)]
