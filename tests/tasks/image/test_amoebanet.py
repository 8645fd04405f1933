"""AmoebaNet has exactly the papers' parameter counts, and cuts anywhere change no bit."""
from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.layers import CrossEntropyLoss
from lingpipe.layers.context import Context, Emissions
from lingpipe.learning import learning_rates, optimizers
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.planning.dataflow import BATCH, Element, wire
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.pipeline.planning.plan import Plan
from lingpipe.pipeline.planning.planner import make_plan
from lingpipe.tasks.image.amoebanet import AmoebaNet
from lingpipe.tasks.image.block_tables import ARCHITECTURES
from lingpipe.tasks.image.blocks import FactorizedReduction, Norm, RampedDropPath
from lingpipe.tasks.image.classifier import classifier, imagenet_learner
from lingpipe.tasks.image.operations import Operation
from tests.support.amoeba_blocks import two_blocks
from tests.support.calls import num_calls

# GPipe paper, Table 1: 82M, 318M, 542M, 1.05B, 1.8B; and (18, 256) of Table 2.
NUM_PARAMETERS = {(18, 208): 81_137_437, (18, 416): 317_541_696, (18, 544): 540_196_240,
                  (36, 544): 1_053_293_776, (72, 512): 1_842_610_248, (18, 256): 121_911_016}
# torchgpipe's benchmark model: 81.5M, 319.0M, 542.7M, 1.056B, 1.845B.
NUM_PARAMETERS_OF_TORCHGPIPE = {
    (18, 208): 81_505_540, (18, 416): 319_024_120, (18, 544): 542_734_840,
    (36, 544): 1_055_832_376, (72, 512): 1_844_858_344}
GRANULARITIES = ('cell', 'combination', 'layer')


FIXED_RATE = Learner.Params(learning_rate=learning_rates.Constant.Params(rate=0.1))
TOLERANCE = 1e-5


@functools.cache
def imagenet(num_layers: int, num_filters: int, **values: Any) -> AmoebaNet:
    return AmoebaNet.Params(num_layers=num_layers, num_filters=num_filters,
                            **{'num_classes': 1000, **values}).instantiate('amoebanet')


def tiny(**values: Any) -> AmoebaNet.Params:
    return AmoebaNet.Params(**{'name': 'amoebanet', 'num_layers': 3, 'num_filters': 4,
                               'num_classes': 10, 'image_channels': 1, 'stem': 'small',
                               'stem_filters': 4, 'batch_norm': Norm(decay=0.9), **values})


def image_spec(size: int, batch: int = 1, channels: int = 3) -> dict[str, tf.TensorSpec]:
    return {'image': tf.TensorSpec([batch, size, size, channels]),
            'label': tf.TensorSpec([batch], tf.int32), 'weight': tf.TensorSpec([batch])}


@functools.cache
def elements_of(is_torchgpipe: bool) -> list[Element]:
    """Returns the layers of (18, 208) at 224 pixels, wired."""
    return wire(imagenet(18, 208, is_torchgpipe=True) if is_torchgpipe else imagenet(18, 208),
                image_spec(224))


# Counts.

@pytest.mark.parametrize(('num_layers', 'num_filters'), NUM_PARAMETERS)
def test_parameters_are_counted_exactly_from_params_alone(num_layers, num_filters):
    assert imagenet(num_layers, num_filters).num_weights == NUM_PARAMETERS[num_layers, num_filters]


@pytest.mark.parametrize(('num_layers', 'num_filters'), NUM_PARAMETERS_OF_TORCHGPIPE)
def test_the_option_builds_the_model_of_torchgpipe(num_layers, num_filters):
    network = imagenet(num_layers, num_filters, is_torchgpipe=True)
    assert network.num_weights == NUM_PARAMETERS_OF_TORCHGPIPE[num_layers, num_filters]


def test_twice_the_layers_are_built_and_counted_with_twice_the_work():
    """Building the 1.8 billion parameters takes seconds, as lingpipe.tools.show_partition shows."""
    def work(num_layers: int) -> int:
        return num_calls(lambda: imagenet.__wrapped__(num_layers, 512).num_weights)
    work(3)   # types of fields are resolved at first use
    assert work(12) < 2.2 * work(6)


def test_amoebanet_b_of_the_paper_has_557_million_parameters():
    assert imagenet(18, 512, architecture='B', num_classes=1001).num_weights == 557_286_057


