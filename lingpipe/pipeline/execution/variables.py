"""Variables: the weights of a network with their slots and averages, each on the device of the cell that owns it."""
from __future__ import annotations

from collections.abc import Callable, Container, Sequence

import tensorflow as tf

from lingpipe.layers.base import Layer, Weight
from lingpipe.learning.learner import LayerLearner, Learner
from lingpipe.pipeline.planning.cell import Cell
from lingpipe.pipeline.planning.dataflow import owner


class Variables:
    """What a checkpoint holds, placed.

    Attributes:
      weights: path -> variable, of every weight that is owned (a shared one stands in its owner's place).
      cell_of: path -> index of the cell whose device it is on.
      learners: layer path -> the learner of its trained weights.
    """

    def __init__(self, network: Layer, cells: Sequence[Cell], learner: Learner, seed: int):
        """Makes them all; seed gives the initial weights."""
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
                    own = {w.path: self.weights[w.path] for w in element.trained if w.shared_with is None}
                    if own:
                        self.learners[element.layer.path] = learner.for_layer(element.layer.path, own)

    def _make(self, weight: Weight, cell: Cell, seed: int) -> None:
        self.weights[weight.path] = tf.Variable(weight.initial_value(seed), trainable=weight.is_trainable, name='weight')
        self.cell_of[weight.path] = cell.index

    def by_key(self) -> dict[str, tf.Variable]:
        """All of them by the keys of checkpoints, which do not depend on the partition."""
        made = {f'weights/{path}': variable for path, variable in self.weights.items()}
        for learner in self.learners.values():
            made.update(learner.variables())
        return made

    def follow_weights(self, but: Container[str]) -> None:
        """Starts averages again from weights that other code has assigned; `but`: keys of what it has assigned too."""
        for learner in self.learners.values():
            learner.follow_weights(but)

    def averaged(self) -> dict[str, tf.Variable]:
        """path -> the variable that evaluation uses: the moving average where the learner keeps one."""
        return {**self.weights, **{path: average for one in self.learners.values() for path, average in one.ema().items()}}

    def reader(self, cell: Cell, variables: dict[str, tf.Variable]) -> Callable[[str], tf.Tensor | None]:
        """A function that makes the op which reads a weight of `cell` out of `variables`, or None for another cell's."""
        return lambda path: self._read(path, variables) if self.cell_of[path] == cell.index else None

    def shared_reader(self, variables: dict[str, tf.Variable]) -> Callable[[str], tf.Tensor]:
        """A function that makes the op which reads a shared weight out of `variables`, on its owner's device."""
        def read(path: str) -> tf.Tensor:
            with tf.device(self._cells[self.cell_of[path]].device):
                return self._read(path, variables)
        return read

    def _read(self, path: str, variables: dict[str, tf.Variable]) -> tf.Tensor:
        """Reads in the dtype of the weight, of which an average may be more exact."""
        variable, dtype = variables[path], self.weights[path].dtype
        value = tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)
        return value if variable.dtype == dtype else tf.cast(value, dtype)
