"""Recovery: a process that lost a worker starts again, unless that is vain or it must stop."""
from __future__ import annotations

import os
import time
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import pytest
import tensorflow as tf

from lingpipe.cluster.client import LostWorkerError
from lingpipe.cluster.returned import ReturnedWorkerError
from lingpipe.commands.device_setup import Placement
from lingpipe.commands.recovery import Recovery
from lingpipe.commands.run_options import RunOptions
from lingpipe.pipeline.execution.renewal import NotRenewableError
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.process import environment
from lingpipe.training import newest_checkpoint
from lingpipe.training.experiment import Experiment
from lingpipe.training.site import Site

STARTS = 'LINGPIPE_FRUITLESS_STARTS'   # what one process leaves to the next


class Replaced(BaseException):
    """In place of another trainer, with its flags."""


class Ended(BaseException):
    """In place of this process's end, with its exit code."""


@pytest.fixture
def newest(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int | None]]:
    """The step of the newest checkpoint, which a test may set; no process is replaced or ends."""
    def start_trainer(flags: Sequence[str]) -> NoReturn:
        raise Replaced(*flags)

    def end(code: int) -> NoReturn:
        raise Ended(code)

    step: dict[str, int | None] = {'step': None}
    monkeypatch.setattr(newest_checkpoint, 'newest_step', lambda directory: step['step'])
    monkeypatch.setattr(environment, 'start_trainer', start_trainer)
    monkeypatch.setattr(os, os._exit.__name__, end)
    monkeypatch.setattr('fcntl.fcntl', lambda *args: 0)   # pytest's own files stay open
    yield step
    environment.take(STARTS)


def recovery(**values: Any) -> Recovery:
    return Recovery(RunOptions('train', command_line=('--model=a', '--steps=2')), **values)


def test_the_same_command_starts_again(newest: dict[str, int | None],
                                       capsys: pytest.CaptureFixture[str]) -> None:
    newest['step'] = 30
    with pytest.raises(Replaced) as replaced:
        recovery().start_again('worker 1 is lost')
    assert replaced.value.args == ('--model=a', '--steps=2')
    assert capsys.readouterr().err == ('worker 1 is lost; the last checkpoint is of step 30: the '
                                       'trainer starts again from there\n')


def test_ten_starts_from_the_same_step_are_the_last(newest: dict[str, int | None],
                                                    capsys: pytest.CaptureFixture[str]) -> None:
    for step in (30, 40):   # A newer checkpoint begins the count anew.
        newest['step'] = step
        for number in range(1, 11):
            with pytest.raises(Replaced):
                recovery().start_again('worker 1 is lost')
            assert environment.left(STARTS) == f'{step} {number}'
    capsys.readouterr()
    with pytest.raises(Ended, match='1'):
        recovery().start_again('worker 1 is lost')
    assert capsys.readouterr().err == ('worker 1 is lost; the last checkpoint is of step 40: 10 '
                                       'starts have not come further: look at the workers\n')


def test_a_stop_signal_ends_the_process_as_shells_expect(newest: dict[str, int | None],
                                                         tmp_path: Any) -> None:
    stop: Any = types.SimpleNamespace(name='SIGTERM')
    log = tmp_path / 'log.txt'
    with pytest.raises(Ended, match='143'):
        recovery(stop=stop, log_path=str(log)).start_again('worker 1 is lost')
    assert log.read_text() == ('SIGTERM: stopped; worker 1 is lost; there is no checkpoint yet, '
                               'and no newer one can be written: the same command goes on from '
                               'there\n')


def test_a_worker_that_is_back_is_taken_in_and_no_other_soon_after(
        newest: dict[str, int | None], monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str]) -> None:
    """A worker that comes and goes would cost more than it does."""
    not_before_s = []

    class Returned:
        def __init__(self, addresses: Any, name: str, start_s: float):
            not_before_s.append(start_s)

        def stop(self) -> None:
            pass

    def body(site: Site) -> None:
        assert site.pipeline is smaller and isinstance(site.returned, Returned)
        raise ReturnedWorkerError('worker b:2 answers again')

    monkeypatch.setattr('lingpipe.commands.recovery.ReturnedWorkers', Returned)
    monkeypatch.setattr(time, 'monotonic', lambda: 1000.)
    params, smaller = Experiment.Params(), PipelineParams()
    params.train.elastic_after_s = 5.
    place = Placement((), None, smaller, ('b:2',))
    newest['step'] = 30
    for _ in range(2):
        with pytest.raises(Replaced):
            Recovery(RunOptions('train', devices='a:1,b:2')).run(params, lambda: place, body)
    environment.take('LINGPIPE_TAKEN_IN_S')
    assert not_before_s == [float('-inf'), 1050.]
    assert 'worker b:2 answers again; the last checkpoint is of step 30' in capsys.readouterr().err


def lose(times: int, then: Callable[[], str]) -> Callable[[Site], str]:
    """Returns a body that loses a worker some times, and then does something else."""
    left = iter(range(times))

    def body(site: Site) -> str:
        if next(left, None) is not None:
            raise LostWorkerError('worker 1 is lost')
        return f'{then()} on {site.devices[0]}'

    return body


def run(body: Callable[[Site], str], place_again: Callable[[], Placement] | None) -> str:
    return Recovery(RunOptions('train', devices='a:1,b:2')).run(
        Experiment.Params(), lambda: Placement(('first',), None), body, place_again)


def test_what_can_be_placed_again_goes_on_in_this_process(
        newest: dict[str, int | None], capsys: pytest.CaptureFixture[str]) -> None:
    newest['step'] = 30
    again = Placement(('again',), None)
    assert run(lose(2, lambda: 'done'), lambda: again) == 'done on again'
    assert environment.left(STARTS) == '30 2'
    assert capsys.readouterr().err.count('step 30: the trainer starts again from there') == 2


def test_what_cannot_be_placed_again_goes_on_in_another_process(
        newest: dict[str, int | None], capsys: pytest.CaptureFixture[str]) -> None:
    def place_again() -> NoReturn:
        raise NotRenewableError

    newest['step'] = 30
    with pytest.raises(Replaced):
        run(lose(1, lambda: 'done'), place_again)
    assert environment.left(STARTS) == '30 1'
    assert capsys.readouterr().err.count('step 30: the trainer starts again from there') == 1


def test_an_error_of_tensorflow_in_a_process_that_went_on_is_left_to_another_process(
        newest: dict[str, int | None], capsys: pytest.CaptureFixture[str]) -> None:
    """It may be that of a value that was on the lost worker."""
    def fail() -> NoReturn:
        raise tf.errors.NotFoundError(None, None, 'no such handle')

    with pytest.raises(tf.errors.NotFoundError):
        run(lose(0, fail), lambda: Placement(('again',), None))
    with pytest.raises(Replaced):
        run(lose(1, fail), lambda: Placement(('again',), None))
    assert 'NotFoundError: no such handle; there is no checkpoint yet' in capsys.readouterr().err
