"""Formats: how a network is written for other programs."""
from __future__ import annotations

import contextlib
import dataclasses
import importlib
import os
import re
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from lingpipe.checkpoint import files, side_files
from lingpipe.checkpoint.facts import Metadata
from lingpipe.export.description import described, is_description
from lingpipe.export.hugging_face_folder import DTYPES, HuggingFaceFolder, hugging_face_folder
from lingpipe.export.onnx_model import write_onnx
from lingpipe.export.peft_folder import peft_folder
from lingpipe.export.replacement import (
    DESCRIPTION,
    check_replaceable,
    check_writable,
    replaced_directory,
    replaced_file,
)
from lingpipe.export.served_network import ServedNetwork
from lingpipe.keras_models import KerasModel, to_keras
from lingpipe.pipeline.execution.predictor import Predictor
from lingpipe.pipeline.execution.program import Program
from lingpipe.process.error_text import reason

_REMEDY = 'choose another path to export to'


@dataclasses.dataclass(frozen=True)
class _Exported:
    """What is written: a network with its weights, and the facts about it.

    Attributes:
      program: has the weights.
      predictor: has the inputs and outputs.
      text: the description, as JSON.
      source: where the weights began, a folder of Hugging Face perhaps, or ''.
      dtype: the type of the weights in the files, for hugging_face.
    """
    program: Program
    predictor: Predictor
    text: str
    source: str
    dtype: str


def export(program: Program, predictor: Predictor, path: str, format: str,
           facts: Metadata | None = None, source: str = '', dtype: str = DTYPES[0]) -> str:
    """Writes a network with the weights that evaluation uses.

    Args:
      program: has the weights.
      predictor: says which inputs and outputs.
      path: of a file or, for saved_model, hugging_face and peft, of a directory. An earlier export
        there is replaced when the new one is complete.
      format: one of FORMATS.
      facts: what the description holds besides, as JSON.
      source: where the weights began: if it is a folder of Hugging Face, the format hugging_face
        takes its config and the files of its tokenizer along, and peft names it.
      dtype: one of DTYPES, to which the format hugging_face rounds the weights.

    Returns:
      The path of what was written, to which the format's suffix is added if it lacks it.

    Raises:
      ValueError: the network cannot be written in this format, or a package is missing.
      OSError: the path cannot be written. What was there before still is.
    """
    path = check_path(path, format)
    check_dtype(dtype, format)
    text = described(program, predictor, facts or {})
    _WRITERS[format].write(_Exported(program, predictor, text, source, dtype), path)
    return path


def check_dtype(dtype: str, format: str) -> None:
    """Raises ValueError unless the format can write the weights in this type."""
    if dtype not in DTYPES:
        raise ValueError(f'weights of the type {dtype!r} cannot be exported; use '
                         f'{", ".join(DTYPES)}.')
    if dtype != DTYPES[0] and format != 'hugging_face':
        raise ValueError(f'format={format!r} writes the weights in the type that they have, and '
                         f'only hugging_face rounds them to {dtype}; use that, or leave {dtype} '
                         'out.')


def check_path(path: str, format: str) -> str:
    """Returns the path with the suffix of the format.

    Raises:
      ValueError: there is no such format, the path ends as those of another one do, or a package
        that the format needs is not installed.
      OSError: nothing can be written there.
    """
    if format not in _WRITERS:
        raise ValueError(f'format={format!r} is unknown; use {", ".join(FORMATS)}.')
    if not path:
        raise ValueError('the path to export to is empty; name a file or a directory.')
    for other, its_writer in _WRITERS.items():
        if other != format and its_writer.suffix and path.endswith(its_writer.suffix):
            raise ValueError(f'{path} ends like a file of the format {other}, but the format is '
                             f'{format}; choose the format {other}, or another path.')
    for suffix, remedy in _OTHER_SUFFIXES.items():
        if path.lower().endswith(suffix):
            raise ValueError(f'{path} ends like a file that is not written here; {remedy}.')
    writer = _WRITERS[format]
    for package in writer.packages:
        _import(package, format)
    if writer.suffix and os.path.isdir(path):
        raise OSError(f'{path} cannot be written: it is a directory; {_REMEDY}.')
    if format == 'saved_model' and {'[', '\\'} & set(path):
        raise ValueError(f'{path} has [ or a backslash, and TensorFlow, which takes it for a '
                         'pattern, loads no saved_model from there; choose another path.')
    path = path if path.endswith(writer.suffix) else path + writer.suffix
    check_writable(path, _REMEDY)
    if not writer.suffix:
        check_replaceable(path, _REMEDY)
    beside = _path_of_description(path)
    if writer.has_description and os.path.isfile(beside) and not is_description(beside):
        raise OSError(f'{beside} would be replaced by the description of {path}, and is not that '
                      f'of an earlier export; {_REMEDY}, or move it away.')
    return path


