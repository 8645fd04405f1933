"""Weight files: weights that other programs have written, by the keys that rules choose from.

    weights.npz           'weights/' and the name of the array
    weights.safetensors   'weights/' and the name of the tensor
    model.keras           'weights/' and the path of the variable: weights/dense/kernel; where
                          several have the same path, the names of nested models come before it
    model.weights.h5      'weights/', the names of the layers and the number of the variable, since
                          Keras does not write its name there: weights/dense/0; layers of the same
                          name in one layer are called by the attributes that hold them

A JSON file of the same name beside npz or safetensors, as an export of lingpipe has it, says what
the weights were trained for.
"""
from __future__ import annotations

import importlib
import json
import os
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from lingpipe.checkpoint.unreadable import NO_FILE, reading


def is_weight_file(path: str) -> bool:
    """Whether a path has the ending of such a file."""
    return path.endswith(tuple(_READERS))


def read_weights(path: str) -> dict[str, np.ndarray]:
    """Returns all weights of a file by key.

    Raises:
      ValueError: the file is damaged or of another kind, or a package that reads it is missing.
      OSError: it cannot be read.
    """
    read = next(read for ending, read in _READERS.items() if path.endswith(ending))
    try:
        with open(path, 'rb'):
            pass
        weights = {f'weights/{name}': array for name, array in read(path).items()}
    except _PackageError as error:
        raise ValueError(str(error)) from error
    except OSError as error:
        raise OSError(f'{path} cannot be read: {error.strerror or error}; correct '
                      'initialize_from.directory.') from error
    except Exception as error:   # Each library has its own for a damaged file.
        raise ValueError(f'{path} cannot be read: {" ".join(str(error).split())}; write it '
                         'again, or name another file.') from error
    if not weights:
        raise ValueError(f'{path} has no weights; name another file.')
    return weights


def read_metadata(path: str) -> dict[str, Any]:
    """Returns what the description beside a file says, or {}.

    Raises:
      UnreadableError: there is one, and the system does not let this process read it.
    """
    description = f'{os.path.splitext(path)[0]}.json'
    try:
        with reading(description), open(description, encoding='utf-8') as file:
            metadata = json.load(file)
    except (*NO_FILE, ValueError, RecursionError):
        return {}
    return metadata if isinstance(metadata, dict) else {}


class _PackageError(Exception):
    """A package is missing."""


def _read_npz(path: str) -> Mapping[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays}


def _read_safetensors(path: str) -> Mapping[str, np.ndarray]:
    numpy = _import('safetensors.numpy')
    arrays: Mapping[str, np.ndarray] = numpy.load_file(path)
    return arrays


def _read_keras(path: str) -> Mapping[str, np.ndarray]:
    if not zipfile.is_zipfile(path):
        raise ValueError('it is no .keras file')
    model = _import('keras').models.load_model(path, compile=False)
    number_of = Counter(variable.path for variable in model.weights)
    nested = list(_nested_variables(model, ''))

    def name_of(variable: Any) -> str:
        """Its path, below the names of nested models if another variable has the same."""
        paths = [path for path, one in nested if one is variable and number_of[one.path] > 1]
        return paths[0] if paths else str(variable.path)

    return _by_name([(name_of(variable), variable.numpy()) for variable in model.weights])


def _nested_variables(model: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Yields (names of nested models and path, variable) of all variables of layers."""
    for layer in model.layers:
        if hasattr(layer, 'train_step'):   # a model
            yield from _nested_variables(layer, f'{prefix}{layer.name}/')
        for variable in layer.weights:
            yield f'{prefix}{variable.path}', variable


def _by_name(named: Sequence[tuple[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The arrays by name. Raises ValueError if two have the same."""
    for name, number in Counter(name for name, _ in named).items():
        if number > 1:
            raise ValueError(f'several of its variables are called {name}, so that no rule can '
                             'tell them apart, and their layers need different names')
    return dict(named)


def _read_h5(path: str) -> Mapping[str, np.ndarray]:
    h5py = _import('h5py')
    with h5py.File(path, 'r') as file:
        return _by_name(list(_variables(file, '')))


def _variables(group: Any, path: str) -> Iterator[tuple[str, np.ndarray]]:
    """Yields (names of layers and number of the variable, value) of all variables below a group."""
    names = {segment: _name_in_h5(segment, member) for segment, member in group.items()}
    for segment, member in group.items():
        if not hasattr(member, 'items'):   # a variable
            continue
        if segment == 'vars':
            for number, dataset in member.items():
                yield f'{path}{number}', np.asarray(dataset)
        elif segment in ('layers', '_layer_checkpoint_dependencies'):
            yield from _variables(member, path)
        else:
            is_alone = list(names.values()).count(names[segment]) == 1
            yield from _variables(member, f'{path}{names[segment] if is_alone else segment}/')


def _name_in_h5(segment: str, member: Any) -> str:
    """The name of a layer whose variables are in a member of a group."""
    has_variables = hasattr(member, 'items') and 'vars' in member
    return member['vars'].attrs.get('name', segment) if has_variables else segment


def _import(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition('.')[0]
        raise _PackageError(f'{package} is needed to read these weights and cannot be imported '
                            f'({error}); run pip install {package}.') from error


_READERS: dict[str, Callable[[str], Mapping[str, np.ndarray]]] = {
    '.npz': _read_npz, '.safetensors': _read_safetensors, '.keras': _read_keras, '.h5': _read_h5}
