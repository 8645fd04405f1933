"""Optimizer: what a user's own Keras class would do in the Learner's place is not ignored."""
from __future__ import annotations

import keras
import pytest

from lingpipe.learning.optimizer import Optimizer
from tests.support.learners import learner


def _made_with(**arguments: object) -> Optimizer.Params:
    """An optimizer whose Keras class gives itself these arguments."""
    class OwnSGD(keras.optimizers.SGD):
        """Keras' with more arguments."""

        def __init__(self, learning_rate, name):
            super().__init__(learning_rate=learning_rate, name=name, **arguments)

    class Own(Optimizer):
        """OwnSGD, as Params describe it."""
        keras_class = OwnSGD

    return Own.Params()


class OwnAdamW(Optimizer):
    """Keras' AdamW, without a field for its weight decay, which is 0.004 then."""
    keras_class = keras.optimizers.AdamW


@pytest.mark.parametrize(('name', 'value', 'remedy'), [
    ('weight_decay', 0.1, 'set weight_decay of the learner, or give'),
    ('clipnorm', 0.1, 'leave it out, and set clip_norm of the learner'),
    ('global_clipnorm', 0.1, 'leave it out, and set clip_norm of the learner'),
    ('clipvalue', 0.1, 'leave it out, and set clip_norm of the learner'),
    ('use_ema', True, 'leave it out, and set ema_decay'),
    ('loss_scale_factor', 8.0, 'leave it out: losses are not scaled'),
    ('gradient_accumulation_steps', 2, 'leave it out, and set accumulate')])
def test_an_argument_in_whose_place_the_learner_acts_is_refused(name, value, remedy):
    with pytest.raises(ValueError, match=f'OwnSGD has {name}={value}, which would be ignored.*; '
                                         f'{remedy}'):
        learner(optimizer=_made_with(**{name: value}))


def test_a_default_weight_decay_of_keras_is_refused_unless_the_learner_has_one():
    with pytest.raises(ValueError, match=r'keras\.optimizers\.AdamW has weight_decay=0\.004'):
        learner(optimizer=OwnAdamW.Params())
    learner(optimizer=OwnAdamW.Params(), weight_decay=0.1)
