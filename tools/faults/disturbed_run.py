"""Disturbed run: a run of two workers that is broken, and started again as a user would.

Workers and trainer are processes like those of tools.launch_local, with the same rules: what is
killed is started again. Two things stay the user's. A trainer that has ended with a sentence is
started again once the sentence's advice was followed, and so is one that was stopped by SIGTERM.
"""
from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence

from lingpipe.process import exit_code
from lingpipe.tools import launch_local
from lingpipe.tools.faults.network import Network
from lingpipe.training import newest_checkpoint

NUM_WORKERS = 2
EVERY_STEPS = 10        # steps between two checkpoints
HANGS_AFTER_S = 10      # a worker kills its server that has not answered for so long
ELASTIC_AFTER_S = 30    # the run goes on without a worker that has not answered for so long
STEPS_WITHOUT_END = 10**6
_LOOK_EVERY_S = 0.05
_MOST_ENDINGS = 5       # of the trainer with a sentence, for one fault

# A disturbed run and the undisturbed one have these settings; the user's come after them.
SETTINGS = (f'pipeline.num_cells={NUM_WORKERS}', f'train.checkpoint_every_steps={EVERY_STEPS}',
            'train.summary_every_steps=100', 'train.step_timeout_s=20',
            'train.worker_timeout_s=120', f'train.elastic_after_s={ELASTIC_AFTER_S}')


class NotRecoveredError(Exception):
    """The run did not go on after a fault; the message says what it did."""


@dataclasses.dataclass(frozen=True)
class Place:
    """Where the processes of a run are.

    Attributes:
      addresses: 'host:port' of the workers.
      prefixes: what stands before the command of each worker and, at the end, of the trainer.
      network: between the processes; None: they are on loopback.
      clock_file: sets their clock; None: it is the machine's.
    """
    addresses: tuple[str, ...]
    prefixes: tuple[tuple[str, ...], ...]
    network: Network | None = None
    clock_file: pathlib.Path | None = None


