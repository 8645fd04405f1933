"""Random networks, devices and limits: no plan is faster than the first of the candidates.

The tests check a few seeds. To check more, which takes about a second for each:

    python -m tests.support.random_candidates FIRST_SEED END_SEED
"""
from __future__ import annotations

import random
import sys

from lingpipe.pipeline.planning.candidates import Candidates
from lingpipe.pipeline.planning.hardware import Hardware
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.pipeline.planning.plan_search import fastest
from lingpipe.pipeline.planning.search_space import FREE, SearchSpace
from lingpipe.pipeline.planning.subject import Subject
from tests.support.planned_chains import SPEC, dense, made

BATCH_SIZE = 16
GIGA = 1e9


def slot_bytes(weight):
    return 2 * weight.size * weight.dtype.size


def subject_of(network, num_devices=4, seconds_of=None, hardware=None, **pipeline):
    hardware = hardware or Hardware('fast', flops_per_s=GIGA, slot_s=0.0)
    params = PipelineParams(**{'shares_threads': False, **pipeline})
    return Subject(
        network, SPEC, params, [f'/device:CPU:{i}' for i in range(num_devices)],
        hardware, seconds_of or hardware.layer_seconds, slot_bytes=slot_bytes)


def space_of(subject, **fields):
    num_units = len(list(subject.network.units()))
    return SearchSpace(subject.params, BATCH_SIZE, len(subject.devices), num_units, **fields)


def random_subject(rng):
    """A chain of layers with random seconds, on devices with random links and a limit or none.

    Layers are of few kinds, since each kind is traced once.
    """
    widths = [8, *(rng.choice([4, 8, 16]) for _ in range(rng.randint(3, 7)))]
    network = made(*(
        dense(f'layer_{i}', widths[i], widths[i + 1], **({} if i else {'reads': {'x': 'image'}}))
        for i in range(len(widths) - 1)))
    of_example = {layer.path: (rng.expovariate(1), rng.expovariate(0.5))
                  for layer in network.layers()}
    of_call = rng.choice([0.0, 0.5])

    def seconds_of(elements):
        size = next(iter(elements[0].writes.values())).spec.shape[0]
        return [tuple(1e-3 * (of_call + size * seconds) for seconds in of_example[e.layer.path])
                for e in elements]

    hardware = Hardware(
        'random', flops_per_s=GIGA, slot_s=rng.choice([0.0, 1e-4]),
        link_bytes_per_s=10 ** rng.uniform(4, 8), latency_s=rng.choice([0.0, 1e-3]))
    return subject_of(network, rng.randint(1, 4), seconds_of, hardware,
                      recompute=rng.choice(['none', 'cell', 'layer']))


def random_space(rng, subject):
    """All schedules, and all values of one other field, so that few plans have to be made."""
    subject.params.set(num_cells=rng.randint(1, 4), num_micro_batches=rng.choice([1, 2, 4]))
    free = {'schedule', rng.choice(['num_cells', 'num_replicas', 'num_micro_batches', 'recompute'])}
    space = space_of(subject, held=frozenset(FREE) - free)
    if any(space.choices()):
        return space
    return space_of(subject, held=frozenset(FREE) - free - {'num_cells'})   # too few devices


def made_one_by_one(subject, choices):
    """The candidates of all choices, each of them planned on its own."""
    for choice in choices:
        candidate = Candidates(subject).of(choice, subject.limit)
        if candidate is not None:
            yield candidate


def check_random(seed):
    """The first candidate fits, and none that is found one by one is faster by 2 %."""
    rng = random.Random(seed)
    subject = random_subject(rng)
    choices = list(random_space(rng, subject).choices())
    peaks = [c.peak_bytes for c in made_one_by_one(subject, choices)]
    if rng.random() < 0.7:
        subject.params.device_bytes = rng.uniform(0.5 * min(peaks), max(peaks))

    first = next(fastest(Candidates(subject), choices), None)
    others = list(made_one_by_one(subject, choices))
    assert (first is None) == (not others)
    if first is not None:
        assert subject.limit is None or first.peak_bytes <= subject.limit
        assert first.step_s <= 1.02 * min(other.step_s for other in others), first.choice


if __name__ == '__main__':
    seeds = range(int(sys.argv[1]), int(sys.argv[2]))
    for number in seeds:
        check_random(number)
    print(f'{len(seeds)} seeds: the first candidate fits, and none is faster by 2 %')