def test_amoebanet_c_of_the_paper_has_155_3_million_parameters():
    """155,277,171 is what the formula of the reference build gives, but no network has that count.

    The first stem cell has 228 / 4 = 57 filters. Its output of state 0 is halved by a factorized
    reduction of 57 channels: two convolutions of 57 / 2 filters each, so one has 28 and the other
    29. The formula counts 28 and 28 for them, but 57 for their BatchNorm and for all that reads
    them: one filter of 57 weights is missing. The reference code refuses an odd number ('Need even
    number of filters').
    """
    network = imagenet(18, 228, architecture='C', num_classes=1001)
    odd = [layer for layer in network.layers() if isinstance(layer, FactorizedReduction)
           and layer.params.dim % 2]
    assert [(layer.path, layer.params.input_dim) for layer in odd] == [
        ('amoebanet/stem_cell_0/reduced_s0', 57)]
    assert network.num_weights == 155_277_171 + 57


@pytest.mark.parametrize('num_classes, num_parameters', [(1001, 81_140_766), (1000, 81_137_437)])
def test_a_class_more_is_a_row_and_a_bias_more(num_classes, num_parameters):
    assert imagenet(18, 208, num_classes=num_classes).num_weights == num_parameters


def test_the_variables_are_those_that_were_counted():
    task = classifier(tiny(), Learner.Params(
        learning_rate=learning_rates.Constant.Params(rate=0.1))).instantiate()
    program = Program(task.network, image_spec(8, 8, 1), PipelineParams(num_micro_batches=2),
                      task.learner)
    trained = [variable for path, variable in program.weights.items() if '/moving_' not in path]
    assert sum(int(np.prod(v.shape)) for v in trained) == task.network.num_weights == sum(
        e.cost.num_weights for e in program.plan.elements)


def test_the_auxiliary_head_adds_0_8_million_parameters():
    added = imagenet(18, 416, auxiliary_image_size=224).num_weights - NUM_PARAMETERS[18, 416]
    assert 0.6e6 < added < 0.9e6


# Shapes.

@pytest.mark.parametrize('is_torchgpipe', [False, True])
def test_cells_of_224_pixels_have_the_sizes_of_the_paper(is_torchgpipe):
    elements = elements_of(is_torchgpipe)
    sizes = {name: tuple(value.spec.shape[1:]) for e in elements for name, value in e.writes.items()
             if '.' not in name}
    side = 112 if is_torchgpipe else 111
    assert sizes['stem'] == (side, side, 52 if is_torchgpipe else 32)
    assert sizes['stem_cell_1'] == (28, 28, 3 * (208 if is_torchgpipe else 104))
    assert sizes['cell_5'] == (28, 28, 4 * 208)
    assert sizes['reduction_cell_0'] == (14, 14, 3 * 416)
    assert sizes['cell_17'] == (7, 7, 4 * 832)
    assert sizes['x'] == (1000,)


@pytest.mark.parametrize('architecture', sorted(ARCHITECTURES))
@pytest.mark.parametrize('size', [8, 9])
def test_fprop_gives_what_cost_says(architecture, size):
    network = tiny(architecture=architecture, num_filters=8, dropout_rate=0.5,
                   drop_path_keep=0.5).instantiate('model')
    image = tf.random.stateless_normal([3, size, size, 1], [0, 0])
    cost = network.cost(image=tf.TensorSpec(image.shape))
    is_training = size % 2 == 1   # No shape depends on it.
    logits = network.fprop(network.initial_theta(), Context(is_training), image=image)['x']
    assert logits.shape == cost.outputs['x'].shape == (3, 10)
    assert np.all(np.isfinite(logits))
    assert cost.num_weights == network.num_weights


def test_the_auxiliary_loss_is_in_the_cell_of_the_auxiliary_head():
    task = classifier(tiny(auxiliary_image_size=16), FIXED_RATE).instantiate()
    elements = wire(task.network, image_spec(16, 4, 1))
    head = next(e for e in elements if 'auxiliary_logits' in e.writes)
    logits = head.writes['auxiliary_logits']
    assert logits.spec.shape == (4, 10)
    assert logits.readers == (head.index + 1,) and head.index + 1 < len(elements) - 10
    loss = elements[head.index + 1].layer.params
    assert (loss.scale, loss.label_smoothing) == (0.4, 0.1)


def test_a_network_without_auxiliary_head_has_one_loss():
    task = classifier(tiny(), FIXED_RATE).instantiate()
    assert [layer.path for layer in task.network.layers()
            if isinstance(layer, CrossEntropyLoss)] == ['model/loss']


