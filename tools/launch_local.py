"""Starts workers and the trainer on this machine, on loopback, and restarts those that die.

    python -m lingpipe.tools.launch_local --workers=2 \\
        -- --model=image.digits.AmoebaNet --logdir=/tmp/digits

The flags after -- are those of the trainer. Workers get its --model and --set too, for their
threads. A process that is killed is started again: a worker at the same address, the trainer from
its last checkpoint. Everything ends with the trainer, and this command has its exit code. SIGTERM,
SIGHUP and Ctrl-C go to the trainer, which saves first.

The obvious way is supervisord or circus. Both want a configuration file of their own. Neither ends
with the exit code of one of its processes, nor restarts a process that lives and does not answer.
So Python's subprocess starts the processes, and they are watched by hand.
"""
from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from types import FrameType

from lingpipe.cluster import ports, server
from lingpipe.process import closed_pipe, exit_code, stop_signals
from lingpipe.tools import parser, trainer_flags
from lingpipe.tools.command_line import command
from lingpipe.wording.counts import counted

Handler = Callable[[int, FrameType | None], object] | int | None   # of signal.signal

_LOOK_EVERY_S = 0.1
_PROBE_EVERY_S = 5.0
_SAVE_S = 120.    # for the last checkpoint, before a launch ends that cannot go on
# A worker that a signal has ended says so, although it runs Python's handlers.
_ENDED_BY_SIGNAL = [128 + number for number in stop_signals.SIGNALS]
_ANSWER_S = 3.0   # a connection may take one second (cluster/admission.py)


