"""Resumption: what may differ between the parts of one run, and what may not."""
import re

import pytest

from lingpipe.layers import Dense, Sequential
from lingpipe.layers.low_rank import Adapters
from lingpipe.training import registry
from lingpipe.training.hooks import CSV
from lingpipe.training.resumption import check_recorded, check_resumable


def make_params(**overrides):
    return registry.get('tests.support.tiny_experiment.Tiny').set(
        **{name.replace('__', '.'): value for name, value in overrides.items()})


@pytest.mark.parametrize('change', [
    {'train__num_steps': 99}, {'train__keep': 1}, {'pipeline__num_cells': 4},
    {'pipeline__schedule': 'gpipe'}, {'pipeline__devices': ('/device:CPU:1', '/device:CPU:0')},
    {'eval_inputs__test__batch_size': 4}, {'initialize_from__directory': '/elsewhere'},
    {'hooks': (CSV.Params(),)}, {'train_input__shuffle_rounds': 4}])
def test_where_and_how_long_a_run_trains_may_change(change):
    check_resumable(make_params(), make_params(**change))


@pytest.mark.parametrize(('change', 'differs'), [
    ({'seed': 1}, 'seed (was 0, is 1)'),
    ({'intra_op_threads': 2}, 'intra_op_threads (was 1, is 2)'),
    ({'pipeline__num_micro_batches': 4}, 'pipeline.num_micro_batches (was 2, is 4)'),
    ({'pipeline__wire_dtype': 'bfloat16'}, "pipeline.wire_dtype (was 'as_is', is 'bfloat16')"),
    ({'pipeline__jit_compile': True}, 'pipeline.jit_compile (was False, is True)'),
    ({'task__best_metric': 'error'}, "task.best_metric (was 'loss', is 'error')")])
def test_what_a_run_learns_may_not_change(change, differs):
    with pytest.raises(ValueError) as error:
        check_resumable(make_params(), make_params(**change))
    assert str(error.value) == (
        f'it holds a run whose {differs} differ; its checkpoints would not mean the same. Set them '
        f'back, or choose another logdir (initialize_from takes its weights along), or let them '
        f'differ with --allow_change={next(iter(change)).replace("__", ".")}.')


def test_what_changes_the_variables_cannot_be_allowed():
    """The checkpoint does not fit then, and params.txt told of a change that never was.

    Layers that are no longer frozen have slots that the checkpoint lacks. The first error offered
    --allow_change for them, which led to a second one.
    """
    for change in ({'task__learner__bfloat16_slots': True}, {'train_input__batch_size': 16},
                   {'task__learner__frozen': 'block'}):
        with pytest.raises(ValueError, match=r'\(initialize_from takes its weights along\)\.$'):
            check_resumable(make_params(), make_params(**change))


@pytest.mark.parametrize('name, before, now, offered', [
    ('adapters.rank', 2, 1, False), ('adapters.targets', (), ('w',), False),
    ('adapters', Adapters(rank=2), None, False), ('adapters.alpha', 16., 8., True)])
def test_adapters_of_other_shapes_cannot_be_allowed(name, before, now, offered):
    """The error offered --allow_change, with which the checkpoint did not fit.

    Another run that begins with these weights was refused, too, where they lacked an adapter.
    """
    model = Sequential.Params(layers=(
        Dense.Params(name='dense', input_dim=4, units=4, adapters=Adapters(rank=2)),))
    path = f'task.model.layers[0].{name}'
    stored = make_params(task__model=model)
    with pytest.raises(ValueError) as error:
        check_resumable(stored, stored.copy().set(**{path: now}))
    assert f'whose {path} (was {before!r}, is {now!r}) differ' in str(error.value)
    assert (f'--allow_change={path}' in str(error.value)) == offered
    assert ('(initialize_from takes its weights along if the new run has the same adapters, or '
            'more; if not, begin with a hugging_face export of it, which merges them)'
            in str(error.value))


def test_adapters_of_a_run_that_had_none_take_its_weights_along():
    layer = Dense.Params(name='dense', input_dim=4, units=4)
    stored = make_params(task__model=Sequential.Params(layers=(layer,)))
    now = stored.copy().set(**{'task.model.layers[0].adapters': Adapters()})
    with pytest.raises(ValueError, match=r'\(initialize_from takes its weights along\)\.$'):
        check_resumable(stored, now)


def test_all_paths_that_differ_are_named_for_allow_change():
    now = make_params(seed=1, pipeline__num_micro_batches=4)
    with pytest.raises(ValueError) as error:
        check_resumable(make_params(), now)
    text = 'with --allow_change=pipeline.num_micro_batches --allow_change=seed.'
    assert str(error.value).endswith(text)
    allowed = [flag.partition('=')[2] for flag in text[5:-1].split()]
    assert len(check_resumable(make_params(), now, allowed)) == 2


def test_a_change_that_is_allowed_is_returned():
    now = make_params(task__learner__learning_rate__decay_steps=2000, train__num_steps=20)
    expected = [('task.learner.learning_rate.decay_steps', 1000, 2000)]
    assert check_resumable(make_params(), now, ['task.learner.*']) == expected
    with pytest.raises(ValueError, match=r'whose seed \(was 0, is 1\) differ'):
        check_resumable(make_params(), now.set(seed=1), ['task.learner.*'])
    with pytest.raises(ValueError, match='--allow_change=task.lerner.* names no value'):
        check_resumable(make_params(), now, ['task.lerner.*'])


def test_only_the_first_differences_are_listed():
    names = {f'train_input__{name}': value for name, value in
             {'batch_size': 4, 'shuffle': False, 'seed': 1, 'dim': 5, 'num_examples': 9}.items()}
    with pytest.raises(ValueError, match=r'num_examples \(was 40, is 9\).* and others differ;'):
        check_resumable(make_params(), make_params(**names, seed=1))


def test_params_of_a_class_that_is_gone_cost_a_warning(caplog):
    text = make_params().to_text().replace('tiny_experiment:Dense', 'tiny_experiment:Dence')
    check_recorded(text, make_params())
    assert re.fullmatch(
        'the Params that the checkpoint holds cannot be read, so nothing tells whether they are '
        "those of this experiment: line 8: .*; did you mean 'Dense'\\?",
        caplog.records[0].getMessage())
    assert len(caplog.records) == 1
