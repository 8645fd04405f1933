"""Hugging Face: the folder of a model that transformers reads, and its weights.

    config.json                      what hugging_face_config.py of tasks/text and of
                                     tasks/translation reads
    model.safetensors                the weights; only if it is not there, they are in parts:
    model-00001-of-00002.safetensors
    model.safetensors.index.json     which part has which tensor

The weights are known here by the paths that they have in a network of lingpipe, and have its shapes
(hugging_face_names.py). Tensors are read one by one, so that no second copy of the model is ever in
memory.
"""
from __future__ import annotations

import importlib
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from lingpipe.checkpoint.hugging_face_names import (
    TIED,
    Place,
    expert_of,
    is_constant,
    pieces_of,
    shares_of,
    tensor_of,
    tied_tables,
    weight_of,
    whole_of,
)

CONFIG = 'config.json'
FILE = 'model.safetensors'
FACT = 'config_of_hugging_face'   # the name of the config among the facts of a run
INDEX = f'{FILE}.index.json'
ADAPTERS = 'adapter_config.json'   # of folders of peft
_PREFIX = 'weights/model/'   # of keys, as in the run of a language_problem or a translator
_MOST_NAMED = 5              # tensors in an error

DTYPES = {'F64': 'float64', 'F32': 'float32', 'F16': 'float16', 'BF16': 'bfloat16'}


def is_folder(path: str) -> bool:
    """Whether a path is such a folder, and no logdir."""
    return (path != '' and os.path.isfile(os.path.join(path, CONFIG))
            and not os.path.isdir(os.path.join(path, 'checkpoints')))


def check_no_adapters(path: str) -> None:
    """Raises ValueError if a path is a folder of the library peft, with adapters of a model."""
    if path and os.path.isfile(os.path.join(path, ADAPTERS)):
        raise ValueError(f'{path} has {ADAPTERS}, so that it holds adapters of the library peft, '
                         'which are not read here; name the folder of their model here, and this '
                         'one in initialize_from.adapters (docs/hugging-face.md, Adapters).')


def read_config(path: str) -> dict[str, Any]:
    """Returns what config.json of a folder says.

    Raises:
      ValueError: it is damaged.
      OSError: it cannot be read.
    """
    return read_json(os.path.join(path, CONFIG))


def part_name(index: int, num_parts: int) -> str:
    """The name that transformers gives to one of the files with weights, by its number from 0."""
    root, suffix = os.path.splitext(FILE)
    return FILE if num_parts == 1 else f'{root}-{index + 1:05d}-of-{num_parts:05d}{suffix}'


class _Piece(NamedTuple):
    """Where a weight is in the files.

    Attributes:
      tensors: their names there: one, or one for each expert, in their order.
      is_stacked: whether each expert has its own.
      begin, end, of: which part of the last axis it has here: from begin / of to end / of.
      is_transposed: whether its last two axes are in the other order there.
    """
    tensors: tuple[str, ...]
    is_stacked: bool
    begin: int
    end: int
    of: int
    is_transposed: bool


