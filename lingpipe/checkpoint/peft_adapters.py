"""PEFT adapters: a folder of low-rank adapters that the library peft wrote for a model.

    adapter_config.json          rank, alpha, and what else changes what the adapters add
    adapter_model.safetensors    lora_A [rank, D] and lora_B [U, rank] of each module

The names of the tensors say which modules have an adapter, so that target_modules, which may be
names, an expression or 'all-linear', is not read. Adapters are known here by the paths that they
have in a LanguageModel, as `weights/model/attention_0/body/wq_adapter/a`, or in a Transformer that
translates, as `weights/model/encoder_0/attention/wq_adapter/a`, and have its shapes.

GPT-2 has queries, keys and values side by side in one module, c_attn, and each of them has its own
adapter here. All three begin with the lora_A of the module and a third of its lora_B each. In the
folder that a run with two or three adapters writes (export/peft_folder.py), the one of c_attn has
the ranks of them together, and each takes its own part; of two, lora_B says whose they are.
"""
from __future__ import annotations

import importlib
import math
import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from lingpipe.checkpoint import hugging_face, hugging_face_names
from lingpipe.wording.values import show

CONFIG = hugging_face.ADAPTERS
FILE = 'adapter_model.safetensors'
_TENSOR = re.compile(r'base_model\.model\.(?P<module>.*)\.lora_(?P<matrix>[AB])\.weight')
_PROJECTION = re.compile(r'(?:attention|ffn)_\d+/body/\w+'
                         r'|(?:encoder|decoder)_\d+/(?:attention|cross|ffn)/\w+')
_FUSED = 'attn.c_attn'   # as rank_pattern names it
_REMEDY = ('merge these adapters into their model by merge_and_unload of peft, save it by '
           'save_pretrained to another folder, and begin with that folder')
# Fields of adapter_config.json that say nothing about what the adapters add, or that are read here.
# Every other one must be empty, so that what a later peft adds is not passed over in silence.
_HARMLESS = {
    'task_type', 'auto_mapping', 'peft_version', 'base_model_name_or_path', 'revision',
    'inference_mode', 'target_modules', 'exclude_modules', 'fan_in_fan_out', 'layers_pattern',
    'megatron_core', 'qalora_group_size', 'runtime_config', 'eva_config', 'ensure_weight_tying',
    'peft_type', 'r', 'lora_alpha', 'lora_dropout', 'use_rslora', 'rank_pattern', 'alpha_pattern'}
# Values that are not empty and change nothing all the same.
_SPARED = {'bias': ('none',), 'init_lora_weights': (True, 'gaussian', 'eva', 'orthogonal')}


class _Matrix(NamedTuple):
    """Where a matrix of an adapter is in the file.

    Attributes:
      tensor: its name there.
      rows, columns: of the tensor, those that are the matrix, which is transposed there.
    """
    tensor: str
    rows: slice
    columns: slice

    @property
    def shape(self) -> list[int]:
        """The shape of the matrix."""
        return [axis.stop - axis.start for axis in (self.columns, self.rows)]


