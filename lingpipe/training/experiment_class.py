"""Experiment class: what a class must have to be registered, and whether it is.

There is no table of experiments: the decorator marks the class.
"""
from __future__ import annotations

import inspect
import sys

_MARK = '_is_registered_experiment'


def check_class(cls: type) -> None:
    """Checks that a class can be registered.

    Raises:
      ValueError: no docstring, no `params` that can be called without arguments, or a second
        class of that name in the module.
    """
    name = f'{cls.__module__}.{cls.__qualname__}'
    if not inspect.cleandoc(cls.__doc__ or ''):
        raise ValueError(f'experiment {name} has no docstring; say what it trains, the command, '
                         f'and what to expect: --list prints its first line.')
    _check_method(name, cls)
    if '.' in cls.__qualname__:
        raise ValueError(f'experiment {name} is defined inside another class or function; move it '
                         f'to the top of its module.')

    module = sys.modules.get(cls.__module__)
    # Only while a file is first run: a cell of a notebook, or a module that is reloaded, may define
    # a class again.
    is_loading = getattr(getattr(module, '__spec__', None), '_initializing', False)
    if is_loading and is_experiment(vars(module).get(cls.__name__)):
        raise ValueError(f'two experiments are named {name}; rename one of them.')


def mark(cls: type) -> None:
    """Marks a class as an experiment."""
    setattr(cls, _MARK, True)


def is_experiment(value: object) -> bool:
    """Whether a value is a registered class. A subclass of one is not, unless it has @register."""
    return isinstance(value, type) and _MARK in vars(value)


def summary(cls: type) -> str:
    """The first line of an experiment's docstring."""
    return inspect.cleandoc(cls.__doc__ or '').split('\n')[0]


def _check_method(name: str, cls: type) -> None:
    """Raises ValueError unless a class has a method `params` that needs no arguments."""
    make = inspect.getattr_static(cls, 'params', None)
    function = make.__func__ if isinstance(make, classmethod | staticmethod) else make
    if not inspect.isfunction(function):
        raise ValueError(f'experiment {name} has no method params; write @classmethod def '
                         f'params(cls) -> Experiment.Params.')

    parameters = inspect.signature(function).parameters.values()
    needed = [p.name for p in parameters
              if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    expected = 0 if isinstance(make, staticmethod) else 1
    if len(needed) != expected:
        listed = ', '.join(needed[expected:]) or '(none, not even cls)'
        raise ValueError(f'experiment {name}: params needs the arguments {listed}; it is called '
                         f'without any: use @classmethod def params(cls), and give the others '
                         f'defaults.')
