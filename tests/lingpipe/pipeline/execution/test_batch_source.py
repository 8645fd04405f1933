"""Batch source: a mini-batch that is read where it is needed has the bits of one that is given."""
from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator, Mapping

import numpy as np
import pytest
import tensorflow as tf

from lingpipe import cluster
from lingpipe.cluster.client import Connection
from lingpipe.hyperparams import field
from lingpipe.input import Input
from lingpipe.input.unread_batch import UnreadBatch
from lingpipe.layers.base import Layer
from lingpipe.layers.cost import Cost
from lingpipe.layers.nested import Nested
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.execution.reading_hosts import check_same_data, reading_hosts
from lingpipe.training.evaluation import Evaluations
from lingpipe.training.experiment import Experiment
from tests.support import local_workers
from tests.support.forks import Fork
from tests.support.tiny_experiment import DIM, Pairs, Tiny

BATCH_SIZE = 8
WIDE = 10_000   # features of an example, of which the network uses DIM


class Penalty(Layer):
    """Adds to the objective, for which the mean weight must be known before the first task."""

    def fprop(self, theta, ctx, x):
        ctx.emit_penalty(self.path, 'penalty', tf.reduce_sum(x ** 2))
        return x

    def cost(self, x):
        return Cost(0, 0, x)


class Narrow(Layer):
    """Keeps the first features."""

    def fprop(self, theta, ctx, x):
        return x[:, :DIM]

    def cost(self, x):
        return Cost(0, 0, tf.TensorSpec([x.shape[0], DIM]))


class Fails(Pairs):
    """Cannot read an example."""

    class Params(Pairs.Params):
        bad: int = field(0, 'Its index.')

    params: Params

    def read(self, index: tf.Tensor) -> dict[str, Nested]:
        bad = tf.constant(self.params.bad, tf.int64)
        with tf.control_dependencies(
                [tf.debugging.assert_none_equal(index, bad, message='the disk is gone')]):
            return {name: tf.identity(value) for name, value in super().read(index).items()}


def experiment(**pipeline: int) -> Experiment:
    """Three passes over 13 examples, the last mini-batch filled up; an update has two of them."""
    params = Tiny.params()
    params.train_input.set(num_examples=13, num_epochs=3)
    params.task.learner.accumulate = 2
    layers = params.task.model.layers
    params.task.model.layers = (Penalty.Params(name='penalty'), *layers)
    params.pipeline.set(num_micro_batches=2, num_cells=2, shares_threads=False, **pipeline)
    return params.instantiate()


def unread(source: Input) -> Iterator[UnreadBatch]:
    return (UnreadBatch(source, BATCH_SIZE * number) for number in range(9))


def trained(program: Program, batches: Iterator[Mapping[str, Nested]]) -> dict[str, np.ndarray]:
    """The variables and the last results after two updates."""
    for step in range(2):
        program.accumulate(next(batches), step, 0)
        results = program.train_step(next(batches), step, 1)
    return {name: value.numpy() for name, value in [*program.variables().items(), *results.items()]}


def assert_equal(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)


def evaluated(program: Program, batches: Iterator[Mapping[str, Nested]]) -> dict[str, np.ndarray]:
    """The sums of two mini-batches, which replicas run at the same time, and the last output."""
    evaluator = program.evaluator(program.batch_spec, fetch=['x'])
    two = [next(batches), next(batches)]
    results = evaluator.steps(two) if evaluator.num_at_once == 2 else map(evaluator.step, two)
    return {f'{number}/{name}': np.asarray(value)
            for number, (sums, fetched) in enumerate(results)
            for name, value in {**sums, **fetched}.items()}


@pytest.mark.parametrize('num_replicas', [1, 2])
def test_what_is_read_has_the_bits_of_what_is_given(num_replicas):
    made = experiment(num_replicas=num_replicas)
    source = made.train_input
    given, read = made.make_program(), made.make_program()
    assert_equal(trained(given, source.batches()), trained(read, unread(source)))
    assert_equal(evaluated(given, source.batches()), evaluated(read, unread(source)))


