"""ResNet has the known parameter counts and exact costs, and cuts in its blocks change no bit."""
from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe import pricing
from lingpipe.hyperparams import diff
from lingpipe.layers.batch_norm import BatchNorm
from lingpipe.layers.context import Context
from lingpipe.learning import learning_rates, optimizers
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.planning.dataflow import BATCH, wire
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.pipeline.planning.planner import make_plan
from lingpipe.tasks.image.blocks import Norm
from lingpipe.tasks.image.classifier import classifier
from lingpipe.tasks.image.resnet import ResidualSum, ResNet

# The counts that torchvision lists.
NUM_PARAMETERS = {18: 11_689_512, 34: 21_797_672, 50: 25_557_032, 101: 44_549_160, 152: 60_192_808}


def imagenet(depth: int, **values: Any) -> ResNet:
    return ResNet.Params(depth=depth, num_classes=1000, **values).instantiate('resnet')


def tiny(**values: Any) -> ResNet.Params:
    return ResNet.Params(**{'name': 'resnet', 'blocks_per_group': (1, 2), 'num_filters': 4,
                            'num_classes': 10, 'image_channels': 1, 'stem': 'small', **values})


def image_spec(size: int, batch: int = 1, channels: int = 3) -> dict[str, tf.TensorSpec]:
    return {'image': tf.TensorSpec([batch, size, size, channels]),
            'label': tf.TensorSpec([batch], tf.int32), 'weight': tf.TensorSpec([batch])}


