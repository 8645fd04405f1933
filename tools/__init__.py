"""Command-line tools: python -m lingpipe.tools.NAME --help."""
from __future__ import annotations

from lingpipe.process import tensorflow_import
from lingpipe.tools.command_line import Parser

try:
    tensorflow_import.check_installed()
except ModuleNotFoundError as error:
    raise SystemExit(f'tools: {error}') from None
tensorflow_import.quiet(is_own_process=True)


def parser(name: str, text: str | None) -> Parser:
    """Returns the parser for the flags of the tool `name`; its --help begins with `text`."""
    return Parser(name, text)
