"""Fewer devices: the pipeline changes in nothing that changes what is learned."""
from __future__ import annotations

from typing import Any

import pytest

from lingpipe.hyperparams import diff
from lingpipe.training import registry
from lingpipe.training.experiment import Experiment
from lingpipe.training.fewer_devices import pipeline_on


def make_experiment(**pipeline: Any) -> Experiment:
    """The tiny experiment, of five layers; the batch has 8 examples."""
    params = registry.get('tests.support.tiny_experiment.Tiny')
    params.pipeline.set(**pipeline)
    experiment: Experiment = params.instantiate()
    return experiment


def changes(experiment: Experiment, *devices: str) -> dict[str, Any]:
    """What is different in the pipeline on these devices, without the devices themselves."""
    pipeline = pipeline_on(experiment, devices)
    found = {name: now for name, _, now in diff(experiment.params.pipeline, pipeline)}
    found.pop('cells_per_gpu', None)
    found.pop('devices', None)
    experiment.make_plan(devices[:pipeline.num_replicas * pipeline.num_cells], pipeline)
    return found


A, B, C = (f'/job:worker/replica:0/task:{i}/device:CPU:0' for i in range(3))


def test_devices_that_are_enough_run_what_the_experiment_says() -> None:
    experiment = make_experiment(num_cells=2)
    assert pipeline_on(experiment, [A, B, C]) is experiment.params.pipeline


def test_cuts_that_change_the_results_stay() -> None:
    """A run went on with other weights than it promises."""
    with pytest.raises(ValueError, match='with pipeline.wire_dtype=bfloat16, fewer cells would g'):
        pipeline_on(make_experiment(num_cells=2, wire_dtype='bfloat16'), [A])
    with pytest.raises(ValueError, match='the cuts, which device_bytes may move'):
        pipeline_on(make_experiment(num_cells=2, wire_dtype='bfloat16', device_bytes=1e6), [A])
    replicas = make_experiment(num_cells=2, num_replicas=2, wire_dtype='bfloat16')
    assert changes(replicas, A, B) == {
        'num_replicas': 1, 'num_micro_batches': 4, 'sum_groups': 2}


@pytest.mark.parametrize(('pipeline', 'devices', 'expected'), [
    ({'num_cells': 4}, (A, B, C), {'num_cells': 3}),
    ({'num_cells': 4}, (A, A, B), {'num_cells': 3}),   # --devices=2*a,b
    ({'num_cells': 4, 'schedule': 'interleaved'}, (A,), {'num_cells': 2}),
    ({'num_cells': 3, 'layers_per_cell': (1, 1, 3), 'recompute': ('cell', 'cell', 'none')}, (A, B),
     {'num_cells': 2, 'layers_per_cell': (), 'recompute': 'cell'}),
    ({'num_cells': 2, 'device_bytes': 1e6}, (A,), {'num_cells': 1, 'recompute': 'fit'}),
    ({'num_cells': 1, 'num_replicas': 2}, (A,),
     {'num_replicas': 1, 'num_micro_batches': 4, 'sum_groups': 2}),
    # Two replicas leave a device idle, and are faster than three cells.
    ({'num_cells': 2, 'num_replicas': 2}, (A, B, C), {'num_cells': 1}),
    ({'num_cells': 1, 'num_replicas': 4}, (A, B, C),
     {'num_cells': 3, 'num_replicas': 1, 'num_micro_batches': 8, 'sum_groups': 4}),
    # These sums are those of replicas alone.
    ({'num_cells': 2, 'num_replicas': 2, 'cross_replica_batch_norm': True}, (A, B, C),
     {'num_cells': 1}),
    ({'num_cells': 2, 'num_replicas': 2, 'replica_reduction': 'ring'}, (A, B), {'num_cells': 1}),
])
def test_cells_and_replicas_are_fewer_and_what_is_learned_stays(
        pipeline: dict[str, Any], devices: tuple[str, ...], expected: dict[str, Any]) -> None:
    assert changes(make_experiment(**pipeline), *devices) == expected


@pytest.mark.parametrize(('pipeline', 'devices', 'error'), [
    ({'num_cells': 2}, (), 'no device is left'),
    ({'num_cells': 2, 'device_bytes': 100.}, (A,), r'device_bytes'),
    ({'num_cells': 1, 'num_replicas': 2, 'replica_reduction': 'ring'}, (A,),
     '2 replicas need as many devices, and 1 are left'),
    ({'num_cells': 2, 'schedule': 'text', 'schedule_text': 'F0.0 F0.1 B0.0 B0.1; '
      'B1.0 B1.1'}, (A,), 'schedule=text is written for one number of cells'),
])
def test_what_does_not_fit_is_one_sentence(
        pipeline: dict[str, Any], devices: tuple[str, ...], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        pipeline_on(make_experiment(**pipeline), devices)


def test_mini_batches_that_are_accumulated_keep_their_replicas() -> None:
    """Their sums are not grouped, so one pipeline would add in another order."""
    experiment = make_experiment(num_cells=1, num_replicas=2)
    params = experiment.params.copy()
    params.task.learner.accumulate = 2
    with pytest.raises(ValueError, match='2 replicas need as many devices'):
        pipeline_on(params.instantiate(), [A])
