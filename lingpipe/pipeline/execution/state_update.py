"""State update: the weights that layers set from what they emitted, such as moving moments."""
from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from lingpipe.layers import nested
from lingpipe.pipeline.execution.emission_layout import Merged
from lingpipe.pipeline.planning.cell import Cell


def update_state(cell: Cell, merged: Merged, weights: Mapping[str, tf.Variable]) -> None:
    """Assigns the weights that the layers of a cell update from what they emitted in a step.

    Args:
      cell: the cell.
      merged: what its layers emitted, merged over micro-batches and replicas.
      weights: those of the replica, by path.

    Raises:
      ValueError: such a weight is shared.
    """
    layers = {layer.path: layer for e in cell.elements for layer in e.layer.layers()}
    for (path, name), value in [*merged.moments.items(), *merged.means.items(),
                                *merged.states.items()]:
        layer = layers[path]
        state = nested.NestedMap({own: weights[w.shared_with or w.path].read_value()
                                  for own, w in layer.own_weights.items()
                                  if (w.shared_with or w.path) in weights})

        for own, new in layer.updated_state(name, state, value).items():
            weight = layer.own_weights[own]
            if weight.shared_with is not None:
                raise ValueError(
                    f'{weight.path} shares {weight.shared_with}, but {layer.path} updates it '
                    f'in every step from what it sees itself, so that it can belong to one '
                    f'layer only; take {own!r} out of its Params.share.')
            weights[weight.path].assign(new)