def test_losses_and_metrics_of_training_and_evaluation():
    """The objective is the smoothed loss plus 0.4 times the auxiliary loss of training."""
    network = classifier(tiny(auxiliary_image_size=16), FIXED_RATE,
                         has_top5=True).instantiate().network
    rng = np.random.default_rng(0)
    batch = {'image': tf.constant(rng.normal(size=[8, 16, 16, 1]), tf.float32),
             'label': tf.constant(rng.integers(10, size=[8]), tf.int32), 'weight': tf.ones([8])}

    def smoothed_loss(logits: tf.Tensor) -> float:
        smoothed = np.full([8, 10], 0.01) + 0.9 * np.eye(10)[batch['label']]
        return -np.sum(smoothed * tf.nn.log_softmax(logits).numpy())

    def run(training: bool) -> tuple[dict[str, tf.Tensor], Emissions]:
        ctx = Context(training)
        values = network.fprop(network.initial_theta(), ctx, **batch)
        return values, ctx.emissions

    values, found = run(training=False)
    logits = values['x'].numpy()
    (loss,), (weight,) = found.losses.values(), found.weights.values()
    np.testing.assert_allclose(loss, smoothed_loss(logits), rtol=TOLERANCE)
    metrics = {name: pair for (_, name), pair in found.metrics.items()}
    assert float(weight) == 8
    assert {name: float(of_metric) for name, (_, of_metric) in metrics.items()} == {
        'accuracy': 8, 'top5': 8}
    in_top5 = np.any(np.argsort(-logits, -1)[:, :5] == batch['label'].numpy()[:, np.newaxis], -1)
    assert float(metrics['top5'][0]) == np.sum(in_top5)

    values, found = run(training=True)
    losses = {path: float(loss) for (path, _), loss in found.losses.items()}
    assert losses == {
        'model/loss': pytest.approx(smoothed_loss(values['x']), rel=TOLERANCE),
        'model/amoebanet/auxiliary_loss': pytest.approx(
            0.4 * smoothed_loss(values['auxiliary_logits']), rel=TOLERANCE)}


# Drop path.

@pytest.mark.parametrize('schedule, steps, first_and_last, kinds', [
    ('constant', 0, (0.3, 0.3), {'DropPath'}),
    ('v1', 9, (0.3, 0.3), {'RampedDropPath'}),
    ('v2', 0, (0.3 / 5, 0.3), {'DropPath'}),
    ('v3', 9, (0.3 / 5, 0.3), {'RampedDropPath'})])
def test_drop_path_schedules_are_those_of_the_reference(schedule, steps, first_and_last, kinds):
    """With five blocks, v2 and v3 use 1/5 of the rate in the first and all of it in the last."""
    network = tiny(drop_path_keep=0.7, drop_path_schedule=schedule,
                   drop_path_steps=steps).instantiate('model')
    found = [layer for layer in network.layers() if layer.path.endswith('/drop_path')]
    np.testing.assert_allclose((found[0].params.rate, found[-1].params.rate), first_and_last)
    assert {type(layer).__name__ for layer in found} == kinds
    assert {layer.params.ramp_steps for layer in found if 'Ramped' in type(layer).__name__} == (
        {steps} if steps else set())


def test_v1_keeps_all_at_first_and_drops_at_last():
    drop_path = RampedDropPath.Params(rate=0.5, ramp_steps=10).instantiate('drop_path')
    x = tf.ones([4000, 1])
    kept = [float(np.mean(drop_path.fprop(drop_path.theta({}), Context(True, step=step), x) != 0))
            for step in (0, 5, 10, 20)]
    np.testing.assert_allclose(kept, [1, 0.75, 0.5, 0.5], atol=0.03)  # four standard deviations


def test_pixels_of_a_factorized_reduction_are_all_used():
    network = tiny().instantiate('model')
    reduction = next(layer for layer in network.layers()
                     if type(layer).__name__ == 'FactorizedReduction')
    x = tf.Variable(tf.random.stateless_uniform([1, 4, 4, reduction.params.input_dim], [0, 1]))
    theta = reduction.initial_theta()
    with tf.GradientTape() as tape:
        y = reduction.fprop(theta, Context(), x)
    assert y.shape == (1, 2, 2, reduction.params.dim)
    used = np.any(tape.gradient(y, x).numpy() != 0, axis=(0, 3))
    # Used are the even pixels, and those one further in both directions.
    np.testing.assert_array_equal(used, [[i % 2 == j % 2 for j in range(4)] for i in range(4)])


# What is read, and no more.

