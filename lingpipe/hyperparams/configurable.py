"""Configurable: the base of the classes whose objects Params describe."""
from __future__ import annotations

from typing import Any

from lingpipe.hyperparams import params as params_lib
from lingpipe.hyperparams.params import path_of, with_path
from lingpipe.hyperparams.paths import ParamsError
from lingpipe.wording.values import show


class Configurable:
    """An object made from Params; see the package's docstring.

    A subclass has a nested class Params of its own, which is made for it unless it is written. Then
    `params: Params` declares the type of `params` for type checkers.

    Attributes:
      params: its Params, checked and frozen.
    """

    class Params(params_lib.Params):
        """No fields of its own."""

    params: Params

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        above = [base.Params for base in cls.__bases__ if issubclass(base, Configurable)]
        own: Any = vars(cls).get('Params')
        if own is None or 'owner' in vars(own):  # None is written, or that of another class.
            names = {'__qualname__': f'{cls.__qualname__}.Params', '__module__': cls.__module__}
            bases = [own] if own else [p for p in above if not any(
                p in other.__mro__[1:] for other in above)]
            own = type('Params', tuple(bases), names)
            cls.Params = own  # type: ignore[misc]
        for base in above:
            if not issubclass(own, base):
                raise ParamsError(f'{own.__qualname__} does not extend {base.__qualname__}; '
                                  f'write class Params({base.__qualname__})')
        own.owner = cls

    def __init__(self, params: Params):
        name = type(self).__qualname__
        if not isinstance(params, type(self).Params):
            raise ParamsError(f'{name} was given {show(params)}; give it {name}.Params(...)')
        if not params.is_frozen:  # The copy keeps its name in errors.
            params = with_path(params.copy(), path_of(params)).freeze()
        self.params = params


Configurable.Params.owner = Configurable
