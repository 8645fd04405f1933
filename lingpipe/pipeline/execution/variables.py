"""Variables: the weights of a network with their optimizer slots and moving averages.

Each variable is on the device of the cell that owns the weight.
"""
from __future__ import annotations

from collections.abc import Callable, Container, Sequence

import tensorflow as tf

from lingpipe.layers.base import Layer
from lingpipe.layers.weight import Weight
from lingpipe.learning.layer_learner import LayerLearner
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.planning.cell import Cell
from lingpipe.pipeline.planning.dataflow import owner


class Variables:
    """All variables that a checkpoint holds, on their devices.

    Attributes:
      weights: path -> variable, of every owned weight. A weight that shares another one has no
        variable of its own.
      cell_of: path -> index of the cell on whose device the weight is.
      learners: layer path -> the learner of the layer's trained weights.
    """

    def __init__(self, network: Layer, cells: Sequence[Cell], learner: Learner, seed: int):
        """Creates all variables; `seed` determines the initial weights."""
        self.weights: dict[str, tf.Variable] = {}
        self.cell_of: dict[str, int] = {}
        self.learners: dict[str, LayerLearner] = {}
        self._cells = cells
        by_path = {w.path: w for w in network.weights()}

        for cell in cells:
            with tf.device(cell.device):
                for element in cell.elements:
                    for weight in element.layer.weights():
                        if owner(weight, by_path) is weight:
                            self._make(weight, cell, seed)

                    own = {w.path: self.weights[w.path] for w in element.trained
                           if w.shared_with is None}
                    if own:
                        self.learners[element.layer.path] = learner.for_layer(
                            element.layer.path, own)

    def _make(self, weight: Weight, cell: Cell, seed: int) -> None:
        self.weights[weight.path] = tf.Variable(
            weight.initial_value(seed), trainable=weight.is_trainable, name='weight')
        self.cell_of[weight.path] = cell.index

    def learners_of(self, cell: Cell) -> list[LayerLearner]:
        """The learners of a cell's layers, in their order."""
        return [self.learners[element.layer.path] for element in cell.elements
                if element.layer.path in self.learners]

    def by_key(self) -> dict[str, tf.Variable]:
        """All variables by their keys in checkpoints, which do not depend on the partition."""
        variables = {f'weights/{path}': variable for path, variable in self.weights.items()}
        for learner in self.learners.values():
            variables.update(learner.variables())
        return variables

    def follow_weights(self, but: Container[str]) -> None:
        """Restarts the moving averages from the weights, after other code has assigned these.

        Args:
          but: the keys of variables that the other code has assigned as well, and that stay as
            they are.
        """
        for learner in self.learners.values():
            learner.follow_weights(but)

    def averaged(self) -> dict[str, tf.Variable]:
        """path -> the variable that evaluation uses.

        This is the moving average where the learner keeps one, and the weight otherwise.
        """
        return {**self.weights, **{path: average for one in self.learners.values()
                                   for path, average in one.ema().items()}}

    def evaluated(self) -> dict[str, tf.Tensor]:
        """path -> the value that evaluation uses, in the dtype of the weight."""
        averaged = self.averaged()
        return {path: self._read(path, averaged) for path in self.weights}

    def reader(self, cell: Cell,
               variables: dict[str, tf.Variable]) -> Callable[[str], tf.Tensor | None]:
        """Returns a function: path -> an op that reads a weight of `cell` from `variables`.

        For a weight that no layer of the cell owns, that function returns None.
        """
        owned = _owned_by(cell)
        return lambda path: self._read(path, variables) if path in owned else None

    def read_by(self, cell: Cell, variables: dict[str, tf.Variable]) -> list[tf.Variable]:
        """Those of `variables` that the reader of a cell may read, in the order of its weights."""
        weights = [weight for element in cell.elements for weight in element.layer.weights()]
        paths = dict.fromkeys(weight.shared_with or weight.path for weight in weights)
        owned = _owned_by(cell)
        return [variables[path] for path in paths if path in owned]

    def shared_reader(self, variables: dict[str, tf.Variable]) -> Callable[[str], tf.Tensor]:
        """Returns a function: path -> an op that reads a shared weight on its owner's device."""
        def read(path: str) -> tf.Tensor:
            with tf.device(self._cells[self.cell_of[path]].device):
                return self._read(path, variables)
        return read

    def _read(self, path: str, variables: dict[str, tf.Variable]) -> tf.Tensor:
        """Reads in the dtype of the weight; its average may be kept in a wider one."""
        variable, dtype = variables[path], self.weights[path].dtype
        value = tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)
        return value if variable.dtype == dtype else tf.cast(value, dtype)


def _owned_by(cell: Cell) -> set[str]:
    """The paths of the weights that layers of a cell own. The cell need not be one of training."""
    return {weight.path for element in cell.elements for weight in element.layer.weights()
            if weight.shared_with is None}
