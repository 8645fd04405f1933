"""Program: the same weights for every K, schedule and recomputation.

They equal those of one plain tape. Other tests say what must never happen.
"""
from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf

from lingpipe import cluster, layers
from lingpipe.hyperparams import REQUIRED, field
from lingpipe.layers import Sequential
from lingpipe.layers.base import Layer
from lingpipe.layers.context import Context
from lingpipe.layers.cost import Cost
from lingpipe.learning import learning_rates, optimizers
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution import graph_cutting
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.tools import stacks
from tests.support.random_schedules import random_schedule, text_of

BATCH, M = 16, 4


class Add(Layer):
    """x + skip."""

    def fprop(self, theta, ctx, x, skip):
        return x + skip

    def cost(self, x, skip):
        return Cost(x.shape.num_elements(), 0, x)


class Tied(Layer):
    """x @ w^T, where w belongs to another layer."""

    class Params(Layer.Params):
        shape: tuple[int, ...] = field(REQUIRED, 'Shape of w.')

    def __init__(self, params, path=''):
        super().__init__(params, path)
        self.add_weight('w', self.params.shape)

    def fprop(self, theta, ctx, x):
        return tf.matmul(x, theta.w, transpose_b=True)

    def cost(self, x):
        return Cost(2 * x.shape[0] * np.prod(self.params.shape), self.num_weights,
                    tf.TensorSpec([x.shape[0], self.params.shape[0]]))


class Poison(Layer):
    """Gives NaN to those who must never read it, and x to those who may."""

    class Params(Layer.Params):
        writes: str | dict[str, str] = field({'x': 'x', 'poison': 'poison'})

    def fprop(self, theta, ctx, x):
        return {'x': x, 'poison': x * np.nan}

    def cost(self, x):
        return Cost(0, 0, {'x': x, 'poison': x})


class EmitPenalty(Layer):
    """An extra loss of an inner layer: 0.01 * sum(x^2)."""

    def fprop(self, theta, ctx, x):
        ctx.emit_loss(self.path, 'penalty', 0.01 * tf.reduce_sum(x * x))
        return x

    def cost(self, x):
        return Cost(2 * x.shape.num_elements(), 0, x)


class EmitMetric(Layer):
    """Emits the mean weight of an example as a metric; it has no weight of its own and no loss."""

    def fprop(self, theta, ctx, x, weight):
        ctx.emit_metric(self.path, 'mean_weight', tf.reduce_sum(weight),
                        tf.cast(tf.size(weight), tf.float32))
        return x

    def cost(self, x, weight):
        return Cost(weight.shape.num_elements(), 0, x)


class Stopped(Layer):
    """Returns tanh(w * x), and the same value without a gradient."""

    class Params(Layer.Params):
        writes: str | dict[str, str] = field({'x': 'x', 'skip': 'skip'})

    def __init__(self, params, path=''):
        super().__init__(params, path)
        self.add_weight('w', [8])

    def fprop(self, theta, ctx, x):
        y = tf.tanh(x * theta.w)
        return {'x': y, 'skip': tf.stop_gradient(y)}

    def cost(self, x):
        return Cost(x.shape.num_elements(), self.num_weights, {'x': x, 'skip': x})


def network() -> Sequential:
    """A network with dropout, drop path, BatchNorm, skips, a tied weight and an extra loss.

    It has layers of each kind for up to six cells.
    """
    def dense(name, **kwargs):
        return layers.Dense.Params(name=name, input_dim=12, units=12, activation='tanh', **kwargs)
    skip = {'skip': 'skip'}
    return Sequential.Params(name='model', layers=(
        layers.Dense.Params(name='in', input_dim=8, units=12, reads={'x': 'image'}, writes='skip'),
        dense('d1', reads={'x': 'skip'}),
        layers.BatchNorm.Params(name='bn', dim=12),
        layers.Dropout.Params(name='dropout', rate=0.2),
        EmitPenalty.Params(name='penalty'),
        Add.Params(name='add1', reads=skip),
        dense('d2'),
        layers.DropPath.Params(name='drop_path', rate=0.3),
        Add.Params(name='add2', reads=skip),
        dense('d3'),
        Add.Params(name='add3', reads=skip),
        Tied.Params(name='tied', shape=(8, 12), share={}),
        Tied.Params(name='again', shape=(12, 8)),
        Tied.Params(name='tied2', shape=(8, 12), share={'w': 'model/tied/w'}),
        layers.CrossEntropyLoss.Params(name='loss', label_smoothing=0.1),
    )).instantiate('model')


