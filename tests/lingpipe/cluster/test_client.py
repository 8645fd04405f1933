"""Client: when a controller may rely on a worker having done something."""
from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from lingpipe import cluster, layers
from lingpipe.checkpoint import Checkpointer
from lingpipe.cluster import client, ports
from lingpipe.cluster.client import Connection
from lingpipe.cluster.workers import served_by, wait_for_worker
from lingpipe.layers import Sequential
from lingpipe.learning import learning_rates, optimizers
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from tests.support import local_workers
from tests.support.flood import Flood
from tests.support.forks import Fork
from tests.support.toy_layers import FailAbove

pytestmark = pytest.mark.slow
WORKER_CPU = '/job:worker/replica:0/task:0/device:CPU:0'


def check_that_a_checkpoint_holds_one_step(address: str, directory: str, own_address: str) -> None:
    """Calls a step as soon as a checkpoint of the step before has begun, in a process of its own.

    A step is one call, and overtakes hundreds of single reads that were called before it, unless it
    waits for them.
    """
    cluster.configure()
    Connection([address], own_address)
    with tf.device(WORKER_CPU):
        variables = {f'v{i}': tf.Variable(tf.zeros([1000])) for i in range(300)}

    def body() -> tf.Tensor:
        with tf.device(WORKER_CPU):
            added = [tf.raw_ops.AssignAddVariableOp(resource=variable.handle, value=tf.ones([1000]))
                     for variable in variables.values()]
        with tf.control_dependencies(added):
            return tf.constant(1)

    step = tf.compat.v1.wrap_function(body, [])
    step()
    checkpointer = Checkpointer(directory, keep=9)
    for number in range(1, 4):
        checkpointer.begin(number, variables)
        step()
        checkpointer.wait()
        reader = tf.train.load_checkpoint(f'{directory}/step-{number:08d}/variables')
        saved = {float(np.max(reader.get_tensor(name)))
                 for name in reader.get_variable_to_shape_map() if name.startswith('variables/')}
        assert saved == {float(number)}

    checkpointer.restore(variables, 1)
    step()
    assert {float(np.max(value.numpy())) for value in variables.values()} == {2.}
    check_who_writes_and_reads(directory)


def check_who_writes_and_reads(directory: str) -> None:
    """Saves and restores 1.2 MB of a worker, in a directory that it sees, and in another.

    The path through /proc/self/cwd is another one for the worker.
    """
    with tf.device(WORKER_CPU):
        variables = {f'large_{i}': tf.Variable(tf.fill([100_000], 2.)) for i in range(3)}
    os.chdir(os.path.dirname(directory))
    checkpointer = Checkpointer(directory)
    hidden = Checkpointer('/proc/self/cwd/hidden')
    for one in (checkpointer, hidden):
        before = file_bytes()
        one.begin(9, variables)
        one.wait()
        one.save(10, variables)
        for variable in variables.values():
            variable.assign(tf.zeros_like(variable))
        assert (file_bytes() - before > 2_400_000) == (one is hidden)

        before = file_bytes()
        one.restore(variables)
        assert (file_bytes() - before > 1_200_000) == (one is hidden)
        assert {float(np.max(value.numpy())) for value in variables.values()} == {2.}
    next(pathlib.Path(directory, 'step-00000010').glob('*.data-00000-*')).unlink()
    assert checkpointer.restore(variables) == {'step': 9}


def file_bytes() -> int:
    """Returns how many bytes this process has read from files and written to files."""
    with open('/proc/self/io', encoding='utf-8') as file:
        counts = dict(line.split(': ') for line in file)
    return int(counts['rchar']) + int(counts['wchar'])


