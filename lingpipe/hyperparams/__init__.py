"""Params: typed, nested, named values that describe an object and can make it.

    class Dense(Configurable):
        class Params(Configurable.Params):
            units: int = field(REQUIRED, 'Number of output channels.', least=1)

    layer = Dense.Params(units=3).instantiate()      # Dense(params); layer.params is frozen

Every Params knows its parent, so an error deep in an experiment names the whole path from the root.
Therefore a Params has one place only: one that has a parent already is copied when it is assigned
elsewhere. A dict in Params is read-only and sorted by key; `p['reads.x'] = ...` sets an entry.

    errors.py       ParamsError                    tree.py          fields, places, paths: what Params are made of
    paths.py        task.layers[17].units          class_names.py   package.module:Class
    value_text.py   the text of one value          text.py          the text of whole Params
    field_types.py  value -> type of a field       params.py        Params
    bounds.py       which numbers a field accepts  configurable.py  Configurable
    fields.py       field, REQUIRED                differences.py   diff
"""
from lingpipe.hyperparams.configurable import Configurable
from lingpipe.hyperparams.differences import diff, diff_text
from lingpipe.hyperparams.errors import ParamsError, UnknownParamError
from lingpipe.hyperparams.fields import ABSENT, REQUIRED, field
from lingpipe.hyperparams.params import Params
from lingpipe.hyperparams.tree import path_of

__all__ = ['ABSENT', 'REQUIRED', 'Configurable', 'Params', 'ParamsError', 'UnknownParamError', 'diff', 'diff_text', 'field', 'path_of']