def test_a_cell_reads_the_two_cells_before_it_and_nothing_older():
    elements = elements_of(False)
    cell_of = [e.layer.path.split('/')[1] for e in elements]
    order = list(dict.fromkeys(cell_of))
    for e in elements:
        for value in e.reads.values():
            if value.maker != BATCH:
                assert (order.index(cell_of[e.index]) - order.index(cell_of[value.maker])
                        <= 2), f'{e.layer.path} reads {value}'


def test_every_value_is_written_once_and_read():
    elements = elements_of(False)
    names = [name for e in elements for name in e.writes if name != 'x'
             and not name.endswith(('.left', '.right'))]
    assert len(names) == len(set(names))
    assert [v for e in elements[:-1] for v in e.writes.values() if not v.readers] == []


# The pipeline.

@functools.cache
def task_of_table_2(granularity: str) -> Any:
    """Returns the task of AmoebaNet-D (18, 256)."""
    network = AmoebaNet.Params(name='amoebanet', num_layers=18, num_filters=256, num_classes=1000,
                               granularity=granularity)
    return classifier(network, imagenet_learner(batch_size=128)).instantiate()


@functools.cache
def plan_of_table_2(granularity: str, num_cells: int) -> Plan:
    """Returns the plan for 224 pixels and micro-batches of 4."""
    pipeline = PipelineParams(num_cells=num_cells, num_micro_batches=32)
    return make_plan(task_of_table_2(granularity).network, image_spec(224, 128), pipeline,
                              [f'device {k}' for k in range(num_cells)])


@pytest.mark.parametrize('granularity, num_cells, balance', [
    ('cell', 2, 0.965), ('cell', 4, 0.902), ('cell', 8, 0.869),
    ('combination', 2, 0.999), ('combination', 4, 0.970), ('combination', 8, 0.982),
    ('layer', 2, 0.999), ('layer', 4, 0.970), ('layer', 8, 0.982)])
def test_the_model_of_table_2_is_cut_into_balanced_cells(granularity, num_cells, balance):
    assert round(plan_of_table_2(granularity, num_cells).forecast.balance, 3) == balance


@pytest.mark.parametrize('num_cells', [2, 4, 8])
def test_a_finer_cut_is_never_slower(num_cells):
    slowest = [max(plan.forecast.step_costs)
               for plan in (plan_of_table_2(g, num_cells) for g in GRANULARITIES)]
    assert slowest == sorted(slowest, reverse=True)


@pytest.mark.parametrize('granularity, inside', [('cell', 2), ('combination', 3)])
def test_a_coarse_cut_leaves_cells_or_combinations_whole(granularity, inside):
    for cell in plan_of_table_2(granularity, 8).cells[1:]:
        first, before = (cell.elements[0],
                         plan_of_table_2(granularity, 8).elements[cell.elements[0].index - 1])
        assert first.layer.path.split('/')[:inside + 1] != before.layer.path.split('/')[:inside + 1]


def test_granularity_changes_no_key_of_a_checkpoint():
    programs = [Program(classifier(tiny(granularity=g), FIXED_RATE).instantiate().network,
                        image_spec(8, 8, 1), PipelineParams(num_micro_batches=2),
                        FIXED_RATE.instantiate()) for g in ('cell', 'layer')]
    assert list(programs[0].variables()) == list(programs[1].variables())


def trained_task(granularity: str = 'layer') -> Any:
    """Returns the task that `train` trains."""
    learner = Learner.Params(optimizer=optimizers.SGD.Params(momentum=0.9),
                             learning_rate=learning_rates.Constant.Params(rate=0.05), l2=4e-5)
    return classifier(two_blocks(granularity, drop_path_steps=2), learner).instantiate()


@functools.cache
def train(num_cells: int, layers_per_cell: tuple[int, ...] = (),
          granularity: str = 'layer') -> dict[str, np.ndarray]:
    """Returns the weights after two steps."""
    task = trained_task(granularity)
    pipeline = PipelineParams(num_cells=num_cells, num_micro_batches=2,
                              layers_per_cell=layers_per_cell)
    program = Program(task.network, image_spec(8, 8, 1), pipeline, task.learner)
    rng = np.random.default_rng(0)
    for step in range(2):
        program.train_step({'image': tf.constant(rng.normal(size=[8, 8, 8, 1]), tf.float32),
                            'label': tf.constant(rng.integers(10, size=[8]), tf.int32),
                            'weight': tf.ones([8])}, step)
    return {path: variable.numpy() for path, variable in program.weights.items()}


