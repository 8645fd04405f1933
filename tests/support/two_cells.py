"""Two cells: a small compiled pipeline on two devices, whose second cell fails on large values."""
from __future__ import annotations

import numpy as np
import tensorflow as tf

from lingpipe import layers
from lingpipe.cluster import HOME
from lingpipe.layers import Sequential
from lingpipe.learning import learning_rates
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution.accumulators import Accumulators
from lingpipe.pipeline.execution.compiled_pipeline import CompiledPipeline, compile_pipeline
from lingpipe.pipeline.execution.forward_trace import TracingOptions
from lingpipe.pipeline.execution.task_values import ReplicaBatch
from lingpipe.pipeline.execution.variables import Variables
from lingpipe.pipeline.planning.cell import Cell
from lingpipe.pipeline.planning.dataflow import wire
from lingpipe.pipeline.planning.fitting_modes import Recomputation
from lingpipe.pipeline.planning.schedules import make_schedule
from tests.support.toy_layers import FailAbove

B, M = 4, 2


def make_pipeline(schedule: str = '1f1b') -> CompiledPipeline:
    """Compiles a Dense layer on one device and the loss on another, for training."""
    network = Sequential.Params(name='model', layers=(
        layers.Dense.Params(name='in', input_dim=3, units=3), FailAbove.Params(name='fails'),
        layers.MeanSquaredErrorLoss.Params(name='loss'))).instantiate('model')
    spec = {'x': tf.TensorSpec([B // M, 3]), 'target': tf.TensorSpec([B // M, 3])}
    elements = wire(network, spec)
    cells = [Cell(0, elements[:1], '/device:CPU:0'), Cell(1, elements[1:], '/device:CPU:1')]
    learner = Learner.Params(
        learning_rate=learning_rates.Constant.Params(rate=0.01)).instantiate()
    trained = {0: elements[0].trained, 1: ()}
    return compile_pipeline(
        make_schedule(schedule, 2, M), cells, Variables(network, cells, learner, 0),
        TracingOptions(training=True, recomputation=Recomputation(('cell', 'cell'))),
        lambda cell, layout: Accumulators(cell.device, trained[cell.index], layout))


def given(x: float = 1.) -> ReplicaBatch:
    """Returns a mini-batch of the first step, all of whose inputs are x."""
    values = {'x': tf.fill([B, 3], x), 'target': tf.zeros([B, 3])}
    return ReplicaBatch({HOME: values}, tf.constant(0, tf.int64), tf.constant(0))


def sums(pipeline: CompiledPipeline) -> list[np.ndarray]:
    """Returns what the tasks have added up, and resets the accumulators."""
    found = [variable.numpy() for one in pipeline.accumulators for variable in one.variables()]
    for one in pipeline.accumulators:
        one.reset()
    return found