def check_that_an_error_of_a_layer_is_told(*addresses: str) -> None:
    """Lets a step fail three times, but not the next one, in a process of its own.

    If one of two devices fails in a step, the other one is cut off, and often says so more loudly
    than the first says why.
    """
    cluster.configure()
    connection = Connection(addresses)
    devices = tuple(device for worker in connection.workers for device in worker.devices)

    batch = {'image': np.ones([8, 4], np.float32), 'labels': np.zeros(8, np.int32),
             'weight': np.ones(8, np.float32)}
    bad = {**batch, 'image': batch['image'] * 1e4}
    spec = {name: tf.TensorSpec(value.shape, value.dtype) for name, value in batch.items()}
    learner = Learner.Params(optimizer=optimizers.SGD.Params(),
                             learning_rate=learning_rates.Constant.Params(rate=0.1)).instantiate()

    dense = [layers.Dense.Params(name=name, input_dim=4, units=4) for name in 'abc']
    dense[0].reads = {'x': 'image'}
    cells, replicas = {'num_cells': 2, 'layers_per_cell': (2, 3)}, {'num_replicas': 2}
    for place, counts in ((0, cells), (2, cells), (0, replicas)):
        fail = FailAbove.Params(name='fail', reads={'x': 'image'}, writes='image')
        network = Sequential.Params(name='model', layers=(
            *dense[:place], fail, *dense[place:], layers.CrossEntropyLoss.Params(name='loss')))
        params = PipelineParams(num_micro_batches=2, devices=devices, **counts)
        program = Program(network.instantiate('model'), spec, params, learner)
        program.train_step(batch, 0)
        for _ in range(3):
            with pytest.raises(tf.errors.InvalidArgumentError, match='above 1000') as failed:
                program.train_step(bad, 1)
            lost = connection.lost(failed.value)
            assert lost is None, f'{lost}: {failed.value.message}'
        assert program.train_step(batch, 1)['is_finite']


def check_that_a_program_goes_on(addresses: list[str], pid: int, directory: str) -> None:
    """Makes two steps, with a checkpoint and the loss of a worker between them, in a process."""
    cluster.configure(2)
    batch = {'image': np.ones([8, 4], np.float32), 'labels': np.arange(8, dtype=np.int32) % 4,
             'weight': np.ones(8, np.float32)}
    spec = {name: tf.TensorSpec(value.shape, value.dtype) for name, value in batch.items()}
    learner = Learner.Params(ema_decay=0.9, optimizer=optimizers.Adam.Params(),
                             learning_rate=learning_rates.Constant.Params(rate=0.1)).instantiate()
    network = Sequential.Params(name='model', layers=(
        layers.Dense.Params(name='a', input_dim=4, units=4, reads={'x': 'image'}),
        layers.Dropout.Params(name='b', rate=0.5),
        layers.Dense.Params(name='c', input_dim=4, units=4),
        layers.CrossEntropyLoss.Params(name='loss'))).instantiate('model')

    def program_on(*devices: str) -> Program:
        params = PipelineParams(num_cells=2, num_micro_batches=2, devices=devices)
        return Program(network, spec, params, learner)

    quiet = program_on('/device:CPU:0', '/device:CPU:1')
    expected = [quiet.train_step(batch, step)['loss'].numpy() for step in range(3)]

    connection = Connection(addresses)
    program = program_on(*(device for worker in connection.workers for device in worker.devices))
    assert program.train_step(batch, 0)['loss'].numpy() == expected[0]
    checkpointer = Checkpointer(directory)
    checkpointer.save(1, program.variables())
    assert program.train_step(batch, 1)['loss'].numpy() == expected[1]
    step_graph = program.step_graph()

    os.kill(local_workers.server_of(pid), signal.SIGKILL)
    with pytest.raises(tf.errors.OpError) as failed:
        program.train_step(batch, 2)
    assert connection.lost(failed.value)
    before = connection.workers[0]
    has_started = wait_for_worker(addresses[1], 1, time.monotonic() + 60., 60.)
    connection.connect_again(60.)
    assert connection.workers[0].incarnation != before.incarnation   # Its memory is empty again.
    assert connection.workers[1] == has_started   # That of a new one is empty already.
    program.renew()
    checkpointer.restore(program.variables())
    for step in (1, 2):
        assert program.train_step(batch, step)['loss'].numpy() == expected[step]
    assert program.step_graph() is step_graph   # Nothing was traced again.
    for key, variable in quiet.variables().items():
        np.testing.assert_array_equal(variable.numpy(), program.variables()[key].numpy(), key)


def check_that_other_threads_run(address: str, pid: int) -> None:
    """Asks for the device of a value that a stopped worker has to make, in a thread."""
    cluster.configure()
    Connection([address])
    with tf.device(WORKER_CPU):
        variable = tf.Variable(1.)

    def body() -> list[tf.Tensor]:
        with tf.device(WORKER_CPU):
            return [variable + 1., variable + 2.]

    graph = tf.compat.v1.wrap_function(body, [])
    graph()
    begun, found = threading.Event(), []

    def ask() -> None:
        with tf.device(WORKER_CPU):
            value = graph()[0]
        begun.set()
        found.append(client.device_of(value))

    server = local_workers.server_of(pid)   # The connection has made it start anew.
    os.kill(server, signal.SIGSTOP)
    try:
        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        assert begun.wait(30.)
        time.sleep(0.5)   # It ends if the other thread waits without Python's lock.
        assert not found
    finally:
        os.kill(server, signal.SIGCONT)
    thread.join(30.)
    assert found == [WORKER_CPU]


