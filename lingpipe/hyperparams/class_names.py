"""The names of Params classes in texts, package.module:Class: the class that owns the Params, or their own."""
from __future__ import annotations

import importlib
import re
import sys
import types
from typing import Any

from lingpipe.hyperparams.errors import ParamsError, nearest, show
from lingpipe.hyperparams.tree import Tree


def class_name(cls: type[Tree]) -> str:
    """package.module:Class."""
    named = cls.__dict__.get('owner') or cls
    return f'{named.__module__}:{named.__qualname__}'


def find_class(text: str, where: str) -> type[Tree]:
    """The Params class that `class_name` names; imports its module."""
    place = where or 'the root'
    if not re.fullmatch(r'[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*', text):
        raise ParamsError(f'{place}: {show(text)} is not the name of a class; write package.module:Class', where)
    module_name, qualname = text.split(':')
    try:
        found: Any = sys.modules.get(module_name) or importlib.import_module(module_name)
    except (Exception, SystemExit) as error:   # whatever the module's own code raises
        raise ParamsError(f'{place}: the module of {text} cannot be imported: {type(error).__name__}: {error}; '
                          'correct its name, or put it on the path', where) from error
    names = vars(found) if isinstance(found, types.ModuleType) else {}
    known = [name for name, value in names.items() if _params_class(value)]
    for part in qualname.split('.'):
        found = vars(found).get(part) if isinstance(found, (type, types.ModuleType)) else None
    params = _params_class(found)
    if params is None:
        raise ParamsError(f'{place}: {text} is no Configurable and no Params; {nearest(qualname, known, "its module has")}', where)
    return params


def _params_class(found: Any) -> type[Tree] | None:
    """The class itself if it is one of Params, the Params of a Configurable, or else None."""
    if isinstance(found, type) and issubclass(found, Tree):
        return found
    params = getattr(found, 'Params', None) if isinstance(found, type) else None
    return params if getattr(params, 'owner', None) is found else None
