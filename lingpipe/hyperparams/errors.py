"""The errors of Params."""
from __future__ import annotations


class ParamsError(ValueError):
    """A mistake in Params or in their text; the message names the whole path from the root.

    `path` is that path alone, or '' if the mistake is in no particular value.
    """

    def __init__(self, message: str, path: str = ''):
        super().__init__(message)
        self.path = path


class UnknownParamError(ParamsError, AttributeError):
    """A name that is no field, entry or item."""