def _write_saved_model(exported: _Exported, path: str) -> None:
    """Writes a directory that tf.saved_model.load and TensorFlow Serving read."""
    network = ServedNetwork(exported.program, exported.predictor)
    signatures = {'serving_default': network.in_parts()}
    try:
        signatures['at_once'] = network.at_once()
    except ValueError as error:
        logging.warning('the export has no signature at_once: %s', error)
    with replaced_directory(path, _REMEDY) as new:
        with _errors_of_files(tf.errors.OpError):
            tf.saved_model.save(network.module, new, signatures=signatures)
        side_files.write_text(os.path.join(new, DESCRIPTION), exported.text)


def _write_keras(exported: _Exported, path: str) -> None:
    """Writes the Keras model that the network was made of, which gets the weights."""
    models = [layer for layer in exported.program.network.layers() if isinstance(layer, KerasModel)]
    if len(models) != 1:
        raise ValueError(f'the network was made of {len(models)} Keras models, and the format '
                         'keras writes the one that came in by lp.from_keras; use saved_model, '
                         'npz, safetensors, hugging_face or onnx.')
    paths = [element.layer.path for element in exported.predictor.elements]
    if left_out := [path for path in paths if not path.startswith(f'{models[0].path}/')]:
        logging.warning(
            '%s has the Keras model that came in alone, and not the layers of the network beside '
            'it, without which it has other outputs: %s; saved_model and onnx have all', path,
            ', '.join(left_out))
    model = to_keras(models[0].params, _arrays(exported), models[0].path)
    with replaced_file(path, _REMEDY) as new, _optimizer_that_begins_anew(model):
        model.save(new)


@contextlib.contextmanager
def _optimizer_that_begins_anew(model: keras.Model) -> Iterator[None]:
    """A context in which Keras saves no steps and slots of a model's optimizer.

    It had these with other weights. A new optimizer in its place would have to be made of its
    configuration, which Keras cannot read if a class of it is a user's own.
    """
    optimizer = getattr(model, 'optimizer', None)
    if optimizer is None or not int(optimizer.iterations):
        yield
        return
    inner = getattr(optimizer, 'inner_optimizer', None)   # A LossScaleOptimizer has one.
    optimizers = [optimizer] if inner is None else [optimizer, inner]
    for one in optimizers:
        one.save_own_variables = lambda store: None   # Hides the method of the class.
    try:
        yield
    finally:
        for one in optimizers:
            del one.save_own_variables


def _write_npz(exported: _Exported, path: str) -> None:
    """Writes an array for every weight, bfloat16 as float32, which NumPy knows."""
    arrays = {name: array.astype(np.float32) if array.dtype.kind == 'V' else array
              for name, array in _arrays(exported).items()}
    with replaced_file(path, _REMEDY) as new, open(new, 'wb') as file:
        np.savez(file, **arrays)   # type: ignore[arg-type]   # allow_pickle is one of its arguments
    _write_description(exported, path)


def _write_safetensors(exported: _Exported, path: str) -> None:
    """Writes a tensor for every weight."""
    safetensors: Any = _import('safetensors.numpy', 'safetensors')
    error_class = _import('safetensors', 'safetensors').SafetensorError
    with replaced_file(path, _REMEDY) as new, _errors_of_files(error_class):
        safetensors.save_file(_arrays(exported), new, metadata={'format': 'lingpipe'})
    _write_description(exported, path)


def _write_hugging_face(exported: _Exported, path: str) -> None:
    """Writes a directory that from_pretrained of transformers reads."""
    _write_folder(exported, path, hugging_face_folder(
        exported.program.network, exported.program.evaluated_weights(), exported.source,
        exported.dtype))


