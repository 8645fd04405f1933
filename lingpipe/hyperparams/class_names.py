"""The names of Params classes in texts, package.module:Class, and the modules that a text imports.

Importing a module runs its code. A person may name any module, as in `--set task.model=mine:Model`.
A stored text, as that of a params.txt that came with somebody's checkpoints, may name only
lingpipe's modules and those that are imported already: an experiment's module imports the modules
of all that is in its Params.
"""
from __future__ import annotations

import importlib
import re
import sys
from typing import Any, ClassVar, TypeGuard

from lingpipe.hyperparams.errors import ParamsError, nearest, shortened, show
from lingpipe.hyperparams.value_text import Word

_OWN_PACKAGE = 'lingpipe'
_IDENTIFIERS = r'[^\W\d]\w*(\.[^\W\d]\w*)*'


class Owned:
    """The base of Params alone, by which the modules below Params know them."""

    owner: ClassVar[Any] = None  # The Configurable that these Params make.


def class_name(cls: type[Owned]) -> str:
    """package.module:Class of the class that owns the Params, or else of their own."""
    named = vars(cls).get('owner') or cls
    return f'{named.__module__}:{named.__qualname__}'


def find_class(word: Word, where: str) -> type[Owned]:
    """The Params class that `class_name` names; `where` is the path of the Params, for errors.

    Raises:
      ParamsError: there is no such class, its module cannot be imported, or this text may not
        import it.
    """
    place, name = where or 'the root', shortened(word.text)
    if not re.fullmatch(f'{_IDENTIFIERS}:{_IDENTIFIERS}', word.text):
        raise ParamsError(f'{place}: {show(word.text)} is not the name of a class; '
                          'write package.module:Class', where)

    module_name, qualname = word.text.split(':')
    is_own = module_name.partition('.')[0] == _OWN_PACKAGE
    if not (word.is_by_person or is_own or module_name in sys.modules):
        raise ParamsError(f'{place}: {name} is in a module that nothing here has imported, and '
                          f'reading a text imports only modules of {_OWN_PACKAGE}; if you trust '
                          'that module, let the experiment import it, or name it in a flag', where)
    try:
        module = sys.modules.get(module_name) or importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # Whatever the module's own code raises.
        raise ParamsError(f'{place}: the module of {name} cannot be imported: '
                          f'{type(error).__name__}: {error}; correct its name, or put it on the '
                          'path', where) from error

    found: object = module
    for part in qualname.split('.'):
        found = getattr(found, '__dict__', {}).get(part)
    params_class = _params_class(found)
    if params_class is None:
        known = [name for name, value in vars(module).items() if _params_class(value)]
        raise ParamsError(f'{place}: {name} is no Configurable and no Params; '
                          f'{nearest(qualname, known, "its module has")}', where)
    return params_class


def is_params_class(found: object) -> TypeGuard[type[Owned]]:
    """Whether this is a class of Params."""
    return isinstance(found, type) and issubclass(found, Owned) and found is not Owned


def _params_class(found: object) -> type[Owned] | None:
    """The class itself if it is one of Params, the Params of a Configurable, or else None."""
    if is_params_class(found):
        return found
    params_class = getattr(found, 'Params', None) if isinstance(found, type) else None
    return params_class if getattr(params_class, 'owner', None) is found else None
