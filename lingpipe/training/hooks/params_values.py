"""Params values: the Params as a flat table of paths and texts, as trackers of runs take them."""
from __future__ import annotations

from lingpipe.hyperparams import Params


def params_values(params: Params) -> dict[str, str]:
    """path -> text of the value, of every line of the Params' text."""
    lines = [line.partition(' : ') for line in params.to_text().splitlines()]
    return {path.strip(): text.strip() for path, separator, text in lines if separator}