def test_cuts_inside_operations_change_no_bit():
    """One cut is between 1x7 and 7x1 of a bottleneck, one between an operation and its sum."""
    paths = [layer.path for layer in trained_task().network.elements()]
    first, second = sorted(paths.index(f'model/amoebanet/{first}') for first in (
        'cell/combination_2/right/layer_2', 'reduction_cell/combination_3/sum'))
    assert_same(train(1, granularity='cell'),
                train(3, (first, second - first, len(paths) - second)))


def test_granularity_changes_no_bit():
    """Compares gradients of the network by itself; the test before this one trains two of them."""
    rng = np.random.default_rng(0)
    batch = {'image': tf.constant(rng.normal(size=[4, 8, 8, 1]), tf.float32),
             'label': tf.constant(rng.integers(10, size=[4]), tf.int32), 'weight': tf.ones([4])}

    def gradients(granularity: str) -> dict[str, np.ndarray]:
        network = trained_task(granularity).network
        values = {w.path: w.initial_value(3) for w in network.weights()}
        with tf.GradientTape() as tape:
            tape.watch(values)
            ctx = Context(True, 7, 1, 0)
            network.fprop(network.theta(values), ctx, **batch)
            loss, = ctx.emissions.losses.values()
        found = tape.gradient(loss, values, unconnected_gradients='zero')
        return {path: tf.convert_to_tensor(gradient).numpy() for path, gradient in found.items()}

    whole = gradients('cell')
    assert_same(whole, gradients('combination'))
    assert_same(whole, gradients('layer'))


def assert_same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert one.keys() == other.keys()
    assert [path for path in one if not np.array_equal(one[path], other[path])] == []
    assert all(np.all(np.isfinite(value)) for value in one.values())


# Errors.

def test_an_unknown_operation_is_named():
    with pytest.raises(ValueError, match=r"kind='5x5' is no operation; there are 1x1, 3x3"):
        Operation.Params(kind='5x5', input_dim=4, dim=4).instantiate()


@pytest.mark.parametrize('values, message', [
    ({'num_layers': 2}, 'num_layers=2 is below 3; use 3 to 10000'),
    ({'architecture': 'E'}, "architecture='E' is not one of .* use one of A, B, C, D"),
    ({'granularity': 'operation'},
     "granularity='operation' is not one of .*cell.*combination.*layer"),
    ({'drop_path_keep': 0.}, 'drop_path_keep=0.0 is not above 0; use more than 0 and 1 or less'),
    ({'drop_path_schedule': 'v1'},
     "drop_path_schedule='v1' with drop_path_steps=0; v1 and v3 need the number of updates"),
    ({'drop_path_schedule': 'v2', 'drop_path_steps': 9},
     "drop_path_schedule='v2' with drop_path_steps=9; .* constant and v2 have none"),
    ({'auxiliary_image_size': 64}, 'auxiliary_image_size=64 leaves 4x4 pixels to the auxiliary '
                                   'head, .* 5x5; use images of 67 pixels'),
    ({'auxiliary_image_size': 8, 'stem': 'small'},
     'leaves 4x4 pixels .* use images of 9 pixels or more'),
    ({'layers': (Norm.of(Norm(), 3),)}, 'layers is made from the other fields; leave it empty')])
def test_what_cannot_be_built_is_explained(values, message):
    with pytest.raises(ValueError, match=message):
        imagenet.__wrapped__(**{'num_layers': 3, 'num_filters': 16, **values})


STRIDED = {'stem': 'small', 'stem_strides': 2}


@pytest.mark.parametrize('values, too_small', [
    ({}, 18), ({'is_torchgpipe': True}, 16), ({'stem': 'small'}, 2), (STRIDED, 4)])
def test_images_too_small_for_the_strides_are_refused(values, too_small):
    network = imagenet(3, 16, **values)
    network.cost(image=tf.TensorSpec([1, too_small + 1, too_small + 1, 3]))
    message = (rf"amoebanet/stem: the images are \(1, {too_small}, {too_small}, 3\), but .* h and "
               rf"w of {too_small + 1} or more; use larger")
    with pytest.raises(ValueError, match=message):
        network.cost(image=tf.TensorSpec([1, too_small, too_small, 3]))
    with pytest.raises(ValueError, match=message):
        network.fprop(network.initial_theta(), Context(),
                      image=tf.zeros([1, too_small, too_small, 3]))


def test_images_of_another_size_than_the_auxiliary_head_are_refused():
    with pytest.raises(ValueError, match='amoebanet/auxiliary_head: x is .* is built for 14x14 '
                                         'pixels; set auxiliary_image_size'):
        imagenet(3, 16, auxiliary_image_size=224).cost(image=tf.TensorSpec([1, 128, 128, 3]))