class Folder:
    """The weights of a folder, of which only what is asked for is in memory.

    Attributes:
      path: the folder.
      config: what config.json says.
      kinds: key of a weight -> {'shape': [2, 3], 'dtype': 'float32'}, its shape being that of the
        weight here.
    """

    def __init__(self, path: str):
        """
        Raises:
          ValueError: a file is missing or damaged, has a tensor that no network here has or of
            another kind of numbers, or safetensors is not installed.
          OSError: a file cannot be read.
        """
        self.path, self.config = path, read_config(path)
        self._files = _files_by_tensor(path)
        self._kind_of_model = str(self.config.get('model_type'))
        if self.config.get('tie_word_embeddings', self._kind_of_model in TIED):
            tables, copies = tied_tables(self._kind_of_model)
            table = next((name for name in tables if name in self._files), tables[0])
            for copy in copies:
                self._leave_out_copy(copy, table)
        pieces = {name: pieces_of(name, self._kind_of_model) for name in self._files
                  if not is_constant(name)}
        places = {name: [weight_of(piece, self._kind_of_model) for piece in names]
                  for name, names in pieces.items()}
        if unknown := [name for name, of_pieces in places.items() if None in of_pieces]:
            raise ValueError(f'{path} has tensors that the network has no place for: '
                             f'{_listed(unknown)}; take a folder of a model of the kinds that '
                             'docs/hugging-face.md names.')
        shares = {name: shares_of(name, self.config) for name in places}
        self._places = _pieces_by_key(path, places, shares)
        self.kinds = {key: self._kind(piece) for key, piece in self._places.items()}

    def read(self, key: str) -> np.ndarray:
        """Returns a weight, in the layout of the network."""
        piece = self._places[key]
        if not piece.is_stacked:
            return self._read_tensor(piece, piece.tensors[0])
        first = self._read_tensor(piece, piece.tensors[0])
        stacked = np.empty([len(piece.tensors), *first.shape], first.dtype)
        stacked[0] = first
        for i, name in enumerate(piece.tensors[1:], 1):
            stacked[i] = self._read_tensor(piece, name)
        return stacked

    def check_used(self, missing: Mapping[str, str], used: Iterable[str], spared: Iterable[str]
                   ) -> None:
        """Raises ValueError unless each tensor has its weight, and each weight its tensor.

        Args:
          missing: key of a variable that a rule names and that is not taken -> why.
          used: keys of the weights that are taken from here.
          spared: keys of variables that no rule takes; the tensors of these need not be used.
        """
        taken = {*used, *spared}
        unused = list(dict.fromkeys(name for key, piece in self._places.items()
                                    if key not in taken for name in piece.tensors))
        if not missing and not unused:
            return
        problems = []
        if missing:
            reasons = [f'{self._with_tensor(key)}: {why}' for key, why in missing.items()]
            problems.append(f'weights that it does not give: {_listed(reasons)}')
        if unused:
            problems.append(f'tensors that no weight takes: {_listed(unused)}')
        maker = 'translation_model' if self._kind_of_model == 'm2m_100' else 'language_model'
        remedy = f'make the network by {maker}({self.path!r})'
        if missing:
            remedy += ', or leave out by initialize_from.rules what the folder shall not give'
        raise ValueError(f'{self.path} does not fit the network. There are '
                         f'{", and ".join(problems)}; {remedy}.')

    def _read_tensor(self, piece: _Piece, name: str) -> np.ndarray:
        """What a tensor gives to a weight, in the layout of the network."""
        array: np.ndarray = self._files[name].get_tensor(name)
        array = array.swapaxes(-1, -2) if piece.is_transposed else array
        if piece.end - piece.begin < piece.of:
            size = array.shape[-1] // piece.of
            array = array[..., size * piece.begin:size * piece.end]
        return np.ascontiguousarray(array)

    def _kind(self, piece: _Piece) -> dict[str, Any]:
        """Raises ValueError if the experts have several kinds, or as _kind_of_tensor does."""
        first, *others = ((name, self._kind_of_tensor(piece, name)) for name in piece.tensors)
        for name, kind in others:
            if kind != first[1]:
                raise ValueError(f'{self.path} has {first[0]} of {first[1]} and {name} of {kind}, '
                                 'but all experts have tensors of one kind; copy the folder again.')
        return ({**first[1], 'shape': [len(piece.tensors), *first[1]['shape']]}
                if piece.is_stacked else first[1])

    def _kind_of_tensor(self, piece: _Piece, name: str) -> dict[str, Any]:
        """Raises ValueError if a tensor is of no kind of numbers that is read here."""
        described = self._files[name].get_slice(name)
        dtype, shape = described.get_dtype(), list(described.get_shape())
        if dtype not in DTYPES:
            raise ValueError(f'{self.path}: the tensor {name} has numbers of the kind '
                             f'{dtype}, as quantised weights have; take a folder with weights of '
                             f'{", ".join(DTYPES)}.')
        if piece.is_transposed:
            shape[-2:] = shape[:-3:-1]
        if shape and shape[-1] % piece.of == 0:
            shape[-1] = shape[-1] // piece.of * (piece.end - piece.begin)
        return {'shape': shape, 'dtype': DTYPES[dtype]}

    def _with_tensor(self, key: str) -> str:
        """The key of a weight, with the name of the tensor that gives it."""
        place = tensor_of(key.removeprefix(_PREFIX), self._kind_of_model)
        return f'{key} ({whole_of(place.name)})' if place else key

    def _leave_out_copy(self, name: str, original: str) -> None:
        """Leaves out a tensor that is another one again. Raises ValueError if it is not."""
        if name not in self._files:
            return
        array = self._files[name].get_tensor(name)
        if original not in self._files:
            raise ValueError(f'{self.path} has {name} and no {original}, of which it is a copy in '
                             'models with tie_word_embeddings=true; save the model again by '
                             'save_pretrained of transformers.')
        if not np.array_equal(array, self._files[original].get_tensor(original)):
            remedy = ('take a folder in which it is' if self._kind_of_model == 'm2m_100' else
                      'write false, if the model has both tables')
            raise ValueError(f'{self.path}: {CONFIG} has tie_word_embeddings=true, but {name} is '
                             f'not {original}; {remedy}.')
        del self._files[name]


