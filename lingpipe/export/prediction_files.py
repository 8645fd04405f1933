"""Prediction files: the outputs of examples, as other programs read them.

    .npz      an array [N, ...] for every output, by its name
    .csv      a line of names, then a line for every example: NAME, or NAME.0, NAME.1, ... where an
              example has several numbers, in row-major order
    .jsonl    a JSON object for every example: name -> number or nested lists

Numbers are written with as many digits as give back the same bits.
"""
from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import IO, Any

import numpy as np

from lingpipe.export.replacement import check_writable, replaced_file
from lingpipe.layers import nested
from lingpipe.layers.nested import Nested
from lingpipe.process import closed_pipe

_REMEDY = 'correct --predict_output'


def check_output(path: str) -> None:
    """Raises an error if predictions cannot be written to a path; '' is standard output.

    Raises:
      ValueError: no format has this ending.
      OSError: nothing can be written there.
    """
    if not path:
        return
    if _suffix(path) not in _WRITERS:
        raise ValueError(f'--predict_output={path} has the ending {_suffix(path)!r}; use '
                         f'{", ".join(sorted(_WRITERS))}.')
    if os.path.isdir(path):
        raise OSError(f'{path} cannot be written: it is a directory; {_REMEDY}.')
    check_writable(path, _REMEDY)


def write_predictions(path: str, outputs: Mapping[str, Nested]) -> None:
    """Writes outputs, as a whole or not at all.

    Args:
      path: its ending says the format; '' writes JSON lines to standard output.
      outputs: name -> nested arrays [N, ...].

    Raises:
      OSError: it cannot be written.
    """
    flat = {name: np.asarray(array, np.float32) if array.dtype.kind == 'V' else array
            for name, array in nested.flatten(dict(outputs))}   # NumPy has no bfloat16
    if not path:
        with closed_pipe.writing_output():
            _write_json_lines(sys.stdout, flat)
            sys.stdout.flush()
        return
    with replaced_file(path, _REMEDY) as new:
        if _suffix(path) == '.npz':
            with open(new, 'wb') as file:
                np.savez(file, **flat)   # type: ignore[arg-type]   # allow_pickle is an argument
            return
        with open(new, 'w', encoding='utf-8', newline='') as text_file:
            _WRITERS[_suffix(path)](text_file, flat)


def _suffix(path: str) -> str:
    return os.path.splitext(path)[1].lower()


def _write_csv(file: IO[str], arrays: Mapping[str, np.ndarray]) -> None:
    writer = csv.writer(file, lineterminator='\n')
    rows = {name: array.reshape([len(array), -1]) for name, array in arrays.items()}
    writer.writerow([name if arrays[name].ndim == 1 else f'{name}.{i}'
                     for name, array in rows.items() for i in range(array.shape[1])])
    for number in range(len(next(iter(rows.values())))):
        writer.writerow([_text(value) for array in rows.values() for value in array[number]])


def _write_json_lines(file: IO[str], arrays: Mapping[str, np.ndarray]) -> None:
    for number in range(len(next(iter(arrays.values())))):
        example = {name: _plain(array[number]) for name, array in arrays.items()}
        file.write(json.dumps(example, ensure_ascii=False) + '\n')


def _plain(value: Any) -> Any:
    """Numbers and nested lists of numbers, for JSON."""
    if isinstance(value, np.ndarray):
        return [_plain(item) for item in value]
    if isinstance(value, np.floating):
        return float(str(value))   # The shortest number that a float32 is read from.
    if isinstance(value, bytes):
        return value.decode('utf-8', 'replace')
    return value.item() if isinstance(value, np.generic) else value


def _text(value: Any) -> str:
    return str(_plain(value))


_WRITERS: dict[str, Callable[[IO[str], Mapping[str, np.ndarray]], None]] = {
    '.csv': _write_csv, '.jsonl': _write_json_lines, '.npz': lambda file, arrays: None}