def test_a_step_whose_mini_batch_cannot_be_read_says_so_and_the_next_runs():
    params = Tiny.params()
    params.train_input = Fails.Params(batch_size=BATCH_SIZE, shuffle=False, bad=9)
    made = params.instantiate()
    program, source = made.make_program(), made.train_input
    program.train_step(UnreadBatch(source, 0), 0)
    with pytest.raises(ValueError, match=r'^the trainer cannot make a mini-batch of Fails: .*the '
                                         r'disk is gone.*; with pipeline\.read_on_workers every '
                                         r"worker needs the trainer's --model, and its files at "
                                         r'the same paths\.$'):
        program.train_step(UnreadBatch(source, 8), 1)
    assert program.train_step(UnreadBatch(source, 16), 1)['is_finite']


# On workers.

def wide_experiment(reads: bool) -> Experiment:
    """Examples are a hundred times as large as what cells send each other."""
    params = Tiny.params()
    params.train_input.dim = params.eval_inputs['test'].dim = WIDE
    params.pipeline.read_on_workers = reads
    dense, loss = params.task.model.layers[:-1], params.task.model.layers[-1]
    params.task.model.layers = (
        Narrow.Params(name='x'), *dense,
        Narrow.Params(name='y', reads={'x': 'y'}, writes='y'), loss)
    params.pipeline.layers_per_cell = (3, 4)
    return params.instantiate()


def check_bits_and_bytes(*addresses: str) -> None:
    """Trains and evaluates both ways, in a process of its own."""
    cluster.configure()
    connection = Connection(addresses)
    devices = [device for worker in connection.workers for device in worker.devices]
    found, num_sent = [], []   # by a step and by an evaluation
    for reads in (False, True):
        made = wide_experiment(reads)
        source = made.train_input
        batches = unread(source) if reads else source.batches()
        program = made.make_program(devices)
        trained(program, batches)
        evaluations = Evaluations(program, made.eval_inputs, made.task, '')
        evaluations.check('test')
        evaluations.run('test')   # traces what the second one runs
        before = sent_bytes()
        program.train_step(next(batches), 2)
        between = sent_bytes()
        metrics = evaluations.run('test').metrics
        num_sent.append((between - before, sent_bytes() - between))
        found.append({name: np.asarray(value)
                      for name, value in {**program.variables(), **metrics}.items()})
    assert_equal(*found)
    for given, read in zip(*num_sent, strict=True):
        assert given > 2 * BATCH_SIZE * WIDE * 4 > 10 * read > 0, num_sent

    hosts = reading_hosts(program.plan.replicas)
    check_same_data(UnreadBatch(source, 8), hosts)
    other = UnreadBatch(source, 8, made=next(source.batches(16)))
    with pytest.raises(ValueError, match=r"^worker 0 reads other data than the trainer: 'x' of the "
                                         r'same mini-batch differs, although Pairs is the same; '
                                         r'give all machines the same files at the same paths, or '
                                         r'set pipeline\.read_on_workers=False\.$'):
        check_same_data(other, hosts)
    own = Fails.Params(batch_size=BATCH_SIZE).instantiate()   # of a module that they do not know
    with pytest.raises(ValueError, match=r'^worker 0 cannot make a mini-batch of Fails: .*Fails is '
                                         r'in a module that nothing here has imported, .*; '
                                         r'with pipeline\.read_on_workers every worker needs'):
        check_same_data(UnreadBatch(own, 0, made=next(source.batches())), hosts)


def sent_bytes() -> int:
    """How many bytes this process has sent over its TCP connections."""
    num_bytes = 0
    for name in os.listdir('/proc/self/fd'):
        if not os.path.exists(f'/proc/self/fd/{name}') or not os.readlink(
                f'/proc/self/fd/{name}').startswith('socket:'):
            continue
        with socket.socket(fileno=os.dup(int(name))) as one:
            if one.family in (socket.AF_INET, socket.AF_INET6):
                info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                # tcpi_bytes_sent, linux/tcp.h; the last acknowledgements may come after a step.
                num_bytes += struct.unpack_from('Q', info, 200)[0]
    return num_bytes


@pytest.mark.slow
def test_workers_read_the_same_bits_and_the_trainer_sends_positions_only():
    with local_workers.workers(2, hangs_after_s=60.) as workers:
        for worker in workers:
            worker.wait()
        process = Fork(check_bits_and_bytes, *(worker.address for worker in workers),
                       env=local_workers.environment())
        _, err = process.communicate(timeout=400)
    assert process.returncode == 0, err[-2000:]
