"""The memory model: literal bytes, what compiled tasks really take over, and exact limits."""

import dataclasses
import itertools
import random

import pytest
import tensorflow as tf

from lingpipe import layers
from lingpipe.hyperparams import REQUIRED, field
from lingpipe.layers import Sequential
from lingpipe.layers.base import Layer
from lingpipe.layers.cost import Cost
from lingpipe.pipeline.execution.measured_costs import layer_seconds
from lingpipe.pipeline.planning.memory import Footprint, peaks
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.pipeline.planning.plan import make_plan
from lingpipe.pipeline.planning.schedules import Slot, make_schedule
from lingpipe.training import registry
from tests.support.traced import held_bytes

SPEC = {'image': tf.TensorSpec([16, 8]), 'labels': tf.TensorSpec([16], tf.int32),
        'weight': tf.TensorSpec([16])}


class Add(Layer):
    """x + skip."""

    def fprop(self, theta, ctx, x, skip):
        return x + skip

    def cost(self, x, skip):
        return Cost(x.shape.num_elements(), 0, x)


class Tied(Layer):
    """x @ w, where w may belong to another layer."""

    class Params(Layer.Params):
        dim: int = field(REQUIRED, 'Rows and columns of w.')
        dtype: str = field('float32', 'Dtype of w.')

    def __init__(self, params, path=''):
        super().__init__(params, path)
        self.add_weight('w', [self.params.dim, self.params.dim],
                        dtype=tf.as_dtype(self.params.dtype))

    def fprop(self, theta, ctx, x):
        return x @ tf.cast(theta.w, x.dtype)

    def cost(self, x):
        return Cost(2 * x.shape[0] * self.params.dim ** 2, self.num_weights, x)


def dense(name, dim, units, **fields):
    return layers.Dense.Params(name=name, input_dim=dim, units=units, use_bias=False, **fields)


def made(*network):
    """Returns a network of the layers, the first of which reads `image`, and a loss."""
    return Sequential.Params(name='model', layers=(
        *network, layers.CrossEntropyLoss.Params(name='loss'))).instantiate('model')


def plan_of(*network, devices=(), frozen=(), **pipeline):
    """The plan of layers, or of a network that `made` returned, with two slots for each weight."""
    params = PipelineParams(**pipeline)
    devices = devices or [f'CPU:{i}' for i in range(params.num_devices)]
    network = network[0] if isinstance(network[0], Sequential) else made(*network)
    return make_plan(network, SPEC, params, devices, lambda path: path in frozen,
                     lambda dtype: 2 * dtype.size)


# A chain of three products for micro-batches of 4 examples: 8 -> 16 -> 16 -> 8 channels of
# 4 bytes.
CHAIN = (dense('a', 8, 16, reads={'x': 'image'}), dense('b', 16, 16, activation='relu'),
         dense('c', 16, 8))
IMAGE, WIDE, NARROW = 4 * 8 * 4, 4 * 16 * 4, 4 * 8 * 4


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
    # b runs again while its input and its output are held. c, whose result nobody reads, needs the
    # outputs of a and b.
    assert (layer.forecast.footprints[0].held, layer.forecast.footprints[0].working) == (
        IMAGE, WIDE + WIDE)


def test_state_is_weight_gradient_and_slots_where_it_trains_and_the_weight_alone_where_not():
    plan = plan_of(*CHAIN, num_micro_batches=4, frozen=('model/a/w',))
    assert plan.forecast.footprints[0].fixed == 4 * 8 * 16 + 16 * (16 * 16 + 16 * 8)
    assert plan_of(*CHAIN, num_micro_batches=4, sum_groups=2).forecast.footprints[0].fixed == 20 * (
        8 * 16 + 16 * 16 + 16 * 8)


@pytest.mark.parametrize(('dtype', 'bytes_a_weight'),
                         [('float64', 8 + 8 + 16), ('float32', 4 + 4 + 8), ('bfloat16', 2 + 4 + 4)])
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


def test_what_a_backward_makes_again_counts_while_it_runs():
    """First gpipe on two devices, and then all slots in one list.

    In that list the last cell works while the first one holds all micro-batches.
    """
    footprints = [Footprint(fixed=1000, held=10, working=100),
                  Footprint(fixed=2000, held=20, working=400)]
    schedule = make_schedule('gpipe', 2, 3)
    assert peaks(schedule, footprints) == [1000 + 30 + 100, 2000 + 20 + 400]
    order = [Slot(kind, k, m) for kind, k in (('F', 0), ('B', 1), ('B', 0)) for m in range(3)]
    one_list = dataclasses.replace(schedule, devices=(tuple(order),))
    assert peaks(one_list, footprints) == [3000 + 30 + 20 + 400]


