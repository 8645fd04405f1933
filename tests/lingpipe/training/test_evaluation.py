"""Evaluation: the metrics of a data set, the same for any number of replicas."""
from __future__ import annotations

import types

import numpy as np
import pytest
import tensorflow as tf

from lingpipe import layers
from lingpipe.input.arrays import ArrayInput
from lingpipe.layers import Sequential
from lingpipe.learning import learning_rates
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.training.evaluation import Evaluation, Evaluations

N, B, D = 20, 8, 3   # The third of the mini-batches is filled up.


class SeenImages:
    """A review that keeps the images and what the network makes of them, in order."""
    fetch = ('x',)

    def __init__(self) -> None:
        self.seen: list[np.ndarray] = []

    def see(self, batch, fetched) -> None:
        self.seen += [np.asarray(batch['image']), fetched['x'].numpy()]


def arrays_of(labels: dict[int, int]) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    arrays = {'image': random.standard_normal([N, D]).astype(np.float32),
              'labels': random.integers(0, D, N).astype(np.int32)}
    for example, label in labels.items():
        arrays['labels'][example] = label
    return arrays


def program_of(num_replicas: int, shard_slots: bool = False, num_updates: int = 1) -> Program:
    """A program after one update, or none, with moving averages, whose bits do not depend on R."""
    network = Sequential.Params(name='model', layers=(
        layers.Dense.Params(name='hidden', input_dim=D, units=D, reads={'x': 'image'}),
        layers.Dense.Params(name='out', input_dim=D, units=D),
        layers.CrossEntropyLoss.Params(name='loss'))).instantiate('model')
    learner = Learner.Params(learning_rate=learning_rates.Constant.Params(rate=0.1),
                             ema_decay=0.5).instantiate()
    batch = {**{name: array[:B] for name, array in arrays_of({}).items()},
             'weight': np.ones(B, np.float32)}
    spec = {name: tf.TensorSpec(array.shape, array.dtype) for name, array in batch.items()}
    params = PipelineParams(num_cells=2, num_replicas=num_replicas, shard_slots=shard_slots,
                            num_micro_batches=4 // num_replicas)
    program = Program(network, spec, params, learner)
    for step in range(num_updates):
        program.train_step(batch, step)
    return program


def evaluation_of(program: Program, labels: dict[int, int]) -> Evaluation | None:
    source = ArrayInput.of(arrays_of(labels), batch_size=B, shuffle=False,
                           num_epochs=1).instantiate()
    # Evaluations uses nothing else of a task.
    task = types.SimpleNamespace(review=lambda source: SeenImages(),
                                 derived_metrics=lambda metrics: {})
    return Evaluations(program, {'test': source}, task, '').run('test')  # type: ignore[arg-type]


@pytest.fixture(scope='module')
def programs() -> tuple[Program, Program]:
    """The same network in one replica, and in two, each of which keeps some averages."""
    return program_of(1), program_of(2, shard_slots=True)


def test_metrics_and_reviews_are_the_same_to_the_last_bit_for_any_number_of_replicas(programs):
    expected, other = (evaluation_of(program, {}) for program in programs)
    assert other.metrics == expected.metrics
    for value, expected_value in zip(other.review.seen, expected.review.seen, strict=True):
        np.testing.assert_array_equal(value, expected_value)


@pytest.mark.parametrize('num_updates', [0, 1])
def test_weights_that_are_set_are_evaluated_on_every_replica(num_updates):
    """Not only on the first, to which they are assigned."""
    one, two = (program_of(number, num_updates=num_updates) for number in (1, 2))
    for program in (one, two):
        program.replicas_may_differ()
        for variable in program.variables().values():
            variable.assign(variable + variable)
    assert evaluation_of(two, {}).metrics == evaluation_of(one, {}).metrics


def test_an_example_at_fault_is_named_whichever_replica_runs_it(programs):
    _, program = programs
    with pytest.raises(ValueError, match='eval_inputs.test: example 11 of .* has labels 7 but'):
        evaluation_of(program, {11: 7})
