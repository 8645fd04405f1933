"""Hugging Face: the folder of a causal language model, LLaMA's kin or GPT-2, and its weights.

    config.json                      what tasks/text/hugging_face_config.py reads
    model.safetensors                the weights; only if it is not there, they are in parts:
    model-00001-of-00002.safetensors
    model.safetensors.index.json     which part has which tensor

The weights are known here by the paths that they have in a LanguageModel (tasks/text), as
`weights/model/attention_0/body/wq`, and have its shapes: Hugging Face keeps the kernels of
projections transposed. Channels of heads need no other order, since both rotate halves
(layers/rotary.py).

GPT-2 has them as they are here, but q, k and v side by side in one tensor, c_attn. Its pieces have
names of their own here, as h.0.attn.c_attn.q.weight. In a folder that GPT2Model wrote, and not
GPT2LMHeadModel, the names lack their first word, `transformer`.

Tensors are read one by one, so that no second copy of the model is ever in memory.
"""
from __future__ import annotations

import importlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

CONFIG = 'config.json'
FILE = 'model.safetensors'
FACT = 'config_of_hugging_face'   # the name of the config among the facts of a run
INDEX = f'{FILE}.index.json'
_ADAPTERS = 'adapter_config.json'   # of folders of peft
_PREFIX = 'weights/model/'   # of keys, as in the run of a language_problem
_MOST_NAMED = 5              # tensors in an error


class Place(NamedTuple):
    """Where a weight is in the other program.

    Attributes:
      name: there.
      is_transposed: whether its two axes are in the other order there.
    """
    name: str
    is_transposed: bool


# The tensor -> the path of the weight in a LanguageModel; {i} is the number of the layer. Those of
# _KERNELS are transposed.
_PATHS = {
    'model.embed_tokens.weight': 'embedding/w',
    'model.layers.{i}.input_layernorm.weight': 'attention_{i}/norm/scale',
    **{f'model.layers.{{i}}.self_attn.{c}_proj.bias': f'attention_{{i}}/body/b{c}' for c in 'qkvo'},
    **{f'model.layers.{{i}}.self_attn.{c}_norm.weight': f'attention_{{i}}/body/{c}_scale'
       for c in 'qk'},
    'model.layers.{i}.post_attention_layernorm.weight': 'ffn_{i}/norm/scale',
    'model.norm.weight': 'norm/scale',
}
_KERNELS = {
    **{f'model.layers.{{i}}.self_attn.{c}_proj.weight': f'attention_{{i}}/body/w{c}'
       for c in 'qkvo'},
    **{f'model.layers.{{i}}.mlp.{c}_proj.weight': f'ffn_{{i}}/body/w_{c}'
       for c in ('gate', 'up', 'down')},
    'lm_head.weight': 'softmax/w',
}
_PATHS_OF_GPT2 = {
    'transformer.wte.weight': 'embedding/w',
    'transformer.wpe.weight': 'positions/w',
    **{f'transformer.{name}.{theirs}': f'{path}/{ours}'
       for name, path in {'h.{i}.ln_1': 'attention_{i}/norm', 'h.{i}.ln_2': 'ffn_{i}/norm',
                          'ln_f': 'norm'}.items()
       for theirs, ours in {'weight': 'scale', 'bias': 'offset'}.items()},
    **{f'transformer.h.{{i}}.{name}.{kind}': f'{path}/{kind[0]}{suffix}'
       for name, path, suffix in [('attn.c_proj', 'attention_{i}/body', 'o'),
                                  ('mlp.c_fc', 'ffn_{i}/body', '1'),
                                  ('mlp.c_proj', 'ffn_{i}/body', '2'),
                                  *[(f'attn.c_attn.{c}', 'attention_{i}/body', c) for c in 'qkv']]
       for kind in ('weight', 'bias')},
}
# Old files have these, which config.json says: speeds of rotations, and the causal mask.
_IS_CONSTANT = re.compile(r'.*\.rotary_emb\.inv_freq|(.*\.)?h\.\d+\.attn\.(masked_)?bias')
_DTYPES = {'F64': 'float64', 'F32': 'float32', 'F16': 'float16', 'BF16': 'bfloat16'}


