"""The memory model: literal bytes, and what compiled tasks really take over."""

import pytest
import tensorflow as tf

from lingpipe import layers
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.pipeline.planning.planner import make_plan
from lingpipe.tasks.image.classifier import classifier
from lingpipe.training import registry
from tests.support.amoeba_blocks import two_blocks
from tests.support.planned_chains import CHAIN, IMAGE, WIDE, Tied, dense, plan_of
from tests.support.traced import held_and_handed_bytes


def test_a_product_keeps_its_input_and_a_rectifier_its_output_once():
    """The rectifier of b and the next product both read the output of b: it is one tensor."""
    plan = plan_of(*CHAIN, num_cells=2, num_micro_batches=4, layers_per_cell=(3, 1),
                   recompute='none')
    assert plan.forecast.footprints[0].held == IMAGE + WIDE + WIDE
    assert plan.forecast.footprints[0].working == 0
    apart = plan_of(*CHAIN, num_cells=3, num_micro_batches=4, layers_per_cell=(1, 1, 2),
                    recompute='none')
    assert [apart.forecast.footprints[k].held for k in range(2)] == [IMAGE, WIDE + WIDE]


def test_recomputation_holds_what_cells_read_and_makes_the_rest_again():
    cell = plan_of(*CHAIN, num_cells=2, num_micro_batches=4, layers_per_cell=(3, 1))
    assert (cell.forecast.footprints[0].held, cell.forecast.footprints[0].working) == (
        IMAGE, WIDE + WIDE)
    layer = plan_of(*CHAIN, num_cells=2, num_micro_batches=4, layers_per_cell=(3, 1),
                    recompute='layer')
    # b runs again while its input and its output are held, and its gradient is added afterwards.
    assert (layer.forecast.footprints[0].held, layer.forecast.footprints[0].working) == (
        IMAGE, WIDE + WIDE + 4 * 16 * 16)


def test_state_is_weight_gradient_and_slots_where_it_trains_and_the_weight_alone_where_not():
    plan = plan_of(*CHAIN, num_micro_batches=4, frozen=('model/a/w',))
    assert plan.forecast.footprints[0].fixed == 4 * 8 * 16 + 16 * (16 * 16 + 16 * 8)
    assert plan_of(*CHAIN, num_micro_batches=4, sum_groups=2).forecast.footprints[0].fixed == 20 * (
        8 * 16 + 16 * 16 + 16 * 8)


@pytest.mark.parametrize(('dtype', 'bytes_a_weight'),
                         [('float64', 8 + 8 + 16 + 4),   # and a copy in the dtype of x
                          ('float32', 4 + 4 + 8), ('bfloat16', 2 + 4 + 4)])
def test_slots_have_the_dtype_of_their_weight_and_sums_of_gradients_are_float32_at_least(
        dtype, bytes_a_weight):
    plan = plan_of(Tied.Params(name='one', dim=8, dtype=dtype, reads={'x': 'image'}),
                   num_micro_batches=4)
    assert plan.forecast.footprints[0].fixed == 8 * 8 * bytes_a_weight


def test_a_tied_weight_has_a_gradient_for_each_use_and_a_copy_where_it_is_not_owned():
    tied = (dense('in', 8, 8, reads={'x': 'image'}), Tied.Params(name='one', dim=8),
            Tied.Params(name='two', dim=8, share={'w': 'model/one/w'}))
    together = plan_of(*tied, num_cells=2, num_micro_batches=4, layers_per_cell=(3, 1))
    assert together.forecast.footprints[0].fixed == 64 * (16 + 16 + 4)
    apart = plan_of(*tied, num_cells=2, num_micro_batches=4, layers_per_cell=(2, 2))
    assert [apart.forecast.footprints[k].fixed for k in range(2)] == [64 * (16 + 16), 64 * (4 + 4)]


def test_replicas_that_share_a_device_add_up_and_others_receive_gradients():
    alone = plan_of(*CHAIN, num_micro_batches=2)
    shared = plan_of(*CHAIN, num_micro_batches=1, num_replicas=2, devices=['CPU:0', 'CPU:0'],
                     replica_reduction='ring')
    assert shared.simulate().peak_bytes == (2 * alone.simulate().peak_bytes[0],)
    few = plan_of(*CHAIN, num_micro_batches=1, num_replicas=2)
    gradients = 4 * (8 * 16 + 16 * 16 + 16 * 8)
    assert few.simulate().peak_bytes == (max(alone.simulate().peak_bytes[0],
                                             alone.forecast.footprints[0].fixed + gradients),)


