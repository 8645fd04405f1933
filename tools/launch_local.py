"""Starts workers and the trainer on this machine, on loopback, and starts again what dies.

    python -m tools.launch_local --workers=2 -- --model=image.digits.AmoebaNet --logdir=/tmp/digits

What comes after -- are the trainer's flags; workers get --model and --set too, for their threads. A process that is killed is started
again: a worker at the same address, the trainer from its last checkpoint. All end with the trainer, whose exit code this has. SIGTERM and
Ctrl-C go to the trainer, which saves first.
"""
from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from lingpipe.cluster import address_filter, server
from lingpipe.process import closed_pipe
from tools import parser, trainer_flags
from tools.command_line import command

_LOOK_EVERY_S = 0.1
_PROBE_EVERY_S = 5.0
_PR_SET_PDEATHSIG = 1   # of linux/prctl.h


def start(flags: Sequence[str], signal_at_our_end: signal.Signals, out: int | None = None) -> subprocess.Popen[bytes]:
    """A trainer process, which gets a signal if this one is killed; it prints to the file descriptor `out`, or where this one does."""
    above = os.getpid()

    def bind() -> None:
        if sys.platform == 'linux':
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal_at_our_end)
            if os.getppid() != above:
                os._exit(1)
    return subprocess.Popen([sys.executable, '-m', 'lingpipe.trainer', *flags], preexec_fn=bind, start_new_session=True,
                            stdout=out)


class Worker:
    """A worker process that is started again when it dies or hangs."""

    def __init__(self, address: str, flags: Sequence[str], hangs_after_s: float, out: int | None = None):
        self.address, self.hangs_after_s = address, hangs_after_s
        server_s = max(1., hangs_after_s * 2 / 3)   # it ends its server before it is ended itself, which takes longer
        self._flags = ['--mode=worker', f'--address={address}', f'--hangs_after_s={server_s:g}', *flags]
        self._out = out
        self.process = start(self._flags, signal.SIGKILL, out)
        self._heard_s = self._probed_s = time.monotonic()

    def look(self) -> None:
        """Starts it again if need be."""
        code = self.process.poll()
        if code is None and time.monotonic() > self._probed_s + _PROBE_EVERY_S:
            now_s = time.monotonic()
            if server.answers(*address_filter.split_address(self.address), timeout_s=1.):
                self._heard_s = now_s
            elif now_s - self._heard_s > self.hangs_after_s:
                self.process.kill()
                code = self.process.wait()
            self._probed_s = now_s
        if code is not None and code > 0:
            raise SystemExit(f'launch_local: worker {self.address} cannot start ({name_of(code)}); it has said why.')
        if code is not None:
            say(f'worker {self.address} has ended ({name_of(code)}) and is started again')
            self.process = start(self._flags, signal.SIGKILL, self._out)
            self._heard_s = time.monotonic()

    def end(self) -> None:
        """Ends it and what it started."""
        self.process.kill()
        self.process.wait()


def free_addresses(number: int) -> list[str]:
    """Different addresses on loopback at which nothing listens."""
    addresses: list[str] = []
    while len(addresses) < number:
        address = f'127.0.0.1:{address_filter.free_port()}'
        addresses += [address] if address not in addresses else []
    return addresses


def run(num_workers: int, worker_devices: str, flags: Sequence[str], max_restarts: int, hangs_after_s: float) -> int:
    """Runs all to the trainer's end; returns its exit code."""
    addresses = free_addresses(num_workers)
    workers = [Worker(address, trainer_flags.of_workers(flags, worker_devices), hangs_after_s) for address in addresses]
    devices = trainer_flags.parsed(flags).devices or 'WORKERS'
    command = [*flags, f'--devices={devices.replace("WORKERS", ",".join(addresses))}']   # the last one counts
    trainer = start(command, signal.SIGTERM)
    asked: list[int] = []

    def forward(number: int, frame: object) -> None:
        asked.append(number)
        trainer.send_signal(number)

    before: dict[int, Any] = {n: signal.signal(n, forward) for n in (signal.SIGTERM, signal.SIGINT)}
    try:
        num_restarts = 0
        while True:
            code = trainer.poll()
            if code is not None and (code >= 0 or asked or num_restarts == max_restarts):
                return code if code >= 0 else 128 - code
            if code is not None:
                num_restarts += 1
                say(f'the trainer has ended ({name_of(code)}) and is started again, {num_restarts} of {max_restarts} times')
                trainer = start(command, signal.SIGTERM)
            for worker in workers:
                worker.look()
            time.sleep(_LOOK_EVERY_S)
    finally:
        trainer.kill()
        trainer.wait()
        for worker in workers:
            worker.end()
        for number, handler in before.items():
            signal.signal(number, handler)


def name_of(code: int) -> str:
    """'SIGKILL' or 'exit code 1'."""
    return signal.Signals(-code).name if code < 0 else f'exit code {code}'


def say(text: str) -> None:
    """One line for whoever looks."""
    closed_pipe.say(f'launch_local: {text}', sys.stdout)


@command
def main(argv: list[str] | None = None) -> None:
    """Parses the flags, and exits with the trainer's code."""
    p = parser('launch_local', __doc__)
    p.add_number('--workers', 2, 'how many', least=1, most=1024)
    p.add_argument('--worker_devices', default='', help='what each has, as cpu:2; default: its GPUs, or one CPU')
    p.add_number('--max_restarts', 1000, 'of the trainer', least=0)
    p.add_number('--hangs_after_s', 90., 'a worker that does not answer for so long is killed; its server after two thirds of that',
                 least=2, most=1e9)
    p.add_argument('flags', nargs='*', help="-- and the trainer's flags; WORKERS in its --devices stands for the addresses, as 2*WORKERS")
    args = p.parse_args(argv)
    trainer_flags.check(args.flags, may_name_devices=True)
    trainer_flags.check_worker_devices(args.worker_devices)
    sys.exit(run(args.workers, args.worker_devices, args.flags, args.max_restarts, args.hangs_after_s))


if __name__ == '__main__':
    main()
