"""Description: the inputs, outputs and weights of an export, with shapes and dtypes, as JSON."""
from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from lingpipe.checkpoint.facts import Metadata
from lingpipe.export.served_network import signature
from lingpipe.layers.low_rank import adapter_facts
from lingpipe.pipeline.execution.predictor import Predictor
from lingpipe.pipeline.execution.program import Program

_BEGINNING = '{\n"written_by": "lingpipe"'   # of every description


def is_description(path: str) -> bool:
    """Whether a file is the description of an export, as far as it can be read."""
    with contextlib.suppress(OSError), open(path, encoding='utf-8', errors='replace') as file:
        return file.read(len(_BEGINNING)) == _BEGINNING
    return False


def described(program: Program, predictor: Predictor, facts: Metadata) -> str:
    """The description as JSON, a line for every weight.

    Args:
      program: has the weights.
      predictor: has the inputs and outputs.
      facts: whatever else is known, such as the step.
    """
    trained = {path for learner in program.placed.trained.values() for path in learner.weights}
    needed = {name: spec for name, spec in predictor.input_specs.items()
              if name not in predictor.optional_inputs}
    weights = {path: {**_kind(variable), 'is_trained': path in trained}
               for path, variable in program.weights.items()}
    entries = {
        'written_by': json.dumps('lingpipe'),
        **{name: json.dumps(value) for name, value in facts.items()},
        'inputs': _lines({name: _kind(spec) for name, spec in signature(needed).items()}),
        'outputs': _lines({name: _kind(spec)
                           for name, spec in signature(predictor.output_specs).items()}),
        'weights': _lines(weights),
        **{name: _lines(entries) for name, entries in adapter_facts(program.network).items()}}
    texts = [f'{json.dumps(name)}: {text}' for name, text in entries.items()]
    return '{\n' + ',\n'.join(texts) + '\n}\n'


def _kind(spec: tf.TensorSpec | tf.Variable) -> dict[str, Any]:
    return {'shape': spec.shape.as_list(), 'dtype': spec.dtype.name}


def _lines(entries: Mapping[str, Any]) -> str:
    """A JSON object with a line for every entry."""
    lines = [f'  {json.dumps(name)}: {json.dumps(value)}' for name, value in entries.items()]
    return '{\n' + ',\n'.join(lines) + '\n}'
