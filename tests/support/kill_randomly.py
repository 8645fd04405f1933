"""Trains on two workers while random processes are killed or stopped at random moments.

It takes long and is thus run by hand.

    python -m tests.support.kill_randomly LOGDIR NUM_FAULTS SEED [flags of the trainer]

Prints every fault, and at the end whether the variables are bitwise identical to those of a run in
one process.
"""
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import numpy as np

from tests.support.local_workers import TINY, Trainer, Worker, checkpoint_of, environment


def newest(logdir: pathlib.Path) -> int:
    """Returns the newest saved step."""
    return max([int(path.name[5:]) for path in logdir.glob('checkpoints/step-*')], default=0)


def main(logdir: pathlib.Path, num_faults: int, seed: int, flags: list[str]) -> int:
    """Causes one fault after the other.

    Each comes some steps after the one before, or soon, in the middle of the recovery from it.
    """
    chance = random.Random(seed)
    workers = [Worker(), Worker()]
    steps = 12 * num_faults
    flags = [f'--steps={steps}', '--set=train.step_timeout_s=4', *flags]
    one = Trainer(logdir / 'killed', [w.address for w in workers], *flags)
    counts: dict[str, int] = {}
    for number in range(num_faults):
        goal = newest(one.logdir) + chance.randrange(1, 5)
        deadline = time.monotonic() + (chance.uniform(1, 12) if chance.random() < 0.2 else 120)
        while newest(one.logdir) < goal and time.monotonic() < deadline:
            time.sleep(0.01)
            if one.process.poll() is not None:
                print('the trainer ended by itself', one.process.communicate()[1])
                return 3
        time.sleep(chance.uniform(0, 0.1))
        i = chance.randrange(2)
        kind = chance.choice(['server killed', 'server killed', 'worker killed', 'trainer killed',
                              'server stopped'])
        print(f'{number} after step {newest(one.logdir)}: {kind}',
              i if kind != 'trainer killed' else '', flush=True)
        counts[kind] = counts.get(kind, 0) + 1
        if kind == 'trainer killed':
            one.kill()
            one = Trainer(one.logdir, [w.address for w in workers], *flags)
        elif kind == 'worker killed':
            workers[i].stop()
            workers[i] = Worker(workers[i].address)
        else:
            try:
                os.kill(workers[i].server(),
                        signal.SIGKILL if kind == 'server killed' else signal.SIGSTOP)
            except ProcessLookupError:
                print('  it has ended just now')
    _, err = one.process.communicate(timeout=1200)
    for worker in workers:
        worker.stop()
    if one.process.returncode:
        print('the trainer failed:', err)
        return 1
    subprocess.run([sys.executable, '-m', 'lingpipe.trainer', TINY, f'--logdir={logdir}/whole',
                    '--mode=train', *flags],
                   check=True, env=environment(), stdout=subprocess.DEVNULL)
    found, expected = (checkpoint_of(logdir / 'killed', steps),
                       checkpoint_of(logdir / 'whole', steps))
    differing = [name for name in expected if not np.array_equal(found[name], expected[name])]
    restarts = one.log().count('starts again from there')
    print(f'{counts}; the trainer started itself again {restarts} times; '
          f'{len(expected) - len(differing)} of {len(expected)} variables are equal to the last '
          f'bit after step {steps}')
    return 1 if differing or found.keys() != expected.keys() else 0


if __name__ == '__main__':
    sys.exit(main(pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]))
