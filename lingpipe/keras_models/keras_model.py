"""KerasModel: a network that was made of a Keras model."""
from __future__ import annotations

from typing import TYPE_CHECKING, Self

from lingpipe.hyperparams import field
from lingpipe.layers.base import Layer
from lingpipe.layers.sequential import Sequential

if TYPE_CHECKING:
    import keras

_MODEL = '_keras_model'  # Of Params: what is no field, since no text holds it.


class KerasModel(Sequential):
    """The layers of a Keras model in order, and perhaps its losses.

    A weight that several layers share is that of the first of them. Params.share of the others
    names it from this network on, `encoder/dense/kernel`, so that the network may have any name.
    """

    class Params(Sequential.Params):
        """The layers, and what goes in and out."""
        inputs: tuple[str, ...] = field((), "The values that are the Keras model's inputs.")
        outputs: tuple[str, ...] = field((), "The values that are the Keras model's outputs.")

        @property
        def keras_model(self) -> keras.Model | None:
            """The Keras model that these Params were made of; None if they were read from text."""
            return vars(self).get(_MODEL)

        def with_keras_model(self, model: keras.Model) -> Self:
            """Sets `keras_model`; returns the Params."""
            vars(self)[_MODEL] = model
            return self

        def copy(self) -> Self:
            """A deep copy, not frozen, with no parent, of the same Keras model."""
            return super().copy().with_keras_model(self.keras_model)

        __copy__ = copy

    params: Params

    def __init__(self, params: Params, path: str = ''):
        path = path or params.name or 'kerasmodel'
        p = params.copy()
        for _, nested in p.walk():
            if isinstance(nested, Layer.Params):
                nested.share = {name: f'{path}/{owner}' for name, owner in nested.share.items()}
        super().__init__(p, path)
        # The Params as they were given, so that they can be compared, and instantiated again.
        self.params = params if params.is_frozen else params.copy().freeze()

    def output_names(self) -> tuple[str, ...]:
        """The values that are the Keras model's outputs."""
        return self.params.outputs