def small_network() -> Sequential:
    """A network with each kind of layer of `network` once, which is built in half of the time."""
    return Sequential.Params(name='model', layers=(
        layers.Dense.Params(name='in', input_dim=8, units=8, activation='tanh',
                            reads={'x': 'image'}, writes='skip'),
        layers.BatchNorm.Params(name='bn', dim=8, reads={'x': 'skip'}),
        layers.Dropout.Params(name='dropout', rate=0.2),
        layers.DropPath.Params(name='drop_path', rate=0.3),
        EmitPenalty.Params(name='penalty'),
        Add.Params(name='add', reads={'skip': 'skip'}),
        Tied.Params(name='tied', shape=(8, 8), share={'w': 'model/in/w'}),
        layers.CrossEntropyLoss.Params(name='loss', label_smoothing=0.1),
    )).instantiate('model')


def learner(**kwargs) -> Learner:
    """Momentum shows every bit of a gradient, and its update is traced in half of the time."""
    defaults = {'optimizer': optimizers.SGD.Params(momentum=0.9),
                'learning_rate': learning_rates.Constant.Params(rate=0.01)}
    return Learner.Params(**{**defaults, **kwargs}).instantiate()


def batches(n: int, batch: int = BATCH) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [{'image': rng.standard_normal((batch, 8)).astype(np.float32),
             'labels': rng.integers(0, 8, batch).astype(np.int32),
             'weight': rng.integers(0, 2, batch).astype(np.float32) + 0.5}
            for _ in range(n)]


def spec_of(batch) -> dict[str, tf.TensorSpec]:
    return {name: tf.TensorSpec(value.shape, value.dtype) for name, value in batch.items()}


def program_of(net=None, num_micro_batches=M, learn=None, **params) -> Program:
    params = PipelineParams(**{'num_micro_batches': num_micro_batches, 'shares_threads': False,
                               **params})
    return Program(net or network(), spec_of(batches(1)[0]), params, learn or learner(), seed=7)


def weights_of(program: Program) -> dict[str, np.ndarray]:
    return {path: v.numpy() for path, v in program.variables().items()}


def every_part(**kwargs) -> Learner:
    """A learner with slots of two kinds, a clipped norm over all cells, and averages."""
    return learner(optimizer=optimizers.RMSProp.Params(momentum=0.9, epsilon=1e-3), clip_norm=1.0,
                   ema_decay=0.9, **kwargs)


def trained(program: Program, steps: int = 5) -> dict[str, np.ndarray]:
    for step, batch in enumerate(batches(steps)):
        assert program.train_step(batch, step)['is_finite']
    return weights_of(program)


ONE_CELL = {'num_cells': 1, 'recompute': 'none', 'schedule': 'gpipe'}


@pytest.fixture(scope='module')
def reference() -> dict[str, np.ndarray]:
    """The weights after 5 steps of one cell, which recomputes nothing, with every part."""
    return trained(program_of(learn=every_part(), **ONE_CELL))


@pytest.fixture(scope='module')
def small_references() -> list[dict[str, np.ndarray]]:
    """The weights of the small network after 0 to 5 steps of such a cell."""
    program = program_of(small_network(), **ONE_CELL)
    found = [weights_of(program)]
    for step, batch in enumerate(batches(5)):
        assert program.train_step(batch, step)['is_finite']
        found.append(weights_of(program))
    return found


@pytest.fixture(scope='module')
def small_reference(small_references) -> dict[str, np.ndarray]:
    return small_references[-1]


@pytest.mark.parametrize(('num_cells', 'schedule', 'recompute'),
                         [*itertools.product([1], ['gpipe'], ['cell', 'layer']),
                          # Every pair of a number, a schedule and a mode.
                          (2, 'gpipe', 'none'), (4, '1f1b', 'none'), (4, 'gpipe', 'cell'),
                          (2, '1f1b', 'cell'), (2, 'gpipe', 'layer'), (4, '1f1b', 'layer'),
                          (1, 'zb_h1', 'cell')])
def test_weights_are_bitwise_equal_for_every_partition_schedule_and_recomputation(
        num_cells, schedule, recompute, small_reference):
    found = trained(program_of(small_network(), num_cells=num_cells, schedule=schedule,
                               recompute=recompute))
    assert found.keys() == small_reference.keys()
    for path, value in small_reference.items():
        np.testing.assert_array_equal(found[path], value, err_msg=path)


