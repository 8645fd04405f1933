"""State update: what a layer sets from what it saw is its own."""
from __future__ import annotations

import re

import numpy as np
import pytest

from lingpipe import layers
from lingpipe.layers import Sequential
from lingpipe.learning import learning_rates
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from tests.lingpipe.pipeline.execution.test_update import D, Linear, batch_of, spec_of


def test_state_that_a_layer_updates_is_not_shared():
    norms = [layers.BatchNorm.Params(name=name, dim=D) for name in ('a', 'b')]
    norms[1].share = {'moving_mean': 'model/a/moving_mean'}
    network = Sequential.Params(name='model',
                                layers=(*norms, Linear.Params(name='loss'))).instantiate('model')
    batch, learn = (
        batch_of(np.ones([4, D])),
        Learner.Params(learning_rate=learning_rates.Constant.Params(rate=0.5)).instantiate())
    for num_cells in (1, 3):
        program = Program(network, spec_of(batch), PipelineParams(num_cells=num_cells), learn)
        sentence = ("model/b/moving_mean shares model/a/moving_mean, but model/b updates it in "
                    "every step from what it sees itself, so that it can belong to one layer only; "
                    "take 'moving_mean' out of its Params.share.")
        with pytest.raises(ValueError, match=re.escape(sentence) + '$'):
            program.train_step(batch, 0)
