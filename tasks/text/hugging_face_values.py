"""Values of config.json of a model of Hugging Face, checked as they are read.

What one model_type says is in hugging_face_config.py, here and in tasks/translation. The names of
fields are those of the network's Params.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from absl import logging

from lingpipe.checkpoint import hugging_face
from lingpipe.hyperparams import Params
from lingpipe.wording.values import show

Config = Mapping[str, Any]   # what config.json holds


def read_fields(folder: str, fields_of: Callable[[Config], dict[str, Any]]
                ) -> tuple[Config, dict[str, Any]]:
    """Returns config.json of a folder, and what it says as fields of a network.

    Raises:
      ValueError: config.json is missing or damaged, or says what is not supported; or the folder
        has adapters of peft.
    """
    hugging_face.check_no_adapters(folder)
    if not hugging_face.is_folder(folder):
        raise ValueError(f'{folder} has no {hugging_face.CONFIG}, so that it is no folder of '
                         f'Hugging Face; name one with {hugging_face.CONFIG} and '
                         f'{hugging_face.FILE}.')
    try:
        config = hugging_face.read_config(folder)
        return config, fields_of(config)
    except ValueError as error:
        raise ValueError(f'{folder}: {error}') from error


def warn_of_rates(folder: str, what: str, rates: Mapping[str, float]) -> None:
    """Warns of the rates, by field, with which transformers trains and lingpipe does not."""
    if rates:
        logging.warning('%s: the network trains without the %s of %s; nothing else changes', folder,
                        what, ', '.join(f'{name}={rate}' for name, rate in rates.items()))


def check_described(ours: Mapping[str, Any], theirs: Mapping[str, Any], maker: str) -> None:
    """Raises ValueError if weights come with a config.json of another network.

    Such weights may fit all the same, as those of a model whose positions turn at other speeds.

    Args:
      ours: fields of the network.
      theirs: the same fields, as config.json means them.
      maker: the name of what makes the network of a folder.
    """
    if differing := [f'task.model.{name}={ours[name]!r} (config.json means {theirs[name]!r})'
                     for name in theirs if ours[name] != theirs[name]]:
        raise ValueError('the weights belong to another network than this one with '
                         f'{", ".join(differing)}; make it by {maker}(folder), or set '
                         'these fields.')


def check_expressed(fields: Mapping[str, Any], meant: Mapping[str, Any], model: str) -> None:
    """Raises ValueError if a config.json that was made of fields means other fields."""
    if others := [f'task.model.{name}={fields[name]!r} ({meant[name]!r} there)'
                  for name in fields if fields[name] != meant[name]]:
        raise ValueError(f'the {model} of Hugging Face has no {", ".join(others)}; train with what '
                         'it has.')


def describes(config: Config, fields: Mapping[str, Any],
              fields_of: Callable[[Config], dict[str, Any]]) -> bool:
    """Whether a config.json means the network of these fields."""
    try:
        return fields_of(config) == fields
    except ValueError:   # It means a network that is not supported.
        return False


def with_dtype(config: Config, dtype: str) -> dict[str, Any]:
    """Returns the same config.json for weights of this type."""
    names = [name for name in ('dtype', 'torch_dtype') if name in config] or ['torch_dtype']
    return {**config, **dict.fromkeys(names, dtype)}


def check_supported(config: Config, supported: Mapping[str, tuple[Any, ...]]) -> None:
    """Raises ValueError if a field is there and has none of the values that are supported."""
    for name, values in supported.items():
        if name in config and config[name] not in values:
            refuse(name, config[name], f'{values[0]!r} is')


def refuse(name: str, value: object, supported: str) -> NoReturn:
    """Raises ValueError for a value, while others are supported."""
    raise ValueError(f'config.json has {name}={show(value)}, which is not supported, while '
                     f'{supported}; convert the model, or take another one.')


def check_counterparts(params: Params, plain: Mapping[str, object]) -> None:
    """Raises ValueError if a network has parts that no model that is known here has.

    Args:
      params: of the network.
      plain: name of a field -> its value without such parts.
    """
    for name, value in plain.items():
        if params[name] != value:
            raise ValueError(f'task.model.{name}={params[name]} has no counterpart in the models '
                             'of Hugging Face that are known here; make the network with '
                             f'{name}={value}.')


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
