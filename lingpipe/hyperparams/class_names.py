"""The names of Params classes in texts, package.module:Class, and the modules that a text imports.

Importing a module runs its code. A person may name any module, as in `--set task.model=mine:Model`.
A stored text, as that of a params.txt that came with somebody's checkpoints, may name only
lingpipe's modules and those that are imported already: an experiment's module imports the modules
of all that is in its Params.
"""
from __future__ import annotations

import importlib
import sys
from typing import Any, ClassVar, TypeGuard

from lingpipe.hyperparams.paths import ParamsError
from lingpipe.hyperparams.text import Written
from lingpipe.wording.values import nearest, shortened, show

_OWN_PACKAGE = 'lingpipe'


class Owned:
    """The base of Params alone, by which the modules below Params know them."""

    owner: ClassVar[Any] = None  # The Configurable that these Params make.
    written_as: ClassVar[str] = ''  # How one is written, for errors.


def class_name(cls: type[Owned]) -> str:
    """package.module:Class of the class that owns the Params, or else of their own."""
    named = vars(cls).get('owner') or cls
    return f'{named.__module__}:{named.__qualname__}'


def find_class(written: Written, where: str, expected: type[Owned] = Owned) -> type[Any]:
    """The Params class that `class_name` names, or a ParamsError if this text cannot have it.

    The error begins with `where`, the path of the Params, and proposes subclasses of `expected`.
    """
    def error(problem: str) -> ParamsError:
        return ParamsError(f'{where or "the root"}: {problem}', where)

    name = shortened(written.text)
    module_name, _, qualname = written.text.partition(':')
    if not all(map(str.isidentifier, [*module_name.split('.'), *qualname.split('.')])):
        if '<locals>' in written.text:
            raise error(f'{show(written.text)} is a class in a function, which no text can name; '
                        'define it at the top of its module, or of a cell of the notebook')
        only = expected if expected is not Owned and not expected.__subclasses__() else None
        like = class_like(written.text, expected) or only
        raise error(f'{show(written.text)} is not the name of a class; '
                    f'write {class_name(like) if like else "package.module:Class"}')
    is_own = module_name.partition('.')[0] == _OWN_PACKAGE
    if not (written.is_by_person or is_own or module_name in sys.modules):
        raise error(f'{name} is in a module that nothing here has imported, and reading a text '
                    f'imports only modules of {_OWN_PACKAGE}; if you trust that module, let the '
                    'experiment import it, or name it in a flag')
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as e:  # Whatever the module's own code raises.
        raise error(f'the module of {name} cannot be imported: {type(e).__name__}: {e}; '
                    'correct its name, or put it on the path') from e

    named: object = module
    for part in qualname.split('.'):
        named = getattr(named, '__dict__', {}).get(part)
    if params_class := _params_class(named):
        return params_class
    known = [other for other, value in vars(module).items() if _params_class(value)]
    raise error(f'{name} is no Configurable and no Params; '
                f'{nearest(qualname, known, "its module has")}')


def class_like(text: str, cls: type[Owned]) -> type[Owned] | None:
    """The subclass of `cls` whose Configurable has a name like the text, as Adam is like 'adam'."""
    for below in cls.__subclasses__():
        is_like = below.owner is not None and below.owner.__name__.lower() == text.strip().lower()
        if like := below if is_like else class_like(text, below):
            return like
    return None


def is_params_class(value: object) -> TypeGuard[type[Owned]]:
    """Whether this is a class of Params."""
    return isinstance(value, type) and issubclass(value, Owned) and value is not Owned


def _params_class(value: object) -> type[Owned] | None:
    """The class itself if it is one of Params, the Params of a Configurable, or else None."""
    params_class = getattr(value, 'Params', value) if isinstance(value, type) else None
    return params_class if is_params_class(params_class) else None
