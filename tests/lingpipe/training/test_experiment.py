"""Experiment: what it declares stays as it was saved, wherever it runs."""

import pytest

from lingpipe.hyperparams import Params
from lingpipe.layers import Dense, Sequential
from lingpipe.layers.low_rank import Adapters
from lingpipe.training import registry

DEVICES = ('/device:CPU:0', '/device:CPU:0')


def make_params(**overrides):
    return registry.get('tests.support.tiny_experiment.Tiny').set(
        **{name.replace('__', '.'): value for name, value in overrides.items()})


def test_devices_of_a_run_do_not_change_its_params():
    """The params.txt of a run with --devices once named other devices than its checkpoints did."""
    experiment = make_params().instantiate()
    text = experiment.params.to_text()
    plan = experiment.make_plan(DEVICES)
    program = experiment.make_program(DEVICES)
    for cells in (plan.cells, program.plan.cells):
        assert [cell.device for cell in cells] == list(DEVICES)
    assert experiment.params.to_text() == text
    assert experiment.params.pipeline.devices == ()


def test_plan_without_devices_needs_none():
    plan = make_params(pipeline__num_cells=4).instantiate().make_plan()
    assert len({cell.device for cell in plan.cells}) == 4


def test_devices_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r'pipeline: devices names 3 devices, but num_cells=2'):
        make_params().instantiate().make_plan(('/device:CPU:0',) * 3)


def test_examples_per_step_are_those_of_all_accumulated_mini_batches():
    params = make_params(train_input__batch_size=4, task__learner__accumulate=3)
    assert params.instantiate().examples_per_step == 12


@pytest.mark.parametrize(('change', 'error'), [
    ({'eval_inputs__test__num_epochs': None}, r'eval_inputs\.test\.num_epochs is none, so that an'),
    ({'initialize_from__rules': (('(', None),)}, r"rules: '\(' is not a regular expression"),
    ({'initialize_from__rules': (('weights/(.*)', r'weights/\2'),)},
     r"rules: 'weights/\\\\2' cannot replace 'weights/\(.*\)': .* the expression has 1 group"),
    ({'initialize_from__rules': (('(?i)weights/(?P<a>.*)', r'weights/\g<b>'),)},
     r'cannot replace .*: unknown group name')])
def test_params_that_cannot_run_are_refused(change, error):
    with pytest.raises(ValueError, match=error):
        make_params(**change).validate()


def test_name_of_an_eval_input_must_do_for_a_directory():
    params = make_params()
    params.eval_inputs = {'a/b': params.eval_inputs['test'].copy()}
    with pytest.raises(ValueError, match="eval_inputs has the name 'a/b', which must do for"):
        params.validate()


@pytest.mark.parametrize('name', [
    'lingpipe.training.experiment:InitializeFrom', 'lingpipe.layers.transformer:FeedForward',
    'lingpipe.pipeline.decoding.search:SearchParams',
    'lingpipe.tasks.translation.task:DecodeParams', 'lingpipe.tasks.image.amoebanet:AmoebaBlock'])
def test_saved_params_are_read_by_the_names_that_classes_had(name):
    old = Params.from_text(f'{name}\n')
    new = old.to_text().partition('\n')[0]
    assert new.partition(':')[0] != name.partition(':')[0]
    assert new.partition(':')[2] == name.partition(':')[2]


def test_a_pattern_for_the_weights_beside_adapters_alone_is_refused():
    layer = Dense.Params(name='dense', input_dim=4, units=4, adapters=Adapters(rank=2))
    params = make_params(task__model=Sequential.Params(name='model', layers=(layer,)),
                         task__learner__no_decay='/w$')
    with pytest.raises(ValueError, match='do not train anyway .*, such as model/dense/w; leave'
                                         ' it empty, .* such as model/dense/w_adapter/a, '):
        params.task.instantiate()
