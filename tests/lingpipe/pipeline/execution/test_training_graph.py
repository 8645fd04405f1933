"""Training graph: mini-batches of all shapes share accumulators, whichever shape comes first."""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from lingpipe import layers
from lingpipe.layers import Sequential
from lingpipe.layers.base import Layer
from lingpipe.learning import learning_rates
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.planning.pipeline_params import PipelineParams


def batch(size: int) -> dict[str, np.ndarray]:
    return {name: np.ones([size, 3], np.float32) for name in ('x', 'target')}


def program(*extra: Layer.Params, devices: Sequence[str] = ()) -> Program:
    network = Sequential.Params(name='model', layers=(
        layers.Dense.Params(name='dense', input_dim=3, units=3), *extra,
        layers.MeanSquaredErrorLoss.Params(name='loss')))
    specs = [{name: tf.TensorSpec(value.shape) for name, value in batch(size).items()}
             for size in (8, 4)]
    learner = Learner.Params(
        learning_rate=learning_rates.Constant.Params(rate=0.01)).instantiate()
    return Program(network.instantiate('model'), specs, PipelineParams(num_micro_batches=2),
                   learner, devices=devices)


def test_it_does_not_matter_which_shape_is_traced_first():
    plain, other_first = program(), program()
    other_first.accumulate(batch(4), 0, 0)
    assert plain.sent_bytes() == other_first.sent_bytes()
    ops = [sorted(op.type for op in one.step_graph().get_operations())
           for one in (plain, other_first)]
    assert ops[0] == ops[1]


def test_results_come_with_the_step_and_are_not_asked_for_one_by_one():
    """A worker grew by 19 kB a step, since TensorFlow keeps a kernel for each value asked for."""
    results = program(devices=['/device:CPU:1']).train_step(batch(8), 0)
    assert {value.device.rpartition('/')[2] for value in results.values()} == {'device:CPU:0'}