@pytest.mark.parametrize(('name', 'modes'), [
    ('gpipe', ('layer', 'none', 'cell', 'cell')),
    ('1f1b', ('none', 'cell', 'layer', 'none')),
    ('interleaved', ('none', 'cell', 'layer', 'cell')),
    ('zb_h1', ('cell', 'layer', 'none')),
    ('zb_h2', ('layer', 'none', 'cell')),
    ('zb_v', ('cell', 'none', 'cell', 'layer')),
    ('v_half', ('layer', 'cell', 'none', 'cell', 'layer', 'none')),
    ('v_min', ('none', 'layer', 'cell', 'none')),
    ('dual_pipe_v', ('cell', 'layer', 'none', 'cell')),
    ('auto', ('layer', 'none', 'cell', 'layer'))])
def test_weights_are_bitwise_equal_for_every_schedule_if_each_cell_recomputes_in_its_own_way(
        name, modes, small_reference):
    program = program_of(small_network(), num_cells=len(modes), schedule=name, recompute=modes)
    for path, value in trained(program).items():
        np.testing.assert_array_equal(value, small_reference[path], err_msg=path)


@pytest.mark.parametrize(('modes', 'layout'), [
    (('none', 'none'), (0, 1)),
    (('cell', 'none', 'layer'), (0, 1, 0)),
    (('layer', 'cell', 'layer', 'none'), (0, 1, 1, 0))])
def test_weights_are_bitwise_equal_for_any_order_that_splits_and_repeats_as_it_likes(
        modes, layout, reference):
    text = text_of(random_schedule(layout, M, seed=len(layout)))
    program = program_of(num_cells=len(modes), recompute=modes, schedule='text', schedule_text=text,
                         learn=every_part())
    for path, value in trained(program).items():
        np.testing.assert_array_equal(value, reference[path], err_msg=path)


@pytest.mark.parametrize('share', [0.9, 0.5, 0.1])
def test_weights_are_bitwise_equal_if_cells_keep_what_fits(share, reference):
    """The limit is so much of the way from the bytes of 'cell' to those of 'none'."""
    most, least = (max(program_of(num_cells=3, recompute=mode, learn=every_part()
                                  ).plan.peak_bytes().values()) for mode in ('none', 'cell'))
    program = program_of(num_cells=3, recompute='fit', learn=every_part(),
                         device_bytes=least + share * (most - least))
    assert 'fit' in program.plan.forecast.recomputation.modes
    for path, value in trained(program).items():
        np.testing.assert_array_equal(value, reference[path], err_msg=path)


@pytest.mark.parametrize(('num_cells', 'num_replicas', 'recompute'),
                         [(2, 1, 'none'), (2, 1, 'layer'), (1, 2, 'cell')])
def test_tasks_that_xla_compiles_give_the_same_weights_within_rounding(
        num_cells, num_replicas, recompute, small_reference):
    program = program_of(small_network(), num_micro_batches=M // num_replicas, num_cells=num_cells,
                         num_replicas=num_replicas, recompute=recompute, jit_compile=True)
    for path, value in trained(program).items():
        np.testing.assert_allclose(value, small_reference[path], rtol=2e-4, atol=1e-5, err_msg=path)


def test_tasks_that_the_graph_optimizer_rewrites_give_the_same_weights_within_rounding(
        small_reference):
    """It removed what adds to accumulators, which no result and no control output needed."""
    try:
        program = program_of(small_network(), num_micro_batches=M, num_cells=2,
                             use_graph_optimizer=True)
        found = trained(program)
    finally:
        cluster.set_graph_optimizer(False)
    for path, value in found.items():
        np.testing.assert_allclose(value, small_reference[path], rtol=2e-4, atol=1e-5, err_msg=path)


def test_an_evaluation_that_xla_compiles_is_the_same_within_rounding():
    plain, compiled = (
        program_of(small_network(), jit_compile=jit_compile).evaluator(
            spec_of(batches(1)[0])).step(batches(1)[0])[0]
        for jit_compile in (False, True))
    assert float(compiled['loss'][0]) == pytest.approx(float(plain['loss'][0]), rel=1e-5)


def test_a_layer_that_xla_cannot_compile_is_explained():
    sleep = stacks.Delay.Params(name='sleep', forward_ms=1, backward_ms=1, reads={'x': 'image'},
                                writes='image')
    net = Sequential.Params(name='model', layers=(
        sleep, layers.Dense.Params(name='out', input_dim=8, units=8, reads={'x': 'image'}),
        layers.CrossEntropyLoss.Params(name='loss')))
    with pytest.raises(ValueError, match=r'XLA cannot compile PyFuncStateless of model/sleep, .*; '
                                         r'set pipeline.jit_compile=False'):
        trained(program_of(net.instantiate('model'), jit_compile=True))


