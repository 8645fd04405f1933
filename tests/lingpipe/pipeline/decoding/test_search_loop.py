"""Search loop: it ends as soon as it can, and loops of several groups run side by side."""
from __future__ import annotations

import threading

import numpy as np
import tensorflow as tf

from lingpipe import layers
from lingpipe.hyperparams import REQUIRED, field
from lingpipe.layers.base import Layer
from lingpipe.layers.cost import Cost
from lingpipe.learning import learning_rates, optimizers
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.decoding.decoder import Decoder
from lingpipe.pipeline.decoding.sentence_group import SentenceGroup
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from tests.lingpipe.pipeline.decoding import test_decoder
from tests.lingpipe.pipeline.decoding.test_decoder import BEAM, END, GREEDY, LIMIT, START, D, S, V


def test_stops_when_no_unfinished_hypothesis_can_win():
    program = test_decoder.make_program(test_decoder.network())
    program.weights['model/softmax/b'].assign(np.where(np.arange(V) == END, 15., 0.))
    (ids, _), = Decoder(program, BEAM.copy().set(max_length=200), START, END).decode(
        [SentenceGroup({'source': test_decoder.sentences()}, [200] * 6)])
    assert ids.shape[1] < 4


class Meeting:
    """A point where steps of two cells must meet.

    They are the second step of cell 0, which belongs to another sentence group, and the first step
    of cell 1.
    """

    def __init__(self):
        self.lock, self.entered, self.are_both_inside = (
            threading.Lock(), {0: 0, 1: 0}, threading.Event())

    def enter(self, cell: int) -> None:
        with self.lock:
            self.entered[cell] += 1
            number = self.entered[cell]
            if self.entered[0] > 1 and self.entered[1]:
                self.are_both_inside.set()
        if number == 2 - cell:
            assert self.are_both_inside.wait(60), (
                f'cell {1 - cell} makes no step while cell {cell} does')


class Meet(Layer):
    """Returns x, after a meeting."""

    class Params(Layer.Params):
        cell: int = field(REQUIRED, 'The cell of this layer.')

    is_positionwise = True
    meeting: Meeting

    def fprop(self, theta, ctx, x):
        def enter(x):
            Meet.meeting.enter(self.params.cell)
            return x
        return tf.ensure_shape(tf.numpy_function(enter, [x], x.dtype, stateful=False), x.shape)

    def cost(self, x):
        return Cost(0, 0, x)


def test_a_cell_makes_a_step_of_one_group_while_another_cell_makes_one_of_another():
    model = layers.Sequential.Params(name='model', layers=(
        layers.Embedding.Params(name='embedding', vocab_size=V, dim=D, reads={'ids': 'target'}),
        Meet.Params(name='first', cell=0),
        Meet.Params(name='second', cell=1),
        layers.Logits.Params(name='softmax', input_dim=D, vocab_size=V, writes='logits'),
        layers.CrossEntropyLoss.Params(
            name='loss', reads={'x': 'logits', 'labels': 'label'}))).instantiate('model')
    spec = {'target': tf.TensorSpec([2, S], tf.int32),
            'label': tf.TensorSpec([2, S], tf.int32),
            'weight': tf.TensorSpec([2, S])}
    learner = Learner.Params(optimizer=optimizers.SGD.Params(),
                             learning_rate=learning_rates.Constant.Params(rate=0.1)).instantiate()
    program = Program(model, spec, PipelineParams(num_cells=2, layers_per_cell=(2, 3)), learner)
    Meet.meeting = Meeting()
    Decoder(program, GREEDY, START, END).decode(
        [SentenceGroup({}, [LIMIT] * 2), SentenceGroup({}, [LIMIT] * 3)])
    assert Meet.meeting.are_both_inside.is_set()
