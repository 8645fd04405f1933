"""Keras models: a Sequential or Functional model of Keras as a network, and its weights back.

    network = lp.from_keras(model)        Params of a network that a pipeline may cut anywhere
    to_keras(network, weights)            the model, with trained weights

The files:

    graph.py         the calls of layers in a model, those of nested models among them
    names.py         names of layers that do not depend on what the process has made before
    keras_model.py   KerasModel: the network, which knows its inputs and outputs
    likeness.py      whether a configuration holds all that a layer, loss or metric is
    probe.py         whether a layer, operation or loss lets examples see each other
    logits.py        those of which outputs are the softmax or sigmoid
    conversion.py    from_keras
    weights.py       to_keras
    compiled.py      what model.compile says of losses and metrics
    compiled_learner.py   what it says of the optimizer
    keras_loss.py    KerasLoss
"""
from lingpipe.keras_models.compiled_learner import learner_from_keras
from lingpipe.keras_models.conversion import from_keras
from lingpipe.keras_models.keras_loss import KerasLoss
from lingpipe.keras_models.keras_model import KerasModel
from lingpipe.keras_models.weights import to_keras

__all__ = ['KerasLoss', 'KerasModel', 'from_keras', 'learner_from_keras', 'to_keras']
