"""Workers: which controller has one, if several want it at the same time."""
from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from lingpipe import cluster
from lingpipe.cluster import workers
from lingpipe.cluster.at_once import at_once
from lingpipe.cluster.client import Connection
from tests.support import local_workers
from tests.support.forks import Fork, environment

pytestmark = pytest.mark.slow


@pytest.fixture
def address() -> Iterator[str]:
    with local_workers.workers(1, hangs_after_s=60.) as (worker,):
        worker.wait()
        yield worker.address


def test_a_worker_is_claimed_once_and_ended_only_for_its_controller(address: str) -> None:
    before = workers.ask(address)
    names = [f'process {number}' for number in range(8)]
    name, *others = at_once(workers.claim, [(address, name) for name in names])
    assert name in names and set(others) == {name}

    other = next(one for one in names if one != name)
    assert workers.claim(address, other, ends_server=True) == name == workers.served_by(address)
    assert workers.ask(address) == before
    assert workers.claim(address, name, ends_server=True) == ''
    local_workers.wait_until(lambda: not workers.missing([address], 1.))
    assert workers.ask(address).incarnation != before.incarnation
    assert workers.served_by(address) == ''
    assert workers.claim(address, other, ends_server=True) == ''   # It was free.


@pytest.mark.parametrize('has_trainer', [True, False])
def test_a_worker_that_is_to_end_serves_its_trainer_until_that_lets_go(has_trainer: bool) -> None:
    """SIGTERM to all processes once ended the workers before the trainer could save."""
    with local_workers.workers(1, hangs_after_s=60.) as (worker,):
        worker.wait()
        if has_trainer:
            assert workers.claim(worker.address, 'trainer') == 'trainer'
        for pid in (worker.process.pid, worker.server()):
            os.kill(pid, signal.SIGTERM)
        if has_trainer:
            text = f'worker at {worker.address}: SIGTERM; it goes on until its trainer has let go'
            local_workers.wait_until(lambda: text in worker.process.printed())
            workers.let_go(worker.address, 'another')
            assert workers.served_by(worker.address) == 'trainer'
            workers.let_go(worker.address, 'trainer')
        worker.process.communicate(timeout=60)
        assert worker.process.returncode == 143


def check_that_a_newcomer_gets_it(address: str) -> None:
    """Lets the controller before come back between a server's start and its claim."""
    cluster.configure()
    assert workers.claim(address, 'before') == 'before'
    wait_for_worker, ended = workers.wait_for_worker, []

    def wait_and_lose(*args: object) -> workers.Worker:
        worker = wait_for_worker(*args)
        if not ended and len(args) == 5:   # The newcomer has ended the first server.
            ended.append(worker.incarnation)
            assert workers.claim(address, 'before', ends_server=True) == ''
            worker = wait_for_worker(*args[:4], worker.incarnation)
            assert workers.claim(address, 'before') == 'before'
        return worker

    workers.wait_for_worker = wait_and_lose
    connection = Connection([address], name='newcomer')
    assert ended and connection.workers[0].incarnation not in ended
    assert connection.silent() == ''
    assert workers.claim(address, 'before', ends_server=True) == 'newcomer'
    with pytest.raises(OSError, match=f'worker 0, {address}, was taken by newcomer; wait for '):
        Connection([address], name='before', is_again=True)


def test_a_newcomer_gets_a_worker_whose_controller_comes_back_meanwhile(address: str) -> None:
    """The one before took the new server, which did not yet know whom it served, and trained on."""
    process = Fork(check_that_a_newcomer_gets_it, address, env=environment())
    _, err = process.communicate(timeout=200)
    assert process.returncode == 0, err[-2000:]
