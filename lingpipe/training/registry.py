"""Registry: the experiments that have a name.

    @register
    class AmoebaNet:                         # in params/image/digits.py: image.digits.AmoebaNet
        '''An AmoebaNet on the digits.'''    # --list prints the first line

        @classmethod
        def params(cls) -> Experiment.Params:
            ...

A class in params/ is named by its place below params/; a class anywhere else on the path by its
whole dotted name. There is no table of names: the decorator marks the class, and modules are looked
into when a name is asked for.

Another package has its experiments listed by an entry point that names its module, or its package
with all that is in it. In its pyproject.toml:

    [project.entry-points."lingpipe.experiments"]
    robots = "robots.experiments"                   # robots.experiments.arms.Reach
"""
from __future__ import annotations

import difflib
import inspect
from typing import Any, TypeVar

from lingpipe.process.error_text import sentence
from lingpipe.training import experiment_modules
from lingpipe.training.experiment import Experiment
from lingpipe.training.experiment_class import check_class, is_experiment, mark

_NOT_REGISTERED = 'is a class but not a registered experiment; put @register above it.'

C = TypeVar('C', bound=type)


def register(cls: C) -> C:
    """Class decorator: checks the class and marks it as an experiment.

    Raises:
      ValueError: no docstring, no `params` that can be called without arguments, or a second
        class of that name in the module.
    """
    check_class(cls)
    mark(cls)
    return cls


def get(name: str) -> Experiment.Params:
    """The Params of an experiment, not frozen.

    Args:
      name: 'image.digits.AmoebaNet', of a class in params/image/digits.py; or the dotted name of
        any importable class.

    Raises:
      ValueError: there is no such experiment (it names the nearest), its module cannot be
        imported, or its params() fails.
    """
    return params_of(find(name), name)


def params_of(cls: Any, name: str = '') -> Experiment.Params:
    """The Params of a registered class, not frozen.

    Args:
      cls: the class, which need not be importable: it may be one of a notebook.
      name: what errors call it; default: its own.

    Raises:
      ValueError: it is not registered, or its params() fails.
    """
    name = name or f'{cls.__module__}.{cls.__qualname__}'
    if not is_experiment(cls):
        raise ValueError(f'{name} {_NOT_REGISTERED}')
    make: Any = inspect.getattr_static(cls, 'params')
    try:
        params = cls.params() if isinstance(make, classmethod | staticmethod) else cls().params()
    except Exception as error:   # Experiments are anyone's code.
        raise ValueError(f'{name}.params() fails: {sentence(error).rstrip(".?")}; correct that '
                         'method.') from error
    if not isinstance(params, Experiment.Params):
        raise ValueError(f'{name}.params() returns {type(params).__qualname__}, not '
                         f'Experiment.Params; return those.')
    return params


def find(name: str) -> Any:
    """The registered class of a name; see `get`."""
    module_name, _, class_name = name.rpartition('.')
    root, own = experiment_modules.ROOT, []
    for full in (f'{root}.{module_name}', module_name) if module_name else (root,):
        module = experiment_modules.module_named(full)
        values = vars(module) if module else {}
        own += [f'{module_name}.{key}' for key, other in values.items() if is_experiment(other)]
        value = values.get(class_name)
        if is_experiment(value):
            return value
        if isinstance(value, type):
            raise ValueError(f'{full}.{class_name} {_NOT_REGISTERED}')

    known, broken = experiment_modules.find_all()
    near = difflib.get_close_matches(name, dict.fromkeys([*own, *known]), 3, 0.5)
    near += [other for other in known
             if other.rpartition('.')[2] == class_name and other not in near]
    hint = 'see --list for all, or name a class that can be imported, as mypkg.exps.Foo.'
    if near:
        hint = f'did you mean {" or ".join(near)}?'
    errors = ''.join(
        f' ({module} cannot be imported: {error}.)' for module, error in broken.items())
    raise ValueError(f'there is no experiment {name!r}; {hint}{errors}')
