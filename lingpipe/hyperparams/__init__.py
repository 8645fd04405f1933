"""Params: typed, nested, named values that describe an object and can make it.

    class Dense(Configurable):
        class Params(Configurable.Params):
            units: int = field(REQUIRED, 'Number of output channels.', least=1)

        params: Params

    layer = Dense.Params(units=3).instantiate()      # Dense(params); layer.params is frozen

Every Params knows its parent, so an error deep in an experiment names the whole path from the root.
Therefore a Params has one place only: one that has a parent already is copied when it is assigned
elsewhere. A dict in Params is read-only and sorted by key; `p['reads.x'] = ...` sets an entry.

Each file imports only those before it: paths, text, class_names, field_types, fields, params,
configurable.
"""
from lingpipe.hyperparams.configurable import Configurable
from lingpipe.hyperparams.fields import ABSENT, REQUIRED, diff, field, fields_of
from lingpipe.hyperparams.params import Params, path_of
from lingpipe.hyperparams.paths import ParamsError, UnknownParamError

__all__ = ['ABSENT', 'REQUIRED', 'Configurable', 'Params', 'ParamsError', 'UnknownParamError',
           'diff', 'field', 'fields_of', 'path_of']
