"""AmoebaNet's promises: the papers' parameter counts to the last one, shapes, cells that can be cut anywhere without changing a bit."""
from __future__ import annotations

import functools
import time
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe import optimizers, schedules
from lingpipe.context import Context
from lingpipe.learner import Learner
from lingpipe.pipeline import plan as plan_lib
from lingpipe.pipeline.plan import PipelineParams
from lingpipe.pipeline.program import Program
from lingpipe.pipeline.wiring import BATCH
from tasks.image.amoebanet import AmoebaNet
from tasks.image.blocks import Norm
from tasks.image.cells import ARCHITECTURES
from tasks.image.classifier import classifier, imagenet_learner
from tasks.image.operations import Operation

# GPipe paper, Table 1: 82M, 318M, 542M, 1.05B, 1.8B; and (18, 256) of Table 2.
NUM_PARAMETERS = {(18, 208): 81_137_437, (18, 416): 317_541_696, (18, 544): 540_196_240, (36, 544): 1_053_293_776,
                  (72, 512): 1_842_610_248, (18, 256): 121_911_016}
# torchgpipe's benchmark model: 81.5M, 319.0M, 542.7M, 1.056B, 1.845B.
NUM_PARAMETERS_OF_TORCHGPIPE = {(18, 208): 81_505_540, (18, 416): 319_024_120, (18, 544): 542_734_840, (36, 544): 1_055_832_376,
                                (72, 512): 1_844_858_344}
COUNTING_S = 5.


def imagenet(num_layers: int, num_filters: int, **values: Any) -> AmoebaNet:
    return AmoebaNet.Params(num_layers=num_layers, num_filters=num_filters, **{'num_classes': 1000, **values}).instantiate()


def tiny(**values: Any) -> AmoebaNet.Params:
    return AmoebaNet.Params(**{'name': 'amoebanet', 'num_layers': 3, 'num_filters': 4, 'num_classes': 10, 'image_channels': 1,
                               'stem': 'small', 'stem_filters': 4, 'batch_norm': Norm(decay=0.9), **values})


def image_spec(size: int, batch: int = 1, channels: int = 3) -> dict[str, tf.TensorSpec]:
    return {'image': tf.TensorSpec([batch, size, size, channels]), 'label': tf.TensorSpec([batch], tf.int32),
            'weight': tf.TensorSpec([batch])}


# Counts.

@pytest.mark.parametrize(('num_layers', 'num_filters'), NUM_PARAMETERS)
def test_parameters_are_counted_exactly_from_params_alone(num_layers, num_filters):
    assert imagenet(num_layers, num_filters).num_weights == NUM_PARAMETERS[num_layers, num_filters]


@pytest.mark.parametrize(('num_layers', 'num_filters'), NUM_PARAMETERS_OF_TORCHGPIPE)
def test_the_option_builds_the_model_of_torchgpipe(num_layers, num_filters):
    network = imagenet(num_layers, num_filters, is_torchgpipe=True)
    assert network.num_weights == NUM_PARAMETERS_OF_TORCHGPIPE[num_layers, num_filters]


def test_the_1_8_billion_parameters_are_counted_in_seconds():
    start_s = time.process_time()
    imagenet(72, 512)
    assert time.process_time() - start_s < COUNTING_S


def test_amoebanet_b_of_the_paper_has_557_million_parameters():
    assert imagenet(18, 512, architecture='B', num_classes=1001).num_weights == 557_286_057


def test_amoebanet_c_of_the_paper_has_155_3_million_parameters():
    # 57 more than the reference formula: it has 28 + 28 filters where a factorized reduction has 57.
    assert imagenet(18, 228, architecture='C', num_classes=1001).num_weights == 155_277_171 + 57


def test_the_auxiliary_head_adds_0_8_million_parameters():
    added = imagenet(18, 416, auxiliary_image_size=224).num_weights - NUM_PARAMETERS[18, 416]
    assert 0.6e6 < added < 0.9e6


# Shapes.

@pytest.mark.parametrize('is_torchgpipe', [False, True])
def test_cells_of_224_pixels_have_the_sizes_of_the_paper(is_torchgpipe):
    elements = plan_lib.wire(imagenet(18, 208, is_torchgpipe=is_torchgpipe), image_spec(224))
    sizes = {name: tuple(value.spec.shape[1:]) for e in elements for name, value in e.writes.items() if '.' not in name}
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
    network = tiny(architecture=architecture, num_filters=8, dropout_rate=0.5, drop_path_keep=0.5).instantiate('model')
    image = tf.random.stateless_normal([3, size, size, 1], [0, 0])
    cost = network.cost(image=tf.TensorSpec(image.shape))
    for training in (False, True):
        logits = network.fprop(network.initial_theta(), Context(training), image=image)['x']
        assert logits.shape == cost.outputs['x'].shape == (3, 10)
        assert np.all(np.isfinite(logits))
    assert cost.num_weights == network.num_weights


