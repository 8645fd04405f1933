"""The names of Params classes in texts, package.module:Class: the class that owns the Params, or their own.

Importing a module runs its code. A person may name any module, as in `--set task.model=mine:Model`. A stored text, as that of a
params.txt that came with somebody's checkpoints, may name only lingpipe's modules and those that are imported already: an experiment's
module imports the modules of all that is in its Params.
"""
from __future__ import annotations

import importlib
import re
import sys
import types
from typing import Any

from lingpipe.hyperparams.errors import ParamsError, nearest, shortened, show
from lingpipe.hyperparams.tree import Tree

_OWN_PACKAGE = 'lingpipe'


def class_name(cls: type[Tree]) -> str:
    """package.module:Class."""
    named = cls.__dict__.get('owner') or cls
    return f'{named.__module__}:{named.__qualname__}'


def find_class(text: str, where: str, is_by_person: bool) -> type[Tree]:
    """The Params class that `class_name` names.

    Args:
      text: package.module:Class.
      where: the path of the Params, for errors.
      is_by_person: whether a person wrote the text for this process, so that it may import any module.

    Raises:
      ParamsError: there is no such class, its module cannot be imported, or a stored text may not import it.
    """
    place = where or 'the root'
    if not re.fullmatch(r'[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*', text):
        raise ParamsError(f'{place}: {show(text)} is not the name of a class; write package.module:Class', where)
    module_name, qualname = text.split(':')
    if not (is_by_person or module_name in sys.modules or module_name.partition('.')[0] == _OWN_PACKAGE):
        raise ParamsError(f'{place}: {shortened(text)} is in a module that nothing here has imported, '
                          f'and reading a text imports only modules of {_OWN_PACKAGE}; if you trust that module, '
                          'let the experiment import it, or name it in a flag', where)
    try:
        found: Any = sys.modules.get(module_name) or importlib.import_module(module_name)
    except (Exception, SystemExit) as error:   # whatever the module's own code raises
        raise ParamsError(f'{place}: the module of {shortened(text)} cannot be imported: {type(error).__name__}: {error}; '
                          'correct its name, or put it on the path', where) from error
    names = vars(found) if isinstance(found, types.ModuleType) else {}
    known = [name for name, value in names.items() if _params_class(value)]
    for part in qualname.split('.'):
        found = vars(found).get(part) if isinstance(found, (type, types.ModuleType)) else None
    params = _params_class(found)
    if params is None:
        raise ParamsError(f'{place}: {shortened(text)} is no Configurable and no Params; '
                          f'{nearest(qualname, known, "its module has")}', where)
    return params


def _params_class(found: Any) -> type[Tree] | None:
    """The class itself if it is one of Params, the Params of a Configurable, or else None."""
    if isinstance(found, type) and issubclass(found, Tree):
        return found
    params = getattr(found, 'Params', None) if isinstance(found, type) else None
    return params if getattr(params, 'owner', None) is found else None