def test_one_cell_has_the_same_tasks_in_every_schedule():
    """The test above therefore need not train one cell with each schedule."""
    plans = [program_of(num_cells=1, schedule=schedule).plan for schedule in ('gpipe', '1f1b')]
    assert plans[0].schedule.devices == plans[1].schedule.devices


@pytest.mark.parametrize('devices',
                         [('CPU:0', '/device:CPU:0', 'CPU:1', 'CPU:1'),
                          ('CPU:0', 'CPU:1', 'CPU:0', 'CPU:1'), ('CPU:2',) * 4])
def test_cells_that_share_a_device_give_the_same_weights(devices, small_reference):
    program = program_of(small_network(), num_cells=4, devices=devices)
    assert len(program.plan.schedule.devices) == len({device[-1] for device in devices})
    for path, value in trained(program).items():
        np.testing.assert_array_equal(value, small_reference[path], err_msg=path)


def test_forecast_of_cells_on_one_device_is_that_of_one_device():
    shared, apart = (program_of(num_cells=2, devices=devices).plan.simulate()
                     for devices in (('CPU:0', 'CPU:0'), ('CPU:0', 'CPU:1')))
    assert shared.bubble_share == 0 and apart.bubble_share > 0.05
    assert shared.step_s == pytest.approx(2 * apart.busy_share * apart.step_s)
    assert shared.peak_bytes[0] > max(apart.peak_bytes)


def test_two_cells_on_one_gpu_are_refused_unless_they_are_meant():
    params = PipelineParams(num_cells=3, devices=('/GPU:0', 'CPU:0', '/job:localhost/device:GPU:0'))
    with pytest.raises(ValueError, match=r'devices puts 2 cells on /GPU:0, \[0, 2\]; name another '
                                         r'GPU, or set cells_per_gpu=2'):
        params.validate()
    params.set(cells_per_gpu=2).validate()
    PipelineParams(num_cells=2, devices=('CPU:0', 'CPU:0')).validate()


def test_one_step_equals_a_plain_tape_over_the_whole_sequence():
    net, batch = network(), batches(1)[0]
    program = program_of(net, num_cells=4, num_micro_batches=1, recompute='cell', learn=learner(
        optimizer=optimizers.SGD.Params(), learning_rate=learning_rates.Constant.Params(rate=1.0),
        clip_norm=None))

    values = {w.path: w.initial_value(7) for w in net.weights()}
    values['model/tied2/w'] = values['model/tied/w']
    trainable = [p for p in program.weights if not p.startswith('model/bn/moving')]
    with tf.GradientTape() as tape:
        tape.watch([values[p] for p in trainable])
        ctx = Context(True, 7, 0, 0)
        net.fprop(net.theta({**values, 'model/tied2/w': values['model/tied/w']}), ctx,
                  **{k: tf.constant(v) for k, v in batch.items()})
        loss = (tf.add_n(list(ctx.emissions.losses.values()))
                / tf.add_n(list(ctx.emissions.weights.values())))
    gradients = tape.gradient(loss, [values[p] for p in trainable])

    results = program.train_step(batch, 0)
    assert results['loss'].numpy() == pytest.approx(float(loss), rel=1e-6)
    for path, gradient in zip(trainable, gradients, strict=True):
        moved = values[path].numpy() - program.weights[path].numpy()
        np.testing.assert_allclose(moved, gradient.numpy(),
                                   atol=1e-6 * max(1.0, np.abs(gradient.numpy()).max()),
                                   err_msg=path)


def test_micro_batches_of_a_network_without_batch_statistics_give_the_gradient_of_the_mini_batch():
    def net():
        return Sequential.Params(name='model', layers=(
            layers.Dense.Params(name='in', input_dim=8, units=12, activation='tanh',
                                reads={'x': 'image'}),
            layers.Dense.Params(name='out', input_dim=12, units=8),
            layers.CrossEntropyLoss.Params(name='loss'))).instantiate('model')
    found = [trained(program_of(net(), num_micro_batches=m, num_cells=2)) for m in (1, 2, 8)]
    for other in found[1:]:
        for path, value in found[0].items():
            np.testing.assert_allclose(other[path], value, atol=2e-6, err_msg=path)


