"""lingpipe: giant neural networks by pipeline parallelism, on TensorFlow.

    import lingpipe as lp

This file is the front door. Its names are imported from their modules when they are first used, so
that `import lingpipe` is quick and imports no TensorFlow.

    a run           start
    an experiment   Experiment, Problem, PipelineParams, TrainParams, InitializeFrom, register
    a network       layers (layers.Dense, ...), Sequential, Repeat, Adapters
    of Keras        from_keras, to_keras, learner_from_keras
    a layer         Layer, field, REQUIRED, Context, Cost, NestedMap
    data            Input, ArrayInput, RecordInput, Feature, TFDSInput, DatasetInput, SourceInput,
                    ArrayRecordInput
    how it learns   Learner, optimizers, learning_rates; hooks: what is called on the way
    a program       Program, make_plan, cluster, checkpoint
    anything else   Configurable, Params, ParamsError
"""
from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:   # What `__getattr__` does, for type checkers and editors.
    from lingpipe import checkpoint as checkpoint
    from lingpipe import cluster as cluster
    from lingpipe import layers as layers
    from lingpipe.api.start import start as start
    from lingpipe.hyperparams import REQUIRED as REQUIRED
    from lingpipe.hyperparams import Configurable as Configurable
    from lingpipe.hyperparams import Params as Params
    from lingpipe.hyperparams import ParamsError as ParamsError
    from lingpipe.hyperparams import field as field
    from lingpipe.input import ArrayInput as ArrayInput
    from lingpipe.input import ArrayRecordInput as ArrayRecordInput
    from lingpipe.input import DatasetInput as DatasetInput
    from lingpipe.input import Feature as Feature
    from lingpipe.input import Input as Input
    from lingpipe.input import RecordInput as RecordInput
    from lingpipe.input import SourceInput as SourceInput
    from lingpipe.input import TFDSInput as TFDSInput
    from lingpipe.keras_models import from_keras as from_keras
    from lingpipe.keras_models import learner_from_keras as learner_from_keras
    from lingpipe.keras_models import to_keras as to_keras
    from lingpipe.layers import Repeat as Repeat
    from lingpipe.layers import Sequential as Sequential
    from lingpipe.layers.base import Layer as Layer
    from lingpipe.layers.context import Context as Context
    from lingpipe.layers.cost import Cost as Cost
    from lingpipe.layers.low_rank import Adapters as Adapters
    from lingpipe.layers.nested import NestedMap as NestedMap
    from lingpipe.learning import learning_rates as learning_rates
    from lingpipe.learning import optimizers as optimizers
    from lingpipe.learning.learner import Learner as Learner
    from lingpipe.pipeline.execution.program import Program as Program
    from lingpipe.pipeline.planning.pipeline_params import PipelineParams as PipelineParams
    from lingpipe.pipeline.planning.planner import make_plan as make_plan
    from lingpipe.training import hooks as hooks
    from lingpipe.training.experiment import Experiment as Experiment
    from lingpipe.training.initialize_from import InitializeFrom as InitializeFrom
    from lingpipe.training.problem import Problem as Problem
    from lingpipe.training.registry import register as register
    from lingpipe.training.train_params import TrainParams as TrainParams

__version__ = '0.1.0'   # setup.py reads it here.

_MODULES = {
    'checkpoint': 'lingpipe.checkpoint',
    'cluster': 'lingpipe.cluster',
    'hooks': 'lingpipe.training.hooks',
    'layers': 'lingpipe.layers',
    'learning_rates': 'lingpipe.learning.learning_rates',
    'optimizers': 'lingpipe.learning.optimizers',
}
_NAMES = {
    'lingpipe.api.start': ('start',),
    'lingpipe.hyperparams': ('REQUIRED', 'Configurable', 'Params', 'ParamsError', 'field'),
    'lingpipe.input': ('ArrayInput', 'ArrayRecordInput', 'DatasetInput', 'Feature', 'Input',
                       'RecordInput', 'SourceInput', 'TFDSInput'),
    'lingpipe.keras_models': ('from_keras', 'learner_from_keras', 'to_keras'),
    'lingpipe.layers': ('Repeat', 'Sequential'),
    'lingpipe.layers.base': ('Layer',),
    'lingpipe.layers.context': ('Context',),
    'lingpipe.layers.cost': ('Cost',),
    'lingpipe.layers.low_rank': ('Adapters',),
    'lingpipe.layers.nested': ('NestedMap',),
    'lingpipe.learning.learner': ('Learner',),
    'lingpipe.pipeline.execution.program': ('Program',),
    'lingpipe.pipeline.planning.pipeline_params': ('PipelineParams',),
    'lingpipe.pipeline.planning.planner': ('make_plan',),
    'lingpipe.training.experiment': ('Experiment',),
    'lingpipe.training.initialize_from': ('InitializeFrom',),
    'lingpipe.training.problem': ('Problem',),
    'lingpipe.training.registry': ('register',),
    'lingpipe.training.train_params': ('TrainParams',),
}
_HOME_OF = {name: module for module, names in _NAMES.items() for name in names}
_PUBLIC = sorted([*_MODULES, *_HOME_OF])

if not TYPE_CHECKING:   # With a __getattr__, type checkers would take every name for public.

    def __getattr__(name: str) -> object:
        """Imports a public name when it is first used."""
        if name not in _PUBLIC:
            raise AttributeError(f'module lingpipe has no name {name!r}; see dir(lingpipe)',
                                 name=name, obj=sys.modules[__name__])

        try:
            module = importlib.import_module(_MODULES.get(name) or _HOME_OF[name])
        except ModuleNotFoundError:
            from lingpipe.process import tensorflow_import
            tensorflow_import.check_installed()   # If it is TensorFlow, the error has the remedy.
            raise
        value = module if name in _MODULES else getattr(module, name)
        globals()[name] = value   # The next use does not come here.
        return value

    def __dir__() -> list[str]:
        """The public names, whether they were used or not."""
        return [*_PUBLIC, '__version__']
