"""State update: what a layer sets from what it saw is its own."""
from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe import layers
from lingpipe.layers import Sequential
from lingpipe.layers.base import Layer
from lingpipe.layers.context import Context
from lingpipe.layers.nested import NestedMap
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


class Watching(Layer):
    """Emits the mean of its input as `first` and as `second`; returns the input."""

    def __init__(self, params: Layer.Params, path: str = ''):
        super().__init__(params, path)
        self.add_weight('seen', [D], 'zeros', is_trainable=False)
        self.add_weight('scale', [D], 'ones')

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor) -> tf.Tensor:
        for name in ('first', 'second'):
            ctx.emit_mean(self.path, name, tf.reduce_mean(x, 0), 1.)
        return x * theta.scale


def step_of(updated_state: Any, weight: str = 'seen', frozen: str = '') -> np.ndarray:
    """Makes a step with a layer that has this updated_state(self, name, state, value).

    Returns:
      Its weight of the name `weight` after the step.
    """
    kind = type('Watched', (Watching,), {'updated_state': updated_state})
    network = Sequential.Params(name='model', layers=(
        kind.Params(name='watched'), Linear.Params(name='loss'))).instantiate('model')
    batch = batch_of(np.ones([4, D]))
    learn = Learner.Params(learning_rate=learning_rates.Constant.Params(rate=0.5),
                           frozen=frozen).instantiate()
    program = Program(network, spec_of(batch), PipelineParams(num_cells=1), learn)
    program.train_step(batch, 0)
    found: np.ndarray = program.weights[f'model/watched/{weight}'].numpy()
    return found


@pytest.mark.parametrize('result, sentence', [
    (lambda mean: {'scale': mean}, "sets 'scale', but the optimizer does too, since it is "
                                   "trainable; declare it with add_weight('scale', ..., "
                                   'is_trainable=False).'),
    (lambda mean: {'sen': mean}, "sets 'sen', which is no weight of its own; did you mean 'seen'?"),
    (lambda mean: mean, "returns SymbolicTensor for 'first', but must return a dict of new values "
                        "by weight; write return {'NAME': value}."),
    (lambda mean: None, "returns NoneType for 'first', but must return a dict"),
    (lambda mean: {'seen': tf.reduce_sum(mean)}, f"gives 'seen' a value of float32 (), but the "
                                                 f'weight is float32 ({D},); return a tensor'),
    (lambda mean: {'seen': tf.cast(mean, tf.float64)}, "gives 'seen' a value of float64"),
    (lambda mean: {'seen': None}, "gives 'seen' a value of NoneType"),
])
def test_a_layer_sets_only_own_weights_that_do_not_train(result: Any, sentence: str) -> None:
    """A value for a weight that trains was taken over the optimizer's without a word."""
    sentence = f'model/watched: updated_state of Watched {sentence}'
    with pytest.raises(ValueError, match=re.escape(sentence)):
        step_of(lambda self, name, state, value: result(value))


def test_a_layer_sets_a_weight_that_is_frozen() -> None:
    """It was refused, as if the optimizer set it too."""
    scale = step_of(lambda self, name, state, value: {'scale': 3 * value}, 'scale', frozen='scale')
    assert np.array_equal(scale, np.full([D], 3.))


def test_an_emission_may_set_nothing_and_a_number_of_numpy_is_taken() -> None:
    step_of(lambda self, name, state, value: {'seen': np.zeros([D])} if name == 'first' else {})


def test_an_emission_finds_what_the_one_before_has_set() -> None:
    seen = step_of(lambda self, name, state, value: {'seen': 2 * state.seen + value})
    assert np.array_equal(seen, np.full([D], 2 * 1. + 1.))


def test_a_layer_that_emits_statistics_is_asked_for_updated_state() -> None:
    sentence = ("model/watched emits 'first' for weights; give it updated_state(self, name, state, "
                'value).')
    with pytest.raises(NotImplementedError, match=re.escape(sentence)):
        step_of(Watching.updated_state)