def test_moving_averages_take_the_moments_of_the_whole_mini_batch_once():
    net = Sequential.Params(name='model', layers=(
        layers.BatchNorm.Params(name='bn', dim=8, decay=0.0, reads={'x': 'image'}),
        layers.Dense.Params(name='out', input_dim=8, units=8),
        layers.CrossEntropyLoss.Params(name='loss'))).instantiate('model')
    for recompute in ('none', 'cell', 'layer'):
        program = program_of(net, num_cells=2, recompute=recompute)
        batch = batches(1)[0]
        batch['image'] += 1000.0  # E[x^2] - E[x]^2 would lose all digits
        program.train_step(batch, 0)
        np.testing.assert_allclose(program.weights['model/bn/moving_mean'], batch['image'].mean(0),
                                   rtol=1e-6)
        np.testing.assert_allclose(program.weights['model/bn/moving_variance'],
                                   batch['image'].astype(np.float64).var(0), rtol=1e-3)


def test_metrics_of_a_cell_without_losses_or_weights_are_read_before_they_are_reset():
    """Every other metric was 0, since the reset of such a cell did not wait for the read.

    The decision to update does not depend on such a cell.
    """
    net = Sequential.Params(name='model', layers=(
        layers.Dense.Params(name='out', input_dim=8, units=8, reads={'x': 'image'}),
        layers.CrossEntropyLoss.Params(name='loss'),
        EmitMetric.Params(name='metric'))).instantiate('model')
    program = program_of(net, num_cells=2, layers_per_cell=(2, 1))
    for step, batch in enumerate(batches(30)):
        assert float(program.train_step(batch, step)['mean_weight']) == batch['weight'].mean()


def test_a_layer_may_stop_the_gradient_that_another_cell_sends_it():
    """With recompute=layer, a layer waited for a gradient that its task was not given.

    TensorFlow said 'You must feed a value for placeholder'.
    """
    net = Sequential.Params(name='model', layers=(
        Stopped.Params(name='stopped', reads={'x': 'image'}),
        Add.Params(name='add', reads={'skip': 'skip'}),
        layers.Dense.Params(name='out', input_dim=8, units=8),
        layers.CrossEntropyLoss.Params(name='loss'))).instantiate('model')
    found = [trained(program_of(net, num_cells=2, layers_per_cell=(1, 3), recompute=recompute), 2)
             for recompute in ('none', 'layer')]
    for path, value in found[0].items():
        np.testing.assert_array_equal(found[1][path], value, err_msg=path)


@pytest.mark.parametrize('recompute', ['none', 'cell', 'layer'])
def test_values_that_nobody_reads_are_not_sent_and_do_no_harm(recompute):
    net = Sequential.Params(name='model', layers=(
        layers.Dense.Params(name='in', input_dim=8, units=8, reads={'x': 'image'}),
        Poison.Params(name='poison'),
        layers.Dense.Params(name='out', input_dim=8, units=8),
        layers.CrossEntropyLoss.Params(name='loss'))).instantiate('model')
    program = program_of(net, num_cells=4, recompute=recompute)
    assert [v.name for cell in program.plan.cells for v in cell.outputs] == ['x', 'x', 'x']
    assert all(np.isfinite(value).all() for value in trained(program, 2).values())


def test_examples_of_weight_zero_may_hold_nan():
    net = Sequential.Params(name='model', layers=(
        layers.Dense.Params(name='out', input_dim=8, units=8, reads={'x': 'image'}),
        layers.CrossEntropyLoss.Params(name='loss'))).instantiate('model')
    program = program_of(net, num_cells=2)
    evaluator = program.evaluator(spec_of(batches(1)[0]))
    batch = batches(1)[0]
    batch['weight'][3:] = 0.0
    clean = evaluator.step(batch)[0]['loss']
    batch['image'][3:] = np.nan
    poisoned = evaluator.step(batch)[0]['loss']
    assert [float(t) for t in clean] == [float(t) for t in poisoned]


def test_a_step_that_is_not_finite_updates_nothing_anywhere_and_the_next_goes_on():
    program = program_of(small_network(), num_cells=4)
    first, bad_image, bad_weight, second = batches(4)
    bad_image['image'][5, 2] = np.inf
    bad_weight['weight'][5] = np.nan
    program.train_step(first, 0)
    before = weights_of(program)
    for step, bad in ((1, bad_image), (2, bad_weight)):
        assert not program.train_step(bad, step)['is_finite']
        for path, value in weights_of(program).items():
            np.testing.assert_array_equal(value, before[path], err_msg=path)
    program.train_step(second, 3)
    clean = program_of(small_network(), num_cells=2)
    clean.train_step(first, 0)
    clean.train_step(second, 3)
    for path, value in weights_of(clean).items():
        np.testing.assert_array_equal(weights_of(program)[path], value, err_msg=path)


