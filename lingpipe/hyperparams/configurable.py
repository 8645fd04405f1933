"""Configurable: the base of the classes whose objects Params describe."""
from __future__ import annotations

from typing import Any

from lingpipe.hyperparams import params as params_lib
from lingpipe.hyperparams.params import path_of, with_path
from lingpipe.hyperparams.paths import ParamsError
from lingpipe.wording.values import show


class Configurable:
    """An object made from Params.

    A subclass has a nested class Params of its own, which is made for it unless it is written.
    The type of `params` is then declared for type checkers:

        class Params(Configurable.Params):
            units: int = field(REQUIRED, 'Number of output channels.', least=1)

        params: Params

        def __init__(self, params: Params):
            super().__init__(params)

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
            bases = [own] if own else [p for p in above if not any(
                other is not p and issubclass(other, p) for other in above)]
            names = {'__qualname__': f'{cls.__qualname__}.Params', '__module__': cls.__module__}
            own = type('Params', tuple(dict.fromkeys(bases)), names)
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