def _write_peft(exported: _Exported, path: str) -> None:
    """Writes a directory that peft's PeftModel.from_pretrained reads."""
    _write_folder(exported, path, peft_folder(
        exported.program.network, exported.program.evaluated_weights(), exported.source))


def _write_folder(exported: _Exported, path: str, folder: HuggingFaceFolder) -> None:
    safetensors: Any = _import('safetensors.numpy', 'safetensors')
    error_class = _import('safetensors', 'safetensors').SafetensorError
    with replaced_directory(path, _REMEDY) as new:
        for name, part in folder.parts.items():
            with _errors_of_files(error_class):   # Without metadata, transformers refuses a file.
                safetensors.save_file({tensor: stored.array() for tensor, stored in part.items()},
                                      os.path.join(new, name), metadata={'format': 'pt'})
        for name, text in folder.texts.items():
            side_files.write_text(os.path.join(new, name), text)
        for name, copied in folder.copied.items():
            shutil.copyfile(copied, os.path.join(new, name))
        side_files.write_text(os.path.join(new, DESCRIPTION), exported.text)


def _write_onnx(exported: _Exported, path: str) -> None:
    """Writes a model for ONNX runtimes."""
    network = ServedNetwork(exported.program, exported.predictor)
    with replaced_file(path, _REMEDY) as new:
        write_onnx(network, new)


@contextlib.contextmanager
def _errors_of_files(kind: type[Exception]) -> Iterator[None]:
    """A context in which a library's error becomes an OSError of the system's words alone.

    TensorFlow writes 'PATH; No space left on device', and safetensors '... I/O error: No space left
    on device (os error 28)'.
    """
    try:
        yield
    except kind as error:
        words = re.sub(r'^.*(; |I/O error: )| \(os error \d+\)$', '', files.sentence(error))
        raise OSError(words) from error


def _arrays(exported: _Exported) -> dict[str, np.ndarray]:
    # ascontiguousarray would make a scalar an array of one number.
    return {path: np.asarray(value.numpy(), order='C')
            for path, value in exported.program.evaluated_weights().items()}


def _path_of_description(path: str) -> str:
    """The JSON file beside a file of weights."""
    return f'{os.path.splitext(path)[0]}.json'


def _write_description(exported: _Exported, path: str) -> None:
    try:
        side_files.write_text(_path_of_description(path), exported.text)
    except OSError as error:
        raise OSError(f'{path} is written, but its description is not: {reason(error)}.') from error


def _import(module: str, format: str) -> Any:
    """A module of a package that is not required.

    Raises:
      ValueError: it cannot be imported.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition('.')[0]
        raise ValueError(f'the format {format} needs {package}, which cannot be imported '
                         f'({error}); run pip install {package}, or install lingpipe with its '
                         f'extra {format}.') from error


@dataclasses.dataclass(frozen=True)
class _Writer:
    """Writes one format. A path without a suffix is that of a directory."""
    write: Callable[[_Exported, str], None]
    suffix: str = ''
    packages: tuple[str, ...] = ()
    has_description: bool = False   # whether a JSON file beside it says what is in it


_WRITERS: dict[str, _Writer] = {
    'saved_model': _Writer(_write_saved_model),
    'keras': _Writer(_write_keras, '.keras'),
    'npz': _Writer(_write_npz, '.npz', has_description=True),
    'safetensors': _Writer(_write_safetensors, '.safetensors', ('safetensors.numpy',),
                           has_description=True),
    'hugging_face': _Writer(_write_hugging_face, packages=('safetensors.numpy',)),
    'peft': _Writer(_write_peft, packages=('safetensors.numpy',)),
    'onnx': _Writer(_write_onnx, '.onnx', ('tf2onnx.convert', 'onnx.checker')),
}
FORMATS = tuple(_WRITERS)

_OTHER_SUFFIXES = {   # of files of Keras and TensorFlow -> what to write
    '.weights.h5': 'write the weights as .npz or .safetensors, or the model as .keras, each in '
                   'the format of that name',
    **dict.fromkeys(['.h5', '.hdf5'], "write .keras, with format='keras'"),
    '.pb': 'a saved_model is a directory: leave .pb out',
    '.tflite': 'write a saved_model, of which tf.lite.TFLiteConverter.from_saved_model makes one',
}