def run_beside_a_worker(check: Callable[[str, int], None], **env: str) -> None:
    """Runs a check in a process of its own, with a worker's address and process, which it stops.

    `env` is added to the environment of the check.
    """
    with local_workers.workers(1, hangs_after_s=1000.) as (worker,):
        worker.wait()
        process = Fork(check, worker.address, worker.process.pid,
                       env={**local_workers.environment(), **env})
        try:
            _, err = process.communicate(timeout=60)
        finally:
            process.kill()
        assert process.returncode == 0, err[-2000:]


def check_that_assignments_are_waited_for(address: str, worker: int) -> None:
    """Assigns on a stopped server, and lets the main thread wait until another one wakes it."""
    cluster.configure()
    Connection([address])
    with tf.device(WORKER_CPU):
        variable = tf.Variable(1.)
    server, has_gone_on = local_workers.server_of(worker), threading.Event()

    def wake() -> None:
        has_gone_on.set()
        os.kill(server, signal.SIGCONT)

    os.kill(server, signal.SIGSTOP)
    waker = threading.Timer(0.5, wake)
    waker.start()
    variable.assign(2.)
    client.wait_for_assignments([variable])
    assert has_gone_on.is_set()
    waker.join()


@pytest.mark.parametrize('env', [{}, {'TF_DETERMINISTIC_OPS': '1'}])
def test_assignments_on_workers_are_waited_for(env: dict[str, str]) -> None:
    """Who asks TensorFlow for the shape of a number waits for nothing.

    So the first, empty value of the variable in which a worker keeps a copy for a checkpoint could
    come after the copy, and the run ended as it started: "The given optional does not have a
    value". Who asks for the time is refused where ops must be deterministic: no run on workers
    began.
    """
    run_beside_a_worker(check_that_assignments_are_waited_for, **env)


def test_waiting_for_a_stopped_worker_lets_other_threads_run():
    """The watchdog is one of them: a worker that hung at such a moment was never found."""
    run_beside_a_worker(check_that_other_threads_run)


def check_that_a_broken_connection_says_why(address: str) -> None:
    """Connects, in a process of its own, and asks what an error of a step means."""
    cluster.configure()
    connection = Connection([address])
    lost = connection.lost(tf.errors.UnavailableError(
        None, None, 'Graph execution error:\n\nDetected at node Add defined at\nSocket closed'))
    assert str(lost) == 'the connection to a worker broke (UnavailableError: Socket closed)'


def test_a_broken_connection_says_why() -> None:
    """The reason was 'Graph execution error:', which is the heading of the message."""
    with local_workers.workers(1, hangs_after_s=60.) as (worker,):
        worker.wait()
        process = Fork(check_that_a_broken_connection_says_why, worker.address,
                       env=local_workers.environment())
        _, err = process.communicate(timeout=200)
        assert process.returncode == 0, err[-2000:]


def check_that_a_worker_computes(address: str, own_address: str = '') -> None:
    """Runs an op on a worker, in a process of its own."""
    cluster.configure()
    Connection([address], own_address, wait_s=30.)
    with tf.device(WORKER_CPU):
        assert (tf.constant(2.) + 1.).numpy() == 3.


SCRIPT = """
import sys
from lingpipe import cluster
from lingpipe.cluster.client import Connection
from lingpipe.cluster.workers import served_by
cluster.configure()
Connection([sys.argv[1]])
"""


def test_a_script_that_ends_lets_go_of_its_workers() -> None:
    """A worker that got SIGTERM after a script without run.close() went on for two minutes."""
    with local_workers.workers(1, hangs_after_s=60.) as (worker,):
        worker.wait()
        subprocess.run([sys.executable, '-c', SCRIPT, worker.address], check=True,
                       env={**os.environ, **local_workers.environment()}, timeout=200)
        assert served_by(worker.address) == ''