def test_accumulated_mini_batches_equal_one_of_their_sum():
    first, second = batches(2)
    both = {name: np.concatenate([first[name], second[name]]) for name in first}
    small = program_of(small_network(), num_cells=2, schedule='zb_h1')
    small.accumulate(first, 0, 0)
    small.train_step(second, 0, index=1)
    large = Program(small_network(), spec_of(both),
                    PipelineParams(num_cells=4, num_micro_batches=2 * M), learner(), seed=7)
    large.train_step(both, 0)
    for path, value in weights_of(large).items():
        np.testing.assert_array_equal(weights_of(small)[path], value, err_msg=path)


def test_mini_batches_may_be_of_several_shapes_in_any_partition():
    sizes = BATCH // 2, BATCH, BATCH, BATCH // 2
    small, large = (spec_of(batches(1, batch=size)[0]) for size in sizes[:2])

    def weights(num_cells: int, specs, num_steps: int) -> list[dict[str, np.ndarray]]:
        """Returns the weights after each step."""
        program = Program(small_network(), specs,
                          PipelineParams(num_cells=num_cells, num_micro_batches=M), learner(),
                          seed=3)
        found = []
        for step, size in enumerate(sizes[:num_steps]):
            program.train_step(batches(step + 1, batch=size)[step], step)
            found.append(weights_of(program))
        return found

    one, two = (weights(num_cells, [large, small], 4) for num_cells in (1, 2))
    for path, value in one[-1].items():
        np.testing.assert_array_equal(two[-1][path], value, err_msg=path)
    alone, = weights(2, small, 1)
    for path, value in alone.items():
        np.testing.assert_array_equal(two[0][path], value, err_msg=path)


def accumulating(**params) -> tuple[Program, list[dict[str, float]]]:
    """Trains for three steps of two mini-batches each; returns the program and its results."""
    program = program_of(small_network(), learn=learner(ema_decay=0.9), **params)
    results = []
    for step, (first, second) in enumerate(zip(batches(6)[::2], batches(6)[1::2], strict=True)):
        program.accumulate(first, step, 0)
        results.append(
            {name: float(value) for name, value in program.train_step(second, step, 1).items()})
        program.check_replicas()
    return program, results


@pytest.fixture(scope='module')
def one_pipeline():
    """A pipeline with all micro-batches, and its results."""
    return accumulating(num_micro_batches=4)


@pytest.fixture(scope='module')
def replicas_of_one_cell():
    return accumulating(num_micro_batches=2, num_cells=1, num_replicas=2, schedule='gpipe')


@pytest.mark.parametrize('schedule', ['gpipe', '1f1b', 'zb_h1'])
def test_replicas_stay_equal_and_give_the_result_of_one_pipeline_with_all_micro_batches(
        schedule, one_pipeline, replicas_of_one_cell):
    """Seeds, moments and sums are the same, and only the order of additions differs.

    All values are therefore equal within rounding.
    """
    two, found = accumulating(num_micro_batches=2, num_cells=2, num_replicas=2, schedule=schedule)
    one, expected = one_pipeline
    again, exact = replicas_of_one_cell
    assert found == exact
    for step, results in enumerate(found):
        assert results == pytest.approx(expected[step], rel=1e-5)
    for path, value in weights_of(two).items():
        np.testing.assert_allclose(value, weights_of(one)[path], rtol=2e-4, atol=2e-6, err_msg=path)
        np.testing.assert_array_equal(value, weights_of(again)[path], err_msg=path)
    two.replicas[1].weights['model/in/w'].assign_add(tf.ones([8, 8]))
    with pytest.raises(ArithmeticError,
                       match='weights/model/in/w of replica 1 differs from that of replica 0'):
        two.check_replicas()


@pytest.mark.slow
def test_one_pipeline_that_sums_in_groups_gives_the_bits_of_replicas():
    def results(**params):
        program = program_of(small_network(), learn=learner(ema_decay=0.9), recompute='none',
                             **params)
        made = [{name: value.numpy() for name, value in program.train_step(batch, step).items()}
                for step, batch in enumerate(batches(3))]
        return {**weights_of(program),
                **{f'{name} {step}': value
                   for step, found in enumerate(made) for name, value in found.items()}}
    replicas = results(num_micro_batches=2, num_replicas=4)
    one = results(num_micro_batches=8, num_cells=2, sum_groups=4, schedule='zb_h1')
    assert replicas.keys() == one.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, replicas[name], err_msg=name)
    # The order of the sum matters.
    assert not np.array_equal(one['weights/model/in/w'],
                              results(num_micro_batches=8)['weights/model/in/w'])