def _pieces_by_key(path: str, places: Mapping[str, list[Place | None]],
                   shares: Mapping[str, list[int]]) -> dict[str, _Piece]:
    """The pieces by the key of the weight, from places and widths of the pieces of each tensor.

    Raises:
      ValueError: a weight has several tensors other than one for each expert, or lacks an expert.
    """
    pieces: dict[str, _Piece] = {}
    names: dict[str, list[str]] = {}   # of the tensors of each weight
    for name, of_pieces in places.items():
        for i, place in enumerate(of_pieces):
            assert place is not None
            key = f'{_PREFIX}{place.name}'
            names.setdefault(key, []).append(name)
            begin, end = sum(shares[name][:i]), sum(shares[name][:i + 1])
            pieces[key] = _Piece((), False, begin, end, sum(shares[name]), place.is_transposed)
    for key, tensors in names.items():
        by_expert = {expert_of(name): name for name in tensors}
        is_stacked = by_expert.keys() == set(range(len(tensors)))
        if not is_stacked and (len(tensors) > 1 or None not in by_expert):
            raise ValueError(f'{path} has for one weight, {key.removeprefix(_PREFIX)}, the tensors '
                             f'{_listed(sorted(tensors))}, which are not one for each expert, '
                             'counted from 0; copy the folder again.')
        pieces[key] = pieces[key]._replace(
            tensors=tuple(by_expert[i] for i in range(len(tensors))) if is_stacked
            else tuple(tensors), is_stacked=is_stacked)
    return pieces


def _files_by_tensor(folder: str) -> dict[str, Any]:
    """The open file of each tensor. Raises ValueError as Folder does."""
    try:
        safetensors = importlib.import_module('safetensors')
    except ImportError as error:
        raise ValueError('safetensors is needed to read the weights of Hugging Face and cannot be '
                         f'imported ({error}); run pip install safetensors.') from error
    # As transformers does: one file with all weights is preferred.
    is_whole = os.path.isfile(os.path.join(folder, FILE))
    parts = {} if is_whole else _parts_by_tensor(os.path.join(folder, INDEX))
    opened: dict[str, Any] = {}
    for name in sorted(set(parts.values())) or [FILE]:
        path = os.path.join(folder, name)
        if not os.path.isfile(path):
            raise ValueError(f'{folder} has no {name}; put it there, or name another folder with '
                             f'{CONFIG} and {FILE}.')
        try:
            opened[name] = safetensors.safe_open(path, framework='np')
        except safetensors.SafetensorError as error:
            raise ValueError(f'{path} cannot be read: {error}; write it again.') from error

    names = {part: dict.fromkeys(file.keys()) for part, file in opened.items()}
    if lost := sorted(tensor for tensor, part in parts.items() if tensor not in names[part]):
        raise ValueError(f'{folder} lacks tensors that {INDEX} names: {_listed(lost)}; copy the '
                         'folder again.')
    files = {tensor: opened[part] for part in opened for tensor in names[part]}
    return files | {tensor: opened[part] for tensor, part in parts.items()}


def _parts_by_tensor(index: str) -> dict[str, str]:
    """The name of the file of each tensor; {} if there is no index. Raises ValueError as Folder."""
    if not os.path.isfile(index):
        return {}
    parts: Any = read_json(index).get('weight_map')
    names = list(parts.values()) if isinstance(parts, dict) else []
    if not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f'{index} has no weight_map that names the file of each tensor; copy the '
                         'folder again.')
    return dict(parts)


def read_json(path: str) -> dict[str, Any]:
    """Returns the JSON object of a file. Raises ValueError if it holds none."""
    with open(path, encoding='utf-8') as file:
        try:
            value = json.load(file)
        except (ValueError, RecursionError) as error:
            raise ValueError(f'{path} cannot be read: {error}; write it again.') from error
    if not isinstance(value, dict):
        raise ValueError(f'{path} holds no JSON object; write it again.')
    return value


def _listed(names: list[str]) -> str:
    more = f' and {len(names) - _MOST_NAMED:,} more' if len(names) > _MOST_NAMED else ''
    return f'{", ".join(names[:_MOST_NAMED])}{more}'