@pytest.mark.parametrize('variable', ['http_proxy', 'grpc_proxy'])
def test_a_proxy_of_the_environment_does_not_stand_before_workers(variable: str) -> None:
    """TensorFlow's gRPC once asked it even for loopback, and no run on workers started."""
    with local_workers.workers(1, hangs_after_s=60.) as (worker,):
        worker.wait()
        nobody = f'http://127.0.0.1:{ports.free_port()}'
        process = Fork(check_that_a_worker_computes, worker.address,
                       env={**local_workers.environment(), variable: nobody})
        _, err = process.communicate(timeout=200)
        assert process.returncode == 0, err[-2000:]


def test_a_trainer_may_listen_at_all_addresses() -> None:
    with local_workers.workers(1, hangs_after_s=60.) as (worker,):
        worker.wait()
        process = Fork(check_that_a_worker_computes, worker.address,
                       f'0.0.0.0:{ports.free_port()}', env=local_workers.environment())
        _, err = process.communicate(timeout=200)
        assert process.returncode == 0, err[-2000:]


def test_a_program_goes_on_with_workers_that_have_started_again(tmp_path: pathlib.Path) -> None:
    with local_workers.workers(2, hangs_after_s=60.) as workers:
        for worker in workers:
            worker.wait()
        process = Fork(check_that_a_program_goes_on, [worker.address for worker in workers],
                       workers[1].process.pid, str(tmp_path), env=local_workers.environment())
        _, err = process.communicate(timeout=400)
        assert process.returncode == 0, err[-2000:]


@pytest.mark.parametrize(('num_workers', 'devices'), [(1, 'cpu:2'), (2, '')])
def test_an_error_of_a_layer_on_a_worker_is_told_and_not_taken_for_a_lost_worker(
        num_workers: int, devices: str) -> None:
    with local_workers.workers(num_workers, devices, hangs_after_s=60.) as workers:
        for worker in workers:
            worker.wait()
        addresses = [worker.address for worker in workers]
        process = Fork(check_that_an_error_of_a_layer_is_told, *addresses,
                       env=local_workers.environment())
        _, err = process.communicate(timeout=400)
        assert process.returncode == 0, err[-2000:]


def test_checkpoint_holds_one_step_though_the_next_is_called_at_once(
        tmp_path: pathlib.Path) -> None:
    with local_workers.workers(1, hangs_after_s=60.) as (worker,):
        worker.wait()
        port = ports.free_port()
        with Flood('127.0.0.2', port) as other:
            process = Fork(check_that_a_checkpoint_holds_one_step, worker.address,
                           str(tmp_path / 'checkpoints'), f'127.0.0.1:{port}',
                           env=local_workers.environment())
            local_workers.wait_until(
                lambda: any(tmp_path.iterdir()) or process.poll() is not None)
        _, err = process.communicate(timeout=400)
        assert process.returncode == 0, err[-2000:]
        # The port is the controller's own, which was open for a moment.
        assert other.num_through == 0 < other.num_tried


def test_a_value_of_a_lost_worker_is_not_taken_for_a_wrong_argument():
    class Lost:
        """A tensor as TensorFlow has it when the op that should have made it has failed."""

        def get_shape(self):
            """TensorFlow may know the shape before it knows the device."""

        @property
        def device(self):
            raise ValueError('Socket closed')

    with pytest.raises(tf.errors.UnavailableError, match='Socket closed') as raised:
        client.device_of(Lost())
    assert client.is_broken(raised.value)


OP_FAILED = 'INVALID_ARGUMENT:     assertion failed: [above 1000]\n\t [[{{node fail/Assert}}]]'
CUT_OFF = 'CANCELLED:  RecvFromRemoteAsync is cancelled.\n\t [[{{node Call_15/_79}}]]'
POISONED = 'INTERNAL:  the rendezvous is poisoned\n\t [[{{node Call_15/_80}}]]'


@pytest.mark.parametrize(('roots', 'is_broken'), [
    ((OP_FAILED,), False), ((CUT_OFF,), True), ((OP_FAILED, CUT_OFF), False),
    ((CUT_OFF, OP_FAILED), False), ((POISONED, 'ABORTED: Step was cancelled'), True)])
def test_an_op_that_fails_and_so_cuts_other_devices_off_is_no_broken_connection(roots, is_broken):
    count = f'{len(roots)} root error(s) found.\n' if len(roots) > 1 else ''
    listed = [f'  ({i}) {root}\n' if count else root for i, root in enumerate(roots)]
    error = tf.errors.InvalidArgumentError(
        None, None, f'Graph execution error:\n{count}{"".join(listed)}0 successful operations.')
    assert client.is_broken(error) == is_broken
