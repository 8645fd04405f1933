"""Variables: the weights of a network with their optimizer slots and moving averages.

Each variable is on the device of the cell that owns the weight.
"""
from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Container, Sequence

import tensorflow as tf

from lingpipe.layers.base import Layer
from lingpipe.layers.weight import Weight
from lingpipe.learning.averaged_layer import AveragedLayer
from lingpipe.learning.layer_learner import LayerLearner
from lingpipe.learning.learner import Learner
from lingpipe.learning.trained_layer import TrainedLayer
from lingpipe.pipeline.planning.cell import Cell
from lingpipe.pipeline.planning.dataflow import owner


@dataclasses.dataclass(frozen=True)
class Contents:
    """What the variables of a program are made with.

    Attributes:
      has_slots: whether there are optimizer slots, so that the weights can train. Without them a
        program takes less memory, reads less of a checkpoint, and can do all else.
      is_initial: whether weights have their initial values. If not they are 0, until a checkpoint
        is read: drawing random numbers takes longer than reading as many.
    """
    has_slots: bool = True
    is_initial: bool = True


TO_TRAIN = Contents()   # a new run


class Variables:
    """All variables that a checkpoint holds, on their devices.

    Attributes:
      weights: path -> variable, of every owned weight. A weight that shares another one has no
        variable of its own.
      cell_of: path -> index of the cell on whose device the weight is.
      trained: layer path -> the layer's weights that train.
      averaged_layers: layer path -> those that this replica updates, with their averages.
      contents: what they are made with.
    """

    def __init__(self, network: Layer, cells: Sequence[Cell], learner: Learner, seed: int,
                 updated: Callable[[str], bool] = lambda path: True,
                 others: Sequence[Variables] = (), contents: Contents = TO_TRAIN):
        """Creates all variables.

        Args:
          network: the layers.
          cells: [K].
          learner: makes slots and averages.
          seed: determines the initial weights.
          updated: path -> whether this replica updates the weight, and so keeps its slots.
          others: the other replicas, of which some keep the slots that this one does not. Only the
            first replica is given them.
          contents: what they are made with.
        """
        self.weights: dict[str, tf.Variable] = {}
        self.cell_of: dict[str, int] = {}
        self.trained: dict[str, TrainedLayer] = {}
        self.averaged_layers: dict[str, AveragedLayer] = {}
        self.contents = contents
        self._others = others
        by_path = {w.path: w for w in network.weights()}

        for cell in cells:
            with tf.device(cell.device):
                for element in cell.elements:
                    for weight in element.layer.weights():
                        if owner(weight, by_path) is weight:
                            self._make(weight, cell, seed)

        # Slots come after all weights, or the temporaries of initial values would leave holes
        # between them, of which later tensors take more than they need.
        for cell in cells:
            with tf.device(cell.device):
                for element in cell.elements:
                    own = {w.path: self.weights[w.path] for w in element.trained
                           if w.shared_with is None}
                    mine = {path: weight for path, weight in own.items() if updated(path)}
                    if own:
                        self.trained[element.layer.path] = learner.trained(own)
                    if mine:
                        path = element.layer.path
                        self.averaged_layers[path] = (
                            learner.for_layer(path, mine, seed) if contents.has_slots
                            else learner.averaged(mine))

    def _make(self, weight: Weight, cell: Cell, seed: int) -> None:
        value = (weight.initial_value(seed) if self.contents.is_initial
                 else tf.zeros(weight.shape, weight.dtype))
        self.weights[weight.path] = tf.Variable(
            value, trainable=weight.is_trainable, name='weight')
        self.cell_of[weight.path] = cell.index

    @functools.cached_property
    def updated(self) -> frozenset[str]:
        """The paths of the weights that this replica updates."""
        return frozenset(path for one in self.averaged_layers.values()
                         for path in one.weights)

    def trained_of(self, cell: Cell) -> list[TrainedLayer]:
        """What trains of a cell's layers, in their order."""
        return [self.trained[element.layer.path] for element in cell.elements
                if element.layer.path in self.trained]

    def learners_of(self, cell: Cell) -> list[LayerLearner]:
        """The learners of a cell's layers, in their order."""
        layers = [self.averaged_layers.get(element.layer.path) for element in cell.elements]
        return [layer for layer in layers if isinstance(layer, LayerLearner)]

    def by_key(self) -> dict[str, tf.Variable]:
        """All variables by their keys in checkpoints, which do not depend on the partition.

        Those of other replicas are among them if this one was given them.
        """
        variables = {f'weights/{path}': variable for path, variable in self.weights.items()}
        for layer in self._all_averaged_layers():
            for key, variable in layer.variables().items():
                variables.setdefault(key, variable)   # This replica's come first.
        return variables

    def _all_averaged_layers(self) -> list[AveragedLayer]:
        return [layer for one in (self, *self._others) for layer in one.averaged_layers.values()]

    def follow_weights(self, but: Container[str]) -> None:
        """Restarts the moving averages from the weights, after other code has assigned these.

        Args:
          but: the keys of variables that the other code has assigned as well, and that stay as
            they are.
        """
        for layer in self._all_averaged_layers():
            layer.follow_weights(but, self.weights)

    def averaged(self) -> dict[str, tf.Variable]:
        """path -> the variable that evaluation uses.

        This is the moving average where the learner keeps one, and the weight otherwise.
        """
        return {**self.weights, **self.averages()}

    def averages(self) -> dict[str, tf.Variable]:
        """path -> moving average, of the weights of which this replica knows one."""
        return {path: average for one in self._all_averaged_layers()
                for path, average in one.ema().items()}

    def evaluated(self) -> dict[str, tf.Tensor]:
        """path -> the value that evaluation uses, in the dtype of the weight."""
        averaged = self.averaged()
        return {path: self._read(path, averaged) for path in self.weights}

    def reader(self, cell: Cell,
               variables: dict[str, tf.Variable]) -> Callable[[str], tf.Tensor | None]:
        """Returns a function: path -> an op that reads a weight of `cell` from `variables`.

        For a weight that is elsewhere, that function returns None.
        """
        elsewhere = self.elsewhere(cell, variables)
        return lambda path: None if path in elsewhere else self._read(path, variables)

    def elsewhere(self, cell: Cell, variables: dict[str, tf.Variable]) -> list[str]:
        """The paths of the weights, as owned, that a cell reads from other devices.

        Other cells own them, or other replicas keep their averages.
        """
        owned = _owned_by(cell)
        return [path for path in _used_by(cell)
                if path not in owned or variables[path].device != self.weights[path].device]

    def read_by(self, cell: Cell, variables: dict[str, tf.Variable]) -> list[tf.Variable]:
        """Those of `variables` that the reader of a cell may read, in the order of its weights."""
        elsewhere = self.elsewhere(cell, variables)
        return [variables[path] for path in _used_by(cell) if path not in elsewhere]

    def shared_reader(self, variables: dict[str, tf.Variable]) -> Callable[[str], tf.Tensor]:
        """Returns a function: path -> an op that reads a weight on the device where it is."""
        def read(path: str) -> tf.Tensor:
            with tf.device(variables[path].device):
                return self._read(path, variables)
        return read

    def _read(self, path: str, variables: dict[str, tf.Variable]) -> tf.Tensor:
        """Reads in the dtype of the weight; its average may be kept in a wider one."""
        variable, dtype = variables[path], self.weights[path].dtype
        value = tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)
        return value if variable.dtype == dtype else tf.cast(value, dtype)


def _used_by(cell: Cell) -> list[str]:
    """The paths, as owned, of the weights that layers of a cell use, in their order."""
    return list(dict.fromkeys(weight.shared_with or weight.path for element in cell.elements
                              for weight in element.layer.weights()))


def _owned_by(cell: Cell) -> set[str]:
    """The paths of the weights that layers of a cell own. The cell need not be one of training."""
    return {weight.path for element in cell.elements for weight in element.layer.weights()
            if weight.shared_with is None}
