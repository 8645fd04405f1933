"""Reading hosts: the processes that make mini-batches for the cells on their devices.

A host is the first CPU of a process, in whose memory the mini-batches of that process are.
"""
from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import tensorflow as tf

from lingpipe.cluster import HOME
from lingpipe.cluster.client import host_of, is_on_worker
from lingpipe.input import readers
from lingpipe.input.base import Input
from lingpipe.input.fingerprint import difference, fingerprint
from lingpipe.input.unread_batch import UnreadBatch
from lingpipe.pipeline.planning.cell import Cell
from lingpipe.pipeline.planning.dataflow import BATCH
from lingpipe.pipeline.planning.plan import Plan
from lingpipe.process.graph_lifetime import wrap_function


def source_of(device: str, hosts: Collection[str], home: str = HOME) -> str:
    """Returns the host from which a device takes its part of a mini-batch.

    Args:
      device: a tf.device string.
      hosts: those that have a mini-batch.
      home: has it if no other has.
    """
    host = host_of(device) if is_on_worker(device) else home
    return host if host in hosts else home


def reads_on_workers(plan: Plan) -> bool:
    """Whether workers are to make the mini-batches of a plan."""
    return plan.params.read_on_workers and any(
        is_on_worker(host) for host in reading_hosts(plan.replicas))


def reading_hosts(replicas: Sequence[Sequence[Cell]]) -> list[str]:
    """Returns the hosts of the devices that read a part of the mini-batch, the first cell's first.

    Args:
      replicas: [R, K].
    """
    readers_of_batch = [cell for cells in replicas for cell in cells if names_read([cell])]
    devices = [cell.device for cell in (replicas[0][0], *readers_of_batch)]
    return list(dict.fromkeys(
        host_of(device) if is_on_worker(device) else HOME for device in devices))


def names_read(cells: Iterable[Cell]) -> list[str]:
    """Returns the names of the values of the mini-batch that cells read, in sorted order."""
    return sorted({value.name for cell in cells for value in cell.inputs if value.maker == BATCH})


def check_same_data(batch: UnreadBatch, hosts: Iterable[str]) -> None:
    """Raises ValueError if a process cannot make a mini-batch, or makes it from other data.

    Args:
      batch: this process makes it too.
      hosts: of the processes that make it.
    """
    own = fingerprint(batch.source, batch)
    for host in hosts:
        if host != HOME and (text := difference(
                own, ask(host, readers.FINGERPRINT, batch.source, batch.position))):
            raise ValueError(
                f'{_named(host)} reads other data than the trainer: {text}, although '
                f'{type(batch.source).__name__} is the same; give all machines the same files at '
                'the same paths, or set pipeline.read_on_workers=False.')


def shape_at(source: Input, position: int, plan: Plan) -> int:
    """Returns the index of a mini-batch's spec, which the first of the processes is asked for.

    Args:
      source: the input.
      position: the number of examples of the input before the mini-batch.
      plan: says which processes make mini-batches.

    Raises:
      ValueError: the process cannot make the mini-batch.
    """
    return int(ask(reading_hosts(plan.replicas)[0], readers.SHAPE, source, position))


def ask(host: str, what: bytes, source: Input, position: int) -> Any:
    """Asks a process about a mini-batch.

    Args:
      host: of the process.
      what: readers.FINGERPRINT or readers.SHAPE.
      source: the input.
      position: the number of examples of the input before the mini-batch.

    Raises:
      ValueError: the process cannot make the mini-batch.
      tf.errors.OpError: the worker is lost.
    """
    def body(position_tensor: tf.Tensor) -> tf.Tensor:
        with tf.device(host):
            answer, = tf.raw_ops.PyFunc(
                input=[tf.constant(what), tf.constant(source.params.to_text()),
                       position_tensor],
                token=token_of(host), Tout=[tf.string])
            return answer

    alone = wrap_function(body, [tf.TensorSpec([], tf.int64)])
    try:
        answer = json.loads(alone(tf.constant(position, tf.int64)).numpy())
    except tf.errors.InvalidArgumentError as error:
        if 'Could not find callback' not in error.message:
            raise
        raise ValueError(f'{_named(host)} cannot read inputs, as pipeline.read_on_workers wants; '
                         'start it with the lingpipe of the trainer.') from error
    if 'problem' in answer:
        raise ValueError(
            f'{_named(host)} cannot make a mini-batch of {type(source).__name__}: '
            f'{answer["problem"].rstrip(".")}; with pipeline.read_on_workers every worker needs '
            "the trainer's --model, and its files at the same paths.")
    return answer['reply']


def token_of(host: str) -> str:
    """Returns the token by which an op calls the readers of a process."""
    return readers.WORKER_TOKEN if is_on_worker(host) else readers.own_token()


def _named(host: str) -> str:
    """Returns what errors call the process of a host."""
    return f'worker {tf.DeviceSpec.from_string(host).task}' if is_on_worker(host) else 'the trainer'