@pytest.mark.parametrize(('name', 'num_cells'), [
    ('image.digits.Dense', 2), ('image.digits.AmoebaNet', 3)])
def test_cells_of_an_experiment_hold_what_their_tasks_take_over(name, num_cells):
    params = registry.get(name)
    params.pipeline.set(num_cells=num_cells, recompute='none', num_replicas=1, sum_groups=1,
                        layers_per_cell=(), devices=())
    plan = params.instantiate().make_plan()
    assert ([plan.forecast.footprints[k].held for k in range(num_cells)]
            == pytest.approx(held_bytes(plan.cells), rel=0.02))


# Limits.


def random_case(rng):
    """Draws (network, pipeline, devices, frozen weights).

    A network has a few layers, wide and narrow, with or without a skip connection.
    """
    dims = [8, *[rng.choice([4, 8, 32]) for _ in range(rng.randint(2, 3))]]
    network = [dense(f'd{i}', a, b, activation=rng.choice(['linear', 'relu']))
               for i, (a, b) in enumerate(itertools.pairwise(dims))]
    network[0].set(reads={'x': 'image'}, writes='skip' if (has_skip := rng.random() < 0.3) else 'x')
    if has_skip:
        network[1].set(reads={'x': 'skip'})
        network.append(dense('back', dims[-1], dims[1]))
        network.append(Add.Params(name='add', reads={'skip': 'skip'}))
    num_cells = rng.randint(2, min(4, len(network) + 1))
    num_replicas = rng.choice([1, 1, 1, 2])
    num_micro_batches = rng.choice([1, 2, 4])
    pipeline = dict(
        num_cells=num_cells, num_replicas=num_replicas, num_micro_batches=num_micro_batches,
        sum_groups=2 if num_replicas == 1 and num_micro_batches > 1 and rng.random() < 0.2 else 1,
        schedule=rng.choice(['gpipe', '1f1b']), recompute=rng.choice(['none', 'cell', 'layer']),
        partition=rng.choice(['bottleneck', 'variance']))
    devices = [f'CPU:{i}' for i in range(num_cells * num_replicas)]
    if rng.random() < 0.3:
        devices = [rng.choice(devices) for _ in devices]
    return made(*network), pipeline, devices, ['model/d0/w'] if rng.random() < 0.3 else []


def fullest(plan):
    assert max(plan.simulate().peak_bytes) <= max(plan.peak_bytes().values())
    return max(plan.peak_bytes().values())


def test_a_limit_is_kept_to_the_byte_and_refused_only_if_no_partition_keeps_it():
    """Compares the plans of 1,000 random networks with a search through all partitions.

    A plan that keeps the limit anyway does not change.
    """
    rng = random.Random(5)
    counts = {'as it was': 0, 'cut otherwise': 0, 'refused': 0}
    for _ in range(1000):
        network, pipeline, devices, frozen = random_case(rng)
        free = plan_of(network, devices=devices, frozen=frozen, **pipeline)
        limit = (fullest(free)
                 - rng.choice([-1, 0, *[rng.random() * fullest(free) * 0.15 for _ in range(5)]]))
        try:
            plan = plan_of(network, devices=devices, frozen=frozen, device_bytes=limit, **pipeline)
        except ValueError as error:
            assert 'device_bytes' in str(error)
            num_layers = len(free.elements)
            for cuts in itertools.combinations(range(1, num_layers), pipeline['num_cells'] - 1):
                by_hand = tuple(b - a for a, b in itertools.pairwise((0, *cuts, num_layers)))
                other = plan_of(network, devices=devices, frozen=frozen, layers_per_cell=by_hand,
                                **pipeline)
                assert fullest(other) > limit, (pipeline, devices, by_hand)
            counts['refused'] += 1
            continue
        assert fullest(plan) <= limit, (pipeline, devices)
        same = ([len(cell.elements) for cell in plan.cells]
                == [len(cell.elements) for cell in free.cells])
        if fullest(free) <= limit:
            assert same and plan.schedule.devices == free.schedule.devices
        counts['as it was' if same else 'cut otherwise'] += 1
    assert min(counts.values()) > 100, counts