def is_folder(path: str) -> bool:
    """Whether a path is such a folder, and no logdir."""
    return (path != '' and os.path.isfile(os.path.join(path, CONFIG))
            and not os.path.isdir(os.path.join(path, 'checkpoints')))


def check_no_adapters(path: str) -> None:
    """Raises ValueError if a path is a folder of the library peft, with adapters of a model."""
    if path and os.path.isfile(os.path.join(path, _ADAPTERS)):
        raise ValueError(f'{path} has {_ADAPTERS}, so that it holds adapters of the library peft, '
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


def weight_of(tensor: str) -> Place | None:
    """The path of a weight in a LanguageModel, by the name of the tensor; None: there is none."""
    return _place(tensor, _PATHS | _PATHS_OF_GPT2, _KERNELS)


def tensor_of(path: str, model_type: str = 'llama') -> Place | None:
    """The name of a tensor, by the path of the weight in a LanguageModel; None: there is none."""
    plain = _PATHS_OF_GPT2 if model_type == 'gpt2' else _PATHS
    return _place(path, {ours: theirs for theirs, ours in plain.items()},
                  {ours: theirs for theirs, ours in _KERNELS.items()})


def pieces_of(tensor: str, model_type: str) -> list[str]:
    """The names of what stands side by side in a tensor of a file, each of which is one weight."""
    if model_type != 'gpt2':
        return [tensor]
    has_root = tensor.startswith(('transformer.', 'lm_head.'))
    root, is_fused, kind = tensor.rpartition('.c_attn.')
    names = [f'{root}.c_attn.{c}.{kind}' for c in 'qkv'] if is_fused else [tensor]
    return names if has_root else [f'transformer.{name}' for name in names]


def whole_of(piece: str) -> str:
    """The name of the tensor of which something is a piece."""
    return re.sub(r'\.c_attn\.[qkv]\.', '.c_attn.', piece)


class _Piece(NamedTuple):
    """Where a weight is in the files.

    Attributes:
      tensor: its name there.
      part, num_parts: which of the parts of its last axis.
      is_transposed: whether its two axes are in the other order there.
    """
    tensor: str
    part: int
    num_parts: int
    is_transposed: bool


class Folder:
    """The weights of a folder, of which only what is asked for is in memory.

    Attributes:
      path: the folder.
      config: what config.json says.
      kinds: key of a weight -> {'shape': [2, 3], 'dtype': 'float32'}, its shape being that of the
        weight in a LanguageModel.
    """

    def __init__(self, path: str):
        """
        Raises:
          ValueError: a file is missing or damaged, has a tensor that no LanguageModel has or of
            another kind of numbers, or safetensors is not installed.
          OSError: a file cannot be read.
        """
        self.path, self.config = path, read_config(path)
        self._files = _files_by_tensor(path)
        self._kind_of_model = str(self.config.get('model_type'))
        is_gpt2 = self._kind_of_model == 'gpt2'
        if self.config.get('tie_word_embeddings', is_gpt2) and 'lm_head.weight' in self._files:
            tables = (['transformer.wte.weight', 'wte.weight'] if is_gpt2
                      else ['model.embed_tokens.weight'])
            self._check_copy('lm_head.weight', next(
                (name for name in tables if name in self._files), tables[0]))
        pieces = {name: pieces_of(name, self._kind_of_model) for name in self._files
                  if not _IS_CONSTANT.fullmatch(name)}
        places = {name: [weight_of(piece) for piece in names] for name, names in pieces.items()}
        if unknown := [name for name, of_pieces in places.items() if None in of_pieces]:
            raise ValueError(f'{path} has tensors that the network has no place for: '
                             f'{_listed(unknown)}; take a folder of a causal language model of '
                             'the kinds that docs/hugging-face.md names.')
        self._places = {
            f'{_PREFIX}{place.name}': _Piece(name, i, len(of_pieces), place.is_transposed)
            for name, of_pieces in places.items() for i, place in enumerate(of_pieces) if place}
        self.kinds = {key: self._kind(piece) for key, piece in self._places.items()}

    def read(self, key: str) -> np.ndarray:
        """Returns a weight, in the layout of a LanguageModel."""
        piece = self._places[key]
        array: np.ndarray = self._files[piece.tensor].get_tensor(piece.tensor)
        if piece.num_parts > 1:
            return np.ascontiguousarray(np.split(array, piece.num_parts, -1)[piece.part])
        return np.ascontiguousarray(array.T) if piece.is_transposed else array

    def check_used(self, missing: Mapping[str, str], used: Iterable[str], spared: Iterable[str]
                   ) -> None:
        """Raises ValueError unless each tensor has its weight, and each weight its tensor.

        Args:
          missing: key of a variable that a rule names and that is not taken -> why.
          used: keys of the weights that are taken from here.
          spared: keys of variables that no rule takes; the tensors of these need not be used.
        """
        taken = {*used, *spared}
        unused = list(dict.fromkeys(piece.tensor for key, piece in self._places.items()
                                    if key not in taken))
        if not missing and not unused:
            return
        problems = []
        if missing:
            reasons = [f'{self._with_tensor(key)}: {why}' for key, why in missing.items()]
            problems.append(f'weights that it does not give: {_listed(reasons)}')
        if unused:
            problems.append(f'tensors that no weight takes: {_listed(unused)}')
        remedy = f'make the network by language_model({self.path!r})'
        if missing:
            remedy += ', or leave out by initialize_from.rules what the folder shall not give'
        raise ValueError(f'{self.path} does not fit the network. There are '
                         f'{", and ".join(problems)}; {remedy}.')

    def _kind(self, piece: _Piece) -> dict[str, Any]:
        """Raises ValueError if a tensor is of no kind of numbers that is read here."""
        described = self._files[piece.tensor].get_slice(piece.tensor)
        dtype, shape = described.get_dtype(), list(described.get_shape())
        if dtype not in _DTYPES:
            raise ValueError(f'{self.path}: the tensor {piece.tensor} has numbers of the kind '
                             f'{dtype}, as quantised weights have; take a folder with weights of '
                             f'{", ".join(_DTYPES)}.')
        if shape and shape[-1] % piece.num_parts == 0:
            shape[-1] //= piece.num_parts
        return {'shape': shape[::-1] if piece.is_transposed else shape, 'dtype': _DTYPES[dtype]}

    def _with_tensor(self, key: str) -> str:
        """The key of a weight, with the name of the tensor that gives it."""
        place = tensor_of(key.removeprefix(_PREFIX), self._kind_of_model)
        return f'{key} ({whole_of(place.name)})' if place else key

    def _check_copy(self, name: str, original: str) -> None:
        """Leaves out a tensor that is another one again. Raises ValueError if it is not."""
        array = self._files[name].get_tensor(name)
        if original not in self._files or not np.array_equal(
                array, self._files[original].get_tensor(original)):
            raise ValueError(f'{self.path}: {CONFIG} has tie_word_embeddings=true, but {name} is '
                             f'not {original}; write false, if the model has both tables.')
        del self._files[name]


def _place(name: str, plain: Mapping[str, str], transposed: Mapping[str, str]) -> Place | None:
    """The other name, by tables of names in which {i} stands for the number of the layer."""
    for table in plain, transposed:
        for pattern, other in table.items():
            expression = re.escape(pattern).replace(re.escape('{i}'), '(0|[1-9][0-9]*)', 1)
            if match := re.fullmatch(expression, name):
                return Place(other.format(i=''.join(match.groups())), table is transposed)
    return None


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
