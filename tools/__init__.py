"""Command-line tools: python -m lingpipe.tools.NAME --help."""
from __future__ import annotations

from lingpipe.process import tensorflow_import
from lingpipe.tools.command_line import Parser

try:
    tensorflow_import.check_installed()
except ModuleNotFoundError as error:
    raise SystemExit(f'tools: {error}') from None
tensorflow_import.quiet()


def parser(name: str, text: str | None) -> Parser:
    """For the flags of the tool `name`, whose --help says `text` as it is written."""
    return Parser(name, text)