def test_a_limit_is_kept_where_too_many_partitions_share_devices_to_try_them_all():
    """28 layers of growing width are in 4 cells on 2 devices.

    Without a limit, the plan fills the second device.
    """
    dims = [8, *range(4, 58, 2)]
    network = made(*[dense(f'd{i}', a, b, **({} if i else {'reads': {'x': 'image'}}))
                     for i, (a, b) in enumerate(itertools.pairwise(dims))])
    shape = dict(num_cells=4, num_micro_batches=4, devices=['a', 'b', 'a', 'b'])
    free = plan_of(network, **shape)
    for share in (0.97, 0.93):
        limit = share * fullest(free)
        assert fullest(plan_of(network, device_bytes=limit, **shape)) <= limit < fullest(free)


def test_a_partition_by_hand_that_breaks_the_limit_is_refused():
    sentence = (r'layers_per_cell=\[3, 1\] needs [\d,]+ bytes on CPU:0, which is more than '
                r'device_bytes=5,000; leave')
    with pytest.raises(ValueError, match=sentence):
        plan_of(*CHAIN, num_cells=2, num_micro_batches=4, layers_per_cell=(3, 1), device_bytes=5000)


def test_a_limit_that_nothing_fits_names_the_layer_or_the_least_that_would():
    with pytest.raises(ValueError, match=r'model/b alone needs [\d,]+ bytes, which is more than '
                                         r'device_bytes=2,000; a layer cannot be cut'):
        plan_of(*CHAIN, num_cells=2, num_micro_batches=4, device_bytes=2000)
    sentence = (r'no partition of 4 layers into 2 cells .* device_bytes=5,000: the best needs '
                r'[\d,]+ bytes')
    with pytest.raises(ValueError, match=sentence) as found:
        plan_of(*CHAIN, num_cells=2, num_micro_batches=4, device_bytes=5000)
    least = int(str(found.value).split('the best needs ')[1].split(' bytes')[0].replace(',', ''))
    assert fullest(plan_of(*CHAIN, num_cells=2, num_micro_batches=4, device_bytes=least)) == least


# Time, where it depends on what is repeated.


def costs(layers_per_cell=(3, 1), **pipeline):
    plan = plan_of(*CHAIN, num_cells=2, num_micro_batches=4, layers_per_cell=layers_per_cell,
                   **pipeline)
    forecast = plan.forecast
    return (forecast.forward_costs[0], forecast.backward_costs[0], forecast.step_costs[0],
            plan.simulate().step_s)


def test_a_layer_that_runs_again_for_itself_costs_a_forward_more_than_its_cell():
    """With 'layer', B runs the cell without its last layer, and then every layer once more.

    test_cell_trace.py counts the same in the graphs.
    """
    forward, backward, step, total = costs(recompute='cell')
    assert (backward, step) == (2 * forward, 4 * forward)
    again = costs(recompute='layer')
    last_layer = costs(recompute='none', layers_per_cell=(2, 2))[0] - forward
    assert again[:3] == (forward, 3 * forward + last_layer, 5 * forward + last_layer)
    assert again[3] > total


def test_measured_seconds_of_the_backward_are_taken_as_they_are():
    seconds = dict(layer_seconds=(5.0, 7.0, 9.0, 1.0), layer_backward_seconds=(4.0, 5.0, 2.0, 0.5))
    assert costs(recompute='none', **seconds)[:3] == (10.0, 11.0, 21.0)
    assert costs(recompute='layer', **seconds)[:3] == (10.0, 14.0, 34.0)
    assert (costs(recompute='none', layer_seconds=(3.0, 6.0, 9.0, 3.0))[:2]
            == pytest.approx((6.0, 12.0)))


@pytest.mark.parametrize(('backward', 'sentence'),
                         [((1.0, 1.0), r'layer_backward_seconds has 2 numbers, but layer_seconds '
                                       r'has 4; give one a layer to both, or leave'),
                          ((1.0, 8.0, 1.0, 1.0),
                           r'layer_backward_seconds\[1\]=8.0 is more than layer_seconds\[1\]=7.0, '
                           r'of which it is a part; measure again'),])
def test_seconds_of_the_backward_are_a_part_of_all(backward, sentence):
    with pytest.raises(ValueError, match=sentence):
        costs(layer_seconds=(5.0, 7.0, 9.0, 1.0), layer_backward_seconds=backward)


def test_a_measurement_times_forward_and_backward_of_each_layer_apart():
    plan = plan_of(*CHAIN, num_micro_batches=4, frozen=('model/a/w',))
    measured = layer_seconds(plan.elements, 'CPU:0', repeats=2)
    assert [backward > 0 for _, backward in measured] == [False, True, True, True]
    assert all(forward > 0 for forward, _ in measured)
