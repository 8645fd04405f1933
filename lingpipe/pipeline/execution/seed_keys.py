"""Seed keys: what randomness depends on besides the position, as captured tensors of a trace.

The obvious way is a constant in the graph, since a key depends only on the experiment's seed and
the path of the layer. But then the graphs of cells that are alike would differ in it
(alike_cells.py). A key is on the machine of its cell, so that no step sends it.
"""
from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from lingpipe.layers.context import seed_key


class Origin(NamedTuple):
    """What a key was made of: the arguments of `eager_key`."""
    experiment_seed: int
    path: str
    name: str
    device: str


class SeedKeys:
    """The keys that the layers of one cell ask for.

    Attributes:
      captured: (path, name) -> the key, an int64 scalar, which the graph captures.
    """

    def __init__(self, graph: tf.Graph, experiment_seed: int, device: str):
        """
        Args:
          graph: the graph of the trace, in which all keys are.
          experiment_seed: seeds all randomness in layers.
          device: that of the cell.
        """
        self.captured: dict[tuple[str, str], tf.Tensor] = {}
        self._graph, self._experiment_seed, self._device = graph, experiment_seed, device
        self._inside: dict[tuple[str, str], tf.Tensor] = {}

    def of(self, path: str, name: str) -> tf.Tensor:
        """Returns the key as a tensor of the graph, also within a loop that a layer traces."""
        if (path, name) not in self._inside:
            key = eager_key(self._experiment_seed, path, name, self._device)
            # The scope is not the layer's, in which names of tensors are those of a priced trace.
            with (self._graph.as_default(), tf.control_dependencies(None),
                  tf.name_scope('seed_keys/')):
                inside = tf.compat.v1.placeholder(tf.int64, [])
            self._graph.add_capture(key, inside)
            self.captured[path, name], self._inside[path, name] = key, inside
        return self._inside[path, name]


def eager_key(experiment_seed: int, path: str, name: str, device: str) -> tf.Tensor:
    """Returns a key as an eager tensor.

    Args:
      experiment_seed, path, name: what it depends on.
      device: that of the cell. For a GPU the key is on its host, where random ops read seeds.
    """
    spec = tf.DeviceSpec.from_string(device)
    if spec.device_type != 'CPU':
        spec = spec.replace(device_type='CPU', device_index=0)
    with tf.init_scope(), tf.device(spec.to_string()):
        key = tf.constant(seed_key(experiment_seed, path, name), tf.int64)
    key.lingpipe_origin = Origin(experiment_seed, path, name, device)
    return key


def origin_of(tensor: tf.Tensor) -> Origin | None:
    """What `eager_key` made a tensor of; None if the tensor is no key."""
    return getattr(tensor, 'lingpipe_origin', None)
