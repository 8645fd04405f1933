"""Values of config.json of a model of Hugging Face, checked as they are read."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from lingpipe.wording.values import show

Config = Mapping[str, Any]   # what config.json holds


def refuse(name: str, value: object, supported: str) -> NoReturn:
    """Raises ValueError for a value, while others are supported."""
    raise ValueError(f'config.json has {name}={show(value)}, which is not supported, while '
                     f'{supported}; convert the model, or take another one.')


def number(config: Config, name: str) -> int:
    """The whole number, above 0, of a field. Raises ValueError for anything else."""
    value = config.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f'config.json has {name}={show(value)}, but it must be a whole number '
                         'above 0; write what the model has.')
    return value


def real(config: Config, name: str, default: float | None = None) -> float:
    """The number of a field. Raises ValueError for anything else."""
    value = config.get(name, default)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise ValueError(f'config.json has {name}={show(value)}, but it must be a number; write '
                         'what the model has.')
    return float(value)


def flag(config: Config, name: str) -> bool:
    """Whether a field is true. Raises ValueError unless it is true, false, null or missing."""
    value = config.get(name)
    if value not in (True, False, None):
        raise ValueError(f'config.json has {name}={show(value)}, but it must be true or false; '
                         'write what the model has.')
    return bool(value)
