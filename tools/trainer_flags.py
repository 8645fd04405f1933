"""Trainer flags: what stands after -- in a launcher's command.

They are checked here, before the job waits in a queue.
"""
from __future__ import annotations

from collections.abc import Sequence

from absl import flags as absl_flags

from lingpipe.cluster import server
from lingpipe.commands.flags import check_mode, define_flags, error_text

MODES = ('train_and_eval', 'train', 'eval', 'decode')   # these end when their work is done


def check(flags: Sequence[str], may_name_devices: bool = False) -> None:
    """Raises ValueError for flags that the trainer would refuse, or that the launcher itself sets.

    Args:
      flags: those of the trainer.
      may_name_devices: whether --devices may be among them.
    """
    if not flags:
        raise ValueError("the trainer's flags are missing; write them after --, as "
                         '-- --model=NAME --logdir=DIR.')
    values = parsed(flags)
    if values.address or values.devices and not may_name_devices:
        name = 'address' if values.address else 'devices'
        raise ValueError(f'--{name} after -- is given to the trainer by this tool; leave it out, '
                         'and name what workers have by --worker_devices.')
    if values.mode not in MODES:
        raise ValueError(f'--mode={values.mode} after -- is no job for workers; use one of '
                         f'{", ".join(MODES)}, or start the trainer alone.')
    missing = [name for name in ('model', 'logdir') if not getattr(values, name)]
    if missing:
        raise ValueError(f'--{missing[0]} after -- is missing; write -- --model=NAME '
                         '--logdir=DIR.')


def parsed(flags: Sequence[str]) -> absl_flags.FlagValues:
    """Returns the trainer's flags, read by the trainer's own definitions.

    Raises:
      ValueError: the trainer has no such flag, or refuses the value.
    """
    values = define_flags()
    try:
        rest = values(['trainer', *flags])[1:]
        check_mode(values)
    except absl_flags.Error as error:
        raise ValueError(f"the trainer's flags after --: {error_text(error)}; correct them."
                         ) from error
    if rest:
        raise ValueError(f'{rest[0]!r} after -- is no flag of the trainer; write --model=NAME '
                         '--logdir=DIR.')
    return values


def of_workers(flags: Sequence[str], devices: str) -> list[str]:
    """Returns the flags of workers: --model and --set of the trainer's flags, and --devices.

    Without `devices`, each worker has all of its devices.
    """
    values = parsed(flags)
    worker_flags = [f'--model={values.model}'] if values.model else []
    worker_flags += [f'--set={setting}' for setting in values.set]
    if devices:
        worker_flags.append(f'--devices={devices}')
    return worker_flags


def check_worker_devices(devices: str) -> None:
    """Raises ValueError for what a worker would refuse as --devices; '' means all that it has."""
    if devices:
        try:
            server.session_config(devices)
        except ValueError as error:
            raise ValueError(f'--worker_{str(error).removeprefix("--")}') from error
