"""Keras words: who writes what Keras takes is told where it is here."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import pytest

import lingpipe as lp


@pytest.mark.parametrize(('make', 'words'), [
    (lambda: lp.TrainParams(epochs=3), r"Keras' epochs is train.num_steps, which counts updates"),
    (lambda: lp.Experiment.Params(callbacks=[]), "Keras' callbacks is hooks of the experiment"),
    (lambda: lp.Problem.Params(loss='mse'), "Keras' loss is the last layer of the network"),
    (lambda: lp.Learner.Params(optimizer='adam'),
     r"optimizer='adam' is of type str, not Optimizer.Params; write Adam.Params\(\)"),
    (lambda: lp.Learner.Params(optimizer=keras.optimizers.SGD()),
     r'is of type SGD, not Optimizer.Params; write SGD.Params\(\) of lingpipe.learning.optimizers'),
    (lambda: lp.Learner.Params().override('optimizer', 'adam'),
     "'adam' is not the name of a class; write lingpipe.learning.optimizers:Adam"),
    (lambda: lp.Learner.Params(learning_rate=0.1),
     r'of type Schedule.Params, as learning_rates.Constant.Params\(rate=0.1\)'),
    (lambda: lp.Learner.Params().override('learning_rate', '0.1'),
     r'of type Schedule.Params, as learning_rates.Constant.Params\(rate=0.1\)'),
    (lambda: lp.hooks.EarlyStopping.Params(monitor='accuracy'),
     r"Keras' monitor is metric of hooks.EarlyStopping.Params\(\)"),
    (lambda: lp.Experiment.Params(hooks=lp.hooks.EarlyStopping.Params()),
     r'is one item, not tuple.*; put it into brackets: \[EarlyStopping.Params\(\)\]'),
    (lambda: lp.layers.Dense.Params(64),
     'Dense.Params was given 64 without a name; give every value by its name: name, reads'),
])
def test_an_argument_of_keras_is_told_its_place(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()