def test_an_evaluation_has_no_groups_of_sums():
    batch = batches(1)[0]
    found = [program_of(small_network(), sum_groups=groups).evaluator(
                 spec_of(batch), num_micro_batches=1).step(batch)[0]['loss']
             for groups in (1, 2)]
    assert [float(t) for t in found[0]] == [float(t) for t in found[1]]


@pytest.mark.parametrize(('params', 'accumulate', 'error'), [
    ({'sum_groups': 3}, 1, 'sum_groups=3 does not divide num_micro_batches=4; use 1, 2 or 4'),
    ({'sum_groups': 2, 'num_replicas': 2}, 1,
     'sum_groups=2 and num_replicas=2; replicas are groups already'),
    ({'sum_groups': 2}, 2, 'sum_groups=2, but the learner accumulates 2 mini-batches'),
])
def test_groups_of_sums_that_cannot_be_are_refused(params, accumulate, error):
    with pytest.raises(ValueError, match=error):
        program_of(learn=learner(accumulate=accumulate), **params)


@pytest.mark.parametrize(('num_cells', 'num_replicas'), [(1, 1), (2, 2)])
def test_every_call_in_a_step_comes_after_a_ref_variable(num_cells, num_replicas):
    """Without one, TensorFlow builds the body of a task anew for each call before the first run.

    That takes a third to half of the time of that run.
    """
    program = program_of(small_network(), num_cells=num_cells, num_replicas=num_replicas)
    ops = program.step_graph().get_operations()
    calls = [op for op in ops if op.type.endswith('PartitionedCall') and op.outputs]
    assert len(calls) >= (2 * num_cells - 1) * num_replicas * M
    for op in calls:
        assert any(one.type == 'VariableV2'
                   for one in graph_cutting.ancestors(op.outputs[:1], set()).values())


def test_bfloat16_on_the_wire_is_close_to_float32_and_changes_nothing_in_one_cell(
        small_references):
    rounded, alone = (
        trained(program_of(small_network(), num_cells=num_cells, wire_dtype='bfloat16'), 2)
        for num_cells in (3, 1))
    as_is = small_references[2]
    assert any(not np.array_equal(rounded[path], value) for path, value in as_is.items())
    for path, value in as_is.items():
        if path.startswith('weights/'):
            np.testing.assert_allclose(rounded[path], value, atol=0.02, err_msg=path)
        np.testing.assert_array_equal(alone[path], value, err_msg=path)


def test_frozen_weights_cost_no_backward_before_the_first_trainable_layer():
    program = program_of(num_cells=4, learn=learner(frozen='model/(in|d1|bn|d2)/'))
    start = weights_of(program)
    assert sorted(program.plan.schedule.backward_cells) == [
        k
        for k, cell in enumerate(program.plan.cells)
        if any(e.layer.path >= 'model/d3' for e in cell.elements if e.trained)]
    found = trained(program, 2)
    moved = {path
             for path in start
             if not np.array_equal(start[path], found[path]) and path.startswith('weights/')}
    # Only the moving averages of bn have moved.
    assert {p.split('/')[2] for p in moved} == {'bn', 'd3', 'tied', 'again'}
    assert {p for p in moved if '/bn/' in p} == {'weights/model/bn/moving_mean',
                                                 'weights/model/bn/moving_variance'}


def test_evaluation_uses_the_moving_average_of_weights_and_any_batch_size():
    program = program_of(small_network(), num_cells=4,
                         learn=learner(ema_decay=0.5, ema_warmup=False))
    trained(program, 3)
    batch = batches(1)[0]
    whole = {k: float(v[0]) for k, v in program.evaluator(spec_of(batch)).step(batch)[0].items()}
    ema = program.evaluator(spec_of(batch), num_micro_batches=1, fetch=['x']).step(batch)
    assert {k: pytest.approx(float(v[0]), rel=1e-5) for k, v in ema[0].items()} == whole
    assert ema[1]['x'].shape == (BATCH, 8)
    part = {k: v[:6] for k, v in batch.items()}
    rest = {k: v[6:] for k, v in batch.items()}
    sums = [program.evaluator(spec_of(b)).step(b)[0]['loss'] for b in (part, rest)]
    assert float(sums[0][0] + sums[1][0]) == pytest.approx(whole['loss'], rel=1e-5)


