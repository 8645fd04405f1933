"""Sharded slots: the results of replicas that keep all, to the last bit, with less in memory."""
from __future__ import annotations

import functools

import numpy as np
import pytest
import tensorflow as tf

from lingpipe import layers
from lingpipe.layers import Sequential
from lingpipe.learning import learning_rates, optimizers
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.execution.variables import TO_TRAIN, Contents
from lingpipe.pipeline.planning.pipeline_params import PipelineParams

BATCH, D = 8, 4
SPEC = {name: tf.TensorSpec([BATCH, D]) for name in ('x', 'target')}


def program_of(learner: Learner.Params, contents=TO_TRAIN, **pipeline) -> Program:
    network = Sequential.Params(name='model', layers=(
        *(layers.Dense.Params(name=name, input_dim=D, units=D) for name in 'abc'),
        layers.MeanSquaredErrorLoss.Params(name='loss')))
    params = PipelineParams(**{'num_replicas': 2, 'num_micro_batches': 2, **pipeline})
    return Program(network.instantiate('model'), SPEC, params, learner.instantiate(),
                   contents=contents)


def learner_of(optimizer=None, **fields) -> Learner.Params:
    return Learner.Params(**{
        'optimizer': optimizer or optimizers.RMSProp.Params(momentum=0.9),
        'learning_rate': learning_rates.Constant.Params(rate=0.1), 'ema_decay': 0.9,
        'clip_norm': 1.0, 'l2': 0.1, **fields})


def batch_of(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal([BATCH, D], np.float32) for name in SPEC}


def trained(program: Program, num_steps: int = 2) -> dict[str, np.ndarray]:
    """All variables of a checkpoint after some steps."""
    for step in range(num_steps):
        program.train_step(batch_of(step), step)
    program.check_replicas()
    return {key: variable.numpy() for key, variable in program.variables().items()}


def used(program: Program) -> dict[str, np.ndarray]:
    """All variables after two steps of two mini-batches each, and what an evaluation gives."""
    for step in range(2):
        program.accumulate(batch_of(2 * step), step, 0)
        program.train_step(batch_of(2 * step + 1), step, 1)
    program.check_replicas()
    values = {key: variable.numpy() for key, variable in program.variables().items()}
    results, _ = program.evaluator(SPEC).step(batch_of(9))
    return {**values, 'evaluated': np.array([results['loss']]),
            'predicted': program.predict(batch_of(9))['x']}


def assert_same(values: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert values.keys() == expected.keys()
    for key, value in values.items():
        np.testing.assert_array_equal(value, expected[key], err_msg=key)


@functools.cache
def used_by_replicas_that_keep_all(num_replicas: int) -> dict[str, np.ndarray]:
    """Neither the number of cells matters nor, of two replicas, in which order sums are made."""
    return used(program_of(learner_of(), num_replicas=num_replicas,
                           num_micro_batches=4 // num_replicas))


@pytest.mark.parametrize('pipeline', [
    {}, {'num_cells': 2, 'recompute': 'none'}, {'replica_reduction': 'ring'},
    {'num_replicas': 4, 'num_micro_batches': 1}])
def test_weights_slots_averages_and_evaluations_are_those_of_replicas_that_keep_all(pipeline):
    assert_same(used(program_of(learner_of(), shard_slots=True, **pipeline)),
                used_by_replicas_that_keep_all(pipeline.get('num_replicas', 2)))


@pytest.mark.parametrize('optimizer', [
    optimizers.Nadam.Params(),               # One of its slots is for all weights together.
    optimizers.Lamb.Params(),                # It needs norms of whole weights.
    optimizers.Adafactor.Params(beta_1=0.9),  # Its slots are rows and columns.
    optimizers.ScheduleFreeAdamW.Params()])  # Its slots begin as copies of weights.
def test_so_they_are_for_optimizers_with_more_than_slots_of_elements(optimizer):
    assert_same(*(trained(program_of(learner_of(optimizer), shard_slots=shards))
                  for shards in (True, False)))


def test_rounded_slots_are_the_same_for_any_number_of_cells_and_replicas():
    def values(**pipeline):
        return trained(program_of(learner_of(bfloat16_slots=True), **pipeline))

    one = values(num_replicas=1, num_micro_batches=4, sum_groups=2)
    assert_same(values(shard_slots=True), one)
    assert_same(values(num_cells=2), one)


def test_each_slot_is_on_one_replica_and_the_forecast_counts_the_largest_share():
    sharded = program_of(learner_of(), shard_slots=True)
    slots = [{key for key, variable in replica.by_key().items()
              if variable.shape.rank == 2 and variable.device == replica.weights['model/a/w'].device
              and not key.startswith('weights/')} for replica in sharded.replicas]
    assert not slots[0] & slots[1]
    assert sorted(map(len, slots)) == [3, 6]   # two slots and an average of each of three matrices

    whole = program_of(learner_of())
    spared = [one.plan.forecast.footprints[0].fixed for one in (whole, sharded)]
    assert spared[0] - spared[1] == 12 * (D * D + D + D)   # 12 bytes for a matrix and two biases


def test_a_program_goes_on_from_what_another_number_of_replicas_has_left():
    unsharded, sharded = program_of(learner_of()), program_of(learner_of(), shard_slots=True)
    trained(unsharded)
    for key, variable in sharded.variables().items():
        variable.assign(unsharded.variables()[key])
    assert_same(trained(sharded), trained(unsharded))


def test_without_slots_a_program_evaluates_the_same_and_refuses_to_train():
    whole = program_of(learner_of(), shard_slots=True)
    trained(whole)
    reader = program_of(learner_of(), Contents(has_slots=False), shard_slots=True)
    kept = {key for key in whole.variables() if not key.startswith('optimizer/')}
    assert reader.variables().keys() == kept != whole.variables().keys()
    for key, variable in reader.variables().items():
        variable.assign(whole.variables()[key])
    losses = [program.evaluator(SPEC).step(batch_of(9))[0]['loss'] for program in (whole, reader)]
    assert losses[0] == losses[1]
    with pytest.raises(ValueError, match='has no optimizer slots, .* make one with them'):
        reader.train_step(batch_of(0), 0)


def test_assigned_weights_are_followed_by_the_averages_of_all_replicas():
    program = program_of(learner_of(), shard_slots=True)
    for weight in program.weights.values():
        weight.assign_add(tf.ones_like(weight))
    program.placed.follow_weights(())
    for path, weight in program.weights.items():
        np.testing.assert_array_equal(program.variables()[f'ema/{path}'], weight)
