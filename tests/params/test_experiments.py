"""Every registered experiment is complete, and its plan follows from its Params alone."""
from __future__ import annotations

import functools
import re

import pytest

from lingpipe.learning import optimizers
from lingpipe.pipeline.planning.plan import Plan
from lingpipe.training import experiment_modules, registry
from lingpipe.training.experiment import Experiment

# Cells and weights of the registered models of the GPipe paper (arXiv:1811.06965, Tables 1 and 2,
# Figures 3 and 4).
PAPER_MODELS = {
    'image.imagenet.AmoebaNetD18x208': (1, 81_137_437),
    'image.imagenet.AmoebaNetD18x256': (8, 121_911_016),
    'image.imagenet.AmoebaNetD18x416': (1, 317_541_696),
    'image.imagenet.AmoebaNetD18x544': (2, 540_196_240),
    'image.imagenet.AmoebaNetD36x544': (4, 1_053_293_776),
    'image.imagenet.AmoebaNetD72x512': (8, 1_842_610_248),
    'image.imagenet.AmoebaNetB18x512': (4, 559_063_693),   # The auxiliary head has 1,777,636.
    'translation.massive.T6x8192x16': (1, 408_209_920),
    'translation.massive.T12x16384x32': (2, 1_239_235_072),
    'translation.massive.T24x8192x16': (4, 1_239_419_392),
    'translation.massive.T32x16384x32': (8, 3_086_060_032),
    'translation.massive.T64x16384x32': (16, 6_040_979_968),
    'translation.table1.Transformer3': (1, 282_182_912),
    'translation.table1.Transformer13': (1, 785_765_632),
    'translation.table1.Transformer103': (8, 5_318_010_112),
    'translation.table1.Transformer415': (32, 21_029_790_976),
    'translation.table1.Transformer1663': (128, 83_876_914_432),
}


@functools.cache
def experiment_of(name: str) -> Experiment:
    """Returns an experiment, which takes seconds to make if it is large, to all tests."""
    return registry.get(name).instantiate()


@functools.cache
def plan_of(name: str) -> Plan:
    return experiment_of(name).make_plan()


@pytest.mark.parametrize('name', PAPER_MODELS)
def test_models_of_the_paper_have_its_cells_and_weights(name):
    experiment = experiment_of(name)
    num_cells = experiment.params.pipeline.num_cells
    assert (num_cells, experiment.task.network.num_weights) == PAPER_MODELS[name]


TRANSFERS = ('CIFAR10', 'CIFAR100', 'StanfordCars', 'OxfordPets', 'Food101', 'FGVCAircraft',
             'Birdsnap')


@pytest.mark.parametrize('name', TRANSFERS)
def test_transfers_keep_the_regularization_of_the_run_on_imagenet(name):
    source = registry.get('image.imagenet.AmoebaNetB18x512')
    transfer = registry.get(f'image.transfer.{name}')
    ours, theirs = (params.task.model.layers[1] for params in (transfer, source))
    for field in ('drop_path_keep', 'drop_path_schedule', 'dropout_rate', 'auxiliary_image_size',
                  'auxiliary_loss'):
        assert getattr(ours, field) == getattr(theirs, field), field
    assert ours.drop_path_steps == transfer.train.num_steps
    assert transfer.task.model.layers[2].label_smoothing == 0.1
    assert (transfer.task.learner.ema_decay, transfer.task.learner.l2) == (0.9999, 4e-5)


def test_a_transfer_starts_all_layers_but_both_softmax_layers_from_imagenet():
    source, transfer = 'image.imagenet.AmoebaNetB18x512', 'image.transfer.CIFAR10'
    source_shapes, shapes = (
        {weight.path: weight.shape for weight in experiment_of(name).task.network.weights()}
        for name in (source, transfer))

    def source_key(path):
        return next(taken for pattern, taken in registry.get(transfer).initialize_from.rules
                    if re.fullmatch(pattern, f'weights/{path}'))

    from_scratch = {path for path in shapes if source_key(path) is None}
    assert from_scratch == {f'model/amoebanet/{layer}/{name}'
                            for layer in ('dense', 'auxiliary_head/dense') for name in ('w', 'b')}
    assert {path for path, shape in shapes.items() if source_shapes[path] != shape} == from_scratch


@pytest.mark.parametrize('name', PAPER_MODELS)
def test_pipelines_of_the_paper_have_four_micro_batches_a_cell(name):
    """There are fewer only if the mini-batch is too small, as with the 32 examples of Table 1."""
    params = registry.get(name)
    pipeline = params.pipeline
    enough = min(4 * pipeline.num_cells, params.train_input.batch_size)
    assert pipeline.num_cells == 1 or pipeline.num_micro_batches >= enough


def test_amoebanet_b_fits_the_paper_s_accelerators():
    plan = plan_of('image.imagenet.AmoebaNetB18x512')
    assert max(plan.simulate().peak_bytes) < 16e9


def test_the_largest_transformer_has_128_cells_of_equal_work():
    plan = plan_of('translation.table1.Transformer1663')
    assert len(plan.cells) == 128
    assert plan.forecast.balance == pytest.approx(0.9975, abs=1e-4)


def test_transformers_of_table_1_are_trained_by_rmsprop():
    learner = registry.get('translation.table1.Transformer13').task.learner
    assert isinstance(learner.optimizer, optimizers.RMSProp.Params)


@pytest.mark.parametrize('name', experiment_modules.all_names())
def test_the_plan_follows_from_the_params(name):
    plan = plan_of(name)
    assert len(plan.cells) == plan.params.num_cells
    assert all(cell.elements for cell in plan.cells)
    assert sum(element.cost.num_weights for element in plan.elements) > 0


@pytest.mark.parametrize('name', experiment_modules.all_names())
def test_the_params_are_their_text(name):
    params = registry.get(name)
    assert Experiment.Params.from_text(params.to_text()) == params


@pytest.mark.parametrize('name', experiment_modules.all_names())
def test_the_docstring_says_the_command(name):
    assert f'--model={name}' in (registry.find(name).__doc__ or '')


def test_the_digits_are_there():
    assert {'image.digits.AmoebaNet', 'image.digits.Dense'} <= set(experiment_modules.all_names())