class DisturbedRun:
    """A run whose processes can be reached by what breaks them.

    Attributes:
      logdir: of the run.
      place: where the processes are.
      trainer: its process.
      workers: the processes of workers, each above a process with TensorFlow's server.
      endings: the sentences with which the trainer has ended.
    """

    def __init__(self, logdir: pathlib.Path, printed: pathlib.Path, flags: Sequence[str],
                 place: Place, limit_s: float):
        """
        Args:
          logdir: of the run.
          printed: a folder that gets what the processes print: output.txt and errors.txt.
          flags: --model and --set of the trainer.
          place: where the processes are.
          limit_s: after which a run that does not go on has not recovered.
        """
        self.logdir, self.place, self.limit_s = logdir, place, limit_s
        self.endings: list[str] = []
        self._flags = list(flags)
        # A sentence with which the trainer may end now, and what is done then.
        self._expected: tuple[str, Callable[[], object]] | None = None
        self._most_endings = 0
        self._away: launch_local.Worker | None = None   # nobody starts it again

        self._out = open(printed / 'output.txt', 'a', encoding='utf-8', buffering=1)
        self._errors = open(printed / 'errors.txt', 'ab')
        worker_flags = [f'--hangs_after_s={HANGS_AFTER_S}', *flags]
        self.workers = [
            # Each worker looks after its own server. This process may not reach their addresses.
            launch_local.Worker(address, worker_flags, 1e9, self._out.fileno(),
                                self._errors.fileno(), prefix)
            for address, prefix in zip(place.addresses, place.prefixes, strict=False)]
        self.trainer = self.start_trainer()

    # The trainer.

    def trainer_flags(self, logdir: pathlib.Path, steps: int = STEPS_WITHOUT_END) -> list[str]:
        """Returns the flags of a trainer on the workers of this run."""
        return [*self._flags, f'--logdir={logdir}', '--mode=train', f'--steps={steps}',
                f'--devices={",".join(self.place.addresses)}']

    def another_trainer(self, logdir: pathlib.Path, errors: int) -> subprocess.Popen[bytes]:
        """Starts one more trainer on the workers of this run, which nobody starts again.

        `errors` is the file descriptor that gets its standard error.
        """
        return launch_local.start(self.trainer_flags(logdir), signal.SIGKILL, self._out.fileno(),
                                  errors, self.place.prefixes[-1])

    def start_trainer(self, steps: int = STEPS_WITHOUT_END) -> subprocess.Popen[bytes]:
        """Starts the trainer in the place of one that has ended."""
        self._errors_at = os.path.getsize(self._errors.name)
        self.trainer = launch_local.start(
            self.trainer_flags(self.logdir, steps), signal.SIGKILL, self._out.fileno(),
            self._errors.fileno(), self.place.prefixes[-1])
        return self.trainer

    def kill_trainer(self) -> None:
        """Kills the trainer, and leaves it so."""
        self.trainer.kill()
        self.trainer.wait()

    def stop_trainer(self) -> int:
        """Sends SIGTERM, waits for the end of the trainer, and returns its exit code.

        Raises:
          NotRecoveredError: it does not end, or not as it should.
        """
        self.trainer.terminate()
        return self.wait_for_end((0, 128 + signal.SIGTERM, -signal.SIGTERM))

    def wait_for_end(self, codes: Sequence[int]) -> int:
        """Waits for the end of the trainer, and returns its exit code.

        Workers are started again meanwhile.

        Raises:
          NotRecoveredError: it does not end, or with none of these exit codes.
        """
        self._wait_until(lambda: self.trainer.poll() is not None, 'the trainer does not end',
                         self.look_at_workers)
        code = self.trainer.wait()
        if code not in codes:
            raise NotRecoveredError(f'the trainer ended with {exit_code.ending(code)}: '
                                    f'{self._last_words()}')
        return code

    # What happens meanwhile.

    def newest(self) -> int:
        """Returns the step of the newest checkpoint, or 0."""
        return newest_checkpoint.newest_step(str(self.logdir)) or 0

    def wait(self, seconds: float) -> None:
        """Waits, and starts again what ends meanwhile."""
        deadline_s = time.monotonic() + seconds
        while time.monotonic() < deadline_s:
            self.look()
            time.sleep(_LOOK_EVERY_S)

    def wait_for_checkpoint(self, after: int) -> None:
        """Waits until there are two checkpoints of later steps, the second from later steps too.

        A trainer that is lost can still finish the checkpoint that it writes.

        Raises:
          NotRecoveredError: there are none in time.
        """
        self._wait_until(lambda: self.newest() > after + EVERY_STEPS,
                         f'there is no checkpoint of a later step than {after + EVERY_STEPS}',
                         self.look)

    @contextlib.contextmanager
    def expecting(self, sentence: str, remedy: Callable[[], object] = lambda: None
                  ) -> Iterator[None]:
        """Within the block, the trainer may end with a sentence.

        Args:
          sentence: a regular expression that the sentence contains.
          remedy: does what the sentence advises; then the trainer is started again.
        """
        self._expected = (sentence, remedy)
        self._most_endings = len(self.endings) + _MOST_ENDINGS
        try:
            yield
        finally:
            self._expected = None

    @contextlib.contextmanager
    def without_worker(self, number: int) -> Iterator[None]:
        """Within the block, a worker is killed and not started again."""
        self._away = self.workers[number]
        self._away.end()
        try:
            yield
        finally:
            self._away = None

    def look_at_workers(self) -> None:
        """Starts workers again that have ended.

        Raises:
          NotRecoveredError: one has ended that should not.
        """
        for worker in self.workers:
            if worker is self._away:
                continue
            try:
                with contextlib.redirect_stdout(self._out):   # it says what it starts again
                    worker.look()
            except SystemExit as error:
                raise NotRecoveredError(str(error)) from error

    def look(self) -> None:
        """Starts workers and trainer again that have ended.

        Raises:
          NotRecoveredError: one has ended that should not.
        """
        self.look_at_workers()
        code = self.trainer.poll()
        if code is None:
            return
        if code > 0:
            self._follow_advice(code)
        elif code == 0:
            raise NotRecoveredError('the trainer ended as if it had made all steps')
        self.start_trainer()

    def end(self) -> None:
        """Ends all processes."""
        self.kill_trainer()
        for worker in self.workers:
            worker.end()
        self._out.close()
        self._errors.close()

    def _follow_advice(self, code: int) -> None:
        """Does what the sentence advises with which the trainer has ended."""
        words = self._last_words()
        if self._expected is None or len(self.endings) == self._most_endings:
            raise NotRecoveredError(f'the trainer ended with exit code {code}: {words}')
        sentence, remedy = self._expected
        if not re.search(sentence, words):
            raise NotRecoveredError(f'the trainer ended with exit code {code}: {words}')
        self.endings.append(words)
        remedy()

    def _last_words(self) -> str:
        """Returns what the trainer said last on its standard error."""
        with open(self._errors.name, errors='replace') as file:
            file.seek(self._errors_at)
            lines = [line.strip() for line in file if line.strip()]
        own_lines = [line for line in lines if line.startswith('trainer: ')]
        return (own_lines or lines or ['it has not said why'])[-1][:1000]

    def _wait_until(self, is_true: Callable[[], bool], what_else: str,
                    look: Callable[[], None]) -> None:
        """Waits until is_true(), and calls `look` again and again meanwhile."""
        deadline_s = time.monotonic() + self.limit_s
        while not is_true():
            if time.monotonic() > deadline_s:
                raise NotRecoveredError(f'{what_else} within {self.limit_s:g} s')
            look()
            time.sleep(_LOOK_EVERY_S)