def sizes(network: ResNet, size: int) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of one example after the stem and the blocks, by names of values."""
    elements = wire(network, image_spec(size, channels=network.params.image_channels))
    return {name: tuple(value.spec.shape[1:]) for e in elements for name, value in e.writes.items()
            if '.' not in name}


# Counts.

@pytest.mark.parametrize('depth', NUM_PARAMETERS)
def test_parameters_are_counted_exactly_from_params_alone(depth):
    assert imagenet(depth).num_weights == NUM_PARAMETERS[depth]


def test_neither_the_place_of_the_stride_nor_the_first_values_change_the_count():
    assert imagenet(50, stride_in='1x1', is_branch_silent=True,
                    dropout_rate=0.5).num_weights == NUM_PARAMETERS[50]


def test_the_fields_build_the_resnet_20_for_small_images():
    # The paper has 0.27M. Projections in place of padded identities make it 2,752 more than the
    # paper's 269,722.
    assert imagenet(18, blocks_per_group=(3, 3, 3), num_filters=16,
                    stem='small').num_weights - 990 * 65 == 272_474


# Shapes.

@pytest.mark.parametrize(('depth', 'expansion'), [(34, 1), (50, 4)])
def test_groups_of_224_pixels_have_the_sizes_of_the_paper(depth, expansion):
    found = sizes(imagenet(depth), 224)
    assert found['stem'] == (56, 56, 64)
    assert found['group_0_block_2'] == (56, 56, 64 * expansion)
    assert found['group_1_block_0'] == found['group_1_block_3'] == (28, 28, 128 * expansion)
    assert found['group_2_block_5'] == (14, 14, 256 * expansion)
    assert found['group_3_block_2'] == (7, 7, 512 * expansion)
    assert found['x'] == (1000,)


def test_a_small_stem_keeps_the_resolution():
    assert sizes(tiny().instantiate('resnet'), 9) == {
        'stem': (9, 9, 4), 'x': (10,), 'group_0_block_0': (9, 9, 16), 'group_1_block_0': (5, 5, 32),
        'group_1_block_1': (5, 5, 32)}


@pytest.mark.parametrize('fields', [{}, {'depth': 18}, {'stem': 'large'}, {'stride_in': '1x1'},
                                    {'is_branch_silent': True}, {'dropout_rate': 0.5}], ids=str)
def test_fprop_gives_what_cost_says(fields):
    network = tiny(**fields).instantiate('resnet')
    image = tf.random.stateless_normal([3, 9, 9, 1], [0, 0])
    cost = network.cost(image=tf.TensorSpec(image.shape))
    for training in (False, True):
        logits = network.fprop(network.initial_theta(), Context(training), image=image)['x']
        assert logits.shape == cost.outputs['x'].shape == (3, 10)
        assert np.all(np.isfinite(logits))
    assert cost.num_weights == network.num_weights


def test_a_bottleneck_is_what_the_paper_draws():
    """A projection block of stride 2 computes the equations of the paper in evaluation."""
    network = tiny().instantiate('resnet')
    block = network.children['group_1_block_0']
    theta = block.initial_theta()
    x = tf.nn.relu(tf.random.stateless_normal([2, 8, 8, 16], [0, 0]))

    def conv(name: str, x: tf.Tensor, stride: int = 1) -> tf.Tensor:
        # The moving mean is 0, and the moving variance is 1.
        return tf.nn.conv2d(x, theta[name].conv.w, stride, 'SAME') * (1 + 1e-5) ** -0.5

    branch = conv('conv_2', tf.nn.relu(conv('conv_1', tf.nn.relu(conv('conv_0', x)), 2)))
    expected = tf.nn.relu(branch + conv('shortcut', x, 2))
    np.testing.assert_allclose(block.fprop(theta, Context(), group_0_block_0=x)['group_1_block_0'],
                               expected, atol=1e-5)


@pytest.mark.parametrize(('stride_in', 'expected'), [('3x3', [1, 2, 1]), ('1x1', [2, 1, 1])])
def test_the_stride_of_a_bottleneck_is_where_the_field_says(stride_in, expected):
    block = tiny(stride_in=stride_in).instantiate('resnet').children['group_1_block_0']
    assert [block.children[f'conv_{i}'].params.conv.strides for i in range(3)] == expected


# First values.

def test_a_silent_branch_adds_nothing_at_first():
    block = tiny(is_branch_silent=True).instantiate('resnet').children['group_1_block_1']
    x = tf.nn.relu(tf.random.stateless_normal([2, 4, 4, 32], [0, 0]))
    np.testing.assert_array_equal(
        block.fprop(block.initial_theta(), Context(True), group_1_block_0=x)['group_1_block_1'], x)


def test_a_silent_branch_differs_in_one_scale_of_each_block_alone():
    norm = Norm(decay=0.5, epsilon=0.25)
    plain, silent = (
        [layer for layer in
         tiny(batch_norm=norm, is_branch_silent=is_silent).instantiate('resnet').layers()
         if isinstance(layer, BatchNorm)]
        for is_silent in (False, True))
    found = {b.path: diff(a.params, b.params) for a, b in zip(plain, silent, strict=True)
             if a.params != b.params}
    assert found == {f'resnet/{block}/conv_2/batch_norm': [('scale_initializer', 'ones', 'zeros')]
                     for block in ('group_0_block_0', 'group_1_block_0', 'group_1_block_1')}


def test_all_kernels_have_the_initializer_of_the_field():
    names = {w.initializer
             for w in tiny(kernel_initializer='he_uniform').instantiate('resnet').weights()
             if w.path.endswith('conv/w')}
    assert names == {'he_uniform'}


# Cost.

@pytest.mark.parametrize('fields', [{}, {'depth': 18}, {'stem': 'large'}], ids=str)
def test_every_layer_costs_what_its_graph_does(fields):
    for e in wire(tiny(**fields).instantiate('resnet'), image_spec(16, 2, 1)):
        traced = pricing.traced_cost(
            e.layer, **{argument: value.spec for argument, value in e.reads.items()})
        assert e.cost.flops == pytest.approx(traced.flops, rel=0.05), e.layer.path
        assert e.cost.num_weights == traced.num_weights == sum(
            w.size for w in e.layer.weights() if w.is_trainable)


def test_the_whole_network_costs_what_its_graph_does():
    network, image = imagenet(50), tf.TensorSpec([2, 64, 64, 3])
    assert network.cost(image=image).flops == pytest.approx(
        pricing.traced_cost(network, image=image).flops, rel=0.01)


@pytest.mark.parametrize(('stride_in', 'multiply_adds'), [('3x3', 4.09e9), ('1x1', 3.86e9)])
def test_resnet_50_costs_4_1_billion_multiply_adds_and_the_papers_3_8(stride_in, multiply_adds):
    flops = imagenet(50, stride_in=stride_in).cost(image=tf.TensorSpec([1, 224, 224, 3])).flops
    # BatchNorm and rectifiers make the difference.
    assert flops == pytest.approx(2 * multiply_adds, rel=0.02)


# What is read, and no more.

def test_the_sum_reads_the_input_of_its_block_or_the_projection():
    elements = wire(tiny().instantiate('resnet'), image_spec(8, 1, 1))
    found = {e.layer.path: elements[e.reads['shortcut'].maker].layer.path
             for e in elements if isinstance(e.layer, ResidualSum)}
    assert found == {'resnet/group_0_block_0/sum': 'resnet/group_0_block_0/shortcut',
                     'resnet/group_1_block_0/sum': 'resnet/group_1_block_0/shortcut',
                     'resnet/group_1_block_1/sum': 'resnet/group_1_block_0/sum'}


def test_nothing_is_read_beyond_the_next_block():
    elements = wire(imagenet(50), image_spec(64))
    block_of = [e.layer.path.split('/')[1] for e in elements]
    order = list(dict.fromkeys(block_of))
    for e in elements:
        for value in e.reads.values():
            if value.maker != BATCH:
                assert (order.index(block_of[e.index]) - order.index(block_of[value.maker])
                        <= 1), f'{e.layer.path} reads {value}'


# The pipeline.

@pytest.mark.parametrize('num_cells', [2, 4, 8])
def test_resnet_101_is_cut_into_balanced_cells(num_cells):
    task = classifier(ResNet.Params(name='resnet', depth=101, num_classes=1000),
                      a_learner()).instantiate()
    plan = make_plan(task.network, image_spec(224, 128),
                     PipelineParams(num_cells=num_cells, num_micro_batches=32),
                     [f'device {k}' for k in range(num_cells)])
    print(f'balance of ResNet-101 in {num_cells} cells: {plan.forecast.balance:.4f}')
    assert plan.forecast.balance >= 0.9


def a_learner() -> Learner.Params:
    return Learner.Params(optimizer=optimizers.SGD.Params(momentum=0.9),
                          learning_rate=learning_rates.Constant.Params(rate=0.05), l2=1e-4,
                          clip_norm=1.)


@functools.cache
def train(layers_per_cell: tuple[int, ...], num_steps: int = 2) -> dict[str, np.ndarray]:
    """Returns the weights after some steps; layers_per_cell is that of PipelineParams."""
    task = classifier(tiny(dropout_rate=0.2), a_learner()).instantiate()
    num_cells = len(layers_per_cell)
    pipeline = PipelineParams(num_cells=num_cells, num_micro_batches=2,
                              layers_per_cell=layers_per_cell,
                              devices=tuple(f'CPU:{k % 4}' for k in range(num_cells)))
    program = Program(task.network, image_spec(8, 8, 1), pipeline, task.learner)
    rng = np.random.default_rng(0)
    for step in range(num_steps):
        program.train_step({'image': tf.constant(rng.normal(size=[8, 8, 8, 1]), tf.float32),
                            'label': tf.constant(rng.integers(10, size=[8]), tf.int32),
                            'weight': tf.ones([8])}, step)
    return {path: variable.numpy() for path, variable in program.weights.items()}


# The layers are: stem, relu; shortcut, 3 convolutions, sum; the same again; 3 convolutions, sum;
# mean, dropout, dense; loss.
NUM_LAYERS_OF_TINY = 2 + 5 + 5 + 4 + 3 + 1


def test_cuts_anywhere_change_no_bit():
    cuts = (4,    # inside the first block: the projection and one convolution of it cross
            9,    # inside a block of stride 2
            14,   # inside a block without projection: its input crosses, for the sum
            16)   # between the last block and the head
    spans = tuple(end - start for start, end in itertools.pairwise((0, *cuts, NUM_LAYERS_OF_TINY)))
    one, two = train((NUM_LAYERS_OF_TINY,)), train(spans)
    assert one.keys() == two.keys()
    assert [path for path in one if not np.array_equal(one[path], two[path])] == []
    assert all(np.all(np.isfinite(value)) for value in one.values())


def test_variables_are_as_many_as_params_say():
    network = tiny().instantiate('model/resnet')
    values = train((NUM_LAYERS_OF_TINY,))
    assert sum(value.size for path, value in values.items()
               if 'moving' not in path) == network.num_weights == 3_558
    # All weights were trained.
    assert all(np.any(values[w.path] != w.initial_value(0)) for w in network.weights())


def test_a_cut_inside_a_block_sends_the_shortcut_and_the_branch():
    task = classifier(tiny(dropout_rate=0.2), a_learner()).instantiate()
    plan = make_plan(task.network, image_spec(8, 8, 1),
                     PipelineParams(num_cells=2, num_micro_batches=2,
                                    layers_per_cell=(14, NUM_LAYERS_OF_TINY - 14)),
                     ['device 0', 'device 1'])
    crossing = {value.name for e in plan.cells[1].elements for value in e.reads.values()
                if 0 <= value.maker < 14}
    assert crossing == {'x', 'group_1_block_0'}


# Errors.

def test_a_group_without_blocks_is_refused():
    with pytest.raises(ValueError, match=r'blocks_per_group\[1\]=0 is below 1; use 1 to 10000'):
        tiny(blocks_per_group=(2, 0)).instantiate()


def test_layers_are_not_given():
    with pytest.raises(ValueError,
                       match='ResNet.Params.layers is made from the other fields; leave it empty'):
        tiny(layers=tiny().instantiate('resnet').params.layers).instantiate()


def test_a_sum_of_two_sizes_is_refused():
    with pytest.raises(ValueError, match=r'net.sum: x is \(1, 2, 2, 4\) and shortcut is \(1, 4, 4, '
                                         r'4\), which cannot be added; give the'):
        ResidualSum.Params().instantiate('net.sum').cost(tf.TensorSpec([1, 2, 2, 4]),
                                                         tf.TensorSpec([1, 4, 4, 4]))
