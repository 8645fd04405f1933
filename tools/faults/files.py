"""Faults of files: one of the logdir is damaged while no trainer runs, as by a disk or a person.

The trainer must go on from an older checkpoint that is whole.
"""
from __future__ import annotations

import pathlib
import random
import shutil

from lingpipe.tools.faults.disturbed_run import DisturbedRun, NotRecoveredError


def flip(run: DisturbedRun, chance: random.Random) -> str:
    """Flips a bit of a file."""
    path = _stopped(run, chance)
    data = bytearray(path.read_bytes())
    bit = chance.randrange(8 * len(data))
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    return _goes_on(run, f'bit {bit} of {path.relative_to(run.logdir)}')


def truncate(run: DisturbedRun, chance: random.Random) -> str:
    """Cuts off the end of a file."""
    path = _stopped(run, chance)
    size = chance.randrange(path.stat().st_size)
    with open(path, 'r+b') as file:
        file.truncate(size)
    return _goes_on(run, f'{path.relative_to(run.logdir)} to {size} bytes')


def swap(run: DisturbedRun, chance: random.Random) -> str:
    """Exchanges a file of the newest checkpoint, or all of them, with that of another one.

    Neither of the two is whole afterwards, so there must be a third.
    """
    path = _stopped(run, chance, only_checkpoint=True)
    newest = path.parent
    others = [other for other in _checkpoints(run) if other != newest]
    if len(others) < 2:
        return _goes_on(run, 'nothing: there are fewer than three checkpoints')
    other = chance.choice(others)
    if chance.random() < 0.3:
        pair = (newest, other)
    else:
        pair = (path, other / path.name)
    aside = run.logdir / 'aside'
    pair[0].rename(aside)
    pair[1].rename(pair[0])
    aside.rename(pair[1])
    return _goes_on(run, ' and '.join(str(one.relative_to(run.logdir)) for one in pair))


def delete(run: DisturbedRun, chance: random.Random) -> str:
    """Deletes a file, or all of the newest checkpoint."""
    path = _stopped(run, chance)
    if path.parent.parent.name == 'checkpoints' and chance.random() < 0.3:
        path = path.parent
        shutil.rmtree(path)
    else:
        path.unlink()
    return _goes_on(run, str(path.relative_to(run.logdir)))


def _stopped(run: DisturbedRun, chance: random.Random, only_checkpoint: bool = False
             ) -> pathlib.Path:
    """Kills the trainer, and returns a file that is not empty, most often of a checkpoint."""
    run.kill_trainer()
    checkpoints = _checkpoints(run)
    is_of_checkpoint = only_checkpoint or chance.random() < 0.8
    folder = checkpoints[-1] if checkpoints and is_of_checkpoint else run.logdir
    paths = sorted(path for path in folder.rglob('*') if path.is_file() and path.stat().st_size)
    if not paths:
        raise NotRecoveredError(f'{folder} has no file')
    return chance.choice(paths)


def _checkpoints(run: DisturbedRun) -> list[pathlib.Path]:
    """Returns the folders of checkpoints, oldest first."""
    return sorted(run.logdir.glob('checkpoints/step-*'))


def _goes_on(run: DisturbedRun, text: str) -> str:
    run.start_trainer()
    return text