def test_the_auxiliary_head_is_trained_with_the_network():
    network = tiny(auxiliary_image_size=16)
    task = classifier(network, Learner.Params(learning_rate=schedules.Constant.Params(rate=0.1)), auxiliary_weight=0.4).instantiate()
    elements = plan_lib.wire(task.network, image_spec(16, 4, 1))
    writes = {name: value for e in elements for name, value in e.writes.items()}
    assert writes['auxiliary_logits'].spec.shape == (4, 10)
    assert [elements[reader].layer.path for reader in writes['auxiliary_logits'].readers] == ['model/auxiliary_loss']


def test_pixels_of_a_factorized_reduction_are_all_used():
    network = tiny().instantiate('model')
    reduction = next(layer for layer in network.layers() if type(layer).__name__ == 'FactorizedReduction')
    x = tf.Variable(tf.random.stateless_uniform([1, 4, 4, reduction.params.input_dim], [0, 1]))
    theta = reduction.initial_theta()
    with tf.GradientTape() as tape:
        y = reduction.fprop(theta, Context(), x)
    assert y.shape == (1, 2, 2, reduction.params.dim)
    used = np.any(tape.gradient(y, x).numpy() != 0, axis=(0, 3))
    np.testing.assert_array_equal(used, [[i % 2 == j % 2 for j in range(4)] for i in range(4)])  # even pixels, and those one further


# What is read, and no more.

def test_a_cell_reads_the_two_cells_before_it_and_nothing_older():
    elements = plan_lib.wire(imagenet(18, 208), image_spec(224))
    cell_of = [e.layer.path.split('/')[1] for e in elements]
    order = list(dict.fromkeys(cell_of))
    for e in elements:
        for value in e.reads.values():
            if value.maker != BATCH:
                assert order.index(cell_of[e.index]) - order.index(cell_of[value.maker]) <= 2, f'{e.layer.path} reads {value}'


def test_every_value_is_written_once_and_read():
    elements = plan_lib.wire(imagenet(18, 208), image_spec(224))
    names = [name for e in elements for name in e.writes if name != 'x']
    assert len(names) == len(set(names))
    assert [v for e in elements[:-1] for v in e.writes.values() if not v.readers] == []


# The pipeline.

@pytest.mark.parametrize('num_cells', [2, 4, 8])
def test_the_model_of_table_2_is_cut_into_balanced_cells(num_cells):
    params = PipelineParams(num_cells=num_cells, num_micro_batches=32)
    task = classifier(AmoebaNet.Params(name='amoebanet', num_layers=18, num_filters=256, num_classes=1000),
                      imagenet_learner(batch_size=128)).instantiate()
    plan = plan_lib.make_plan(task.network, image_spec(224, 128), params, [f'device {k}' for k in range(num_cells)])
    print(f'balance of AmoebaNet-D (18, 256) in {num_cells} cells: {plan.balance:.4f}')
    assert plan.balance >= 0.9


@functools.cache
def train(layers_per_cell: tuple[int, ...], num_steps: int = 2) -> dict[str, np.ndarray]:
    """The weights after some steps; layers_per_cell as in PipelineParams, whose sum is the number of layers."""
    learner = Learner.Params(optimizer=optimizers.RMSProp.Params(momentum=0.9, epsilon=1e-3),
                             learning_rate=schedules.Constant.Params(rate=0.01), l2=4e-5, clip_norm=1.)
    task = classifier(tiny(drop_path_keep=0.7, drop_path_steps=2, dropout_rate=0.2), learner).instantiate()
    pipeline = PipelineParams(num_cells=len(layers_per_cell), num_micro_batches=2, layers_per_cell=layers_per_cell)
    program = Program(task.network, image_spec(8, 8, 1), pipeline, task.learner)
    rng = np.random.default_rng(0)
    for step in range(num_steps):
        program.train_step({'image': tf.constant(rng.normal(size=[8, 8, 8, 1]), tf.float32),
                            'label': tf.constant(rng.integers(10, size=[8]), tf.int32), 'weight': tf.ones([8])}, step)
    return {path: variable.numpy() for path, variable in program.weights.items()}


NUM_LAYERS_OF_TINY = 45


@pytest.mark.parametrize('cut', [
    13,   # inside a reduction cell, between two combinations: five values cross
    24,   # between two cells
])
def test_a_cut_anywhere_changes_no_bit(cut):
    one, two = train((NUM_LAYERS_OF_TINY,)), train((cut, NUM_LAYERS_OF_TINY - cut))
    assert one.keys() == two.keys()
    assert [path for path in one if not np.array_equal(one[path], two[path])] == []
    assert all(np.all(np.isfinite(value)) for value in one.values())


# Errors.

def test_an_unknown_operation_is_named():
    with pytest.raises(ValueError, match=r"kind='5x5' is no operation; there are 1x1, 3x3"):
        Operation.Params(kind='5x5', input_dim=4, dim=4).instantiate()


def test_too_few_layers_are_refused():
    with pytest.raises(ValueError, match='num_layers=2 does not fill three groups; use 3 or more'):
        imagenet(2, 16)
