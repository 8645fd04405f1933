"""Params: typed, nested, named values that describe an object and can make it.

    class Dense(Configurable):
        class Params(Configurable.Params):
            units: int = field(REQUIRED, 'Number of output channels.', least=1)

        params: Params

    layer = Dense.Params(units=3).instantiate()      # Dense(params); layer.params is frozen

Every Params knows its parent, so an error deep in an experiment names the whole path from the root.
Therefore a Params has one place only: one that has a parent already is copied when it is assigned
elsewhere. A dict in Params is read-only and sorted by key; `p['reads.x'] = ...` sets an entry.

The files, each of which imports only those above it:

    paths.py        task.layers[17].units, and ParamsError
    value_text.py   the text of one value
    class_names.py  package.module:Class, and which modules a text may import
    field_types.py  value -> type of a field
    fields.py       field, REQUIRED, and which numbers a field accepts
    tree.py         what Params are made of: fields that hold values, each in its place
    text.py         the text of whole Params, and diff
    params.py       Params
    configurable.py Configurable
"""
from lingpipe.hyperparams.configurable import Configurable
from lingpipe.hyperparams.fields import ABSENT, REQUIRED, field, fields_of
from lingpipe.hyperparams.params import Params, path_of
from lingpipe.hyperparams.paths import ParamsError, UnknownParamError
from lingpipe.hyperparams.text import diff

__all__ = [
    'ABSENT', 'REQUIRED', 'Configurable', 'Params', 'ParamsError', 'UnknownParamError',
    'diff', 'field', 'fields_of', 'path_of',
]
