"""WiredFunction: a pure function whose arguments and results are named values of a network.

A network is a list of such functions. Each reads values by name and writes values by name; see
layers/sequential.py. This is the part of Layer that its place in a network needs.
"""
from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lingpipe.hyperparams import Configurable, field
from lingpipe.layers.context import Context
from lingpipe.layers.nested import Nested, NestedMap


class WiredFunction(Configurable):
    """A function of values that have names in a network."""

    class Params(Configurable.Params):
        """Name and wiring."""
        name: str = field('', 'Name among its siblings, part of the path of every weight; made '
                              'from the class if empty.')
        reads: dict[str, str] = field({}, 'In a network: argument of fprop -> name of the value '
                                          'it is given; an argument without default that is not '
                                          'named here reads the value of its own name.')
        writes: str | dict[str, str] = field('x', 'In a network: the name of the value that fprop '
                                                  'returns, or, when it returns a dict, '
                                                  'key -> name of the value.')

    params: Params

    def __init__(self, params: Params, path: str = ''):
        """Names the function.

        Args:
          params: its Params.
          path: its path, which ends with its own name; by default Params.name or, if that is
            empty, the class's name.
        """
        super().__init__(params)
        self.path = path or self.params.name or type(self).__name__.lower()

    def fprop(self, theta: NestedMap, ctx: Context, *args: Nested, **kwargs: Nested) -> Any:
        """The layer's function. It must be a pure function of its arguments.

        The arguments after ctx are tensors or nested values.
        """
        other = next((f' in place of {name}' for name in ('call', 'forward')
                      if hasattr(self, name)), '')   # Those of Keras and of PyTorch.
        raise NotImplementedError(f'{type(self).__name__} has no fprop; write def fprop(self, '
                                  f'theta, ctx, x){other}.')

    # Arguments of fprop with a default that read the value of their own name if there is one. So
    # padding is never forgotten: a loss that works without weights uses those of the mini-batch.
    optional_reads: Sequence[str] = ('weight',)

    def reads_if_there(self) -> dict[str, str]:
        """Argument of fprop -> name of the value that it reads if the network has one of that name.

        These are the `optional_reads` that fprop has, unless Params.reads names them.
        """
        parameters = _parameters_of(self.fprop)
        return {name: name for name in self.optional_reads
                if name in parameters and parameters[name].default is not inspect.Parameter.empty
                and name not in self.params.reads}

    def check_begun(self) -> None:
        """Raises ValueError if __init__ of a subclass has not called that of its base class."""
        if 'params' not in vars(self):
            raise ValueError(f'__init__ of {type(self).__name__} declares a weight or a child '
                             'before it calls super().__init__(params, path); call that first.')

    def takes_masks(self, reads: Mapping[str, str]) -> dict[str, str]:
        """Argument of fprop -> name of the value whose mask it is given, if that has one.

        Only asked of layers with the mask_rule 'takes'.

        Args:
          reads: argument -> name of the value, as `reads` gives it.
        """
        return {}

    def reads(self) -> dict[str, str]:
        """Argument of fprop -> name of the value it reads in a network.

        Raises:
          ValueError: Params.reads names an argument that fprop does not have, or fprop does not
            take theta and ctx.
        """
        all_parameters = list(_parameters_of(self.fprop).values())
        first_two = [parameter.name for parameter in all_parameters[:2]]
        if len(first_two) < 2 or first_two[1] in ('x', *self.params.reads):
            raise ValueError(f'{self.path}: fprop of {type(self).__name__} takes '
                             f'{", ".join(first_two) or "nothing"} first, but is given the weights '
                             'and the context; write def fprop(self, theta, ctx, x).')

        parameters = all_parameters[2:]  # After theta and ctx.
        known = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        names = dict(self.params.reads)
        for argument in names:
            if argument not in known:
                raise ValueError(f'{self.path}: reads names the argument {argument!r}, but fprop '
                                 f'of {type(self).__name__} takes {", ".join(known) or "none"}; '
                                 'correct the name in Params.reads.')

        for parameter in parameters:
            if parameter.name in known and parameter.default is parameter.empty:
                names.setdefault(parameter.name, parameter.name)
        return {argument: names[argument] for argument in known if argument in names}

    def written(self, result: Nested) -> dict[str, Nested]:
        """Returns the values that the layer writes, by name, given what fprop returned.

        A result of None writes nothing.

        Raises:
          ValueError: Params.writes names an output that fprop did not return.
        """
        writes = self.params.writes
        if result is None:
            return {}
        if isinstance(writes, str):
            return {writes: result}
        if writes and not isinstance(result, dict):
            raise ValueError(f'{self.path}: writes names the outputs {", ".join(writes)}, but '
                             f'fprop of {type(self).__name__} returns one value without a name; '
                             "set writes to the value's name.")
        missing = [key for key in writes if key not in result]
        if missing:
            raise ValueError(f'{self.path}: writes names the output {missing[0]!r}, but fprop of '
                             f'{type(self).__name__} returns {", ".join(sorted(result))}; correct '
                             'the name in Params.writes.')
        return {name: result[key] for key, name in writes.items()}


def _parameters_of(method: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The parameters of a method, without self."""
    if isinstance(method, types.MethodType):
        return _parameters_of_method(method.__func__)
    return inspect.signature(method).parameters


@functools.lru_cache(maxsize=1024)   # Networks ask every layer several times.
def _parameters_of_method(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(types.MethodType(function, object())).parameters