def plan_of_experiment(name, num_cells, network=None, **pipeline):
    """The plan of an experiment, or of another network in its place."""
    params = registry.get(name)
    if network is not None:
        params.task = classifier(network, params.task.learner)
    params.pipeline.set(num_cells=num_cells, num_replicas=1, sum_groups=1, layers_per_cell=(),
                        devices=(), **pipeline)
    return params.instantiate().make_plan()


def assert_w_reads_what_is_handed_over(plan, handed):
    forecast = [footprint.handed for footprint in plan.forecast.footprints[1:]]
    assert forecast == pytest.approx(handed[1:], rel=0.02)


@pytest.mark.parametrize(('name', 'num_cells'), [
    ('image.digits.Dense', 2), ('image.digits.AmoebaNet', 3)])
def test_cells_of_an_experiment_hold_what_their_tasks_take_over(name, num_cells):
    plan = plan_of_experiment(name, num_cells, recompute='none')
    held, handed = held_and_handed_bytes(plan.cells, plan.forecast.recomputation)
    assert [footprint.held for footprint in plan.forecast.footprints] == pytest.approx(
        held, rel=0.02)
    assert_w_reads_what_is_handed_over(plan, handed)


def test_w_reads_what_the_forecast_hands_over_if_cells_are_recomputed():
    plan = plan_of_experiment('image.digits.AmoebaNet', 3, two_blocks(), recompute='cell')
    _, handed = held_and_handed_bytes(plan.cells, plan.forecast.recomputation)
    assert_w_reads_what_is_handed_over(plan, handed)


@pytest.mark.parametrize('recompute', ['none', 'cell', 'layer'])
@pytest.mark.parametrize('block', [
    layers.SwiGLU.Params(input_dim=8, hidden_dim=12),
    layers.MultiHeadAttention.Params(input_dim=8, num_heads=2),
    layers.GroupedQueryAttention.Params(input_dim=8, num_heads=4, num_groups=2),
], ids=lambda params: params.owner.__name__)
def test_w_reads_what_the_forecast_hands_over_in_blocks_of_language_models(block, recompute):
    """Where cells were recomputed, W went back to two tensors from which F makes the one it needs,
    and took up to 40 % more."""
    spec = {'ids': tf.TensorSpec([2, 5], tf.int32), 'labels': tf.TensorSpec([2, 5], tf.int32),
            'weight': tf.TensorSpec([2, 5], tf.float32)}
    network = layers.Sequential.Params(layers=(
        layers.Embedding.Params(vocab_size=11, dim=8, reads={'ids': 'ids'}),
        block, layers.Logits.Params(input_dim=8, vocab_size=11),
        layers.CrossEntropyLoss.Params())).instantiate()
    pipeline = PipelineParams(num_cells=3, num_micro_batches=1, layers_per_cell=(1, 1, 2),
                              recompute=recompute)
    plan = make_plan(network, spec, pipeline, ['CPU:0', 'CPU:1', 'CPU:2'])
    _, handed = held_and_handed_bytes(plan.cells, plan.forecast.recomputation)
    assert plan.forecast.footprints[1].handed == handed[1]


@pytest.mark.parametrize('share', [0.8, 0.3])
def test_cells_hold_what_they_keep_under_a_limit(share):
    def plan(**pipeline):
        return plan_of_experiment('image.digits.AmoebaNet', 3, two_blocks(), **pipeline)

    most, least = (max(plan(recompute=mode).peak_bytes().values()) for mode in ('none', 'cell'))
    fitted = plan(recompute='fit', device_bytes=least + share * (most - least))
    recomputation = fitted.forecast.recomputation
    assert 'fit' in recomputation.modes
    held, handed = held_and_handed_bytes(fitted.cells, recomputation)
    assert [footprint.held for footprint in fitted.forecast.footprints] == held
    assert_w_reads_what_is_handed_over(fitted, handed)
