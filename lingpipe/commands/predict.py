"""Predict: the outputs of examples in a file, or of an eval input, with the newest checkpoint.

An eval input that names its examples, such as images by their paths, adds an output with the names.
Nothing but the output is written.
"""
from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np

from lingpipe.api.run import Run
from lingpipe.commands.run_options import RunOptions
from lingpipe.export.prediction_files import check_output, write_predictions
from lingpipe.input.example_files import read_examples
from lingpipe.layers import nested
from lingpipe.layers.nested import Nested
from lingpipe.pipeline.execution.predictor import Predictor
from lingpipe.training.experiment import Experiment
from lingpipe.training.predictions import names_of


def predict(params: Experiment.Params, options: RunOptions) -> None:
    """Predicts from --predict_input and writes to --predict_output.

    This process is replaced by another if a worker is lost.
    """
    path = options.predict_input
    if not path:
        raise ValueError('--predict_input is missing; name a file of examples'
                         f'{_or_an_input(params.eval_inputs)}.')
    if path not in params.eval_inputs and not _may_be_a_file(path):
        raise ValueError(f'--predict_input={path} does not exist; name a file of examples'
                         f'{_or_an_input(params.eval_inputs)}.')
    if path not in params.eval_inputs and os.path.isdir(path):
        raise ValueError(f'--predict_input={path} is a directory; name a file of examples, or '
                         f'several as {os.path.join(path, "*.tfrecord")}.')
    check_output(options.predict_output)

    with Run(params, options, is_writer=False, is_trainer=True) as run:
        if path in params.eval_inputs:
            outputs = run.predict(path)
            if names := names_of(run.experiment.eval_inputs[path]):
                outputs = {'example': np.array(names), **outputs}
        else:
            outputs = run.predict(lambda predictor: _read(path, predictor))
    write_predictions(options.predict_output, outputs)


def _read(path: str, predictor: Predictor) -> Mapping[str, Nested]:
    """The examples of a file, nested as the network takes them."""
    specs = dict(nested.flatten({name: spec for name, spec in predictor.input_specs.items()
                                 if name not in predictor.training_inputs}))
    arrays = read_examples(path, specs, predictor.optional_inputs)
    examples: dict[str, Nested] = {}
    for name, array in arrays.items():
        *folders, last = name.split('/')
        place = examples
        for folder in folders:
            place = place.setdefault(folder, {})
        place[last] = array
    return examples


def _may_be_a_file(path: str) -> bool:
    """Whether a text is a path of a file, or a pattern of paths."""
    return os.path.exists(path) or any(character in path for character in '*?[,')


def _or_an_input(names: Mapping[str, Nested]) -> str:
    return f' or an eval input: {", ".join(sorted(names))}' if names else ''
