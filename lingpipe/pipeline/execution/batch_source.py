"""Batch source: where the devices of a step get their parts of the mini-batch from.

    GivenBatches    The step is given the mini-batch, and sends each device what it reads.
    ReadBatches     The step is given a position. The process of each device makes the mini-batch
                    itself (input/readers.py), and keeps what its devices read.
"""
from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

import tensorflow as tf

from lingpipe.cluster import HOME
from lingpipe.input import readers
from lingpipe.input.unread_batch import UnreadBatch
from lingpipe.layers import nested
from lingpipe.layers.nested import Nested
from lingpipe.pipeline.execution.reading_hosts import (
    ask,
    names_read,
    reading_hosts,
    source_of,
    token_of,
)
from lingpipe.pipeline.planning.cell import Cell
from lingpipe.process.fresh_tensor import fresh_int64
from lingpipe.process.graph_lifetime import wrap_function

BatchesByHost: TypeAlias = Mapping[str, Mapping[str, Nested]]
"""Host -> values of a mini-batch by name; see reading_hosts.py."""


@dataclasses.dataclass(frozen=True)
class Arrived:
    """A mini-batch at the hosts from which devices take their parts.

    Attributes:
      batches: the mini-batch at each host. The host that computes the mean weight comes first.
      results: scalars by name that the step returns: 'input_wait_s', float64, the longest time
        that a process has waited for the mini-batch. Empty if the step was given it.
      reads: host -> the op of a graph that reads the mini-batch there. Empty if the step was given
        it.
    """
    batches: BatchesByHost
    results: dict[str, tf.Tensor] = dataclasses.field(default_factory=dict)
    reads: dict[str, tf.Operation] = dataclasses.field(default_factory=dict)


class GivenBatches:
    """Mini-batches of this process.

    Attributes:
      key: tells one source of mini-batches of a shape from another.
      specs: of the arguments of a step, [n].
    """

    def __init__(self, batch_spec: Mapping[str, Nested]):
        self._spec = dict(batch_spec)
        self.key = ''
        self.specs: list[tf.TensorSpec] = nested.leaves(self._spec)

    def args(self, batch: Mapping[str, Nested]) -> list[Any]:
        """Returns the arguments [n] of a step for a mini-batch."""
        return nested.leaves({name: batch[name] for name in self._spec})

    def arrived(self, args: Sequence[Any],
                earlier: Mapping[str, tf.Operation] | None = None) -> Arrived:
        """Returns the mini-batch that the arguments of a step stand for, in a graph or eagerly.

        `earlier` is not used here, since no process reads anything.
        """
        tensors = [tf.convert_to_tensor(value) for value in args]
        return Arrived({HOME: nested.pack_like(self._spec, tensors)})

    def explained(self, batch: Mapping[str, Nested]) -> AbstractContextManager[None]:
        """A context for a step, which never fails because its mini-batch could not be read."""
        return contextlib.nullcontext()

    def note_wait(self, batch: Mapping[str, Nested], results: dict[str, tf.Tensor]) -> None:
        """Takes the wait for a mini-batch out of the results of its step; here there is none."""


class ReadBatches:
    """Mini-batches of an input that the processes of devices make.

    Attributes:
      key, specs: as of GivenBatches.
    """

    def __init__(self, text: str, batch_spec: Mapping[str, Nested],
                 replicas: Sequence[Sequence[Cell]], names: Iterable[str] = ()):
        """
        Args:
          text: of the input's Params.
          batch_spec: name -> nested tf.TensorSpec of a mini-batch.
          replicas: [R, K].
          names: further values that the host of the first cell needs.
        """
        self.key = text
        self.specs = [tf.TensorSpec([], tf.int64)]
        hosts = reading_hosts(replicas)
        cells = [cell for one in replicas for cell in one]
        self._specs_of_host = {
            host: {name: batch_spec[name] for name in sorted(
                {*names_read(cell for cell in cells if source_of(cell.device, hosts) == host),
                 *(names if host == hosts[0] else ())})}
            for host in hosts}

    def args(self, batch: Mapping[str, Nested]) -> list[Any]:
        """Returns the argument of a step for a mini-batch: its position."""
        assert isinstance(batch, UnreadBatch)
        return [fresh_int64(batch.position)]

    def arrived(self, args: Sequence[Any],
                earlier: Mapping[str, tf.Operation] | None = None) -> Arrived:
        """Returns the mini-batch at a position, in a graph or eagerly.

        Args:
          args: the position.
          earlier: host -> the op of the graph after which this mini-batch is read there.
        """
        batches, waits, reads = {}, [], dict(earlier or {})
        for host, spec in self._specs_of_host.items():
            with tf.control_dependencies([reads[host]] if host in reads else []):
                *leaves, wait_s = self._read(host, args[0], spec)
            batches[host] = nested.pack_like(spec, leaves)
            waits.append(wait_s)
            if not tf.executing_eagerly():
                reads[host] = wait_s.op
        with tf.device(HOME):
            wait_s = tf.reduce_max(tf.stack(waits))
        return Arrived(batches, {'input_wait_s': wait_s}, reads)

    def _read(self, host: str, position: tf.Tensor, spec: Mapping[str, Nested]) -> list[tf.Tensor]:
        """Returns the leaves of the values of a spec, and how long the process waited for them."""
        specs = nested.leaves(dict(spec))
        dtypes = [*(leaf.dtype for leaf in specs), tf.float64]

        def body(position: tf.Tensor) -> list[tf.Tensor]:
            """Adds the op that calls the process of the host."""
            with tf.device(host):
                *leaves, wait_s = tf.raw_ops.PyFunc(
                    input=[tf.constant(readers.READ), tf.constant(self.key), position,
                           tf.constant(sorted(spec), tf.string)],
                    token=token_of(host), Tout=dtypes)
                return [*(tf.ensure_shape(leaf, one.shape)
                          for leaf, one in zip(leaves, specs, strict=True)),
                        tf.ensure_shape(wait_s, [])]

        if not tf.executing_eagerly():
            return body(position)
        alone = wrap_function(body, [tf.TensorSpec([], tf.int64)])
        return list(alone(position))

    @contextlib.contextmanager
    def explained(self, batch: Mapping[str, Nested]) -> Iterator[None]:
        """A context in which a step that fails because of its mini-batch says so.

        Raises:
          ValueError: a process cannot make the mini-batch.
        """
        assert isinstance(batch, UnreadBatch)
        try:
            yield
        except (tf.errors.InvalidArgumentError, tf.errors.CancelledError):
            for host in self._specs_of_host:
                ask(host, readers.SHAPE, batch.source, batch.position)
            raise

    def note_wait(self, batch: Mapping[str, Nested], results: dict[str, tf.Tensor]) -> None:
        """Takes the wait for a mini-batch out of the results of its step."""
        assert isinstance(batch, UnreadBatch)
        batch.waited_s = float(results.pop('input_wait_s'))


BatchSource: TypeAlias = GivenBatches | ReadBatches