def start(flags: Sequence[str], signal_at_our_end: signal.Signals, out: int | None = None,
          errors: int | None = None, prefix: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    """Starts a trainer process, which gets a signal if this process is killed.

    It prints to the file descriptors `out` and `errors`, or where this process does. The command
    in `prefix` must become that process, as env and nsenter do.
    """
    parent = os.getpid()
    return subprocess.Popen([*prefix, sys.executable, '-m', 'lingpipe.trainer', *flags],
                            preexec_fn=lambda: server.end_with_parent(parent, signal_at_our_end),
                            start_new_session=True, stdout=out, stderr=errors)


class Worker:
    """A worker process that is started again when it dies or hangs."""

    def __init__(self, address: str, flags: Sequence[str], hangs_after_s: float,
                 out: int | None = None, errors: int | None = None,
                 prefix: Sequence[str] = ()):
        self.address = address
        self.hangs_after_s = hangs_after_s
        # The worker restarts a server that hangs. Only if that fails is the worker restarted.
        server_hangs_after_s = max(1., hangs_after_s * 2 / 3)
        self._flags = ['--mode=worker', f'--address={address}',
                       f'--hangs_after_s={server_hangs_after_s:g}', *flags]
        self._out, self._errors, self._prefix = out, errors, prefix
        self.process = self._started()
        self._has_answered = False   # since it was started
        self._answered_s = time.monotonic()
        self._probed_s = self._answered_s

    def look(self) -> None:
        """Starts the worker again if it has ended or hangs.

        Raises:
          SystemExit: it has ended by itself before it answered.
        """
        code = self.process.poll()
        if code is None and time.monotonic() > self._probed_s + _PROBE_EVERY_S:
            now_s = time.monotonic()
            if server.answers(*ports.split_address(self.address), timeout_s=_ANSWER_S):
                self._answered_s, self._has_answered = now_s, True
            elif now_s - self._answered_s > self.hangs_after_s:
                self.process.kill()
                code = self.process.wait()
            self._probed_s = now_s

        if code is None:
            return
        if code > 0 and code not in _ENDED_BY_SIGNAL and not self._has_answered:
            raise SystemExit(f'launch_local: worker {self.address} cannot start '
                             f'({exit_code.ending(code)}); it has said why.')
        say(f'worker {self.address} has ended ({exit_code.ending(code)}) and is started again')
        self.process = self._started()
        self._answered_s, self._has_answered = time.monotonic(), False

    def _started(self) -> subprocess.Popen[bytes]:
        return start(self._flags, signal.SIGKILL, self._out, self._errors, self._prefix)

    def end(self) -> None:
        """Ends the worker, and with it its server."""
        self.process.kill()
        self.process.wait()


def free_addresses(number: int) -> list[str]:
    """Returns different addresses on loopback at which nothing listens."""
    addresses: list[str] = []
    while len(addresses) < number:
        address = f'127.0.0.1:{ports.free_port()}'
        if address not in addresses:
            addresses.append(address)
    return addresses


def run(num_workers: int, worker_devices: str, flags: Sequence[str], max_restarts: int,
        hangs_after_s: float) -> int:
    """Runs workers and trainer until the trainer ends; returns its exit code."""
    addresses = free_addresses(num_workers)
    worker_flags = trainer_flags.of_workers(flags, worker_devices)
    workers = [Worker(address, worker_flags, hangs_after_s) for address in addresses]

    devices = _with_addresses(trainer_flags.parsed(flags).devices or 'WORKERS', addresses)
    trainer_command = [*flags, f'--devices={devices}']   # the last --devices counts
    trainer = start(trainer_command, signal.SIGTERM)
    signals: list[int] = []

    def forward(number: int, frame: object) -> None:
        signals.append(number)
        trainer.send_signal(number)

    handlers_before: dict[int, Handler] = {number: signal.signal(number, forward)
                                           for number in stop_signals.heeded()}
    num_restarts = 0
    try:
        while True:
            code = trainer.poll()
            if code is not None:
                if code >= 0:
                    return code
                if signals or num_restarts == max_restarts:
                    return 128 - code
                num_restarts += 1
                say(f'the trainer has ended ({exit_code.ending(code)}) and is started again, '
                    f'{num_restarts} of {counted(max_restarts, "time")}')
                trainer = start(trainer_command, signal.SIGTERM)

            for worker in workers if not signals else ():   # They may have got the signal, too.
                worker.look()
            time.sleep(_LOOK_EVERY_S)
    finally:
        _end(trainer)
        for worker in workers:
            worker.end()
        for number, handler in handlers_before.items():
            signal.signal(number, handler)


def _end(trainer: subprocess.Popen[bytes]) -> None:
    """Lets a trainer save, if it has not ended, and ends it."""
    if trainer.poll() is None:
        trainer.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            trainer.wait(_SAVE_S)
    trainer.kill()
    trainer.wait()


def say(text: str) -> None:
    """Prints a line, even if the output has no reader."""
    closed_pipe.say(f'launch_local: {text}', sys.stdout)


def _with_addresses(devices: str, addresses: Sequence[str]) -> str:
    """Returns --devices with the workers' addresses: '2*WORKERS' becomes '2*a,2*b'."""
    items: list[str] = []
    for item in devices.split(','):
        has_workers = 'WORKERS' in item
        items += [item.replace('WORKERS', a) for a in addresses] if has_workers else [item]
    return ','.join(items)


@command
def main(argv: list[str] | None = None) -> None:
    """Parses the flags, runs all, and exits with the trainer's code."""
    p = parser('launch_local', __doc__)
    p.add_number('--workers', 2, 'how many', least=1, most=1024)
    p.add_argument('--worker_devices', default='',
                   help='what each has, as cpu:2; default: its GPUs, or one CPU')
    p.add_number('--max_restarts', 1000, 'of the trainer', least=0)
    p.add_number('--hangs_after_s', 90.,
                 'a worker that does not answer for so long is killed; its server after two thirds '
                 'of that', least=2, most=1e9)
    p.add_argument('flags', nargs='*',
                   help="-- and the trainer's flags; WORKERS in its --devices stands for the "
                        'addresses, as 2*WORKERS')
    args = p.parse_args(argv)
    trainer_flags.check(args.flags, may_name_devices=True)
    trainer_flags.check_worker_devices(args.worker_devices)
    devices = trainer_flags.parsed(args.flags).devices
    if devices and 'WORKERS' not in devices:
        raise ValueError(f'--devices={devices} after -- names no worker of --workers={args.workers}'
                         '; write WORKERS for their addresses, as 2*WORKERS, leave --devices out, '
                         'or start the trainer alone.')
    sys.exit(run(args.workers, args.worker_devices, args.flags, args.max_restarts,
                 args.hangs_after_s))


if __name__ == '__main__':
    main()
