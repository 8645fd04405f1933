"""Trainer flags: what stands after -- in a launcher's command, checked here and not first in a queue of other jobs."""
from __future__ import annotations

from collections.abc import Sequence

from absl import flags as absl_flags

from lingpipe import trainer
from lingpipe.cluster import server

MODES = ('train_and_eval', 'train', 'eval', 'decode')   # that end by themselves, with the work done


def check(flags: Sequence[str], may_name_devices: bool = False) -> None:
    """Raises ValueError for flags that the trainer would not take, or that the launcher gives itself.

    Args:
      flags: the trainer's.
      may_name_devices: whether --devices may be among them.
    """
    if not flags:
        raise ValueError("the trainer's flags are missing; write them after --, as -- --model=NAME --logdir=DIR.")
    values = parsed(flags)
    if values.address or values.devices and not may_name_devices:
        name = 'address' if values.address else 'devices'
        raise ValueError(f'--{name} after -- is given to the trainer by this tool; leave it out, and name what workers have by '
                         '--worker_devices.')
    if values.mode not in MODES:
        raise ValueError(f'--mode={values.mode} after -- is no job for workers; use one of {", ".join(MODES)}, or start the trainer '
                         'alone.')
    missing = [name for name in ('model', 'logdir') if not getattr(values, name)]
    if missing:
        raise ValueError(f'--{missing[0]} after -- is missing; write -- --model=NAME --logdir=DIR.')


def parsed(flags: Sequence[str]) -> absl_flags.FlagValues:
    """The trainer's flags as the trainer reads them, however they are written.

    Raises:
      ValueError: the trainer has no such flag, or it does not take the value.
    """
    values = trainer.define_flags()
    try:
        rest = values(['trainer', *flags])[1:]
    except absl_flags.Error as error:
        raise ValueError(f"the trainer's flags after --: {error}; correct them.") from error
    if rest:
        raise ValueError(f"{rest[0]!r} after -- is no flag of the trainer; write --model=NAME --logdir=DIR.")
    return values


def of_workers(flags: Sequence[str], devices: str) -> list[str]:
    """What workers get: --model and --set of the trainer's flags, and the devices that they have, if it is not all."""
    values = parsed(flags)
    found = [f'--model={values.model}'] if values.model else []
    found += [f'--set={setting}' for setting in values.set]
    return [*found, f'--devices={devices}'] if devices else found


def check_worker_devices(devices: str) -> None:
    """Raises ValueError for what a worker would not take as --devices; '' is all that it has."""
    if devices:
        try:
            server.session_config(devices)
        except ValueError as error:
            raise ValueError(f'--worker_{str(error).removeprefix("--")}') from error
