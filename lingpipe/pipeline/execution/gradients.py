"""Gradients: those of the weights of one replica, summed over micro-batches, where they are needed.

A weight has a gradient from every cell that uses it. They are added on the device of the cell that
owns the weight, in the order of the network.
"""
from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping, Sequence

import tensorflow as tf

from lingpipe.learning.gradient import Gradient, added, of_shape, scaled
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution.accumulators import Accumulators
from lingpipe.pipeline.execution.compiled_task import CompiledTask
from lingpipe.pipeline.execution.placed import placed
from lingpipe.pipeline.execution.variables import Variables
from lingpipe.pipeline.planning.cell import Cell

# Identifies a gradient: the index of the cell that computes it, and the path of the weight as that
# cell's layer calls it.
Use = tuple[int, str]


def uses_of(cells: Iterable[Cell]) -> dict[str, list[Use]]:
    """Path of an owned weight -> its gradients, in the order of the network."""
    uses: dict[str, list[Use]] = {}
    for cell in cells:
        for element in cell.elements:
            for weight in element.trained:
                owner = weight.shared_with or weight.path
                uses.setdefault(owner, []).append((cell.index, weight.path))
    return uses


def reached_weights(cells: Iterable[Cell],
                    tasks: Mapping[tuple[str, int], CompiledTask]) -> frozenset[str]:
    """The paths of the owned weights for which some task computes a gradient."""
    differentiated = {(k, path) for (_, k), task in tasks.items() for path in task.differentiated}
    return frozenset(path for path, uses in uses_of(cells).items()
                     if differentiated.intersection(uses))


class Gradients:
    """The gradients of one replica, from its accumulators.

    Attributes:
      uses: path of an owned weight -> its gradients; see uses_of.
    """

    def __init__(self, cells: Sequence[Cell], accumulators: Sequence[Accumulators],
                 variables: Variables, learner: Learner):
        self._cells, self._accumulators, self._variables, self._learner = (
            cells, accumulators, variables, learner)
        self.uses = uses_of(cells)

    def unreached(self, reached: Collection[str]) -> list[str]:
        """The paths of trained weights without a gradient."""
        return [path for path in self.uses if path not in reached]

    def foreign(self, last: Sequence[tf.Operation]) -> dict[Use, Gradient]:
        """Reads the gradients of weights that other cells own, after the last op of every device.

        Norm and update both take this result, so that each gradient is sent to its owner once.
        """
        return {use: self._read(use, last)
                for path, uses in self.uses.items() for use in uses if self._is_foreign(path, use)}

    def foreign_of(self, cell: Cell, foreign: Mapping[Use, Gradient]) -> dict[str, Gradient]:
        """Those of `foreign` that are of weights of this cell, by keys for `mean`."""
        return {_key(path, use): foreign[use] for path, uses in self.uses.items()
                for use in uses if self._variables.cell_of[path] == cell.index and use in foreign}

    def mean(self, path: str, inverse_weight: tf.Tensor,
             foreign: Mapping[str, Gradient]) -> Gradient:
        """The gradient of an owned weight, with the learner's regularization.

        The gradients of its uses are added in the order of the network and divided by the total
        weight.
        """
        weight = self._variables.weights[path]
        of_uses = [foreign[_key(path, use)] if self._is_foreign(path, use)
                   else self._accumulators[use[0]].gradient(use[1]) for use in self.uses[path]]
        total = functools.reduce(added, [of_shape(one, weight.shape) for one in of_uses])
        gradient = self._learner.regularized(path, scaled(total, inverse_weight), weight)
        assert gradient is not None
        return gradient

    def means(self, inverse_weight: tf.Tensor, last: Sequence[tf.Operation],
              foreign: dict[Use, Gradient], reached: Collection[str]
              ) -> tuple[dict[str, tf.Tensor], list[tf.Operation]]:
        """Reads the mean gradients of all owned weights, after the last op of every device.

        Returns:
          The dense gradients by path, each on the device of its weight, and [K] the ops after which
          all of a cell are read.
        """
        def of(cell: Cell, inverse_weight: tf.Tensor,
               foreign: dict[str, Gradient]) -> dict[str, tf.Tensor]:
            return {path: tf.convert_to_tensor(self.mean(path, inverse_weight, foreign))
                    for layer in self._variables.trained_of(cell)
                    for path in layer.weights if path in reached}

        by_path: dict[str, tf.Tensor] = {}
        read = []
        for cell, op in zip(self._cells, last, strict=True):
            with tf.device(cell.device), tf.control_dependencies([op]):
                of_cell = placed(lambda *a, c=cell: of(c, *a))(
                    inverse_weight, self.foreign_of(cell, foreign))
                read.append(tf.group(op, *of_cell.values()))
            by_path.update(of_cell)
        return by_path, read

    def variables_of(self, path: str) -> list[tf.Variable]:
        """The accumulators of the gradients of an owned weight."""
        return [variable for k, used in self.uses[path]
                for variable in self._accumulators[k].of_gradient(used)]

    def _is_foreign(self, path: str, use: Use) -> bool:
        return use[0] != self._variables.cell_of[path]

    def _read(self, use: Use, last: Sequence[tf.Operation]) -> Gradient:
        k, path = use
        with tf.device(self._cells[k].device), tf.control_dependencies([last[k]]):
            return tf.identity(self._accumulators[k].gradient(path))


def _key(path: str, use: Use) -> str:
    return f'{path}\n{use[1]}'
