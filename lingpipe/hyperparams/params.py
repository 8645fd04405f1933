"""Params: a Tree that describes an object, can make it, and has a text."""
from __future__ import annotations

import typing
from collections.abc import Iterable
from typing import Any, ClassVar, Self

from lingpipe.hyperparams.class_names import class_name, find_class
from lingpipe.hyperparams.errors import ParamsError
from lingpipe.hyperparams.fields import REQUIRED
from lingpipe.hyperparams.paths import join_path
from lingpipe.hyperparams.text import built, lines, table
from lingpipe.hyperparams.tree import Tree, path_of
from lingpipe.hyperparams.value_text import readings


@typing.dataclass_transform(kw_only_default=True)   # field() is no specifier there: every keyword is optional until instantiate()
class Params(Tree):
    """Typed, named values; see the package's docstring. Subclasses declare fields with `field`."""

    owner: ClassVar[Any] = None   # the Configurable that these Params make

    # The object.

    def check(self) -> None:
        """For subclasses: raises ValueError if the values do not go together. Called before an object is made."""

    def validate(self) -> Self:
        """Raises ParamsError unless all REQUIRED are set and every check() in the tree passes; returns p."""
        missing = [join_path(path_of(p), name) for _, p in self.walk() for name, value in p._values().items() if value is REQUIRED]
        if missing:
            raise ParamsError(f'{", ".join(missing)}: REQUIRED and not set, so {class_name(type(self))} cannot be made; '
                              f'set {"it" if len(missing) == 1 else "them"} first', missing[0])
        for _, p in self.walk():
            try:
                p.check()
            except ValueError as error:
                raise ParamsError(f'{path_of(p) or type(p).__qualname__}: {error}', path_of(p)) from error
        return self

    def instantiate(self, *args: Any, **kwargs: Any) -> Any:
        """The object that these Params describe: `owner(self, *args, **kwargs)`."""
        if self.owner is None:
            raise ParamsError(f'{path_of(self) or type(self).__qualname__} makes no object: {type(self).__qualname__} belongs to no '
                              'Configurable; define it as the class Params inside one')
        return self.owner(self.validate(), *args, **kwargs)

    # Text.

    def override(self, path: str, text: str) -> Self:
        """Sets the value at a path from a person's text, read by the field's type: `--set path=text`."""
        first_error: ParamsError | None = None
        for reading in readings(text):
            try:
                self[path] = reading()
                return self
            except ParamsError as error:
                where = '.'.join(filter(None, [path_of(self), path]))
                first_error = first_error or (error if error.path else ParamsError(f'{where}: {error}', where))
        assert first_error is not None
        raise first_error

    def override_all(self, settings: Iterable[str]) -> Self:
        """`override` for each of these texts, path=value."""
        for setting in settings:
            path, equals, text = setting.partition('=')
            if not equals or not path.strip():
                raise ParamsError(f'--set {setting} has no value; write --set path=value, as --set pipeline.num_cells=4.')
            self.override(path.strip(), text)
        return self

    def to_text(self) -> str:
        """The class, then one line `path : value` for every value; equal Params have equal text."""
        return '\n'.join(lines('', self)) + '\n'

    @classmethod
    def from_text(cls, text: str) -> Self:
        """The Params that `to_text` wrote. Empty lines and lines that start with '#' are skipped; a field without a line keeps its
        default. Reading imports no modules but lingpipe's own; see class_names.py.

        Raises:
          ParamsError: a wrong line, named by its number.
        """
        params, line = built(text)
        if not isinstance(params, cls):
            raise ParamsError(f'line {line}: found Params of {class_name(type(params))}, not of {class_name(cls)}; '
                              'read the text with the class that wrote it, or with Params.from_text')
        return params

    @classmethod
    def _from_word(cls, text: str, where: str, is_by_person: bool) -> Tree:
        return find_class(text, where, is_by_person)()

    def describe(self) -> str:
        """A table of all fields: path, type, value, description."""
        return table(self)
