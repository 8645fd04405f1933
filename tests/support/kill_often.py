"""Trains in children that are killed with SIGKILL at random moments; for test_trainer.py.

    python -m tests.support.kill_often LOGDIR NUM_KILLS SEED [flags of the trainer]

TensorFlow is imported once, and every child is a fork of that process, so a start takes one second
instead of five. The program prints the newest checkpoint at every kill. The last
child runs to its end.
"""
import os
import random
import re
import signal
import sys
import time

# Both modules import TensorFlow, which must not start before the forks.
from lingpipe import trainer  # noqa: F401
from lingpipe.training import registry  # noqa: F401


def newest(logdir: str) -> int:
    """Returns the newest saved step."""
    directory = os.path.join(logdir, 'checkpoints')
    names = os.listdir(directory) if os.path.isdir(directory) else []
    return max([int(match[1]) for name in names if (match := re.fullmatch(r'step-(\d+)', name))],
               default=0)


def start(logdir: str, flags: list[str]) -> int:
    """Forks a trainer; returns its process id."""
    child = os.fork()
    if child == 0:
        os._exit(trainer.main(['trainer', f'--logdir={logdir}', *flags]))
    return child


def main(logdir: str, num_kills: int, seed: int, flags: list[str]) -> int:
    """Kills num_kills children, each before its first step or some steps after its start.

    The last child may run to its end.
    """
    chance = random.Random(seed)
    for _ in range(num_kills):
        child, goal = start(logdir, flags), newest(logdir) + chance.randrange(6)
        deadline = time.monotonic() + 60
        while newest(logdir) < goal and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(chance.uniform(0, 0.03))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            return 3   # The child ended before it was killed.
        print('killed at', newest(logdir),
              os.listdir(os.path.join(logdir, 'checkpoints')) if newest(logdir) else '', flush=True)
    return os.waitstatus_to_exitcode(os.waitpid(start(logdir, flags), 0)[1])


if __name__ == '__main__':
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]))
