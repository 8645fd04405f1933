"""Configurable: the base of classes whose objects are made from Params."""
from __future__ import annotations

from typing import Any

from lingpipe.hyperparams.errors import ParamsError, show
from lingpipe.hyperparams.params import Params

_AnyParams = Params   # inside Configurable, Params is its own


class Configurable:
    """An object made from Params. A subclass has a nested class Params of its own, written or automatic.

    Attributes:
      params: its Params, checked and frozen. Declare `params: Params` in a subclass for type checkers.
    """

    class Params(_AnyParams):
        """No fields of its own."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        above = [base.Params for base in cls.__bases__ if issubclass(base, Configurable)]
        own: Any = cls.__dict__.get('Params')
        if own is None or 'owner' in vars(own):
            bases = (own,) if own else tuple(dict.fromkeys(p for p in above if not any(q is not p and issubclass(q, p) for q in above)))
            own = type('Params', bases, {'__qualname__': f'{cls.__qualname__}.Params', '__module__': cls.__module__})
            cls.Params = own   # type: ignore[misc]
        for base in above:
            if not issubclass(own, base):
                raise ParamsError(f'{own.__qualname__} does not extend {base.__qualname__}; write class Params({base.__qualname__})')
        own.owner = cls

    def __init__(self, params: Any):
        if not isinstance(params, type(self).Params):
            raise ParamsError(f'{type(self).__qualname__} was given {show(params)}; give it {type(self).__qualname__}.Params(...)')
        params.validate()
        if not params.is_frozen:   # the copy keeps its name in errors
            params = params.copy()._place(params._parent, params._key).freeze()
        self.params: Any = params


Configurable.Params.owner = Configurable
