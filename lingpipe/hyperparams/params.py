"""Params, which describe an object."""
from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any, Self, dataclass_transform

from lingpipe.hyperparams import text as whole_text
from lingpipe.hyperparams.paths import ParamsError
from lingpipe.hyperparams.tree import Tree, fields_of, parts, path_of
from lingpipe.hyperparams.value_text import Word, read
from lingpipe.wording.values import shortened, show


# field() is no specifier here: every keyword is optional until instantiate().
@dataclass_transform(kw_only_default=True)
class Params(Tree):
    """Typed, named values; see the package's docstring. Subclasses declare fields with `field`."""

    # The object.

    def instantiate(self, *args: Any, **kwargs: Any) -> Any:
        """The object that these Params describe: `owner(self, *args, **kwargs)`."""
        if self.owner is None:
            name = type(self).__qualname__
            raise ParamsError(f'{path_of(self) or name} makes no object: {name} belongs to no '
                              'Configurable; define it as the class Params inside one')
        return self.owner(self, *args, **kwargs)

    # The text.

    def override(self, path: str, text: str) -> Self:
        """Sets the value at a path from a person's text, read by the field's type."""
        where = '.'.join(filter(None, [path_of(self), path]))
        try:
            self[path] = read(text, where, is_by_person=True)
        except ParamsError:
            with contextlib.suppress(ParamsError):  # A string may begin with a bracket.
                self[path] = Word(text.strip(), is_by_person=True)
                return self
            raise
        return self

    def override_all(self, settings: Iterable[str]) -> Self:
        """`override` for each of these texts, path=value, as `--set` takes them."""
        for setting in settings:
            path, equals, text = setting.partition('=')
            if not equals or not path.strip():
                raise ParamsError(f'--set {setting} has no value; '
                                  'write --set path=value, as --set pipeline.num_cells=4.')
            self.override(path.strip(), text)
        return self

    def to_text(self) -> str:
        """The class, then one line `path : value` for every value; equal Params have equal text."""
        return ''.join(line + '\n' for line in whole_text.lines(self))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """The Params that `to_text` wrote.

        Empty lines and lines that start with '#' are skipped; a field without a line keeps its
        default. Reading imports no modules but lingpipe's own; see class_names.py.

        Raises:
          ParamsError: a wrong line, named by its number.
        """
        return whole_text.tree_of(text, cls)

    def __eq__(self, other: object) -> bool:
        """Equal in class and values, as their text is: nan equals nan, and 0.0 is not -0.0."""
        if not isinstance(other, Params):
            return NotImplemented
        return type(self) is type(other) and self.to_text() == other.to_text()

    def __repr__(self) -> str:
        changed = [f'{name}={show(value)}' for name, value in parts(self).items()
                   if whole_text.diff(fields_of(self)[name].default, value)]
        return shortened(f'{type(self).__qualname__}({", ".join(changed)})')
