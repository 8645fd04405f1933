"""Partitions under a memory limit: kept to the byte, or refused."""

import itertools
import random

import pytest

from lingpipe.pipeline.planning.layout import num_devices_for
from lingpipe.pipeline.planning.schedules import TRAINING
from tests.support.planned_chains import CHAIN, dense, made, plan_of, planner_of
from tests.support.toy_layers import Add

# Half of them have one order for each device, without W: there a refusal is exact by itself.
ALL_SCHEDULES = ('gpipe', '1f1b') * 5 + (*TRAINING[2:], 'auto', 'auto', 'auto')


def random_modes(rng, num_cells):
    """Draws one mode of recomputation for all cells, or one a cell."""
    modes = ['none', 'cell', 'layer', 'fit']
    if rng.random() < 0.5:
        return rng.choice(modes)
    return tuple(rng.choice(modes) for _ in range(num_cells))


def random_case(rng, schedules=('gpipe', '1f1b')):
    """Draws (network, pipeline, devices, frozen weights).

    A network has a few layers, wide and narrow, with or without a skip connection. Devices have
    one cell, or as many as the schedule wants, or any.
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
        schedule=rng.choice(schedules), recompute=random_modes(rng, num_cells),
        partition=rng.choice(['bottleneck', 'variance']))
    num_devices = num_devices_for(pipeline['schedule'], num_cells) * num_replicas
    if num_devices == num_replicas * num_cells or rng.random() < 0.3:
        num_devices = num_replicas * num_cells
    devices = [f'CPU:{i}' for i in range(num_devices)]
    if rng.random() < 0.3:
        devices = [rng.choice(devices) for _ in devices]
    return made(*network), pipeline, devices, ['model/d0/w'] if rng.random() < 0.3 else []


def fullest(plan):
    return max(plan.peak_bytes().values())


def kinds_of(plan):
    return {slot.kind for slot in plan.schedule.device_of}


@pytest.mark.slow
def test_a_limit_is_kept_to_the_byte_and_refused_only_if_no_partition_keeps_it():
    """Compares the plans of 1,000 random networks with a search through all partitions.

    Some split backwards, or recompute early. A plan that keeps the limit anyway does not change.
    """
    rng = random.Random(5)
    counts = {'as it was': 0, 'cut otherwise': 0, 'refused': 0}
    kinds = set()
    for _ in range(1000):
        network, pipeline, devices, frozen = random_case(rng, ALL_SCHEDULES)
        plan_with = planner_of(network, devices=devices, frozen=frozen, **pipeline)
        free = plan_with()
        most = fullest(free)
        limit = most - rng.choice([-1, 0, *[rng.random() * most * 0.15 for _ in range(5)]])
        try:
            plan = plan_with(device_bytes=limit)
        except ValueError as error:
            assert 'device_bytes' in str(error)
            num_layers = len(free.elements)
            for cuts in itertools.combinations(range(1, num_layers), pipeline['num_cells'] - 1):
                by_hand = tuple(b - a for a, b in itertools.pairwise((0, *cuts, num_layers)))
                assert fullest(plan_with(layers_per_cell=by_hand)) > limit, (
                    pipeline, devices, by_hand)
            counts['refused'] += 1
            continue
        assert max(plan.simulate().peak_bytes) <= fullest(plan) <= limit, (pipeline, devices)
        kinds |= kinds_of(plan)
        same = ([len(cell.elements) for cell in plan.cells]
                == [len(cell.elements) for cell in free.cells])
        if most <= limit:
            assert same and plan.schedule.devices == free.schedule.devices, pipeline
        counts['as it was' if same else 'cut otherwise'] += 1
    assert min(counts.values()) > 100, counts
    assert kinds == {'F', 'B', 'W', 'R'}


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


@pytest.mark.parametrize(('schedule', 'least'), [('zb_h1', 5_632), ('zb_h2', 6_144)])
def test_backwards_are_whole_where_nothing_fits_if_they_are_split(schedule, least):
    """What a split backward hands over takes 512 or 256 bytes more; such limits were refused."""
    plan_with = planner_of(made(*CHAIN), num_cells=4, num_micro_batches=4, schedule=schedule,
                           recompute='none')
    assert 'W' in kinds_of(plan_with())
    plan = plan_with(device_bytes=float(least))
    assert fullest(plan) == least
    assert 'W' not in kinds_of(plan)
    with pytest.raises(ValueError, match=f'the best needs {least:,} bytes'):
        plan_with(device_bytes=float(least - 1))


@pytest.mark.parametrize('schedule', ['v_min', 'auto'])
def test_a_v_is_whole_where_nothing_fits_if_it_is_split(schedule):
    plan = plan_of(*CHAIN, schedule=schedule, num_cells=4, num_micro_batches=4, recompute='none',
                   devices=['a', 'b', 'b', 'a'], device_bytes=6_912.0)
    assert fullest(plan) <= 6_912


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


@pytest.mark.parametrize('mode, remedy', [
    ('none', 'use more cells, recomputation, smaller'), ('fit', 'use more cells, smaller')])
def test_recomputation_is_no_remedy_where_all_cells_recompute_as_they_must(mode, remedy):
    with pytest.raises(ValueError, match=f'fits device_bytes=5,000: .*; {remedy} micro-batches'):
        plan_of(*CHAIN, num_cells=2, num_micro_batches=4, device_bytes=5000, recompute=mode)


def test_what_fits_is_never_slower_than_one_mode_for_all_cells_and_mostly_faster():
    """Compares the plans of 200 random networks whose device lacks a part of the bytes."""
    rng = random.Random(6)
    num_faster = 0
    for _ in range(200):
        network, pipeline, devices, frozen = random_case(rng)
        plan_with = planner_of(network, devices=devices, frozen=frozen, **pipeline)

        def plan(mode, limit=None):
            return plan_with(recompute=mode, device_bytes=limit)   # noqa: B023

        free, least = plan('none'), min(fullest(plan('cell')), fullest(plan('layer')))
        limit = least + rng.random() * max(0, fullest(free) - least)
        fitted = plan('fit', limit)
        assert fullest(fitted) <= limit
        for mode in ('none', 'cell', 'layer'):
            try:
                other = plan(mode, limit).simulate().step_s
            except ValueError:
                continue
            assert fitted.simulate().step_s <= other * (1 + 1e-9)
            num_faster += fitted.simulate().step_s < other * 0.999
    assert num_faster > 100


def test_a_limit_that_nothing_fits_names_the_mode_of_recomputation_that_needs_less():
    """All that it names fits, and a byte less does not."""
    narrow = [dense('first', 8, 4, reads={'x': 'image'}, activation='gelu'),
              *[dense(f'd{i}', 4, 4, activation='gelu') for i in range(5)], dense('last', 4, 8)]
    shape = dict(num_cells=2, num_micro_batches=4, schedule='gpipe')
    sentence = (r'the best needs [\d,]+ bytes on a device \([\d,]+ with '
                r'--set pipeline.recompute=layer\)')
    with pytest.raises(ValueError, match=sentence) as found:
        plan_of(*narrow, recompute='none', device_bytes=1600, **shape)
    least = int(str(found.value).split(' (')[1].split(' with')[0].replace(',', ''))
    assert fullest(plan_of(*narrow, recompute='layer', device_bytes=least, **shape)) == least
    with pytest.raises(ValueError, match='device_bytes'):
        plan_of(*narrow, recompute='layer', device_bytes=least - 1, **shape)