def test_a_measured_step_is_a_training_step_and_gives_every_task_a_time(small_references):
    """The tasks of a device follow each other in its schedule's order, here those of two cells."""
    program = program_of(small_network(), num_cells=4,
                         devices=('CPU:0', 'CPU:1', 'CPU:0', 'CPU:1'))
    results, timed = program.timed_step(batches(1)[0], 0)
    assert results['is_finite']
    timeline = timed.timeline
    for path, value in weights_of(program).items():
        np.testing.assert_array_equal(value, small_references[1][path], err_msg=path)
    schedule = program.plan.schedule
    assert timeline.num_devices == len(schedule.devices) == 2
    assert set(timeline.spans) == {task for tasks in schedule.devices for task in tasks}
    for tasks in schedule.devices:
        spans = [timeline.spans[task] for task in tasks]
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))


@pytest.mark.parametrize(('change', 'sentence'), [
    ({'num_micro_batches': 6}, r'num_micro_batches=6 does not divide the batch of 16 examples; use '
                               r'1, 2, 4, 8 or 16, or change train_input.batch_size.'),
    ({'num_cells': 0}, r'num_cells=0 is below 1; use 1 to 4096'),
    ({'num_cells': 40, 'devices': ('CPU:0',) * 40}, r'num_cells=40 is more than the 15 layers'),
    ({'num_cells': 9}, r'cells of all replicas need 9 devices, but there are 4 CPU devices'),
    ({'num_cells': 1, 'num_replicas': 5}, r'need 5 devices.* or use fewer cells or replicas\.'),
    ({'num_cells': 2, 'devices': ('CPU:0', 'GPU:7')},
     r"device 'GPU:7' does not exist; there are .*CPU:0"),
    ({'num_cells': 2, 'layers_per_cell': (3, 4)},
     r'layers_per_cell=\[3, 4\] adds up to 7, but the network has 15 layers'),
    ({'num_cells': 2, 'device_bytes': 100.0}, r'device_bytes'),
])
def test_a_partition_that_cannot_exist_is_one_clear_sentence(change, sentence):
    with pytest.raises(ValueError, match=sentence):
        program_of(**change)


@pytest.mark.parametrize(('change', 'sentence'), [
    ({'num_cells': 4096, 'num_replicas': 2},
     'num_cells=4096 and num_replicas=2 need 8192 devices; use at most 4096 of both together'),
    ({'devices': ('CPU:4096',)},
     'devices names CPU:4096; no process has so many devices: use numbers below 4096'),
])
def test_more_devices_than_a_process_can_make_are_refused_before_they_are_made(change, sentence):
    with pytest.raises(ValueError, match=sentence):
        PipelineParams(**change).validate()


def test_every_spelling_of_a_device_is_taken():
    spellings = ('/CPU:0', 'CPU:1', '/device:CPU:2', '/job:localhost/replica:0/task:0/device:CPU:3')
    program = program_of(num_cells=4, devices=spellings)
    devices = [tf.DeviceSpec.from_string(cell.device).to_string() for cell in program.plan.cells]
    assert devices == ['/device:CPU:0', '/device:CPU:1', '/device:CPU:2',
                       '/job:localhost/replica:0/task:0/device:CPU:3']


def network_with(*extra) -> Sequential:
    return Sequential.Params(name='model', layers=(
        layers.Dense.Params(name='in', input_dim=8, units=8, reads={'x': 'image'}), *extra,
        layers.CrossEntropyLoss.Params(name='loss'))).instantiate('model')


def test_a_value_that_nobody_writes_is_refused_with_what_there_is():
    with pytest.raises(
            ValueError,
            match=r"model/add reads 'skip' \(its argument 'skip'\), which no layer before it "
                  r"writes and the mini-batch does not have; there are: image, labels, weight, x."):
        program_of(network_with(Add.Params(name='add')))


def test_a_shared_weight_must_exist_and_fit():
    with pytest.raises(
            ValueError,
            match="model/t/w shares 'model/nothing/w', which is no weight of this network"):
        program_of(network_with(
            Tied.Params(name='t', shape=(8, 8), share={'w': 'model/nothing/w'})))
    with pytest.raises(ValueError,
                       match=r'model/t/w of shape \(4, 8\) shares model/in/w of shape \(8, 8\)'):
        program_of(network_with(Tied.Params(name='t', shape=(4, 8), share={'w': 'model/in/w'})))


def test_a_network_needs_exactly_one_main_loss():
    two = network_with(layers.CrossEntropyLoss.Params(name='first'))
    with pytest.raises(ValueError, match=r'2 layers give a loss with a weight \(model/first, '
                                         r'model/loss\); exactly one must'):
        program_of(two).train_step(batches(1)[0], 0)