class PeftAdapters:
    """The adapters of a folder.

    Attributes:
      path: the folder.
      rank, alpha, dropout_rate: as lp.Adapters has them.
      targets: the names of the projections that have an adapter, as 'wq'.
      shapes: key of a matrix, `weights/model/attention_0/body/wq_adapter/a` -> its shape.
    """

    def __init__(self, path: str):
        """
        Raises:
          ValueError: a file is missing or damaged, has what the network has no place for or would
            compute otherwise, or safetensors is not installed.
          OSError: a file cannot be read.
        """
        self.path = path
        config = self._read_config()
        self.rank = int(config['r'])
        # Rank-stabilised adapters have the factor alpha / sqrt(rank).
        self.alpha = float(config['lora_alpha']) * (
            math.sqrt(self.rank) if config.get('use_rslora') else 1)
        self.dropout_rate = float(config.get('lora_dropout') or 0)
        self._ranks = config.get('rank_pattern') or {}
        self._file = self._opened()
        self._matrices: dict[str, _Matrix] = {}
        for tensor in sorted(self._file.keys()):
            self._matrices |= self._matrices_of(tensor)
        self._check_pairs()
        self.shapes = {key: matrix.shape for key, matrix in self._matrices.items()}
        self.targets = tuple(dict.fromkeys(
            key.rpartition('/')[0].rpartition('/')[2].removesuffix('_adapter')
            for key in self._matrices))

    @property
    def scales(self) -> dict[str, float]:
        """The path of each weight that has an adapter -> the factor on a @ b."""
        return {key.removeprefix('weights/').removesuffix('_adapter/b'): self.alpha / self.rank
                for key in self._matrices if key.endswith('/b')}

    def tensor_of(self, key: str) -> str:
        """The name of the tensor in which a matrix is."""
        return self._matrices[key].tensor

    def read(self, key: str) -> np.ndarray:
        """Returns a matrix, a [D, rank] or b [rank, U]."""
        tensor, rows, columns = self._matrices[key]
        array: np.ndarray = self._file.get_tensor(tensor)
        return np.ascontiguousarray(array[rows, columns].T)

    def check_fits(self, shapes: Mapping[str, list[int]]) -> None:
        """Raises ValueError unless a network has these adapters and no others.

        Args:
          shapes: key of each matrix of its adapters -> the shape.
        """
        problems = [f'it has {key} of the shape {self.shapes[key]}, and the network none'
                    for key in self.shapes.keys() - shapes.keys()]
        problems += [f'it lacks {key}' for key in shapes.keys() - self.shapes.keys()]
        problems += [f'it has {key} of the shape {self.shapes[key]}, and the network one of '
                     f'{shape}' for key, shape in shapes.items()
                     if key in self.shapes and self.shapes[key] != shape]
        if problems:
            raise ValueError(
                f'the adapters of {self.path} are not those of the network: {min(problems)}; make '
                f'the network with adapters=peft_adapters({self.path!r}), or, if some layers have '
                f'none, {_REMEDY}.')

    def _read_config(self) -> dict[str, Any]:
        """What adapter_config.json says. Raises ValueError for what is not supported."""
        path = os.path.join(self.path, CONFIG)
        if not os.path.isfile(path):
            raise ValueError(f'{self.path} has no {CONFIG}, so that it is no folder of peft; name '
                             f'one with {CONFIG} and {FILE}.')
        config = hugging_face.read_json(path)
        if config.get('peft_type') != 'LORA':
            raise self._refused('peft_type', config.get('peft_type'), "'LORA' alone is supported")
        rank: Any = config.get('r')
        alpha: Any = config.get('lora_alpha')
        if type(rank) is not int or type(alpha) not in (int, float) or min(rank, alpha) <= 0:
            raise ValueError(f'{self.path}: {CONFIG} has r={show(rank)} and lora_alpha='
                             f'{show(alpha)}, which must be numbers above 0; copy the folder '
                             'again.')
        if type(dropout := config.get('lora_dropout') or 0) not in (int, float):
            raise self._refused('lora_dropout', dropout, 'it must be a number')
        together = [{'rank_pattern': {_FUSED: n * rank}, 'alpha_pattern': {_FUSED: n * alpha}}
                    for n in (2, 3)]
        patterns = {name: config.get(name) or {} for name in ('rank_pattern', 'alpha_pattern')}
        if any(patterns.values()) and (patterns not in together or config.get('use_rslora')):
            name = next(name for name, value in patterns.items() if value)
            raise self._refused(name, patterns[name], 'all adapters of a network have one '
                                                       'rank and one alpha')
        for name, value in config.items():
            is_empty = value is None or value is False or value in ('', [], {})
            if not is_empty and name not in _HARMLESS and value not in _SPARED.get(name, ()):
                raise self._refused(name, value, 'this, which changes what the model computes, is '
                                                 'not supported')
        return config

    def _refused(self, name: str, value: object, rule: str) -> ValueError:
        return ValueError(f'{self.path}: {CONFIG} has {name}={show(value)}, and {rule}; '
                          f'{_REMEDY}.')

    def _opened(self) -> Any:
        """The open file of tensors. Raises ValueError as the class does."""
        path = os.path.join(self.path, FILE)
        try:
            safetensors = importlib.import_module('safetensors')
        except ImportError as error:
            raise ValueError('safetensors is needed to read adapters of peft and cannot be '
                             f'imported ({error}); run pip install safetensors.') from error
        if not os.path.isfile(path):
            raise ValueError(f'{self.path} has no {FILE}; put it there. If there is an '
                             'adapter_model.bin, load it in peft and call save_pretrained.')
        try:
            return safetensors.safe_open(path, framework='np')
        except safetensors.SafetensorError as error:
            raise ValueError(f'{path} cannot be read: {error}; write it again.') from error

    def _matrices_of(self, tensor: str) -> dict[str, _Matrix]:
        """The matrices in a tensor by key, one for each weight that its module has here.

        Raises:
          ValueError: it is no matrix of an adapter, that of a module that has none here, or one of
            another rank.
        """
        match = _TENSOR.fullmatch(tensor)
        weight = f'{match["module"]}.weight' if match else ''
        pieces = hugging_face_names.pieces_of(
            weight, 'gpt2' if re.match(r'(transformer\.)?h\.', weight) else 'llama')
        places = [hugging_face_names.weight_of(piece) for piece in pieces]
        paths = [place.name for place in places if place and _PROJECTION.fullmatch(place.name)
                 and hugging_face_names.expert_of(weight) is None]
        if match is None or len(paths) < len(pieces):
            raise ValueError(f'{self.path}: {FILE} has {tensor}, but only the projections of '
                             'attention and feed-forward layers can have adapters, which '
                             f'docs/hugging-face.md names; {_REMEDY}.')

        is_a, is_split = match['matrix'] == 'A', bool(self._ranks) and len(paths) > 1
        rows, columns = self._size_of(tensor)
        rank = self._ranks[_FUSED] if is_split else self.rank
        if (rows if is_a else columns) != rank:
            raise ValueError(f'{self.path}: {tensor} has the shape [{rows}, {columns}], which is '
                             f'not of rank {rank}, as {CONFIG} says; copy the folder again.')
        owners = (self._owners(tensor.replace('.lora_A.', '.lora_B.'), len(paths)) if is_split
                  else range(len(paths)))
        matrices = {}
        for place, i in enumerate(owners):
            first = place * self.rank if is_split else 0
            ranks = slice(first, first + self.rank)
            units = slice(i * rows // len(paths), (i + 1) * rows // len(paths))
            key = f'weights/model/{paths[i]}_adapter/{match["matrix"].lower()}'
            matrices[key] = (_Matrix(tensor, ranks, slice(0, columns)) if is_a
                             else _Matrix(tensor, units, ranks))
        return matrices

    def _size_of(self, tensor: str) -> list[int]:
        """The rows and columns of a tensor. Raises ValueError if it is no matrix of fractions."""
        described = self._file.get_slice(tensor)
        dtype, shape = described.get_dtype(), list(described.get_shape())
        if len(shape) != 2 or dtype not in hugging_face.DTYPES:
            raise ValueError(f'{self.path}: {tensor} has the shape {shape} and numbers of the kind '
                             f'{dtype}, but an adapter has matrices of '
                             f'{", ".join(hugging_face.DTYPES)}; {_REMEDY}.')
        return shape

    def _check_pairs(self) -> None:
        """Raises ValueError if there are no adapters, or one of them lacks a matrix."""
        if not self._matrices:
            raise ValueError(f'{self.path}: {FILE} has no adapters; copy the folder again.')
        for key, matrix in self._matrices.items():
            root, _, name = key.rpartition('/')
            if f'{root}/{"b" if name == "a" else "a"}' not in self._matrices:
                lost = {'a': 'lora_B', 'b': 'lora_A'}[name]
                raise ValueError(f'{self.path}: {FILE} has {matrix.tensor} without its {lost}; '
                                 'copy the folder again.')

    def _owners(self, tensor: str, num_parts: int) -> list[int]:
        """The parts of a module that have an adapter, in the order of their ranks in its lora_B.

        Raises:
          ValueError: the output of a part is not 0 at the ranks of another one, or they do not say
            whose they are.
        """
        array = self._file.get_tensor(tensor)
        blocks = array.reshape(num_parts, -1, array.shape[1] // self.rank, self.rank)
        is_used = np.any(blocks != 0, (1, 3))   # [part, place among the ranks]
        num_owners = is_used.shape[1]
        owners = [i for i in range(num_parts) if num_owners == num_parts or np.any(is_used[i])]
        is_own = np.zeros_like(is_used)
        if len(owners) == num_owners:
            is_own[owners, range(num_owners)] = True
        if len(owners) != num_owners or np.any(is_used & ~is_own):
            raise ValueError(f'{self.path}: {tensor} has not {num_owners} blocks, each of queries, '
                             'keys or values alone, which have their own adapters here, and 0 '
                             'everywhere else; if peft has trained what was 0, '
                             f'{_REMEDY}.')
        return owners
