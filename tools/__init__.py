"""Command-line tools: python -m tools.NAME --help."""
from __future__ import annotations

import argparse

from lingpipe import tensorflow_import

try:
    tensorflow_import.check_installed()
except ModuleNotFoundError as error:
    raise SystemExit(f'tools: {error}') from None
tensorflow_import.quiet()


def parser(name: str, text: str | None) -> argparse.ArgumentParser:
    """For the flags of the tool `name`, whose --help says `text` as it is written."""
    return argparse.ArgumentParser(prog=f'python -m tools.{name}', description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
